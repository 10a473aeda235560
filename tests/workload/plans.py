"""Plans that hypothesis makes up, and a world in which requests end when a test says so."""

import math
from collections.abc import Callable, Sequence
from heapq import heappop, heappush
from typing import Any, NamedTuple

from hypothesis import strategies as st

from windtunnel.core.random import Streams
from windtunnel.workload.distributions import Arrivals, Curve, Lengths, Times
from windtunnel.workload.request import Request
from windtunnel.workload.settings.arrivals import (
    ArrivalProcess,
    ClosedArrivals,
    ConstantArrivals,
    DiurnalCurve,
    GammaArrivals,
    NamedCurve,
    PoissonArrivals,
    RateCurve,
    WeibullArrivals,
)
from windtunnel.workload.settings.lengths import (
    ConstantLengths,
    ConstantPause,
    EmpiricalLengths,
    ExponentialLengths,
    ExponentialPause,
    LognormalLengths,
    LognormalPause,
    NormalLengths,
    ParetoLognormalLengths,
    ParetoTail,
    Pauses,
    TokenCounts,
    UniformLengths,
    UniformPause,
)
from windtunnel.workload.settings.sources import (
    ExtraTokens,
    PopulationSettings,
    PrefixSettings,
    SessionSettings,
    SourceSettings,
    WorkloadEntry,
)
from windtunnel.workload.traffic import Traffic

FIVE = Lengths("constant", 5.0, 0.0, 5, 5)
POISSON = Arrivals("poisson", 10.0, 1.0)


class Prefix(NamedTuple):
    tokens: int
    groups: int
    per_member: bool = False


class Extra(NamedTuple):
    tokens: Lengths
    share: float

    def section(self) -> ExtraTokens:
        return ExtraTokens.model_construct(tokens=counts_of(self.tokens), share=self.share)


class Conversation(NamedTuple):
    turns: Lengths
    think: Times
    accumulates: bool

    def section(self) -> SessionSettings:
        return SessionSettings.model_construct(
            turns=counts_of(self.turns),
            think=pauses_of(self.think),
            context="accumulate" if self.accumulates else "fresh",
        )


def counts_of(lengths: Lengths) -> TokenCounts:
    """A distribution as a section; its values are taken as they are."""
    kind, low, high = lengths.distribution, lengths.low, lengths.high
    given: dict[str, Any] = {"distribution": kind}
    if kind == "constant":
        return ConstantLengths.model_construct(**given, value=low)
    if kind == "uniform":
        return UniformLengths.model_construct(**given, min=low, max=high)
    if kind == "empirical":
        values = tuple(zip(lengths.values, lengths.weights, strict=True)) or None
        return EmpiricalLengths.model_construct(**given, values=values, path=lengths.path)
    given |= {"mean": lengths.mean, "min": low, "max": high}
    if kind == "exponential":
        return ExponentialLengths.model_construct(**given)
    given["cv"] = lengths.cv
    if kind == "normal":
        return NormalLengths.model_construct(**given)
    if kind == "lognormal":
        return LognormalLengths.model_construct(**given)
    tail = ParetoTail.model_construct(
        share=lengths.tail_share, start=lengths.tail_start, alpha=lengths.tail_alpha
    )
    return ParetoLognormalLengths.model_construct(**given, tail=tail)


def process_of(arrivals: Arrivals) -> ArrivalProcess:
    """An open process as a section; its values are taken as they are."""
    given: dict[str, Any] = {"process": arrivals.process, "rate_per_s": arrivals.rate_per_s}
    if arrivals.process == "poisson":
        return PoissonArrivals.model_construct(**given)
    if arrivals.process == "constant":
        return ConstantArrivals.model_construct(**given)
    shaped = GammaArrivals if arrivals.process == "gamma" else WeibullArrivals
    return shaped.model_construct(**given, cv=arrivals.cv)


def pauses_of(times: Times) -> Pauses:
    given: dict[str, Any] = {"distribution": times.distribution}
    if times.distribution == "constant":
        return ConstantPause.model_construct(**given, value_s=times.mean_s)
    given |= {"min_s": times.low_s, "max_s": times.high_s}
    if times.distribution == "uniform":
        return UniformPause.model_construct(**given)
    given["mean_s"] = times.mean_s
    if times.distribution == "exponential":
        return ExponentialPause.model_construct(**given)
    return LognormalPause.model_construct(**given, cv=times.cv)


def arrivals_of(arrivals: Arrivals) -> ArrivalProcess:
    if arrivals.think is None:
        return process_of(arrivals)
    think = pauses_of(arrivals.think)
    return ClosedArrivals.model_construct(process="closed", users=arrivals.users, think=think)


def curve_section(curve: Curve) -> RateCurve:
    if not curve.period_s:
        return curve.points
    day = DiurnalCurve.model_construct(
        ratio=curve.ratio, peak_s=curve.peak_s, period_s=curve.period_s
    )
    return NamedCurve.model_construct(diurnal=day)


def pause(seconds: float) -> Times:
    return Times("constant", seconds, 0.0, seconds, seconds)


def users(count: int, think_s: float) -> Arrivals:
    return Arrivals("closed", 0.0, 0.0, count, pause(think_s))


def source(
    name: str = "s",
    *,
    count: int | None = 50,
    arrivals: Arrivals = POISSON,
    prompt: Lengths = FIVE,
    output: Lengths = FIVE,
    prefix: Prefix | None = None,
    curve: Curve | None = None,
    timeout_s: float | None = None,
    conversation: Conversation | None = None,
    population: int = 1,
    tenant_per_member: bool = False,
    media: Extra | None = None,
    reasoning: Extra | None = None,
) -> SourceSettings:
    """A source of which a test says only what it is about."""
    own_prefixes = prefix is not None and prefix.per_member
    return SourceSettings.model_construct(
        name=name,
        tenant="t",
        count=count,
        arrivals=arrivals_of(arrivals),
        prompt_tokens=counts_of(prompt),
        output_tokens=counts_of(output),
        prefix=PrefixSettings(tokens=prefix.tokens, groups=prefix.groups) if prefix else None,
        rate_curve=None if curve is None else curve_section(curve),
        timeout_s=timeout_s,
        session=None if conversation is None else conversation.section(),
        population=PopulationSettings(
            members=population,
            tenants="per-member" if tenant_per_member else "shared",
            prefixes="per-member" if own_prefixes else "shared",
        ),
        media=None if media is None else media.section(),
        reasoning=None if reasoning is None else reasoning.section(),
    )


Service = Callable[[Request], tuple[float, bool]]
"""How long a request takes, and whether it is completed."""


def instant(_: Request) -> tuple[float, bool]:
    return 0.0, True


class World:
    """Serves traffic without servers, to its end or to `end_s`."""

    def __init__(
        self,
        entries: Sequence[WorkloadEntry],
        service: Service = instant,
        *,
        seed: int = 1,
        end_s: float = math.inf,
        most: int = 100_000,
    ) -> None:
        self.traffic = Traffic(entries, Streams(seed), end_s)
        self.requests: list[Request] = []
        self.ends: dict[int, float] = {}
        ending: list[tuple[float, int, Request, bool]] = []
        now_s = 0.0
        while len(self.requests) < most:
            ends_s = ending[0][0] if ending else math.inf
            if min(ends_s, self.traffic.next_s) == math.inf or ends_s > end_s <= now_s:
                break
            if self.traffic.next_s <= ends_s:
                now_s = self.traffic.next_s
                request = self.traffic.take()
                assert request.arrived_s == now_s
                self.requests.append(request)
                took_s, completed = service(request)
                heappush(ending, (now_s + took_s, request.id, request, completed))
            else:
                now_s, _, request, completed = heappop(ending)
                if now_s > end_s:
                    break
                self.ends[request.id] = now_s
                self.traffic.ended(request, completed, now_s)
        self.traffic.stop(min(now_s, end_s))

    def of(self, name: str) -> list[Request]:
        number = self.traffic.sources.index(name)
        return [request for request in self.requests if request.source == number]


rates = st.floats(0.5, 50.0)
cvs = st.floats(0.2, 4.0)


@st.composite
def any_arrivals(draw: st.DrawFn) -> Arrivals:
    process = draw(st.sampled_from(["poisson", "constant", "gamma", "weibull"]))
    cv = {"poisson": 1.0, "constant": 0.0}.get(process)
    return Arrivals(process, draw(rates), draw(cvs) if cv is None else cv)


@st.composite
def any_curve(draw: st.DrawFn) -> Curve:
    if draw(st.booleans()):
        period_s = draw(st.floats(1.0, 1e5))
        return Curve(
            period_s=period_s,
            peak_s=draw(st.floats(0.0, 2.0)) * period_s,
            ratio=draw(st.floats(1.0, 50.0)),
        )
    steps = draw(st.lists(st.sampled_from([0.0, 0.5, 3.0, 40.0]), min_size=1, max_size=6))
    factors = draw(st.lists(st.sampled_from([0.0, 0.3, 1.0, 7.0]), min_size=6, max_size=6))
    points, time_s = [], 0.0
    for step_s, factor in zip(steps, factors, strict=False):
        time_s += step_s
        points.append((time_s, factor))
    if not any(factor for _, factor in points):
        points[-1] = (time_s, 1.0)
    return Curve(points=tuple(points))


@st.composite
def any_lengths(draw: st.DrawFn) -> Lengths:
    kind = draw(
        st.sampled_from(
            ["constant", "uniform", "normal", "lognormal", "exponential", "pareto-lognormal",
             "empirical"]
        )
    )  # fmt: skip
    low = draw(st.integers(1, 200))
    high = low + draw(st.integers(1, 5000))
    if kind == "constant":
        return Lengths(kind, float(low), 0.0, low, low)
    if kind == "empirical":
        values = tuple(draw(st.lists(st.integers(1, 6000), min_size=1, max_size=5)))
        weights = tuple(draw(st.floats(0.1, 5.0)) for _ in values)
        return Lengths(kind, 0.0, 0.0, low, high, values=values, weights=weights)
    mean = draw(st.floats(low, high))
    cv = 1.0 if kind == "exponential" else draw(st.floats(0.0, 3.0))
    if kind != "pareto-lognormal":
        return Lengths(kind, mean, cv, low, high)
    alpha, start = draw(st.sampled_from([0.8, 1.0, 2.5])), draw(st.floats(1.0, high))
    share = draw(st.floats(0.01, 1.0))
    return Lengths(kind, mean, cv, low, high, tail_alpha=alpha, tail_start=start, tail_share=share)


def any_counts() -> st.SearchStrategy[Lengths]:
    """As a scenario can say: lengths that were seen have no bounds of their own there."""
    return any_lengths().map(lambda lengths: counts_of(lengths).drawn())


@st.composite
def any_source(draw: st.DrawFn, name: str) -> SourceSettings:
    """Any source that ends by itself."""
    closed = draw(st.booleans())
    talk = None
    if draw(st.booleans()):
        turns = Lengths("uniform", 2.5, 0.4, 1, 4)
        talk = Conversation(turns, pause(draw(st.floats(0.0, 3.0))), draw(st.booleans()))
    per_member = draw(st.booleans())
    return source(
        name,
        count=draw(st.integers(1, 20)),
        arrivals=users(draw(st.integers(1, 5)), draw(st.floats(0.0, 3.0)))
        if closed
        else draw(any_arrivals()),
        curve=None if closed else draw(st.none() | any_curve()),
        prompt=draw(any_counts()),
        output=draw(any_counts()),
        prefix=draw(
            st.none()
            | st.builds(Prefix, st.integers(1, 99), st.integers(1, 5), st.just(per_member))
        ),
        timeout_s=draw(st.none() | st.floats(0.1, 9.0)),
        conversation=talk,
        population=draw(st.integers(1, 5)),
        tenant_per_member=draw(st.booleans()),
        media=draw(st.none() | st.builds(Extra, any_counts(), st.floats(0.1, 1.0))),
        reasoning=draw(st.none() | st.builds(Extra, any_counts(), st.floats(0.1, 1.0))),
    )
