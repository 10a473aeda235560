"""The competing policies, each with the one knob that its users turn, from lax to strict.

Knob values are relative to a replica at the highest load that it carries, so that they fit any
model: shares of its requests or of its KV cache there; the price of a miss is in multiples of the
cost of serving a request there. All else is the policy's default, except that the window before
scaling down is 2 minutes instead of 5, which is cheaper.
"""

from collections.abc import Callable
from typing import Any, Final, NamedTuple

RUNNING: Final = "running"
KV: Final = "kv"
TPOT: Final = "tpot"
SERVED: Final = "served"
PLAIN: Final = ""

Section = dict[str, Any]
WINDOW: Final[Section] = {"down": {"window": "2m"}}
STABLE: Final[Section] = {"stabilization": {"up": "0s", "down": "2m"}}


class Contestant(NamedTuple):
    """A policy: its `scaling` section for a knob value, and the values to try."""

    name: str
    knob: str
    unit: str
    """The quantity that values are multiples of; empty: values are used as they are."""
    values: tuple[float, ...]
    section: Callable[[float], Section]
    default: Callable[[float], Section]
    """The section with required keys only; its argument is one unit."""


def _requests(policy: str, **more: Any) -> Callable[[float], Section]:
    return lambda target: {
        "policy": policy,
        "metrics": [{"name": "requests", "target": target, **more.get("metric", {})}],
        **more.get("options", {}),
    }


def _mapped(policy: str, options: Section | None = None) -> Callable[[float], Section]:
    return lambda target: {"policy": policy, "metrics": {"requests": target}, **(options or {})}


def _kv(options: Section | None = None) -> Callable[[float], Section]:
    metric = "kv_used"
    return lambda target: {
        "policy": "hpa",
        "metrics": [{"name": metric, "target": target}],
        **(options or {}),
    }


def _between(policy: str, share: float, options: Section | None = None) -> Callable[..., Section]:
    return lambda up: {
        "policy": policy,
        "up": up,
        "down": round(up * share, 6),
        **(options or {}),
    }


def _plain(policy: str, **options: Any) -> Callable[[float], Section]:
    return lambda _: {"policy": policy, **options}


def _wva_v1(queue: float) -> Section:
    spare = round(queue * 0.6, 6)
    return {"policy": "wva-v1", "queue_threshold": queue, "queue_spare": spare, **STABLE}


def _knative(target: float) -> Section:
    return {"policy": "knative", "interval": "2s", "target": target, "utilization_percent": 100}


def _dynamo(itl_s: float, predictor: str = "kalman") -> Section:
    planner = {"adjustment": "60s", "predictor": predictor, "accelerator_budget": 100_000}
    return {"policy": "dynamo", "itl": f"{itl_s * 1000:g}ms", **planner}


def _dynamo_arima(itl_s: float) -> Section:
    return _dynamo(itl_s, "arima")


def _dynamo_prophet(itl_s: float) -> Section:
    return _dynamo(itl_s, "prophet")


HISTORY: Final = "history"
"""A key that the arena fills in: the arrival rates of a tuning case."""


def _with_history(missed_slo: float) -> Section:
    return {"policy": "predictive", "missed_slo": missed_slo, HISTORY: None}


def _predictive(missed_slo: float) -> Section:
    return {"policy": "predictive", "missed_slo": missed_slo}


SHARES: Final = (1.2, 0.9, 0.65, 0.4)
"""Shares of a replica's requests or KV cache at its highest carried load: above, near and well
below it."""
PANIC: Final[Section] = {"behavior": {"down": {"window": "2m"}, "panic": {"hold": "60s"}}}
TOTAL: Final[Section] = {"type": "total"}
_BUDGET: Final[Section] = {"accelerator_budget": 100_000}
_ALL: Final[Section] = {"analyzers": ["saturation", "throughput", "queueing"]}

OURS: Final = "predictive"
FIXED: Final = "fixed"

CONTESTANTS: Final = (
    Contestant(OURS, "missed_slo", SERVED, (5, 15, 50, 200), _predictive, _plain("predictive")),
    Contestant(
        "predictive-warm",
        "missed_slo",
        SERVED,
        (5, 15, 50, 200),
        _with_history,
        _plain("predictive", history=None),
    ),
    Contestant(
        "hpa", "requests", RUNNING, SHARES, _requests("hpa", options=WINDOW), _requests("hpa")
    ),
    Contestant("hpa-kv", "kv_used", KV, SHARES, _kv(WINDOW), _kv()),
    Contestant(
        "keda",
        "requests",
        RUNNING,
        SHARES,
        _requests("keda", metric=TOTAL, options=WINDOW),
        _requests("keda", metric=TOTAL),
    ),
    Contestant(
        "knative", "concurrency", RUNNING, SHARES, _knative, _plain("knative", interval="2s")
    ),
    Contestant("aibrix", "requests", RUNNING, SHARES, _mapped("aibrix"), _mapped("aibrix")),
    Contestant(
        "kthena",
        "requests",
        RUNNING,
        SHARES,
        _mapped("kthena-homogeneous", PANIC),
        _mapped("kthena-homogeneous"),
    ),
    Contestant("wva-v1", "queue", PLAIN, (10, 5, 2, 0.5), _wva_v1, _plain("wva-v1")),
    Contestant("wva", "up", KV, SHARES, _between("wva", 0.8, STABLE), _plain("wva")),
    Contestant(
        "wva-all",
        "up",
        KV,
        SHARES,
        _between("wva", 0.8, {**STABLE, **_ALL}),
        _plain("wva", **_ALL),
    ),
    Contestant(
        "saturation", "up", KV, SHARES, _between("saturation", 0.7, STABLE), _plain("saturation")
    ),
    Contestant("blis", "up", KV, SHARES, _between("blis", 0.5), _plain("blis")),
    Contestant("dynamo", "itl", TPOT, (1.0, 0.7, 0.5, 0.4), _dynamo, _plain("dynamo", **_BUDGET)),
    Contestant(
        "dynamo-arima",
        "itl",
        TPOT,
        (1.0, 0.7, 0.5, 0.4),
        _dynamo_arima,
        _plain("dynamo", predictor="arima", **_BUDGET),
    ),
    Contestant(
        "dynamo-prophet",
        "itl",
        TPOT,
        (1.0, 0.7, 0.5, 0.4),
        _dynamo_prophet,
        _plain("dynamo", predictor="prophet", **_BUDGET),
    ),
)
"""All contestants; the fixed pool is evaluated separately."""
