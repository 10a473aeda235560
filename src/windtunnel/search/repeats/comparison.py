"""Compares designs: all run with the same seeds and the same traffic.

Random streams are named, so two designs that differ in a router or in a number of servers get
exactly the same requests at the same times. The effect of a seed on both cancels in their
difference, so a few seeds reveal small differences.

Where nothing depends on the seed, as with a replay, a design runs once, and one sample has no
interval.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import windtunnel
from windtunnel.analysis.comparison import TOO_FEW, compared, figures_of
from windtunnel.core.statistics.intervals import CONFIDENCE
from windtunnel.search.repeats.runs import Repeat, RepeatProgress, run_all
from windtunnel.twin.results.chance import draws
from windtunnel.twin.scenario.plan import ScenarioPlan

MOST_DIFFERENCES = 40
"""Limit on the differing settings that are listed."""


class Design(NamedTuple):
    """A plan with its display name."""

    name: str
    plan: ScenarioPlan


def compare(
    designs: Sequence[Design], seeds: int, done: RepeatProgress, workers: int | None = None
) -> dict[str, Any]:
    """Runs all designs with `seeds` seeds, starting at that of the first design, and compares
    them."""
    first = designs[0].plan.seed
    chance = [draws(design.plan) for design in designs]
    numbers = [first + number for number in range(seeds if any(chance) else 1)]
    repeats = [
        Repeat(plan.changed(seed=seed), name=name)
        for seed in numbers
        for (name, plan), varies in zip(designs, chance, strict=True)
        if varies or seed == first
    ]
    found = iter(run_all(repeats, figures_of, done, workers))
    runs: list[list[Mapping[str, Any]]] = [[] for _ in designs]
    for seed in numbers:
        for own, varies in zip(runs, chance, strict=True):
            own.append(next(found) if varies or seed == first else own[0])
    metrics = compared(runs, [varies and len(numbers) > 1 for varies in chance])
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
        "settings": settings([design.plan.data() for design in designs]),
        "notes": _notes(designs, runs, chance, metrics),
        "metrics": metrics,
    }


class FinishedRun(NamedTuple):
    """A finished run: its name, its result, and all settings in effect."""

    name: str
    result: dict[str, Any]
    scenario: dict[str, Any]


def compare_finished(runs: Sequence[FinishedRun]) -> dict[str, Any]:
    """Compares finished runs: one sample each, and no intervals."""
    figures = [[figures_of(run.result)] for run in runs]
    seeds = [run.scenario["seed"] for run in runs]
    says = "These are finished runs: one sample each, and no interval."
    if any(run.scenario["workload"] != runs[0].scenario["workload"] for run in runs):
        says += " Their traffic is not the same."
    elif len(set(seeds)) > 1:
        says += f" Their seeds differ ({', '.join(map(str, seeds))}), and so do their requests."
    return {
        "windtunnel": windtunnel.__version__,
        "seeds": list(dict.fromkeys(seeds)),
        "confidence": CONFIDENCE,
        "designs": [
            {
                "name": run.name,
                "scenario_sha256": run.scenario["sha256"],
                "trust": own["trust"],
                "arrived": [own["arrived"]],
            }
            for run, (own,) in zip(runs, figures, strict=True)
        ],
        "settings": settings([run.scenario for run in runs]),
        "notes": [
            {"code": "one-sample", "says": says},
            *[
                {"code": "partial", "says": f"{run.name} ended early: {run.result['partial']}."}
                for run in runs
                if run.result["partial"] is not None
            ],
        ],
        "metrics": compared(figures, [False] * len(runs)),
    }


def settings(scenarios: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """The settings in which designs differ: the path, and the value in each."""
    flat = [_flat(scenario) for scenario in scenarios]
    paths = dict.fromkeys(path for one in flat for path in one)
    found = []
    for path in paths:
        if path in ("seed", "sha256", "name", "by_chance"):
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
    designs: Sequence[Design],
    runs: Sequence[Sequence[Mapping[str, Any]]],
    chance: Sequence[bool],
    metrics: Sequence[Mapping[str, Any]],
) -> list[dict[str, str]]:
    """Notes for the reader of the comparison, each a code and a sentence."""
    notes = []
    base = designs[0].plan
    for (name, plan), own in zip(designs[1:], runs[1:], strict=True):
        if (plan.workload, plan.duration_s) != (base.workload, base.duration_s):
            says = f"The traffic of {name} is not that of {designs[0].name}: runs of the same seed "
            says += "do not get the same requests, so the traffic also causes differences."
            notes.append({"code": "other-traffic", "says": says})
        elif [run["arrived"] for run in own] != [run["arrived"] for run in runs[0]]:
            says = f"Fewer or more requests arrived with {name} than with {designs[0].name}, since "
            says += "users wait for answers before they go on."
            notes.append({"code": "other-arrivals", "says": says})
    alone = [name for (name, _), varies in zip(designs, chance, strict=True) if not varies]
    if len(alone) > 1 and not chance[0]:
        says = "A replay has one sample: no interval. No seed changes anything in "
        says += f"{'these designs' if len(alone) == len(designs) else ', '.join(alone)}, so each "
        says += "ran once, and whether another such day would show the same differences is unknown."
        notes.append({"code": "one-sample", "says": says})
    verdicts = [one["difference"]["verdict"] for of in metrics for one in of["designs"][1:]]
    if TOO_FEW in verdicts:
        count = verdicts.count(TOO_FEW)
        noun = "difference" if count == 1 else "differences"
        says = f"{len(runs[0])} seeds are too few to tell {count} {noun} from chance: more seeds "
        says += f"(--seeds {2 * len(runs[0]) + 1}) or longer runs would help."
        notes.append({"code": "too-few-seeds", "says": says})
    return notes
