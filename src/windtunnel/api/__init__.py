"""Windtunnel from Python: what `import windtunnel as wt` offers, as tables and figures."""
