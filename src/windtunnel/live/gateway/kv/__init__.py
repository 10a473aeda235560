"""The servers' KV caches by tokens: cache events and tokenizers."""
