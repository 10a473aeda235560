"""The reference engine: slow, obvious, and the oracle of the fast one."""
