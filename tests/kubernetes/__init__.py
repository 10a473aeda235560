"""Tests on a real Kubernetes API server: `make test-kubernetes` builds it and runs them."""
