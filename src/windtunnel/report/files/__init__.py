"""The files that runs and batches write."""
