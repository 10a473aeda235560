"""The simulated provider of machines and its faults; programs that soak and measure a fleet."""
