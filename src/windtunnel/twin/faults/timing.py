"""When a fault begins: once, at random times, or when a condition holds."""

from collections.abc import Iterator
from typing import Annotated, Final, Literal

from pydantic import Field

from windtunnel.core.errors import nearest
from windtunnel.core.units import format_duration
from windtunnel.settings.drawing import Dice, Values
from windtunnel.settings.faults import Fault
from windtunnel.settings.fields import Duration, Name, Number, Whole
from windtunnel.settings.limits import LONGEST_RUN, MOST_REQUESTS
from windtunnel.settings.section import Context, Section
from windtunnel.twin.faults.context import FaultContext, context_of

Moment = Annotated[float, Duration("0s", LONGEST_RUN)]
Length = Annotated[float, Duration("0s", LONGEST_RUN, above=True)]

QUEUE: Final = "queue"
IN_FLIGHT: Final = "in_flight"
READY_SERVERS: Final = "ready"
KV_USE: Final = "kv_use"
ARRIVALS: Final = "arrivals"
INSIDE: Final = "inside"
OF_RUNS: Final = (ARRIVALS, INSIDE)
"""Metrics of the whole run; the others are per pool, or over all pools."""
METRICS: Final = (QUEUE, IN_FLIGHT, READY_SERVERS, KV_USE, *OF_RUNS)
MetricName = Literal["queue", "in_flight", "ready", "kv_use", "arrivals", "inside"]
AMOUNT: Final = Number(0, MOST_REQUESTS)


class RandomTimes(Section):
    """Random times, with exponentially distributed gaps."""

    mean_s: Length = Field(description="Mean gap.")
    from_s: Moment = Field(
        default=0.0,
        serialization_alias="from_",
        description="Start; the first fault is one gap later.",
    )
    until_s: Length | None = Field(
        default=None, description="None begins after this. Default: the end of the run."
    )
    most: Annotated[int, Whole(1, MOST_REQUESTS)] | None = Field(
        default=None, description="Most faults. Default: any number."
    )

    def check(self, where: Context) -> Iterator[Fault]:
        yield from too_late(where, "from", self.from_s)
        if self.until_s is not None and self.until_s <= self.from_s:
            what = f"{self.until_s:g} s is not after `from`, which is {self.from_s:g} s"
            yield where.fault("until", what)


class FaultCondition(Section):
    """A condition on the run, evaluated every `interval`."""

    metric: MetricName = Field(
        description="Requests queued at servers (`queue`), sent to them (`in_flight`) or not "
        "ended (`inside`); `ready` servers; `kv_use`, the mean share of KV blocks in use; "
        "`arrivals` per second since the last evaluation.",
    )
    pool: Annotated[str, Name()] | None = Field(
        default=None,
        description="Of this pool. Default: of all. Not for `arrivals` and `inside`.",
    )
    above: Annotated[float, AMOUNT] | None = Field(
        default=None, description="The metric must be above this; this or `below`."
    )
    below: Annotated[float, AMOUNT] | None = Field(
        default=None, description="The metric must be below this; this or `above`."
    )
    for_s: Moment = Field(
        default=0.0,
        serialization_alias="for_",
        description="How long it must hold; 0s: at one evaluation.",
    )
    interval_s: Length = Field(default=1.0, description="Time between evaluations.")
    most: Annotated[int, Whole(1, MOST_REQUESTS)] = Field(
        default=1,
        description="How often the fault may begin; the condition must be false in between.",
    )

    def holds(self, value: float) -> bool:
        if self.above is not None:
            return value > self.above
        assert self.below is not None
        return value < self.below

    def __str__(self) -> str:
        which = f"{self.metric} of {self.pool}" if self.pool is not None else self.metric
        bound = f"above {self.above:g}" if self.above is not None else f"below {self.below:g}"
        words = f"{which} {bound}"
        return f"{words} for {self.for_s:g} s" if self.for_s else words

    def check(self, where: Context) -> Iterator[Fault]:
        given = [name for name in ("above", "below") if getattr(self, name) is not None]
        if len(given) != 1:
            both = "above and below are both written"
            what = both if given else "it says neither above nor below"
            yield where.fault((), what, "one of above and below")
        if self.below == 0:
            yield where.fault("below", "nothing is ever below 0", "a number above 0")
        if self.pool is not None and self.metric in OF_RUNS:
            yield where.fault("pool", f"{self.metric} has no pool", hint="leave it out")
        else:
            yield from unknown_pool(where, self.pool)


def unknown_pool(where: Context, pool: str | None) -> Iterator[Fault]:
    """Reports a pool name that no server pool has."""
    names = list(context_of(where.root).servers)
    if pool is not None and pool not in names:
        what = f"there is no pool {pool!r}"
        yield where.fault("pool", what, ", ".join(names), nearest(pool, names))


def too_late(where: Context, key: str, time_s: float | None) -> Iterator[Fault]:
    """Reports a time after the end of the run."""
    duration_s = context_of(where.root).duration_s
    if time_s is not None and duration_s is not None and time_s > duration_s:
        what = f"the run has ended by then: its duration is {format_duration(duration_s)}"
        yield where.fault(key, what, because_of=(("duration",),))


def draw_time(dice: Dice, context: FaultContext) -> Values:
    """Draws when a fault begins: once, at random times, or on a condition."""
    how = dice.pick("at", "at", "every", "when")
    if how == "at":
        return {"at": dice.pick(0.0, context.span_s(dice))}
    if how == "every":
        # Without a limit, repeated crashes may outlast every start.
        every: Values = {"mean": context.span_s(dice), "most": dice.few(1, 5)}
        if dice.chance(0.3):
            every["from"] = context.span_s(dice)
        return {"every": every}
    metric = dice.pick(*METRICS)
    when: Values = {"metric": metric, "interval": context.span_s(dice), "most": dice.few(1, 3)}
    when[dice.pick("above", "below")] = dice.pick(0.2, 1, 3)
    if metric not in OF_RUNS and dice.chance(0.4):
        when["pool"] = dice.pick(*context.servers)
    if dice.chance(0.3):
        when["for"] = context.span_s(dice)
    return {"when": when}
