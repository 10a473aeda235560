"""One file per claim, each holding ours against a named baseline in the same run."""
