"""How much longer a server took over a request because its pool was short of servers.

The load of a missing server is on the others: their batches grow, and with them the time of a step.
How steps grow with the batch is fitted to the samples of the pool. What a shortage cost is the
difference to the steps with as many tokens per second on all servers.
"""

from __future__ import annotations

from bisect import bisect_right
from math import nextafter
from typing import TYPE_CHECKING

import msgspec

from windtunnel.analysis.explain.account import PAUSED, TimeInterval
from windtunnel.analysis.explain.pool_sizes import Shortage
from windtunnel.analysis.phases import Owner
from windtunnel.core.units import format_duration

if TYPE_CHECKING:
    from windtunnel.analysis.explain.run import ExplainedRun
    from windtunnel.analysis.run_folder import Floats

GREW = 1.5
"""How many times the load at an autoscaler's decision is one that it did not see."""
BY_CHANCE = 3.0
"""The standard deviations, of Poisson arrivals, within which a load differs by chance."""
MOST_TIMES = 10.0
"""A shortage has no effect later than this many times its duration after its end; with an
autoscaler, than once."""
LEAST_SHARE = 0.15
"""Smaller shares of a time are within the error of the estimate."""


class StepLine(msgspec.Struct, frozen=True):
    """The time of a step by its batch, a line through the samples of a pool."""

    fixed_s: float
    each_s: float
    usual: float
    """The median batch of a busy server."""

    def step_s(self, running: Floats) -> Floats:
        line: Floats = self.fixed_s + self.each_s * running
        return line

    def batch(self, running: Floats, share: Floats | float) -> Floats:
        """The batch of a server that generates only a share of its tokens per second."""
        import numpy as np

        rate = running / self.step_s(running) * share
        found: Floats = rate * self.fixed_s / np.maximum(1.0 - rate * self.each_s, 1e-9)
        return np.minimum(found, running)


class PoolLoads:
    """The batches of a pool's servers over time, and how their steps depend on them."""

    def __init__(self, run: ExplainedRun, pool: str) -> None:
        import numpy as np

        series = run.series
        self.times, self.spans = series.times, series.whole["interval"]
        self.places = [place for place, (name, _) in enumerate(series.names) if name == pool]
        running, steps, busy = (
            np.nan_to_num(series.servers[name][:, self.places])
            for name in ("running", "steps", "busy")
        )
        self.running = running
        here = ~np.isnan(series.servers["running"][:, self.places])
        self.ready = np.maximum(here.sum(axis=1), 1)
        self.mean = running.sum(axis=1) / self.ready
        known = (steps > 0) & (running > 0)
        self.line: StepLine | None = None
        if known.any():
            took_s = (busy * self.spans[:, None])[known] / steps[known]
            self.line = _fitted(running[known], took_s, steps[known])

    def overlaps(self, start_s: float, end_s: float) -> Floats:
        """The seconds of each sample that lie in a time span."""
        import numpy as np

        seconds = np.minimum(self.times, end_s) - np.maximum(self.times - self.spans, start_s)
        inside: Floats = np.clip(seconds, 0.0, None)
        return inside


def _fitted(running: Floats, took_s: Floats, steps: Floats) -> StepLine:
    import numpy as np

    mean, mean_s = np.average(running, weights=steps), np.average(took_s, weights=steps)
    spread = np.average((running - mean) ** 2, weights=steps)
    together = np.average((running - mean) * (took_s - mean_s), weights=steps)
    each_s = max(0.0, float(together / spread)) if spread > 0.0 else 0.0
    fixed_s = max(float(mean_s - each_s * mean), 1e-9)
    return StepLine(fixed_s, each_s, float(np.sort(running)[len(running) // 2]))


class Slowdown(msgspec.Struct, frozen=True):
    """The part of an interval that a shortage of servers cost."""

    shortage: Shortage
    start_s: float
    end_s: float
    """The time in which the server was slower."""
    seconds: float
    batch: float
    step_s: float
    whole_batch: float
    whole_step_s: float
    """With all servers that the pool should have had."""

    def in_words(self, server: str) -> str:
        whole = self.shortage.whole
        when = f"with all {whole} servers" if whole else "with the load that the autoscaler saw"
        return (
            f"{server} ran {self.batch:.0f} requests at once, in steps of about "
            f"{format_duration(self.step_s)}; {when} it would have been {self.whole_batch:.0f}, in "
            f"steps of about {format_duration(self.whole_step_s)}"
        )


def slowdown(run: ExplainedRun, owner: Owner, interval: TimeInterval) -> Slowdown | None:
    """The costliest shortage of servers during an interval on a server; None if none cost time."""
    pool, place = owner[0], run.series.place_of(owner)
    if pool is None or place is None:
        return None
    loads = loads_of(run, pool)
    if loads.line is None or not loads.line.each_s:
        return None
    at = loads.places.index(place)
    sizes = run.history.sizes(pool)
    found = [
        _cost(run, pool, loads, at, short, interval)
        for short in sizes.shortages
        if short.start_s < interval.end_s and interval.start_s < _latest_s(run, short)
    ]
    found += [
        _late(run, loads, at, late, interval)
        for late in sizes.late
        if late.start_s < interval.end_s and interval.start_s < late.end_s
    ]
    found.append(_unseen(run, pool, loads, at, interval))
    costs = [one for one in found if one is not None]
    return max(costs, key=lambda one: one.seconds) if costs else None


def on_server_s(run: ExplainedRun) -> float:
    """The mean time of a request on a server."""
    latency = run.result["latency"]
    return (latency["e2e"]["mean"] or 0.0) - (latency["queue"]["mean"] or 0.0)


def loads_of(run: ExplainedRun, pool: str) -> PoolLoads:
    known: dict[str, PoolLoads] = run.history.loads
    if pool not in known:
        known[pool] = PoolLoads(run, pool)
    return known[pool]


def batch_of(run: ExplainedRun, owner: Owner, interval: TimeInterval) -> tuple[float, float]:
    """The mean batch of a server in an interval, and the usual batch of its pool; 0 if not
    known."""
    import numpy as np

    pool, place = owner[0], run.series.place_of(owner)
    loads = loads_of(run, pool) if pool is not None and place is not None else None
    if loads is None or place is None or loads.line is None:
        return 0.0, 0.0
    inside = loads.overlaps(interval.start_s, interval.end_s)
    batch = loads.running[:, loads.places.index(place)]
    return float(np.average(batch, weights=inside)) if inside.any() else 0.0, loads.line.usual


def _latest_s(run: ExplainedRun, short: Shortage) -> float:
    """When the requests that gathered in a shortage have ended, at most."""
    end_s = min(short.end_s, run.end_s)
    most = 1.0 if run.result["scaling"] is not None else MOST_TIMES
    return min(run.end_s, end_s + most * (end_s - short.start_s))


def _cost(
    run: ExplainedRun,
    pool: str,
    loads: PoolLoads,
    at: int,
    short: Shortage,
    interval: TimeInterval,
) -> Slowdown | None:
    """What a shortage cost: while it lasted, and until the requests that it delayed have ended."""
    import numpy as np

    line = loads.line
    assert line is not None
    during = (loads.times > short.start_s) & (loads.times - loads.spans < short.end_s)
    share = run.history.sizes(pool).share_ready(short.start_s, min(short.end_s, run.end_s))
    usual = np.average(line.batch(loads.mean, share)[during]) if during.any() else 0.0
    before = loads.mean[loads.times <= short.start_s]
    usual = max(usual, np.average(before)) if len(before) else usual
    worked_off = np.flatnonzero((loads.times >= short.end_s) & (loads.mean <= usual))
    until_s = _latest_s(run, short)
    if len(worked_off):
        until_s = min(until_s, max(short.end_s, float(loads.times[worked_off[0]])))
    start_s, end_s = max(interval.start_s, short.start_s), min(interval.end_s, until_s)
    share = run.history.sizes(pool).share_ready(start_s, min(end_s, short.end_s))
    batch = loads.running[:, at]
    whole = line.batch(batch, _spread(run, loads, short, share))
    after = np.maximum(usual, batch * (1.0 - _gathered(run, pool, short)))
    whole = np.where(during, whole, np.minimum(after, batch))
    return _slower(loads, batch, whole, short, (start_s, end_s), interval)


def _gathered(run: ExplainedRun, pool: str, short: Shortage) -> float:
    """The share of the batches after a shortage that can have gathered in it, at most.

    The work that the missing servers would have done, and did again, in requests of the mean time.
    """
    sizes, each_s = run.history.sizes(pool), on_server_s(run)
    end_s = min(short.end_s, run.end_s)
    missing_s = sizes.missing_s(short.start_s, end_s) + (short.whole - short.least) * each_s
    done_s = max(1.0, sizes.ready_at(end_s)) * each_s
    return min(1.0, missing_s / done_s) if done_s else 1.0


def _spread(run: ExplainedRun, loads: PoolLoads, short: Shortage, share: float) -> Floats:
    """The share of its load that a server has with all servers.

    Only new requests go to other servers: it falls to the given share over the time of a request.
    """
    import numpy as np

    took_s = run.result["latency"]["e2e"]["mean"] or 0.0
    new = np.clip((loads.times - short.start_s) / max(took_s, 1e-9), 0.0, 1.0)
    found: Floats = 1.0 - (1.0 - share) * new
    return found


def _late(
    run: ExplainedRun, loads: PoolLoads, at: int, late: Shortage, interval: TimeInterval
) -> Slowdown | None:
    """What it cost that the autoscaler wanted more servers only later."""
    line = loads.line
    assert line is not None
    batch = loads.running[:, at]
    before_s = nextafter(late.end_s, 0.0)  # what it requested at that time came after
    span = max(interval.start_s, late.start_s), min(interval.end_s, before_s)
    whole = line.batch(batch, _spread(run, loads, late, late.least / late.whole))
    return _slower(loads, batch, whole, late, span, interval)


def _unseen(
    run: ExplainedRun, pool: str, loads: PoolLoads, at: int, interval: TimeInterval
) -> Slowdown | None:
    """What a load cost that came after the autoscaler had last looked, until it looked again."""
    import numpy as np

    times = [0.0, *(one.time for one in run.history.by_pool.get(pool, []))]
    line = loads.line
    if run.result["scaling"] is None or line is None:
        return None
    after = bisect_right(times, interval.start_s)
    look_s, until_s = times[after - 1], times[after] if after < len(times) else run.end_s
    seen = max(line.usual, float(loads.mean[run.series.sample_at(look_s)]))
    batch = loads.running[:, at]
    span = interval.start_s, min(interval.end_s, nextafter(until_s, 0.0))
    total, seen_total = loads.mean * loads.ready, seen * loads.ready
    chance = seen_total + BY_CHANCE * np.sqrt(seen_total)
    whole = np.where(total > np.maximum(GREW * seen_total, chance), np.minimum(batch, seen), batch)
    return _slower(loads, batch, whole, Shortage(look_s, until_s, 0, 0), span, interval)


def _slower(
    loads: PoolLoads,
    batch: Floats,
    whole: Floats,
    short: Shortage,
    span: tuple[float, float],
    interval: TimeInterval,
) -> Slowdown | None:
    """Compares a server's batches with those that it would have had, over a part of an interval."""
    import numpy as np

    line = loads.line
    assert line is not None
    inside = loads.overlaps(*span) if span[0] < span[1] else np.zeros(1)
    total_s = float(inside.sum())
    if total_s <= 0.0:
        return None
    saved = 1.0 - line.step_s(whole) / line.step_s(batch)
    seconds = float((inside * saved).sum())
    if seconds < LEAST_SHARE * total_s:
        return None
    means = np.array([np.average(one, weights=inside) for one in (batch, whole)])
    (mean, whole_mean), (step_s, whole_s) = means.tolist(), line.step_s(means).tolist()
    if interval.name == PAUSED:
        seconds = total_s  # it would have had room
    return Slowdown(short, *span, seconds, mean, step_s, whole_mean, whole_s)
