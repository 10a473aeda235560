"""Tables of sweeps, plans, comparisons and other searches."""
