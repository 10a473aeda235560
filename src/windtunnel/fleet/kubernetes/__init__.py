"""The fleet on a Kubernetes API server, without I/O: objects in, calls out."""
