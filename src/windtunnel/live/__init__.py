"""The same controllers on a wall clock."""
