"""What to deploy: the cheapest servers that attain the targets, or the load that a deployment
carries."""
