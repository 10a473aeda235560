"""The entries of a workload: sources of drawn requests, traces, and the classes they are in."""

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
Share = Annotated[float, Number(0, 1, above=True)]
Weight = Annotated[float, Number(0, LARGEST_WEIGHT, above=True)]

BUILT_IN_PRIORITIES = {"critical": 4, "standard": 3, "batch": -1, "sheddable": -2, "background": -3}
"""The classes of service that every scenario has; higher goes first, below 0 may be shed."""


class PrefixSettings(Section):
    """System prompts that requests share, so that a prefix cache has something to find."""

    tokens: Tokens = Field(
        description="Shared tokens at the start of each prompt, in addition to prompt_tokens."
    )
    groups: Annotated[int, Whole(1, MOST_GROUPS)] = Field(
        default=1,
        description="How many different prefixes there are; each request has one at random, "
        "each session one for all its turns.",
    )


class PopulationSettings(Section):
    """A cohort: many alike who share the source's rate, and of whom each has something its own."""

    members: Annotated[int, Whole(1, MOST_MEMBERS)] = Field(
        description="How many there are. Each request, or session, is that of one at random; "
        "in a closed loop user n is member n for good."
    )
    tenants: Literal["shared", "per-member"] = Field(
        default="shared",
        description="`per-member`: each is a tenant of its own, `acme-0`, `acme-1` and so on "
        "if the tenant is `acme`.",
    )
    prefixes: Literal["shared", "per-member"] = Field(
        default="shared",
        description="`per-member`: each has a prefix of its own instead of one of `prefix.groups`.",
    )


class ExtraTokens(Section):
    """Tokens that some requests have on top."""

    tokens: TokenCounts = Field(description="How many: a whole number, or a distribution.")
    share: Share = Field(default=1.0, description="Which part of the requests have them.")


class AdapterMix(Section):
    """Which LoRA adapter a request is for. Sources that name the same adapter share it."""

    weights: dict[Annotated[str, Name()], Weight] | None = Field(
        default=None,
        description="Adapters by name, and how often each is asked for relative to the others.",
    )
    count: Annotated[int, Whole(1, MOST_ADAPTERS)] | None = Field(
        default=None,
        description="Instead of weights: so many adapters, `adapter-0`, `adapter-1` and so on.",
    )
    skew: Annotated[float, Number(0, 10)] | None = Field(
        default=None,
        description="With count: the n-th adapter is asked for in proportion to 1 / n^skew. "
        "Left out: 0, all equally often; 1 is what many catalogues come to.",
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
        """Names and weights, however they were written."""
        if self.weights is not None:
            return tuple(self.weights.items())
        assert self.count is not None
        skew = self.skew or 0.0
        return tuple((f"adapter-{number}", (number + 1.0) ** -skew) for number in range(self.count))


class SessionSettings(Section):
    """Conversations: each turn comes after the last one has ended and its reader has thought."""

    turns: TokenCounts = Field(
        description="Requests of a conversation, at most 10000: a whole number, or a distribution."
    )
    think: Pauses = Field(
        description="From the end of a turn to the next: a duration, or a distribution."
    )
    context: Literal["accumulate", "fresh"] = Field(
        default="accumulate",
        description="`accumulate`: a turn's prompt is all that was said before and prompt_tokens "
        "more, which a prefix cache can find; `fresh`: prompt_tokens alone.",
    )

    def check(self, where: Context) -> Iterator[Fault]:
        """A conversation has only so many turns; what is merely left open is bounded by itself."""
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
    """One stream of requests; it draws from its own random stream, whatever other sources do."""

    name: Annotated[str, Name()] = Field(
        description="Its name in results. "
        "Its random draws depend on it and on the seed, nothing else."
    )
    model: ModelName | None = Field(
        default=None, description="The model that it asks for; left out: the scenario's."
    )
    tenant: Annotated[str, Name()] = Field(
        default="default", description="On whose behalf the requests come."
    )
    slo: Annotated[str, Name()] = Field(
        default="standard",
        description="Class of service: critical, standard, batch, sheddable, background, "
        "or one defined under `slo`.",
    )
    count: Annotated[int, Whole(1, MOST_REQUESTS)] | None = Field(
        default=None,
        description="Requests in all; with `session`, conversations. "
        "Left out: until `duration`, which must then be given.",
    )
    arrivals: ArrivalProcess = Field(
        description="When requests come, or conversations begin; `process` chooses how."
    )
    rate_curve: RateCurve | None = Field(
        default=None,
        description="What the rate is multiplied by over time: points with straight lines between "
        "them, the first and the last of which hold before and after, or a curve by name. "
        "Left out: the rate stays as it is.",
    )
    prompt_tokens: TokenCounts = Field(
        description="Tokens of a prompt without its prefix: a whole number, or a distribution."
    )
    output_tokens: TokenCounts = Field(
        description="Tokens generated for a request: a whole number, or a distribution."
    )
    prefix: PrefixSettings | None = Field(
        default=None, description="Shared system prompts; left out, every prompt is new."
    )
    population: PopulationSettings | None = Field(
        default=None, description="Who sends them; left out, one."
    )
    media: ExtraTokens | None = Field(
        default=None,
        description="Tokens of images and sound, on top of prompt_tokens; "
        "with `serving.encode` an encoder makes them first.",
    )
    reasoning: ExtraTokens | None = Field(
        default=None,
        description="Tokens of thought, on top of output_tokens and written before them.",
    )
    session: SessionSettings | None = Field(
        default=None, description="Conversations; left out, every request is for itself."
    )
    adapters: AdapterMix | None = Field(
        default=None,
        description="LoRA adapters that requests are for, each for one at random and each session "
        "for one in all its turns. Left out: the model itself.",
    )
    timeout_s: Timeout | None = Field(
        default=None,
        description="How long after a request's arrival its client gives up; "
        "left out, it never does.",
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
        """LoRA adapters by weight; none: the base model."""
        return () if self.adapters is None else self.adapters.drawn()

    @property
    def curve(self) -> Curve | None:
        return None if self.rate_curve is None else drawn_curve(self.rate_curve)

    def lengths(self) -> dict[str, Lengths]:
        """Every distribution of lengths that it draws from, by its place in a scenario."""
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
        """Traffic must end, and must be able to come to its count."""
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
                what += f"so {self.count} never come"
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
    """A file of requests that once arrived somewhere."""

    path: Annotated[str, FilePath("the path of a trace")] = Field(
        description="The file; it counts from the scenario's folder. It may be packed."
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
        description="Left out: recognised by what the file starts with. "
        "Conversations of ShareGPT have no times: `windtunnel trace convert` gives them some.",
    )
    speedup: Annotated[float, Number(1 / FASTEST_REPLAY, FASTEST_REPLAY)] = Field(
        default=1.0, description="Requests arrive this many times as fast."
    )
    rate_per_s: Annotated[RatePerS | None, Added()] = Field(
        default=None,
        description="The mean rate at which its requests arrive, instead of `speedup`: the replay "
        "is as much faster or slower as that takes.",
    )
    start_s: Annotated[float, Duration("0s", LONGEST_RUN), Added()] = Field(
        default=0.0,
        description="Leave out what comes before this time of the trace, and count from there. "
        "With `duration`, a run replays one stretch of it.",
    )
    sort: Annotated[bool, Flag()] = Field(
        default=False,
        description="Sort all of it in memory first; without, a request may come 8192 rows late.",
    )
    sessions: Literal["open", "closed"] = Field(
        default="open",
        description="`open`: every turn comes at the trace's time. `closed`: a turn comes when the "
        "last one of its session has ended and its reader has thought; all of the trace is then "
        "read before the run.",
    )
    think: Pauses | None = Field(
        default=None,
        description="With `sessions: closed`: the pause before a turn. Left out: as the trace says "
        "(its `think`, else the time between two arrivals less the E2E of the first, if known), "
        "divided by speedup.",
    )
    models: dict[Annotated[str, Text("a model's name in the trace")], ModelName] | None = Field(
        default=None,
        min_length=1,
        description="Which model a request is for, by the name that the trace has for it. Requests "
        "of other names, or of none, are for the entry's `model`. Left out: all are.",
    )
    skip_bad: Annotated[int, Whole(0, MOST_REQUESTS)] = Field(
        default=0, description="Up to this many rows that cannot be read are left out, and counted."
    )

    def check(self, where: Context) -> Iterator[Fault]:
        if self.rate_per_s is not None and self.written("speedup"):
            what = "`speedup` is given, too, and a replay has one speed"
            yield where.fault("rate", what, hint="leave one of them out", beside=("speedup",))
        if self.think is not None and self.sessions == "open":
            what = "turns come at the trace's times, and nobody thinks"
            yield where.note("think", what, "add sessions: closed")


class ReplaySettings(Section):
    """The requests of a trace, at the times that it says; what is left out here, it says too."""

    trace: TraceSettings = Field(description="Which file, and how it is read.")
    name: Annotated[str, Name()] | None = Field(
        default=None,
        description="Its name in results. Left out: the trace's own names of sources, "
        "or the file's name.",
    )
    model: ModelName | None = Field(
        default=None,
        description="The model that its requests ask for, but those that `trace.models` has; "
        "left out: the scenario's.",
    )
    tenant: Annotated[str, Name()] | None = Field(
        default=None, description="On whose behalf. Left out: as the trace says, or `default`."
    )
    slo: Annotated[str, Name()] | None = Field(
        default=None, description="Class of service. Left out: as the trace says, or `standard`."
    )
    count: Annotated[int, Whole(1, MOST_REQUESTS)] | None = Field(
        default=None, description="Only its first requests. Left out: all, or until `duration`."
    )
    timeout_s: Timeout | None = Field(
        default=None,
        description="How long after a request's arrival its client gives up. "
        "Left out: as the trace says, or never.",
    )


WorkloadEntry = Annotated[
    Annotated[SourceSettings, variant("source")] | Annotated[ReplaySettings, variant("replay")],
    by_key("trace", "replay", "source"),
]


def models_of(entry: WorkloadEntry) -> list[str | None]:
    """The models that requests of an entry may be for."""
    others = (entry.trace.models or {}).values() if isinstance(entry, ReplaySettings) else ()
    return [entry.model, *others]


class SloClass(Section):
    """A class of service: its priority, and the times that count as good."""

    priority: Annotated[int, Whole(-HIGHEST_PRIORITY, HIGHEST_PRIORITY)] | None = Field(
        default=None,
        description="Higher goes first; below 0 may be shed. Left out: what the built-in class has "
        "(critical 4, standard 3, batch -1, sheddable -2, background -3); "
        "a class of your own has that of standard.",
    )
    ttft_s: Target | None = Field(
        default=None, description="Longest time to the first token; left out, no target."
    )
    tpot_s: Target | None = Field(
        default=None, description="Longest mean time per further token; left out, no target."
    )
    e2e_s: Target | None = Field(
        default=None,
        description="Longest time from arrival to the last token; left out, no target.",
    )


def priority_of(name: str, slo: SloClass) -> int:
    """The priority of a class: its own, that of the built-in class, or that of standard."""
    if slo.priority is not None:
        return slo.priority
    return BUILT_IN_PRIORITIES.get(name, BUILT_IN_PRIORITIES[DEFAULT_SLO])
