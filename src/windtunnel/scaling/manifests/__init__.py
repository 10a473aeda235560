"""Autoscaling manifests as written for Kubernetes: parsed, checked, and turned into policies."""
