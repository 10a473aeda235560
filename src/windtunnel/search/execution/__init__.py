"""Runs many plans: in this process, in local worker processes, or on Ray."""
