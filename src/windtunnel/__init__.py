"""Windtunnel: one deterministic simulator and one live control plane for LLM inference fleets."""

from windtunnel._forms import settle as _settle

__all__ = ["FORM", "__version__"]

__version__ = "0.1.0"

FORM = _settle()
"""`compiled` or `interpreted`: how this process runs the hot modules."""
