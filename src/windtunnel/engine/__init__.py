"""One inference server: batch planning, KV and prefix cache, exact macro-steps."""
