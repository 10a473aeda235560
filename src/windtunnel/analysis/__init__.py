"""What a finished run means: latencies, saturation, trust, comparisons, explanations."""
