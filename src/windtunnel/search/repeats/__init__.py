"""The same scenario with several seeds: comparisons, intervals, measured traces."""
