"""The figures that a search keeps of a run, by flat name, or the reason why there are none."""

import math
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from windtunnel.analysis.figures import FIGURES, STATS
from windtunnel.core.errors import InputError, WindtunnelError, nearest
from windtunnel.twin.ceiling import MemoryCeiling
from windtunnel.twin.run import run
from windtunnel.twin.scenario.plan import ScenarioPlan

Metrics = dict[str, int | float | None]
"""Figures by name, such as `latency.ttft.p95`; None where a run has no such figure."""

KEPT = tuple(
    dict.fromkeys(
        one.path.partition(".")[0] for one in FIGURES if one.kept and "POOL" not in one.path
    )
)
"""Parts of a result that are kept. There may be thousands of tenants, sources and servers; they
stay with their run."""
KEPT_OF_POOLS = tuple(
    one.path.removeprefix("pools.POOL.") for one in FIGURES if one.kept and "POOL" in one.path
)


def measure(result: Mapping[str, Any]) -> Metrics:
    """The figures of a result, in the order of the result."""
    metrics: Metrics = {}
    for part in KEPT:
        if result[part] is not None:
            metrics.update(_flat(part, result[part]))
    for pool, figures in result["pools"].items():
        kept = {name: figures[name] for name in KEPT_OF_POOLS}
        metrics.update(_flat(f"pools.{pool}", kept))
    metrics["accelerator_seconds"] = math.fsum(
        pool["accelerator_seconds"] for pool in result["pools"].values()
    )
    metrics["decisions.scaling"] = result["decisions"]["scaling"]
    metrics["trust.saturated_seconds"] = result["trust"]["saturated"]["seconds"]
    return metrics


GLANCE_S = 1e-3


def glance(plan: ScenarioPlan) -> dict[str, Any]:
    """The result of the first millisecond: what is known about a run before any traffic."""
    return run(plan.changed(duration_s=GLANCE_S)).result


def names_of(plan: ScenarioPlan) -> list[str]:
    """The names of the figures that runs of a plan have, from a glance at it.

    Rows of a trace may have further SLO classes, which appear only during the run.
    """
    return list(measure(glance(plan)))


def check_name(name: str, plan: ScenarioPlan, where: str) -> None:
    """Rejects the name of a figure that no run of the plan would have."""
    known = names_of(plan)
    if name in known:
        return
    part, _, below = name.partition(".")
    figures_of_class = {one.split(".", 2)[2] for one in known if one.startswith("slo.")}
    if len(plan.sources) < len(plan.workload) and part == "slo":
        _, _, figure = below.partition(".")
        if figure in figures_of_class:
            return  # an SLO class that rows of the trace may have
    hint = nearest(name, known)
    allowed = None if hint else f"{', '.join(_families(known))} (STAT: {', '.join(STATS)})"
    raise InputError(f"there is no figure {name!r}", where=where, allowed=allowed, hint=hint)


def _families(names: list[str]) -> list[str]:
    """Names of figures, with the statistics of one latency combined, as in `latency.ttft.STAT`."""
    found: dict[str, None] = {}
    for name in names:
        above, _, last = name.rpartition(".")
        found[f"{above}.STAT" if above and last in STATS else name] = None
    return list(found)


def _flat(name: str, value: Any) -> Iterator[tuple[str, int | float | None]]:
    if isinstance(value, Mapping):
        for key, item in value.items():
            yield from _flat(f"{name}.{key}", item)
    elif isinstance(value, float):
        # As in JSON, so that a cached result is identical.
        yield name, value if math.isfinite(value) else None
    else:
        assert value is None or isinstance(value, int), name
        yield name, value


class MeasuredRun(msgspec.Struct, frozen=True, tag=True):
    """A run that ended, and its figures."""

    metrics: Metrics


class FailedRun(msgspec.Struct, frozen=True, tag=True):
    """A run that failed, and why: one sentence."""

    sentence: str


Outcome = MeasuredRun | FailedRun
Answers = Iterator[tuple[int, Outcome]]
"""Outcomes as they are ready, each with the index of its plan."""


def measured(plan: ScenarioPlan, memory_bytes: int | None = None, processes: int = 1) -> Outcome:
    """Runs one point in the current process.

    `memory_bytes` is shared by all processes; None: most of what is available.
    """
    try:
        result = run(plan, look=MemoryCeiling.of(memory_bytes, processes).look).result
        if result["partial"] is not None:
            return FailedRun(result["partial"])
        return MeasuredRun(measure(result))
    except WindtunnelError as error:
        return FailedRun(str(error))
    except MemoryError:
        return FailedRun(
            "there was not enough memory for this run (fewer --jobs leave more to each)"
        )
    except Exception as error:  # noqa: BLE001 - a bug of ours fails one point, not the sweep
        return FailedRun(f"this run hit a bug in Windtunnel: {type(error).__name__}: {error}")
