"""Autoscalers compared on recorded traces and on synthetic shapes of traffic."""
