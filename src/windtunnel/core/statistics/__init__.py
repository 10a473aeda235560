"""Distributions of observed values, and confidence intervals."""
