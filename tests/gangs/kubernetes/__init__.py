"""The gang layer as a Kubernetes API server holds it."""
