"""The fleet controller: demand, needs, machines, the decision cycle, execution and shards."""
