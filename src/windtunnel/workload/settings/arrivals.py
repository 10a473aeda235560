"""Settings of arrivals: arrival processes, and how their rate changes over time."""

import math
from collections.abc import Iterator
from typing import Annotated, Literal, Self

from pydantic import Field

from windtunnel.core.errors import InputError
from windtunnel.core.units import parse_duration, parse_rate
from windtunnel.settings.faults import Fault
from windtunnel.settings.fields import (
    Duration,
    Leaf,
    Number,
    Rate,
    Whole,
    by_shape,
    chosen_by,
    is_not,
    shown,
    variant,
)
from windtunnel.settings.limits import (
    FASTEST_RATE,
    LARGEST_CV,
    LARGEST_FACTOR,
    LONGEST_RUN,
    MOST_POINTS,
    MOST_USERS,
    SLOWEST_RATE,
)
from windtunnel.settings.section import Context, Section
from windtunnel.workload.arrivals import weibull_cv
from windtunnel.workload.distributions import Arrivals, Curve
from windtunnel.workload.settings.lengths import Pauses

Burstiness = Annotated[float, Number(0.01, LARGEST_CV)]
RatePerS = Annotated[float, Rate(SLOWEST_RATE, FASTEST_RATE)]
Moment = Annotated[float, Duration("0s", LONGEST_RUN)]
Span = Annotated[float, Duration("0s", LONGEST_RUN, above=True)]
Factor = Annotated[float, Number(0, LARGEST_FACTOR)]

LONGEST_RUN_S = parse_duration(LONGEST_RUN)

PARTNERS = {"rate": "cv", "cv": "rate", "shape": "scale", "scale": "shape"}


class PoissonArrivals(Section):
    """A Poisson process."""

    process: Literal["poisson"]
    rate_per_s: RatePerS = Field(description="Mean requests per second.")

    def drawn(self) -> Arrivals:
        return Arrivals("poisson", self.rate_per_s, 1.0)

    def scaled(self, load: float) -> Self:
        return self.model_copy(update={"rate_per_s": self.rate_per_s * load})


class ConstantArrivals(Section):
    """Equal gaps."""

    process: Literal["constant"]
    rate_per_s: RatePerS = Field(description="Requests per second.")

    def drawn(self) -> Arrivals:
        return Arrivals("constant", self.rate_per_s, 0.0)

    def scaled(self, load: float) -> Self:
        return self.model_copy(update={"rate_per_s": self.rate_per_s * load})


class ShapedArrivals(Section):
    """Settings that the gamma and Weibull processes share."""

    rate_per_s: RatePerS | None = Field(
        default=None, description="Mean requests per second; with cv."
    )
    cv: Burstiness | None = Field(
        default=None,
        description="Coefficient of variation of the gaps; 1 is Poisson, more is burstier.",
    )

    def by_shape(self) -> tuple[float, float]:
        """The mean gap and its cv that follow from shape and scale."""
        raise NotImplementedError

    def drawn(self) -> Arrivals:
        """The process by its rate and the cv of its gaps, from either way of writing it."""
        process: str = getattr(self, "process")  # noqa: B009 - of each of those below
        if self.rate_per_s is not None and self.cv is not None:
            return Arrivals(process, self.rate_per_s, self.cv)
        mean_s, cv = self.by_shape()
        return Arrivals(process, 1.0 / mean_s, cv)

    def scaled(self, load: float) -> Self:
        now = self.drawn()
        by_rate = {"rate_per_s": now.rate_per_s * load, "cv": now.cv}
        return self.model_copy(update={**by_rate, "shape": None, "scale_s": None})

    def check(self, where: Context) -> Iterator[Fault]:
        keys = ("rate", "cv", "shape", "scale")
        fields = ("rate_per_s", "cv", "shape", "scale_s")
        pairs = zip(keys, fields, strict=True)
        given = [key for key, field in pairs if getattr(self, field) is not None]
        beside = ("process", *keys)
        if given not in (["rate", "cv"], ["shape", "scale"]):
            missing = PARTNERS[given[0]] if len(given) == 1 else "rate"
            what = f"missing, but {given[0]} is given" if len(given) == 1 else "missing"
            if len(given) > 1:
                missing, what = given[-1], f"{' and '.join(given)} are given"
            yield where.fault(missing, what, "rate and cv, or shape and scale", beside=beside)
            return
        rate = self.drawn().rate_per_s
        if not parse_rate(SLOWEST_RATE) <= rate <= parse_rate(FASTEST_RATE):
            what = f"shape and scale come to {rate:.3g} requests per second"
            yield where.fault((), what, f"{SLOWEST_RATE} to {FASTEST_RATE}", beside=beside)


class GammaArrivals(ShapedArrivals):
    """Gamma-distributed gaps: bursty when cv is above 1."""

    process: Literal["gamma"]
    shape: Annotated[float, Number(1e-4, 1e4)] | None = Field(
        default=None, description="Instead of rate and cv: cv is 1 / sqrt(shape)."
    )
    scale_s: Span | None = Field(
        default=None, description="With shape: the mean gap is shape x scale."
    )

    def by_shape(self) -> tuple[float, float]:
        assert self.shape is not None
        assert self.scale_s is not None
        return self.shape * self.scale_s, 1.0 / math.sqrt(self.shape)


class WeibullArrivals(ShapedArrivals):
    """Weibull-distributed gaps: like gamma, with a longer tail."""

    process: Literal["weibull"]
    shape: Annotated[float, Number(0.15, 100)] | None = Field(
        default=None, description="Instead of rate and cv: below 1 is bursty, 1 is Poisson."
    )
    scale_s: Span | None = Field(
        default=None, description="With shape: the mean gap is scale x Gamma(1 + 1 / shape)."
    )

    def by_shape(self) -> tuple[float, float]:
        assert self.shape is not None
        assert self.scale_s is not None
        return self.scale_s * math.gamma(1.0 + 1.0 / self.shape), weibull_cv(self.shape)


class ClosedArrivals(Section):
    """A closed loop: users wait for the answer, think, and ask again."""

    process: Literal["closed"]
    users: Annotated[int, Whole(1, MOST_USERS)] = Field(
        description="Users, and so the most requests in flight."
    )
    think: Pauses = Field(
        description="From the end of a request to the user's next; at least 1s after a rejection."
    )

    def drawn(self) -> Arrivals:
        return Arrivals("closed", 0.0, 0.0, users=self.users, think=self.think.drawn())

    def scaled(self, load: float) -> Self:
        return self.model_copy(update={"users": max(1, round(self.users * load))})


ArrivalProcess = Annotated[
    Annotated[PoissonArrivals, variant("poisson")]
    | Annotated[ConstantArrivals, variant("constant")]
    | Annotated[GammaArrivals, variant("gamma")]
    | Annotated[WeibullArrivals, variant("weibull")]
    | Annotated[ClosedArrivals, variant("closed")],
    chosen_by("process", "poisson", "constant", "gamma", "weibull", "closed"),
]


class Points(Leaf):
    """Points of a curve: pairs of a time and a factor, ordered by time."""

    allowed = (
        "a list of pairs [time, factor] such as [[0s, 1], [10m, 4]], "
        "or a mapping with diurnal, spike or ramp_down"
    )
    schema = {  # noqa: RUF012 - a constant that no instance changes
        "type": "array",
        "minItems": 1,
        "maxItems": MOST_POINTS,
        "items": {
            "type": "array",
            "prefixItems": [
                {"type": ["string", "number"]},
                {"type": "number", "minimum": 0, "maximum": LARGEST_FACTOR},
            ],
            "minItems": 2,
            "maxItems": 2,
        },
    }

    def check(self, value: object) -> tuple[tuple[float, float], ...]:
        if not isinstance(value, list) or not value:
            self.fail(is_not(value, "a curve") if value != [] else "the curve has no points")
        if len(value) > MOST_POINTS:
            self.fail(f"the curve has {len(value)} points, more than {MOST_POINTS}")
        points: list[tuple[float, float]] = []
        for number, item in enumerate(value, 1):
            if not isinstance(item, list) or len(item) != 2:
                many = f"a list of {len(item)}" if isinstance(item, list) else shown(item)
                self.fail(f"point {number} is {many}")
            time_s, factor = self._time(number, item[0]), self._factor(number, item[1])
            if points and time_s < points[-1][0]:
                what = f"point {number} is at {shown(item[0])}, before the one that precedes it"
                self.fail(what, "two points of one time are a jump")
            points.append((time_s, factor))
        if not any(factor for _, factor in points):
            self.fail("every factor is 0, so that nothing would ever arrive")
        return tuple(points)

    def _time(self, number: int, value: object) -> float:
        if isinstance(value, bool) or not isinstance(value, str | int | float):
            self.fail(f"the time of point {number} is {shown(value)}")
        try:
            time_s = float(parse_duration(value))
        except (InputError, OverflowError):
            self.fail(f"the time of point {number}, {shown(value)}, is not a duration")
        if not 0 <= time_s <= LONGEST_RUN_S:
            self.fail(f"the time of point {number} is {shown(value)}, not from 0s to {LONGEST_RUN}")
        return time_s

    def _factor(self, number: int, value: object) -> float:
        if isinstance(value, bool) or not isinstance(value, int | float):
            self.fail(f"the factor of point {number} is {shown(value)}")
        if not 0 <= value <= LARGEST_FACTOR:
            what = f"the factor of point {number} is {shown(value)}"
            self.fail(f"{what}, not from 0 to {LARGEST_FACTOR}")
        return float(value)


class DiurnalCurve(Section):
    """A day: a cosine with mean 1, so that `rate` is the mean rate of the whole day."""

    ratio: Annotated[float, Number(1, 1000)] = Field(
        description="Peak over trough; 4 runs from 0.4 to 1.6."
    )
    peak_s: Moment = Field(default=50400.0, description="Time of the peak.")
    period_s: Span = Field(default=86400.0, description="Length of a day.")


class SpikeCurve(Section):
    """A spike: the rate jumps to a multiple for a while, then returns."""

    at_s: Moment = Field(description="When it begins.")
    duration_s: Span = Field(description="How long it lasts.")
    factor: Factor = Field(description="Factor during the spike.")


class RampDownCurve(Section):
    """Traffic that falls off along a straight line."""

    at_s: Moment = Field(description="When the rate begins to fall.")
    over_s: Span = Field(description="How long it falls.")
    to: Factor = Field(default=0.0, description="Final factor; 0 ends the traffic.")


class NamedCurve(Section):
    """One of three named curves."""

    diurnal: DiurnalCurve | None = Field(default=None, description="A day: a cosine with mean 1.")
    spike: SpikeCurve | None = Field(default=None, description="The rate jumps up, and back again.")
    ramp_down: RampDownCurve | None = Field(
        default=None, description="The rate falls along a straight line."
    )

    def check(self, where: Context) -> Iterator[Fault]:
        names = tuple(NamedCurve.model_fields)
        given = [name for name in names if getattr(self, name) is not None]
        if len(given) != 1:
            what = f"{' and '.join(given)} are given" if given else "no curve is given"
            yield where.fault((), what, f"one of {', '.join(names)}", beside=names)

    def drawn(self) -> Curve:
        """The curve as points (a jump is two points at the same time), or as a wave for a day."""
        if self.diurnal is not None:
            day = self.diurnal
            return Curve(period_s=day.period_s, peak_s=day.peak_s, ratio=day.ratio)
        if self.spike is not None:
            spike = self.spike
            end_s = spike.at_s + spike.duration_s
            rise, fall = (spike.at_s, spike.factor), (end_s, spike.factor)
            return Curve(points=((spike.at_s, 1.0), rise, fall, (end_s, 1.0)))
        ramp = self.ramp_down
        assert ramp is not None
        return Curve(points=((ramp.at_s, 1.0), (ramp.at_s + ramp.over_s, ramp.to)))


RateCurve = Annotated[
    Annotated[NamedCurve, variant("named")]
    | Annotated[tuple[tuple[float, float], ...], Points(), variant("points")],
    by_shape("named", "points"),
]


def drawn_curve(curve: RateCurve) -> Curve:
    """The curve to draw from: points as they are; a named curve as points or a wave."""
    return curve.drawn() if isinstance(curve, NamedCurve) else Curve(points=curve)
