"""What every room shares: units, chance, errors, events in time, telemetry, invariants."""
