"""Settings of a workload: sources, arrivals, lengths, sessions, traces and classes of service."""
