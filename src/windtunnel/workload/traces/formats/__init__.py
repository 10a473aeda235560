"""Trace formats: one module per format, and the registry that names and detects them."""
