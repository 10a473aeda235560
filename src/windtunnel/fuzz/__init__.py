"""Fuzzing: scenarios drawn from seeds, run with every invariant; failures are shrunk."""
