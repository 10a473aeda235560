"""Whether a run reached a steady state: how long servers filled, and whether queues still grew.

Only the time in which requests arrive is considered. What follows, until the last of them has
ended, is the end of the traffic and not a state of the servers.
"""

from collections.abc import Sequence

import msgspec

from windtunnel.analysis.saturation import RunSample

FEWEST_SAMPLES = 8
NEARLY = 0.8
"""Servers count as filled at this share of the usual later number of requests in the system."""
LIKE = (0.7, 1.4)
"""Ratios of the arrival rate while servers filled to the later one; outside them the traffic
grew."""
GROWS = 2.0
"""A queue grows if the last quarter has this many times as many waiting as the second."""


class Steadiness(msgspec.Struct, frozen=True):
    """The steadiness of a run, from its samples."""

    arrivals_end_s: float
    waiting: tuple[float, ...]
    """Mean number waiting in each quarter of that time; empty if there are too few samples."""
    growing: bool
    filled_s: float | None
    """How long servers filled at first; None if the shape of the traffic hides it."""


def steadiness(samples: Sequence[RunSample], servers: int) -> Steadiness:
    """Judges a run by its samples."""
    last = samples[-1].arrived
    seen = [sample for sample in samples if sample.arrived < last]
    seen += samples[len(seen) : len(seen) + 1]  # the one that saw the last arrival
    end_s = seen[-1].time_s
    if len(seen) < FEWEST_SAMPLES or end_s <= 0.0:
        return Steadiness(end_s, (), growing=False, filled_s=None)
    waiting = tuple(
        _mean([_inside(s) - sum(s.running) for s in part]) for part in _quarters(seen, end_s)
    )
    _, second, third, fourth = waiting
    growing = second < third < fourth and fourth >= GROWS * second and fourth >= servers
    filled_s = None if growing else _filled_s(seen, end_s)
    return Steadiness(end_s, waiting, growing, filled_s)


def _quarters(samples: Sequence[RunSample], end_s: float) -> list[list[RunSample]]:
    parts: list[list[RunSample]] = [[], [], [], []]
    for sample in samples:
        parts[min(int(4.0 * sample.time_s / end_s), 3)].append(sample)
    return parts


def _filled_s(samples: Sequence[RunSample], end_s: float) -> float | None:
    later = [sample for sample in samples if sample.time_s > end_s / 2.0]
    usual = _median([_inside(sample) for sample in later])  # not what a fault left behind
    if usual < 1.0:
        return None
    full = next((s for s in samples if _inside(s) >= NEARLY * usual), samples[-1])
    middle = next(s for s in reversed(samples) if s.time_s <= end_s / 2.0)
    rate = (samples[-1].arrived - middle.arrived) / (end_s - middle.time_s)
    at_first = full.arrived / full.time_s
    return full.time_s if LIKE[0] * rate <= at_first <= LIKE[1] * rate else None


def _inside(sample: RunSample) -> int:
    """Requests that have arrived and not ended."""
    return sample.at_gateway + sample.in_flight


def _median(values: Sequence[float]) -> float:
    """Half of the values are at most this, or nearly half."""
    return sorted(values)[len(values) // 2] if values else 0.0


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values) if values else 0.0
