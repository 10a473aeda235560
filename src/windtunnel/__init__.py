"""Windtunnel: one deterministic simulator and one live control plane for LLM inference fleets.

From Python, with `import windtunnel as wt`:

- `wt.simulate("scenario.yaml")` gives a result with the keys of `result.json`, shown by notebooks;
- `wt.compare("a.yaml", "b.yaml")` holds designs against each other on the same traffic;
- `wt.explain(result, request=7)` says why a request was slow;
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
"""`compiled` or `interpreted`: how this process runs the hot modules."""

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
"""Where a public name is. Each is imported when it is first used, so that a start stays light."""

if not TYPE_CHECKING:  # a type checker should take a misspelt name for what it is

    def __getattr__(name: str) -> object:
        if name not in _PLACES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        from importlib import import_module

        return getattr(import_module(_PLACES[name]), name)

    def __dir__() -> list[str]:
        return sorted({*globals(), *__all__})


_start.listen()
