"""Request admission for a provider's model: adaptive limits, budgets, queues."""
