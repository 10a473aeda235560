"""Servers of a run: replicas and their lifecycle, pools, and the autoscaler."""
