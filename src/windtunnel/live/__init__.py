"""Live programs: the controllers driven by wall-clock time, HTTP and Kubernetes."""
