"""Machines on a Kubernetes API server: the processes of a fleet, its file and its metrics."""
