"""The fuzzer: what it draws, what it finds, and that it can fail."""
