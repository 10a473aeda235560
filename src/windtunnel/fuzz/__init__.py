"""Fuzzing: random scenarios, run with every invariant checked; failures are shrunk."""
