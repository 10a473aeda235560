"""What a workload is to do, with every default filled in: the values its generators run on."""

import msgspec


class Lengths(msgspec.Struct, frozen=True):
    """A distribution of token counts; every draw is rounded and held within `low` and `high`."""

    distribution: str
    mean: float
    cv: float
    """Standard deviation over mean, before draws are held within the bounds."""
    low: int
    high: int


class Arrivals(msgspec.Struct, frozen=True):
    """When requests come: a process, its mean rate, and how bursty its gaps are."""

    process: str
    rate_per_s: float
    cv: float
    """Standard deviation over mean of the gaps: 0 for constant, 1 for poisson."""


class Prefix(msgspec.Struct, frozen=True):
    """System prompts: each request's prompt starts with the shared tokens of one of the groups."""

    tokens: int
    groups: int


class Source(msgspec.Struct, frozen=True):
    """One stream of requests of one kind."""

    name: str
    tenant: str
    slo: str
    priority: int
    count: int | None
    """Requests in all; None: until the end of the run."""
    arrivals: Arrivals
    prompt: Lengths
    output: Lengths
    prefix: Prefix | None
