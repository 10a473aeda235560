"""The fleet on the Kubernetes API, without I/O: objects in, calls out."""
