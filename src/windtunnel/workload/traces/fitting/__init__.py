"""Fits a synthetic workload to a trace."""
