"""The sections of a scenario, each drawn from a stream of its own."""
