"""Sizes for the load that will be there when new replicas are: forecast, capacity, plan."""
