"""Designs against each other: the same seeds and traffic for all, differences with 95 % intervals.

Streams of chance are named, so two designs that differ in a router or in a number of servers get
the very same requests at the very same times. What a seed does to both is gone from their
difference, and a few seeds tell small differences from none.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

import windtunnel
from windtunnel.core.intervals import (
    CONFIDENCE,
    Interval,
    mean_interval,
    paired_interval,
    paired_ratio,
    ratio_interval,
)
from windtunnel.twin.repeat import Progress, Repeat, run_all
from windtunnel.twin.scenario.plan import ScenarioPlan

BETTER, WORSE, UNSEEN, SAME, UNKNOWN = (
    "better",
    "worse",
    "no difference seen",
    "the same",
    "not comparable",
)
VERDICTS = (BETTER, WORSE, UNSEEN, SAME, UNKNOWN)
LOWER, HIGHER = "lower", "higher"

RATIOS = ("s", "$", "requests/s", "tokens/s")
"""Units of what spreads by factors."""

MOST_DIFFERENCES = 40
"""Settings in which designs differ that are listed."""


class Design(NamedTuple):
    """A plan with the name that a person knows it by."""

    name: str
    plan: ScenarioPlan


class Metric(NamedTuple):
    """A figure of a result: where it is, what it is called, and which way is better."""

    path: str
    name: str
    group: str
    unit: str
    better: str


LATENCIES = {"ttft": "TTFT", "tpot": "TPOT", "e2e": "E2E"}
FIXED = (
    *(
        Metric(f"latency.{kind}.{figure}", f"{name} {figure}", "latency", "s", LOWER)
        for kind, name in LATENCIES.items()
        for figure in ("mean", "p50", "p99")
    ),
    Metric("throughput.goodput_requests_per_s", "goodput", "throughput", "requests/s", HIGHER),
    Metric("throughput.requests_per_s", "completed", "throughput", "requests/s", HIGHER),
    Metric("throughput.output_tokens_per_s", "output tokens", "throughput", "tokens/s", HIGHER),
    Metric("cost.total", "cost", "cost", "$", LOWER),
    Metric("cost.per_million_output_tokens", "cost per million tokens", "cost", "$", LOWER),
    Metric("requests.rejected", "rejected", "not completed", "requests", LOWER),
    Metric("requests.timed_out", "timed out", "not completed", "requests", LOWER),
    Metric("requests.dropped", "dropped", "not completed", "requests", LOWER),
    Metric("requests.unfinished", "unfinished", "not completed", "requests", LOWER),
)


def figures_of(result: dict[str, Any]) -> dict[str, Any]:
    """What a comparison keeps of a run."""
    figures: dict[str, Any] = {metric.path: _at(result, metric.path) for metric in FIXED}
    for name, slo in result["slo"].items():
        figures[_attained(name)] = slo["attained"]
    gravest = result["trust"]["findings"][0]
    return {
        "figures": figures,
        "classes": list(result["slo"]),
        "arrived": result["requests"]["arrived"],
        "trust": {"verdict": gravest["severity"], "says": gravest["says"]},
    }


def _attained(name: str) -> str:
    return f"slo.{name}.attained"


def _at(result: Mapping[str, Any], path: str) -> float | None:
    value: Any = result
    for key in path.split("."):
        value = value[key]
    found: float | None = value
    return found


def compare(
    designs: Sequence[Design], seeds: int, done: Progress, workers: int | None = None
) -> dict[str, Any]:
    """Runs all designs with as many seeds, from the first one's on, and says how they differ."""
    first = designs[0].plan.seed
    numbers = [first + number for number in range(seeds)]
    repeats = [
        Repeat(msgspec.structs.replace(plan, seed=seed), name=name)
        for seed in numbers
        for name, plan in designs
    ]
    found = run_all(repeats, figures_of, done, workers)
    runs = [found[place :: len(designs)] for place in range(len(designs))]
    return {
        "windtunnel": windtunnel.__version__,
        "seeds": numbers,
        "confidence": CONFIDENCE,
        "designs": [
            {
                "name": name,
                "scenario_sha256": plan.sha256,
                "trust": own[0]["trust"],
                "arrived": [run["arrived"] for run in own],
            }
            for (name, plan), own in zip(designs, runs, strict=True)
        ],
        "settings": settings(designs),
        "notes": _notes(designs, runs),
        "metrics": [_metric(metric, runs) for metric in _metrics(runs)],
    }


def _metrics(runs: Sequence[Sequence[Mapping[str, Any]]]) -> list[Metric]:
    """The fixed ones, and one for every class of service of any design."""
    classes = dict.fromkeys(name for own in runs for name in own[0]["classes"])
    attained = [
        Metric(_attained(name), f"{name} in time", "service levels", "share", HIGHER)
        for name in classes
    ]
    place = [metric.group for metric in FIXED].index("throughput")
    return [*FIXED[:place], *attained, *FIXED[place:]]


def _metric(metric: Metric, runs: Sequence[Sequence[Mapping[str, Any]]]) -> dict[str, Any]:
    values = [[run["figures"].get(metric.path) for run in own] for own in runs]
    return {
        **metric._asdict(),
        "designs": [_standing(metric, own, values[0], place) for place, own in enumerate(values)],
    }


def _standing(
    metric: Metric, values: list[float | None], base: list[float | None], place: int
) -> dict[str, Any]:
    """How a design does by itself, and against the first."""
    whole, against = _all_known(values), _all_known(base)
    interval = None
    if whole is not None:
        spreads = metric.unit in RATIOS and min(whole) > 0.0
        interval = ratio_interval(whole) if spreads else mean_interval(whole)
    difference = None
    if place:
        difference = {"verdict": UNKNOWN, **_ends(None), "ratio": None}
        if whole is not None and against is not None:
            difference = _difference(metric, whole, against)
    return {"values": values, **_ends(interval), "difference": difference}


def _difference(metric: Metric, ours: list[float], theirs: list[float]) -> dict[str, Any]:
    """Ours minus theirs; times, rates and costs also as a ratio, which then decides.

    They spread by factors: one slow seed among five makes an interval of differences reach below
    what any time can fall to.
    """
    interval = paired_interval(ours, theirs)
    if metric.unit in RATIOS and min(*ours, *theirs) > 0.0:
        ratio = paired_ratio(ours, theirs)
        return {
            "verdict": verdict(metric.better, ratio, 1.0),
            **_ends(interval),
            "ratio": _ends(ratio),
        }
    return {"verdict": verdict(metric.better, interval, 0.0), **_ends(interval), "ratio": None}


def verdict(better: str, interval: Interval, same: float) -> str:
    """What an interval says of ours against theirs; `same` is where neither is better."""
    if interval.low == interval.high == same:
        return SAME
    if interval.holds(same):
        return UNSEEN
    return BETTER if (interval.middle < same) == (better == LOWER) else WORSE


def _all_known(values: list[float | None]) -> list[float] | None:
    known = [value for value in values if value is not None]
    return known if len(known) == len(values) else None


def _ends(interval: Interval | None) -> dict[str, float | None]:
    middle, low, high = interval if interval is not None else (None, None, None)
    return {"mean": middle, "low": low, "high": high}


# What is not the same


def settings(designs: Sequence[Design]) -> list[dict[str, Any]]:
    """The settings in which designs differ: path, and the value in each."""
    flat = [_flat(msgspec.to_builtins(design.plan, enc_hook=str)) for design in designs]
    paths = dict.fromkeys(path for one in flat for path in one)
    found = []
    for path in paths:
        if path in ("seed", "sha256", "name"):
            continue
        values = [one.get(path) for one in flat]
        if any(value != values[0] for value in values):
            found.append({"path": path, "values": values})
    return found[:MOST_DIFFERENCES]


def _flat(value: Any, path: str = "") -> dict[str, Any]:
    if isinstance(value, dict):
        items: list[tuple[Any, Any]] = list(value.items())
    elif isinstance(value, list | tuple) and any(isinstance(item, dict) for item in value):
        items = list(enumerate(value))
    else:
        return {path: value}
    found: dict[str, Any] = {}
    for key, item in items:
        found |= _flat(item, f"{path}.{key}".strip("."))
    return found


def _notes(
    designs: Sequence[Design], runs: Sequence[Sequence[Mapping[str, Any]]]
) -> list[dict[str, str]]:
    """What a reader must know of the comparison: a code and a sentence each."""
    notes = []
    base = designs[0].plan
    for (name, plan), own in zip(designs[1:], runs[1:], strict=True):
        if (plan.workload, plan.duration_s) != (base.workload, base.duration_s):
            says = f"The traffic of {name} is not that of {designs[0].name}: runs of the same seed "
            says += "do not get the same requests, so that differences are of both."
            notes.append({"code": "other-traffic", "says": says})
        elif [run["arrived"] for run in own] != [run["arrived"] for run in runs[0]]:
            says = f"Fewer or more requests arrived with {name} than with {designs[0].name}, since "
            says += "users wait for answers before they go on."
            notes.append({"code": "other-arrivals", "says": says})
    return notes
