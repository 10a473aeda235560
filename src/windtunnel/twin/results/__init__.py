"""The records of a run, and its result."""
