"""Fair queues of work in groups."""
