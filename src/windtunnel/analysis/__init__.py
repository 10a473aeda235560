"""Analysis of a finished run: latencies, saturation, trust, comparisons, explanations."""
