"""The deployments that a plan may choose from, and bounds that no run of them can beat."""
