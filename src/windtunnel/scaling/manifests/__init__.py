"""Autoscaling manifests as users write them for Kubernetes: parsed, checked, and turned into
policies."""
