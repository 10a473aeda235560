"""Autoscaling on a Kubernetes API without I/O: objects, metrics, snapshots, orders, records."""
