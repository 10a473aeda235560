"""The goal of a plan: the SLO classes that count, the share to attain, and the confidence."""

from collections.abc import Mapping
from typing import Any

import msgspec

from windtunnel.core.errors import InputError, nearest
from windtunnel.search.execution.workers import FailedRun, Outcome
from windtunnel.search.measure import Metrics
from windtunnel.search.plan.runs.trials import Trial
from windtunnel.twin.scenario.plan import ScenarioPlan
from windtunnel.workload.settings.sources import SloClass, SourceSettings

SECONDS_PER_HOUR = 3600.0
TARGETS = ("ttft", "tpot", "e2e")


class Goal(msgspec.Struct, frozen=True):
    """The share that each of the classes must attain, and the confidence required."""

    classes: tuple[str, ...]
    attained: float
    confidence: float
    targets: tuple[tuple[str, str], ...] = ()
    """Pairs of class and target, each to be attained separately; empty: all targets of a class
    jointly."""

    @property
    def shares(self) -> list[tuple[str, str]]:
        """The classes, each with the figure that must be at least `attained`."""
        if not self.targets:
            return [(name, f"slo.{name}.attained") for name in self.classes]
        return [(name, f"slo.{name}.attained_by.{target}") for name, target in self.targets]

    @property
    def together(self) -> float:
        """The least share of a class that meets all of its targets if each target is attained."""
        most = max(sum(one == name for one, _ in self.targets) for name in self.classes)
        return max(0.0, 1.0 - max(1, most) * (1.0 - self.attained))


def goal_of(
    plan: ScenarioPlan,
    attained: float,
    confidence: float,
    classes: tuple[str, ...] | None,
    *,
    each_target: bool = False,
) -> Goal:
    """The goal for a scenario; if no classes are named, all that have targets and requests."""
    used = [entry.slo for entry in plan.workload]
    # The requests of a trace may have any class.
    any_class = any(
        not isinstance(entry, SourceSettings) and entry.slo is None for entry in plan.workload
    )
    if classes is None:
        with_targets = [name for name, slo in plan.slos.items() if has_targets(slo)]
        classes = tuple(name for name in with_targets if any_class or name in used)
    for name in classes:
        if name not in plan.slos:
            hint = nearest(name, plan.slos)
            what = f"{name!r} is not a class of service"
            raise InputError(what, where="slo", allowed=", ".join(plan.slos), hint=hint)
        if not has_targets(plan.slos[name]):
            what = f"{name!r} has no targets, so nothing could miss them"
            raise InputError(what, where="slo", hint=f"give it some under slo.{name}")
        if not any_class and name not in used:
            allowed = ", ".join(sorted({one for one in used if one is not None}))
            raise InputError(f"no source has the class {name!r}", where="slo", allowed=allowed)
    if classes:
        targets = [
            (name, target)
            for name in classes
            for target in TARGETS
            if getattr(plan.slos[name], f"{target}_s") is not None
        ]
        return Goal(classes, attained, confidence, tuple(targets) if each_target else ())
    hint = "as in slo: {critical: {ttft: 500ms, tpot: 50ms}}, and give a source that class"
    what = "no class of service of the requests has a target, so nothing could miss one"
    raise InputError(what, where="slo", hint=hint)


def has_targets(slo: SloClass) -> bool:
    """Whether a class has any target."""
    return any(target is not None for target in (slo.ttft_s, slo.tpot_s, slo.e2e_s))


def trial_of(outcome: Outcome, goal: Goal, prices: Mapping[str, float] | None) -> Trial:
    """Evaluates a run against a goal.

    `prices` are per accelerator-hour, by pool; None: the cost is that of the machines.
    """
    if isinstance(outcome, FailedRun):
        return Trial((), (), 0.0, outcome.sentence)
    metrics = outcome.metrics
    counts = [int(metrics.get(f"slo.{name}.requests") or 0) for name, _ in goal.shares]
    # A class without requests misses nothing.
    shares = [
        float(metrics[path] or 0.0) if count else 1.0
        for (_, path), count in zip(goal.shares, counts, strict=True)
    ]
    return Trial(tuple(shares), tuple(counts), cost_per_hour(metrics, prices))


def cost_per_hour(metrics: Metrics, prices: Mapping[str, float] | None) -> float:
    """The average hourly cost of the servers of a run."""
    seconds = float(metrics["simulated_seconds"] or 0.0)
    if not seconds:
        return 0.0
    if prices is None:
        return float(metrics["cost.total"] or 0.0) * SECONDS_PER_HOUR / seconds
    used = (
        float(metrics[f"pools.{pool}.accelerator_seconds"] or 0.0) * price
        for pool, price in prices.items()
    )
    return sum(used) / seconds


def as_data(plan: ScenarioPlan, goal: Goal) -> dict[str, Any]:
    """A goal with the targets of its classes, as plain data."""
    return {
        "classes": {
            name: {target: getattr(plan.slos[name], f"{target}_s") for target in TARGETS}
            for name in goal.classes
        },
        "attained": goal.attained,
        "confidence": goal.confidence,
        "each_target": bool(goal.targets),
    }
