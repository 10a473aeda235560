"""What a workload is: sources, arrivals, lengths, sessions, traces and classes of service."""
