"""Autoscaling on the Kubernetes API, without I/O: objects, metrics, snapshots, orders, records."""
