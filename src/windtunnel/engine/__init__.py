"""One inference server: how its batch is planned, what its KV cache holds, how its steps pass."""
