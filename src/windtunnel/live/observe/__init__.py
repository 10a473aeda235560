"""Sends a scenario's traffic to a real server and measures the responses."""
