"""The predictive policy sizes for the load expected once new replicas are ready."""
