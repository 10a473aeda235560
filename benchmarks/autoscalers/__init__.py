"""Autoscalers against each other, on recorded traces and on eight synthetic shapes."""
