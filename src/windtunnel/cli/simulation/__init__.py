"""Commands that simulate, compare, plan, and read runs and traces."""
