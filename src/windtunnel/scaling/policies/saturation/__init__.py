"""Policies that count KV tokens, and the analyzers of llm-d's WVA that vote along."""
