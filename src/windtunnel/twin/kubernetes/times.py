"""Durations on a cluster: settings, and draws from a stream for each of them."""

from collections.abc import Iterator
from typing import Annotated, Final, Literal

import msgspec
from pydantic import Field

from windtunnel.core.random import Stream, Streams
from windtunnel.settings.faults import Fault
from windtunnel.settings.fields import Duration, Number, by_shape, variant
from windtunnel.settings.section import Context, Section

CONSTANT: Final = "constant"
UNIFORM: Final = "uniform"
EXPONENTIAL: Final = "exponential"
LOGNORMAL: Final = "lognormal"
NORMAL: Final = "normal"
LOGNORMAL_CV: Final = 0.5

LONGEST: Final = "100000h"

Moment = Annotated[float, Duration("0s", LONGEST)]


class PodDelay(msgspec.Struct, frozen=True):
    """A distribution of durations, from which one is drawn per pod.

    `spread` is the half width of `uniform`, the cv of `lognormal`, and the standard deviation of
    `normal`, whose draws are never below 0.
    """

    mean_s: float
    kind: str = CONSTANT
    spread: float = 0.0

    def draw_s(self, stream: Stream) -> float:
        if self.kind == CONSTANT or self.mean_s == 0.0:
            return self.mean_s
        if self.kind == UNIFORM:
            return max(0.0, stream.between(self.mean_s - self.spread, self.mean_s + self.spread))
        if self.kind == EXPONENTIAL:
            return stream.exponential(self.mean_s)
        if self.kind == NORMAL:
            return max(0.0, stream.normal(self.mean_s, self.spread))
        return stream.lognormal(self.mean_s, self.spread)


class VaryingTime(Section):
    """A random duration."""

    mean_s: Moment = Field(description="Mean.")
    distribution: Literal["constant", "uniform", "exponential", "lognormal"] = Field(
        default="lognormal", description="Distribution."
    )
    cv: Annotated[float, Number(0, 10)] | None = Field(
        default=None,
        description="Coefficient of variation, for `lognormal`. Default: 0.5.",
    )
    half_width_s: Moment | None = Field(
        default=None,
        description="Half width, for `uniform`. Default: the mean.",
    )

    def check(self, where: Context) -> Iterator[Fault]:
        if self.cv is not None and self.distribution != LOGNORMAL:
            yield where.fault("cv", "only `lognormal` has a cv")
        if self.half_width_s is not None and self.distribution != UNIFORM:
            yield where.fault("half_width", "only `uniform` has a half width")

    def delay(self) -> PodDelay:
        if self.distribution == UNIFORM:
            width_s = self.mean_s if self.half_width_s is None else self.half_width_s
            return PodDelay(self.mean_s, UNIFORM, width_s)
        cv = LOGNORMAL_CV if self.cv is None else self.cv
        return PodDelay(self.mean_s, self.distribution, cv)


FixedOrVarying = Annotated[
    Annotated[VaryingTime, variant("varying")] | Annotated[Moment, variant("fixed")],
    by_shape("varying", "fixed"),
]


class PodTimes(Section):
    """Durations of pod operations: constant, or with a distribution."""

    scheduling: FixedOrVarying = Field(
        default=0.1, description="From a change that may free a node to the scheduler's pass."
    )
    image_pull: FixedOrVarying = Field(
        default=10.0,
        description="Image pull of the first pod of an image on a node.",
    )
    startup: FixedOrVarying = Field(default=1.0, description="From the image to container start.")
    readiness: FixedOrVarying = Field(
        default=5.0,
        description="From container start until probes pass (model loading).",
    )
    ending: FixedOrVarying = Field(
        default=2.0,
        description="From deletion until a pod is gone; at most its grace period.",
    )
    crash_after_s: Moment = Field(
        default=5.0, description="How long a container runs before it crashes in a crash loop."
    )
    node_lost_after_s: Moment = Field(
        default=40.0,
        description="Until pods on a failed machine count as not ready, as in Kubernetes.",
    )
    evict_after_s: Moment = Field(
        default=300.0, description="Until they are deleted, to be replaced, as in Kubernetes."
    )
    force_after_s: Moment | None = Field(
        default=None,
        description="Until a pod that cannot terminate is forgotten. Default: never.",
    )

    def delays(self, load: PodDelay | None = None) -> dict[str, PodDelay]:
        """The distributions of the five random durations; `load` replaces readiness."""
        values = {
            "scheduling": self.scheduling,
            "image_pull": self.image_pull,
            "startup": self.startup,
            "readiness": self.readiness,
            "ending": self.ending,
        }
        delays = {
            name: value.delay() if isinstance(value, VaryingTime) else PodDelay(value)
            for name, value in values.items()
        }
        return delays if load is None else delays | {"readiness": load}


class ClusterDice:
    """Draws durations, each from the stream of its name."""

    def __init__(self, delays: dict[str, PodDelay], streams: Streams) -> None:
        self._delays: Final = delays
        self.pace = 1.0
        """Factor on all durations; 0 before a run begins."""
        self._streams: Final = {name: streams[f"gangs.{name}"] for name in delays}

    def mean_s(self, name: str) -> float:
        return self._delays[name].mean_s

    def draw_s(self, name: str) -> float:
        return self.pace * self._delays[name].draw_s(self._streams[name])
