"""The simulated provider of machines and its faults; fleet soaks and benchmarks."""
