"""What a workload is to do, with every default filled in: the values its generators run on."""

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


class Prefix(msgspec.Struct, frozen=True, omit_defaults=True):
    """System prompts: each request's prompt starts with the shared tokens of one of the groups."""

    tokens: int
    groups: int
    per_member: bool = False
    """Each member of the population has one of its own."""


class Extra(msgspec.Struct, frozen=True):
    """Tokens that some requests have on top: of media in the prompt, of reasoning in the output."""

    tokens: Lengths
    share: float
    """Of the requests that have them."""


class Conversation(msgspec.Struct, frozen=True):
    """Requests that follow each other: each turn starts some time after the last one ended."""

    turns: Lengths
    think: Times
    accumulates: bool
    """Whether a turn's prompt starts with all that was said before."""


class Source(msgspec.Struct, frozen=True, omit_defaults=True, tag_field="from", tag="draws"):
    """One stream of requests of one kind."""

    name: str
    tenant: str
    slo: str
    priority: int
    count: int | None
    """Requests in all, or conversations; None: until the end of the run."""
    arrivals: Arrivals
    prompt: Lengths
    output: Lengths
    prefix: Prefix | None
    curve: Curve | None = None
    timeout_s: float | None = None
    conversation: Conversation | None = None
    population: int = 1
    tenant_per_member: bool = False
    media: Extra | None = None
    reasoning: Extra | None = None
    adapters: tuple[tuple[str, float], ...] = ()
    """LoRA adapters by weight; none: the base model."""
    model: str | None = None
    """Which its requests are for; None: one without a name."""


def lengths_of(source: Source) -> dict[str, Lengths]:
    """Every distribution of lengths that a source draws from, by its place in a scenario."""
    found = {"prompt_tokens": source.prompt, "output_tokens": source.output}
    if source.media is not None:
        found["media.tokens"] = source.media.tokens
    if source.reasoning is not None:
        found["reasoning.tokens"] = source.reasoning.tokens
    if source.conversation is not None:
        found["session.turns"] = source.conversation.turns
    return found


class TraceReplay(msgspec.Struct, frozen=True, tag_field="from", tag="trace"):
    """Requests of a file, at the times that it says. None: as the file says."""

    path: str
    format: str | None
    speedup: float
    skip_bad: int
    sort: bool
    name: str | None
    tenant: str | None
    slo: str | None
    timeout_s: float | None
    count: int | None
    adapters: bool = False
    """Whether there are slots for the adapters that its requests ask for."""
    closed: bool = False
    """Whether a turn of a session waits for the end of the last one."""
    think: Times | None = None
    """Then: the pause between the two; None: as far as the file says."""
    model: str | None = None
    """Which its requests are for, but those that `models` has by the file's name for theirs."""
    models: dict[str, str] = {}


Entry = Source | TraceReplay
"""One entry of a workload."""


def models_of(entry: Entry) -> list[str | None]:
    """The models that requests of an entry may be for."""
    others = entry.models.values() if isinstance(entry, TraceReplay) else ()
    return [entry.model, *others]
