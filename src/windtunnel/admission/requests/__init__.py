"""Whether a request to a provider's model may start: limits that adapt, budgets, queues."""
