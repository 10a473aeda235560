"""Shared by all packages: units, random streams, errors, the event loop, telemetry, invariants."""
