"""Several shards: the coordinator, its members, and what they tell each other."""
