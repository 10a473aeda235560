"""Whether a task that is ready may start: resources, shares, leases."""
