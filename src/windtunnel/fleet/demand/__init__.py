"""What pods request of machines: packed into rows, and sent to the shard of their cluster."""
