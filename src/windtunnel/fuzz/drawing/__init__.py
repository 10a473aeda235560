"""The sections of a scenario, each drawn from its own stream."""
