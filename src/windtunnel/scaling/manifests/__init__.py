"""Autoscaling as its users write it for Kubernetes: read, checked, and turned into policies."""
