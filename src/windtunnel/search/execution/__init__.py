"""Runs many plans: in this process, in others of this machine, or on Ray."""
