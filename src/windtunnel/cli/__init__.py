"""The `windtunnel` command: one file per command, listed in `main`."""
