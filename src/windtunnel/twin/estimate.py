"""Estimates what a run will take before it starts: requests, CPU time and memory."""

from collections.abc import Sequence
from pathlib import Path
from statistics import fmean
from typing import NamedTuple

import windtunnel
from windtunnel.core.units import format_count, format_duration, format_size
from windtunnel.twin.scenario.plan import ScenarioPlan
from windtunnel.workload.arrivals import curve_of
from windtunnel.workload.moments import drawn_mean
from windtunnel.workload.settings.arrivals import ClosedArrivals
from windtunnel.workload.settings.sources import SourceSettings

LONG_S, LARGE_BYTES = 60.0, 1 << 30
"""A run below both starts without a message."""
REQUEST_S = {"compiled": 12e-6, "interpreted": 80e-6}
"""CPU time of a request with its row, by the form of the engine; measured with 16 chat servers."""
LIVE_BYTES = {"compiled": 500.0, "interpreted": 1_600.0}
ENDED_BYTES = 170.0
"""Memory of a request while it is queued or running, and of its records afterwards."""
TOKEN_S, QUEUE_S = 0.02, 1.0
"""Assumed time per token and for the rest of an answer, to estimate how many requests are in the
system at once."""
ROW_BYTES = 60.0
"""Bytes per row of a trace, where only its size is known."""
CURVE_STEPS = 1_000
MOST_LOOKED = 100
GOLDEN_RATIO = 0.6180339887498949


class RunEstimate(NamedTuple):
    """The estimated cost of a run."""

    requests: float
    cpu_s: float
    memory_bytes: float

    def sentence(self, runs: float = 1.0) -> str | None:
        """The estimate in words, for one run or several; None when it is small."""
        cpu_s = self.cpu_s * runs
        if cpu_s <= LONG_S and self.memory_bytes <= LARGE_BYTES:
            return None
        each = f"{runs:.0f} runs of " if runs > 1 else ""
        more = " each" if runs > 1 else ""
        return (
            f"{each}about {format_count(self.requests)} requests{more}: some "
            f"{format_duration(cpu_s)} of CPU time, and {format_size(self.memory_bytes)} of memory"
            f"{more}, or more where requests queue up"
        )


def mean_estimate(plans: Sequence[ScenarioPlan]) -> RunEstimate:
    """The means over runs, and the largest memory; of many runs, a hundred are sampled.

    The samples are spread by the golden ratio: an even stride could always hit the same value of a
    sweep axis.
    """
    if len(plans) > MOST_LOOKED:
        plans = [plans[int(one * GOLDEN_RATIO % 1.0 * len(plans))] for one in range(MOST_LOOKED)]
    found = [estimate(plan) for plan in plans]
    return RunEstimate(
        fmean(one.requests for one in found),
        fmean(one.cpu_s for one in found),
        max(one.memory_bytes for one in found),
    )


def estimate(plan: ScenarioPlan) -> RunEstimate:
    """Estimates a run of this plan, within a factor of a few."""
    form = windtunnel.FORM if windtunnel.FORM in REQUEST_S else "interpreted"
    requests = live = 0.0
    for entry in plan.workload:
        if isinstance(entry, SourceSettings):
            count, inside = _of_source(entry, plan.duration_s)
        else:
            count = entry.count or _size_of(Path(entry.trace.path)) / ROW_BYTES
            inside = 0.0
        requests += count
        live += min(inside, count)
    memory = requests * ENDED_BYTES + live * LIVE_BYTES[form]
    return RunEstimate(requests, requests * REQUEST_S[form], memory)


def _of_source(source: SourceSettings, duration_s: float | None) -> tuple[float, float]:
    """How many requests a source produces, and how many are in the system at once."""
    lengths = source.lengths()
    answer_s = QUEUE_S + TOKEN_S * drawn_mean(lengths["output_tokens"])
    turns = drawn_mean(lengths["session.turns"]) if source.session is not None else 1.0
    if isinstance(source.arrivals, ClosedArrivals):
        users = float(source.arrivals.users)
        rate_per_s = users / (answer_s + source.arrivals.think.drawn().mean_s)
        inside = users
    else:
        rate_per_s = source.arrivals.drawn().rate_per_s
        inside = rate_per_s * answer_s * turns
    count = float("inf") if source.count is None else float(source.count)
    if duration_s is not None:
        count = min(count, rate_per_s * _even_s(source, duration_s))
    elif source.count is None:
        assert source.curve is not None, "traffic ends"
        count = rate_per_s * curve_of(source.curve).total()
    return count * turns, inside


def _even_s(source: SourceSettings, duration_s: float) -> float:
    """The time in which the plain rate would produce as many arrivals as the curve does in
    `duration_s`."""
    if source.curve is None:
        return duration_s
    curve = curve_of(source.curve)
    step_s = duration_s / CURVE_STEPS
    return step_s * sum(curve.factor((step + 0.5) * step_s) for step in range(CURVE_STEPS))


def _size_of(trace: Path) -> int:
    try:
        return trace.stat().st_size
    except OSError:
        return 0
