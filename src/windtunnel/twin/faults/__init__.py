"""Faults that are injected into a run: kinds, timing, selection, and the driver of them all."""
