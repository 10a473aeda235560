"""Workloads: arrival processes, lengths, sessions, tenants, SLO classes, and traces."""
