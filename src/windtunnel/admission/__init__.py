"""Admission control without I/O: fair queues, leases, adaptive request limits."""
