"""Task admission: resources, shares, leases."""
