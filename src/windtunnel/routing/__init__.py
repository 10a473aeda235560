"""Which server takes a request."""
