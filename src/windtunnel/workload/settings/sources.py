"""The entries of a workload: generated sources, traces, and their classes of service."""

from collections.abc import Iterator
from typing import Annotated, Literal

from pydantic import Field

from windtunnel.core.units import format_duration
from windtunnel.settings.faults import Fault
from windtunnel.settings.fields import (
    Duration,
    FilePath,
    Flag,
    ModelName,
    Name,
    Number,
    Share,
    Text,
    Whole,
    by_key,
    variant,
)
from windtunnel.settings.limits import (
    FASTEST_REPLAY,
    HIGHEST_PRIORITY,
    LARGEST_WEIGHT,
    LONGEST_RUN,
    LONGEST_TARGET,
    LONGEST_TRAFFIC_S,
    MOST_ADAPTERS,
    MOST_GROUPS,
    MOST_MEMBERS,
    MOST_REQUESTS,
)
from windtunnel.settings.section import Added, Context, Section, faults_of
from windtunnel.workload.arrivals import curve_of
from windtunnel.workload.distributions import Curve, Lengths
from windtunnel.workload.request import DEFAULT_SLO, MOST_TURNS
from windtunnel.workload.settings.arrivals import (
    ArrivalProcess,
    ClosedArrivals,
    NamedCurve,
    RateCurve,
    RatePerS,
    drawn_curve,
)
from windtunnel.workload.settings.lengths import (
    BoundedLengths,
    ConstantLengths,
    Pauses,
    TokenCounts,
    Tokens,
    UniformLengths,
)

Timeout = Annotated[float, Duration("0s", LONGEST_TARGET, above=True)]
Target = Annotated[float, Duration("0s", LONGEST_TARGET, above=True)]
Weight = Annotated[float, Number(0, LARGEST_WEIGHT, above=True)]

BUILT_IN_PRIORITIES = {"critical": 4, "standard": 3, "batch": -1, "sheddable": -2, "background": -3}
"""Priorities of the classes that every scenario has; higher goes first, below 0 may be shed."""


class PrefixSettings(Section):
    """System prompts that requests share, so that a prefix cache gets hits."""

    tokens: Tokens = Field(description="Tokens before each prompt, besides prompt_tokens.")
    groups: Annotated[int, Whole(1, MOST_GROUPS)] = Field(
        default=1,
        description="Prefixes; each request or session has a random one.",
    )


class PopulationSettings(Section):
    """A cohort: many clients that share the source's rate, with their own tenants or prefixes."""

    members: Annotated[int, Whole(1, MOST_MEMBERS)] = Field(
        description="Senders; each request or session comes from a random one."
    )
    tenants: Literal["shared", "per-member"] = Field(
        default="shared",
        description="`per-member`: each member is a tenant (`acme-0`, `acme-1`, ...).",
    )
    prefixes: Literal["shared", "per-member"] = Field(
        default="shared",
        description="`per-member`: each member has its own prefix.",
    )


class ExtraTokens(Section):
    """Additional tokens of some requests."""

    tokens: TokenCounts = Field(description="Number of tokens.")
    share: Annotated[float, Share(above=True)] = Field(
        default=1.0, description="Share of requests that have them."
    )


class AdapterMix(Section):
    """The LoRA adapters that requests use. Sources that name the same adapter share it."""

    weights: dict[Annotated[str, Name()], Weight] | None = Field(
        default=None,
        description="Adapters by name, with relative frequencies.",
    )
    count: Annotated[int, Whole(1, MOST_ADAPTERS)] | None = Field(
        default=None,
        description="Instead of weights: this many, named `adapter-0`, `adapter-1`, ...",
    )
    skew: Annotated[float, Number(0, 10)] | None = Field(
        default=None,
        description="With count: frequencies proportional to 1 / n^skew (Zipf). Default: 0.",
    )

    def check(self, where: Context) -> Iterator[Fault]:
        if (self.weights is None) == (self.count is None):
            given = self.weights is not None
            both, neither = "both weights and count are given", "there is neither weights nor count"
            yield where.fault((), both if given else neither, "either weights or count")
        if self.weights is not None and not self.weights:
            yield where.fault("weights", "there is no adapter", "at least one")
        if self.skew is not None and self.count is None:
            yield where.note("skew", "weights say how often each is asked for", "only with count")

    def drawn(self) -> tuple[tuple[str, float], ...]:
        """Names and weights, from either way of writing them."""
        if self.weights is not None:
            return tuple(self.weights.items())
        assert self.count is not None
        skew = self.skew or 0.0
        return tuple((f"adapter-{number}", (number + 1.0) ** -skew) for number in range(self.count))


class SessionSettings(Section):
    """Conversations: each turn starts a think time after the previous one ends."""

    turns: TokenCounts = Field(description="Requests per conversation, at most 10000.")
    think: Pauses = Field(description="From the end of a turn to the next.")
    context: Literal["accumulate", "fresh"] = Field(
        default="accumulate",
        description="`accumulate`: a prompt has all earlier turns plus prompt_tokens; `fresh`: "
        "prompt_tokens alone.",
    )

    def check(self, where: Context) -> Iterator[Fault]:
        """Limits the turns of a conversation; bounds that are not written need no check."""
        turns, allowed = self.turns, f"up to {MOST_TURNS}"
        if isinstance(turns, ConstantLengths) and turns.value > MOST_TURNS:
            yield where.fault("turns", f"{turns.value} are too many", allowed)
        elif isinstance(turns, UniformLengths) and turns.max > MOST_TURNS:
            yield where.fault(("turns", "max"), f"{turns.max} is too large", allowed)
        elif isinstance(turns, BoundedLengths):
            for key in ("mean", "min", "max"):
                if turns.written(key) and getattr(turns, key) > MOST_TURNS:
                    what = f"{getattr(turns, key):g} is too large"
                    yield where.fault(("turns", key), what, allowed)


class SourceSettings(Section):
    """Generated requests."""

    name: Annotated[str, Name()] = Field(description="Its name in results.")
    model: ModelName | None = Field(
        default=None, description="The model it asks for. Default: the scenario's."
    )
    tenant: Annotated[str, Name()] = Field(default="default", description="The tenant.")
    slo: Annotated[str, Name()] = Field(
        default="standard",
        description="Class of service: a built-in one, or one defined under `slo`.",
    )
    count: Annotated[int, Whole(1, MOST_REQUESTS)] | None = Field(
        default=None,
        description="Requests (with `session`, conversations). Default: until `duration`, then "
        "required.",
    )
    arrivals: ArrivalProcess = Field(
        description="Arrivals (of conversations, with `session`), by `process`."
    )
    rate_curve: RateCurve | None = Field(
        default=None,
        description="Factor on the rate over time: points joined by lines, or a named curve.",
    )
    prompt_tokens: TokenCounts = Field(description="Prompt tokens without the prefix.")
    output_tokens: TokenCounts = Field(description="Output tokens.")
    prefix: PrefixSettings | None = Field(
        default=None, description="Shared system prompts. Default: every prompt is new."
    )
    population: PopulationSettings | None = Field(
        default=None, description="Senders that share the source's rate. Default: one."
    )
    media: ExtraTokens | None = Field(
        default=None,
        description="Tokens of images and sound.",
    )
    reasoning: ExtraTokens | None = Field(
        default=None,
        description="Reasoning tokens, generated before output_tokens.",
    )
    session: SessionSettings | None = Field(
        default=None, description="Conversations. Default: independent requests."
    )
    adapters: AdapterMix | None = Field(
        default=None,
        description="LoRA adapters, a random one per request or session. Default: the base model.",
    )
    timeout_s: Timeout | None = Field(
        default=None,
        description="The client gives up this long after arrival. Default: never.",
    )

    @property
    def members(self) -> int:
        return self.population.members if self.population is not None else 1

    @property
    def tenant_per_member(self) -> bool:
        return self.population is not None and self.population.tenants == "per-member"

    @property
    def prefix_per_member(self) -> bool:
        return self.population is not None and self.population.prefixes == "per-member"

    @property
    def adapter_weights(self) -> tuple[tuple[str, float], ...]:
        """LoRA adapters with their weights; empty for the base model."""
        return () if self.adapters is None else self.adapters.drawn()

    @property
    def curve(self) -> Curve | None:
        return None if self.rate_curve is None else drawn_curve(self.rate_curve)

    def lengths(self) -> dict[str, Lengths]:
        """All distributions of lengths that the source draws from, by their path in a scenario."""
        found = {"prompt_tokens": self.prompt_tokens, "output_tokens": self.output_tokens}
        if self.media is not None:
            found["media.tokens"] = self.media.tokens
        if self.reasoning is not None:
            found["reasoning.tokens"] = self.reasoning.tokens
        drawn = {place: counts.drawn() for place, counts in found.items()}
        if self.session is not None:
            drawn["session.turns"] = self.session.turns.drawn(MOST_TURNS)
        return drawn

    def check(self, where: Context) -> Iterator[Fault]:
        curve = self.rate_curve
        is_closed = isinstance(self.arrivals, ClosedArrivals)
        if is_closed and curve is not None:
            what = "users in a closed loop have no rate that it could change"
            because = ((*where.path, "arrivals", "process"),)
            hint = "leave it out, or use an open process"
            yield where.fault("rate_curve", what, hint=hint, because_of=because)
        parts: list[Section] = [self.arrivals]
        if isinstance(curve, NamedCurve):
            parts.append(curve)
        if not any(True for part in parts for _ in faults_of(part, where)) and not (
            is_closed and curve is not None
        ):
            yield from self._end_faults(where)
        yield from self._population_faults(where)

    def _end_faults(self, where: Context) -> Iterator[Fault]:
        """Requires that traffic ends, and that it can reach its count."""
        endless = where.root.duration_s is None
        curve = curve_of(drawn_curve(self.rate_curve)) if self.rate_curve is not None else None
        total = curve.total() if curve is not None else float("inf")
        if self.count is None:
            if endless and total == float("inf"):
                what = "missing, and the scenario has no duration either, "
                what += "so that traffic would never end"
                hint = "give one of the two"
                yield where.fault("count", what, hint=hint, because_of=(("duration",),))
            return
        beside = ("arrivals", "rate_curve")
        if isinstance(self.arrivals, ClosedArrivals):
            lasts_s = self.count / self.arrivals.users * self.arrivals.think.drawn().mean_s
        else:
            rate_per_s = self.arrivals.drawn().rate_per_s
            even_s = self.count / rate_per_s
            if even_s > total:
                comes = int(total * rate_per_s)
                what = f"the rate falls to 0 after about {comes} requests, "
                what += f"so {self.count} never arrive"
                hint = "leave it out: traffic ends by itself"
                yield where.fault("count", what, hint=hint, beside=beside)
                return
            lasts_s = curve.time_of(even_s) if curve is not None else even_s
        if endless and lasts_s > LONGEST_TRAFFIC_S:
            what = f"{self.count} requests at this rate take {format_duration(lasts_s)}"
            allowed = f"up to {format_duration(LONGEST_TRAFFIC_S)}, or a duration that ends the run"
            yield where.fault("count", what, allowed, beside=beside)

    def _population_faults(self, where: Context) -> Iterator[Fault]:
        population, prefix = self.population, self.prefix
        if population is None:
            return
        if population.tenants == population.prefixes == "shared":
            what = "its members have nothing of their own, so that it changes nothing"
            hint = "set tenants or prefixes to per-member, or leave it out"
            yield where.inside("population").note((), what, hint)
        if population.prefixes == "shared":
            return
        if prefix is None:
            what = "'per-member', but the source has no prefix"
            hint = "prefix: {tokens: 600} would give each member 600 tokens"
            yield where.fault(("population", "prefixes"), what, hint=hint, beside=("prefix",))
        elif prefix.written("groups"):
            what = "every member of the population has a prefix of its own, so there are no groups"
            yield where.note(("prefix", "groups"), what, "leave it out")


class TraceSettings(Section):
    """A file of recorded requests."""

    path: Annotated[str, FilePath("the path of a trace")] = Field(
        description="The file; it may be compressed."
    )
    format: (
        Literal[
            "azure",
            "burstgpt",
            "mooncake",
            "blis",
            "servegen",
            "inference-perf",
            "windtunnel",
            "csv",
            "jsonl",
            "parquet",
        ]
        | None
    ) = Field(
        default=None,
        description="Default: detected. ShareGPT conversations need times: `windtunnel trace "
        "convert`.",
    )
    speedup: Annotated[float, Number(1 / FASTEST_REPLAY, FASTEST_REPLAY)] = Field(
        default=1.0, description="Replay this many times as fast."
    )
    rate_per_s: Annotated[RatePerS | None, Added()] = Field(
        default=None,
        description="Instead of `speedup`: replay at this mean rate.",
    )
    start_s: Annotated[float, Duration("0s", LONGEST_RUN), Added()] = Field(
        default=0.0,
        description="Skip the trace before this time.",
    )
    sort: Annotated[bool, Flag()] = Field(
        default=False,
        description="Sort in memory first, if requests may be over 8192 rows late.",
    )
    sessions: Literal["open", "closed"] = Field(
        default="open",
        description="`open`: turns arrive at the trace's times; `closed`: a think time after the "
        "end of the last (the whole trace is in memory).",
    )
    think: Pauses | None = Field(
        default=None,
        description="With `sessions: closed`. Default: the trace's `think`, else the gap between "
        "arrivals less the first's E2E, if known; divided by speedup.",
    )
    models: dict[Annotated[str, Text("a model's name in the trace")], ModelName] | None = Field(
        default=None,
        min_length=1,
        description="Maps model names in the trace to models.",
    )
    skip_bad: Annotated[int, Whole(0, MOST_REQUESTS)] = Field(
        default=0, description="Skip and count up to this many unreadable rows."
    )

    def check(self, where: Context) -> Iterator[Fault]:
        if self.rate_per_s is not None and self.written("speedup"):
            what = "`speedup` is given, too, and a replay has one speed"
            yield where.fault("rate", what, hint="leave one of them out", beside=("speedup",))
        if self.think is not None and self.sessions == "open":
            what = "turns come at the trace's times, without think time"
            yield where.note("think", what, "add sessions: closed")


class ReplaySettings(Section):
    """The requests of a trace, replayed."""

    trace: TraceSettings = Field(description="The file, and how to read it.")
    name: Annotated[str, Name()] | None = Field(
        default=None,
        description="Its name in results. Default: the trace's sources, or the file's name.",
    )
    model: ModelName | None = Field(
        default=None,
        description="The model of requests not in `trace.models`. Default: the scenario's.",
    )
    tenant: Annotated[str, Name()] | None = Field(
        default=None, description="The tenant. Default: as in the trace, or `default`."
    )
    slo: Annotated[str, Name()] | None = Field(
        default=None,
        description="Class of service of all its requests. Default: as in the trace, or "
        "`default_slo`.",
    )
    default_slo: Annotated[Annotated[str, Name()], Added()] = Field(
        default=DEFAULT_SLO,
        description="Class of service of requests that have none in the trace.",
    )
    count: Annotated[int, Whole(1, MOST_REQUESTS)] | None = Field(
        default=None, description="Only its first requests. Default: all."
    )
    timeout_s: Timeout | None = Field(
        default=None,
        description="The client gives up this long after arrival. Default: as in the trace, or "
        "never.",
    )


WorkloadEntry = Annotated[
    Annotated[SourceSettings, variant("source")] | Annotated[ReplaySettings, variant("replay")],
    by_key("trace", "replay", "source"),
]


def models_of(entry: WorkloadEntry) -> list[str | None]:
    """The models that an entry's requests may be for; None is the scenario's model."""
    others = (entry.trace.models or {}).values() if isinstance(entry, ReplaySettings) else ()
    return [entry.model, *others]


class SloClass(Section):
    """A class of service: its priority, and its latency targets."""

    priority: Annotated[int, Whole(-HIGHEST_PRIORITY, HIGHEST_PRIORITY)] | None = Field(
        default=None,
        description="Higher goes first; below 0 may be shed. Default: the built-in class's, "
        "otherwise standard's.",
    )
    ttft_s: Target | None = Field(default=None, description="Target for the time to first token.")
    tpot_s: Target | None = Field(
        default=None, description="Target for the mean time per further token."
    )
    e2e_s: Target | None = Field(
        default=None,
        description="Target for the time to the last token.",
    )


def priority_of(name: str, slo: SloClass) -> int:
    """The priority of a class: its own, that of the built-in class, or that of standard."""
    if slo.priority is not None:
        return slo.priority
    return BUILT_IN_PRIORITIES.get(name, BUILT_IN_PRIORITIES[DEFAULT_SLO])
