"""Compares a changed configuration with a base on the same traffic: decisions, figures, limits."""
