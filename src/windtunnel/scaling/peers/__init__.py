"""The autoscalers that people run today, as policies: their rules, their numbers."""
