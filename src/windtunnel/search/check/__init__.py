"""A changed configuration against a base, on the same traffic: decisions, figures, limits."""
