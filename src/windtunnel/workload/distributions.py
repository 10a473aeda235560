"""The distributions that a workload draws from, described by moments and bounds."""

import msgspec


class Lengths(msgspec.Struct, frozen=True, omit_defaults=True):
    """A distribution of token counts; every draw is rounded and clamped to `low` and `high`."""

    distribution: str
    mean: float
    cv: float
    """Coefficient of variation (standard deviation over mean) before clamping."""
    low: int
    high: int
    tail_alpha: float = 0.0
    """For pareto-lognormal: the tail index of the Pareto part."""
    tail_start: float = 0.0
    """For pareto-lognormal: the minimum of the Pareto part."""
    tail_share: float = 0.0
    """For pareto-lognormal: the share of draws taken from the Pareto part."""
    values: tuple[int, ...] = ()
    """For empirical: the values that can be drawn."""
    weights: tuple[float, ...] = ()
    """For empirical: the relative frequency of each value."""
    path: str | None = None
    """For empirical: a file to read values and weights from instead."""


class Times(msgspec.Struct, frozen=True):
    """A distribution of durations; every draw is clamped to `low_s` and `high_s`."""

    distribution: str
    mean_s: float
    cv: float
    low_s: float
    high_s: float


class Arrivals(msgspec.Struct, frozen=True, omit_defaults=True):
    """An arrival process, its mean rate, and the burstiness of its gaps."""

    process: str
    rate_per_s: float
    cv: float
    """Coefficient of variation of the gaps: 0 for constant, 1 for poisson."""
    users: int = 0
    """For closed: the number of users; the rate then follows from their requests."""
    think: Times | None = None
    """For closed: the time from the end of a user's request to the user's next."""


class Curve(msgspec.Struct, frozen=True, omit_defaults=True):
    """The factor on a rate over time: straight lines between points, or a wave with mean 1."""

    points: tuple[tuple[float, float], ...] = ()
    """Pairs (time, factor); two points at the same time are a jump."""
    period_s: float = 0.0
    """If above 0, the curve is a wave with this period, and there are no points."""
    peak_s: float = 0.0
    ratio: float = 1.0
    """For a wave: the ratio of its highest to its lowest factor."""
