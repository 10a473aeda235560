"""Objects of gangs as a Kubernetes API server holds them: CRDs, JSON, and calls; no I/O."""
