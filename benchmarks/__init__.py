"""Benchmarks: one file per claim, each comparing ours with a named baseline in the same run."""
