"""Commands that simulate, compare and plan, and that read runs and traces."""
