"""Kthena's autoscaler: one target, several kinds of accelerator by cost, or roles with a ratio."""
