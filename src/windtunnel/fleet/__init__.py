"""Which machine belongs to whom: machines, needs, and the cycle that brings them together."""
