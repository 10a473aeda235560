"""Plans that hypothesis makes up, and a world in which requests end when a test says so."""

import math
from collections.abc import Callable
from heapq import heappop, heappush

from hypothesis import strategies as st

from windtunnel.core.random import Streams
from windtunnel.workload.plan import (
    Arrivals,
    Conversation,
    Curve,
    Entry,
    Extra,
    Lengths,
    Prefix,
    Source,
    Times,
)
from windtunnel.workload.request import Request
from windtunnel.workload.traffic import Traffic

FIVE = Lengths("constant", 5.0, 0.0, 5, 5)
POISSON = Arrivals("poisson", 10.0, 1.0)


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
) -> Source:
    """A source of which a test says only what it is about."""
    return Source(
        name, "t", "standard", 3, count, arrivals, prompt, output, prefix, curve, timeout_s,
        conversation, population, tenant_per_member, media, reasoning,
    )  # fmt: skip


Service = Callable[[Request], tuple[float, bool]]
"""How long a request takes, and whether it is completed."""


def instant(_: Request) -> tuple[float, bool]:
    return 0.0, True


class World:
    """Serves traffic without servers, to its end or to `end_s`."""

    def __init__(
        self,
        entries: tuple[Entry, ...],
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


@st.composite
def any_source(draw: st.DrawFn, name: str) -> Source:
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
        prompt=draw(any_lengths()),
        output=draw(any_lengths()),
        prefix=draw(
            st.none()
            | st.builds(Prefix, st.integers(1, 99), st.integers(1, 5), st.just(per_member))
        ),
        timeout_s=draw(st.none() | st.floats(0.1, 9.0)),
        conversation=talk,
        population=draw(st.integers(1, 5)),
        tenant_per_member=draw(st.booleans()),
        media=draw(st.none() | st.builds(Extra, any_lengths(), st.floats(0.1, 1.0))),
        reasoning=draw(st.none() | st.builds(Extra, any_lengths(), st.floats(0.1, 1.0))),
    )
