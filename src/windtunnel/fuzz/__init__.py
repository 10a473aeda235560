"""Looks for what breaks: whole scenarios drawn from seeds, run with every invariant."""
