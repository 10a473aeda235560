"""Several shards: the coordinator, its members, and their messages."""
