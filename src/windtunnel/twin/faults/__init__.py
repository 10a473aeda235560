"""Faults injected into a run: kinds, timing, selection, and their driver."""
