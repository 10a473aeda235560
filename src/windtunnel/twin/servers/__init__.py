"""Servers of a run: replicas and their lifecycle, pools, the autoscaler that sizes them."""
