"""What is known of the KV caches of servers, by tokens: events and tokenizers."""
