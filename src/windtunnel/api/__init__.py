"""Windtunnel from Python: the functions of `import windtunnel as wt`, their tables and figures."""
