"""Access to OpenAI-compatible servers: addresses, keys, and one careful HTTP client."""
