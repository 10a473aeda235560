"""Windtunnel: one deterministic simulator and one live control plane for LLM inference fleets.

From Python, with `import windtunnel as wt`:

- `wt.simulate("scenario.yaml")` returns a result with the keys of `result.json`, for notebooks too;
- `wt.compare("a.yaml", "b.yaml")` compares designs on the same traffic;
- `wt.explain(result, request=7)` explains why a request was slow;
- `wt.sweep("scenario.yaml", {...})` runs it at many settings;
- `wt.plan("scenario.yaml")` finds the cheapest deployment that attains its SLO;
- `wt.check("old.yaml", "new.yaml", trace="day.jsonl")` tries a change on recorded traffic.
"""

from windtunnel import _start

if _start.IS_PROGRAM:
    _start.leave_silently()

from typing import TYPE_CHECKING

from windtunnel._forms import settle as _settle

if TYPE_CHECKING:
    from windtunnel.api.runs import compare, explain, simulate
    from windtunnel.api.searches import check, plan, sensitivity, sweep
    from windtunnel.core.errors import WindtunnelError
    from windtunnel.twin.scenario.load import load

__all__ = [
    "load",
    "simulate",
    "compare",
    "explain",
    "sweep",
    "sensitivity",
    "plan",
    "check",
    "WindtunnelError",
    "FORM",
    "__version__",
]

__version__ = "0.1.0"

FORM = _settle()
"""`compiled` or `interpreted`: the form in which this process runs the hot modules."""

_PLACES = {
    "load": "windtunnel.twin.scenario.load",
    "simulate": "windtunnel.api.runs",
    "compare": "windtunnel.api.runs",
    "explain": "windtunnel.api.runs",
    "sweep": "windtunnel.api.searches",
    "sensitivity": "windtunnel.api.searches",
    "plan": "windtunnel.api.searches",
    "check": "windtunnel.api.searches",
    "WindtunnelError": "windtunnel.core.errors",
}
"""The module of each public name. Names are imported on first use, so that `import` stays light."""

if not TYPE_CHECKING:  # so that a type checker reports misspelt names

    def __getattr__(name: str) -> object:
        if name not in _PLACES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        from importlib import import_module

        return getattr(import_module(_PLACES[name]), name)

    def __dir__() -> list[str]:
        return sorted({*globals(), *__all__})


_start.listen()
