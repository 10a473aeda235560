"""What arrives: arrival processes, lengths, sessions, tenants, SLO classes; traces."""
