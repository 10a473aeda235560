"""The client of the Kubernetes API without an API server: what decides, and configuration."""
