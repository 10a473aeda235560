"""Files that people write: read with bounds, checked all at once, and told where each fault is."""
