"""Foresight: follows a schedule of replicas that is known in advance.

The schedule gives the replicas of a pool from a time on. Growth is ordered `lead` early, so that
replicas are ready when needed; nothing shrinks before its time.
"""

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Annotated, Final, Literal

from pydantic import Field

from windtunnel.core.units import format_duration
from windtunnel.scaling.analyzers import Analyzer, Finding, Group, replicas_wanted, unknown
from windtunnel.scaling.policy import BY_VARIANT, PolicyParts
from windtunnel.scaling.settings import PolicySettings, PoolName, unknown_pools
from windtunnel.settings.drawing import Dice, Values
from windtunnel.settings.faults import Fault
from windtunnel.settings.fields import Duration, Leaf, Whole, is_not
from windtunnel.settings.limits import LONGEST_RUN, LONGEST_TARGET, MOST_POINTS, MOST_REPLICAS
from windtunnel.settings.section import Context


class ScheduleEntry(Leaf):
    """A time, and the number of replicas from then on."""

    allowed = "a time and a number of replicas, such as [5m, 6]"
    schema = {"type": "array", "minItems": 2, "maxItems": 2}  # noqa: RUF012 - a constant
    time = Duration("0s", LONGEST_RUN)
    size = Whole(0, MOST_REPLICAS)

    def check(self, value: object) -> tuple[float, int]:
        if not isinstance(value, list | tuple) or len(value) != 2:
            self.fail(is_not(value, "a time and a number of replicas"))
        at_s, size = self.time.check(value[0]), self.size.check(value[1])
        assert isinstance(size, int)
        return at_s, size


Entries = Annotated[
    list[Annotated[tuple[float, int], ScheduleEntry()]], Field(min_length=1, max_length=MOST_POINTS)
]


class ForesightSettings(PolicySettings):
    """Follows a schedule, as with perfect knowledge of the traffic."""

    policy: Literal["foresight"]
    schedule: dict[PoolName, Entries] = Field(
        description="Times and replicas by pool, such as `main: [[0s, 2], [5m, 6]]`.",
    )
    lead_s: Annotated[float, Duration("0s", LONGEST_TARGET)] = Field(
        default=0.0,
        description="How early a larger size is ordered.",
    )

    def parts(self) -> PolicyParts:
        return PolicyParts([Foresight(self)], grouping=BY_VARIANT)

    @classmethod
    def draw(cls, dice: Dice, pools: Sequence[str]) -> Values:
        schedule = {}
        for name in dice.some(pools):
            at_s, entries = 0.0, []
            for _ in range(dice.few(1, 8)):
                entries.append([at_s, dice.pick(1, 2)])
                at_s += dice.span(0.1, 10.0)
            schedule[name] = entries
        return {"schedule": schedule, "lead": dice.pick(0, dice.span(0.1, 10.0))}

    def faults(self, where: Context, pools: Sequence[str]) -> Iterator[Fault]:
        yield from super().faults(where, pools)
        if not self.schedule:
            yield where.fault("schedule", "it has no pool", ", ".join(pools))
        yield from unknown_pools(where, "schedule", self.schedule, pools)
        for pool, entries in self.schedule.items():
            for index, (before, after) in enumerate(pairwise(entries), 1):
                if after[0] <= before[0]:
                    times = [format_duration(entry[0]) for entry in (after, before)]
                    what = f"{times[0]} is not after {times[1]}, the time of the entry before it"
                    yield where.fault(("schedule", pool, index, 0), what)
            bounds = self.bounds_of(pool)
            for index, (_, size) in enumerate(entries):
                if not bounds.min <= size <= bounds.max:
                    what = f"{size} is outside the bounds of the pool"
                    allowed = f"from {bounds.min} to {bounds.max}"
                    because = ((*where.path, "pools", pool),)
                    path = ("schedule", pool, index, 1)
                    yield where.fault(path, what, allowed, because_of=because)


class Foresight(Analyzer):
    """Asks for the scheduled size, or for the largest one scheduled within the lead."""

    def __init__(self, settings: ForesightSettings) -> None:
        super().__init__("foresight")
        self._lead_s: Final = settings.lead_s
        self._times: Final = {
            pool: [at_s for at_s, _ in entries] for pool, entries in settings.schedule.items()
        }
        self._sizes: Final = {
            pool: [size for _, size in entries] for pool, entries in settings.schedule.items()
        }

    def analyze_group(self, group: Group, now_s: float) -> Finding:
        (variant,) = group.variants
        times = self._times.get(variant.name)
        if times is None:
            return unknown(group, "The schedule does not include this pool.")
        sizes = self._sizes[variant.name]
        current = bisect_right(times, now_s) - 1  # -1: before its first entry
        last = bisect_right(times, now_s + self._lead_s) - 1
        if last < 0:
            return unknown(group, f"Its schedule begins at {format_duration(times[0])}.")
        scheduled = sizes[current] if current >= 0 else group.current
        chosen, wanted = current, scheduled
        for number in range(max(current, 0), last + 1):
            if sizes[number] > wanted:
                chosen, wanted = number, sizes[number]
        evidence = {"scheduled": float(scheduled), "wanted": float(wanted)}
        return replicas_wanted(
            group, wanted, evidence, self._sentence(times, chosen, wanted, now_s)
        )

    def _sentence(self, times: list[float], chosen: int, wanted: int, now_s: float) -> str:
        if chosen < 0:
            return f"Its schedule begins at {format_duration(times[0])}, without more replicas."
        since = f"The schedule has {wanted} from {format_duration(times[chosen])} on"
        if times[chosen] <= now_s:
            return f"{since}."
        ahead = format_duration(times[chosen] - now_s)
        return f"{since}, in {ahead}; the lead is {format_duration(self._lead_s)}."
