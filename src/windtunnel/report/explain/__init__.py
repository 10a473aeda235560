"""From an effect to its causes, across the layers of a run that has ended."""
