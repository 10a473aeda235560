"""The distributions that a workload draws from, by their moments and bounds."""

import msgspec


class Lengths(msgspec.Struct, frozen=True, omit_defaults=True):
    """A distribution of token counts; every draw is rounded and held within `low` and `high`."""

    distribution: str
    mean: float
    cv: float
    """Standard deviation over mean, before draws are held within the bounds."""
    low: int
    high: int
    tail_alpha: float = 0.0
    """Of pareto-lognormal: how fast its Pareto part falls off."""
    tail_start: float = 0.0
    """Of pareto-lognormal: where its Pareto part begins."""
    tail_share: float = 0.0
    """Of pareto-lognormal: the part of all draws that is Pareto's."""
    values: tuple[int, ...] = ()
    """Of empirical: what may be drawn."""
    weights: tuple[float, ...] = ()
    """Of empirical: how often each of the values is, against the others."""
    path: str | None = None
    """Of empirical: the file that has values and weights instead."""


class Times(msgspec.Struct, frozen=True):
    """A distribution of durations, each held within `low_s` and `high_s`."""

    distribution: str
    mean_s: float
    cv: float
    low_s: float
    high_s: float


class Arrivals(msgspec.Struct, frozen=True, omit_defaults=True):
    """When requests come: a process, its mean rate, and how bursty its gaps are."""

    process: str
    rate_per_s: float
    cv: float
    """Standard deviation over mean of the gaps: 0 for constant, 1 for poisson."""
    users: int = 0
    """Of closed: how many there are; the rate is then what they make of it."""
    think: Times | None = None
    """Of closed: from the end of a user's request to the next."""


class Curve(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a rate is multiplied by over time: lines between points, or a wave of mean one."""

    points: tuple[tuple[float, float], ...] = ()
    """(time, factor); two of one time are a jump."""
    period_s: float = 0.0
    """Above 0: a wave, and no points."""
    peak_s: float = 0.0
    ratio: float = 1.0
    """Of the wave: its highest over its lowest factor."""
