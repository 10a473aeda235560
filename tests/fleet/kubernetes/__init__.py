"""The fleet on Kubernetes, without an API server."""
