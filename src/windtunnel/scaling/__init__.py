"""Autoscaling: snapshots of pools in, replica counts with reasons out."""
