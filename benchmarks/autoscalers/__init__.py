"""Autoscalers compared on recorded traces and on eight synthetic shapes of traffic."""
