"""One entry of the list of faults: waits for its time, its chance or its condition, then begins."""

from typing import Final

from windtunnel.core.random import Stream
from windtunnel.twin.faults.conditions import Gauge
from windtunnel.twin.faults.effects import Effect, Strike
from windtunnel.twin.faults.ledger import Entry, Ledger
from windtunnel.twin.faults.plan import AtPlan, EveryPlan, FaultPlan, WhenPlan
from windtunnel.twin.faults.schedule import Schedule

NOT_YET: Final = -1.0


class Drill:
    """Begins a fault as often as its plan says, and ends it."""

    def __init__(
        self,
        plan: FaultPlan,
        effect: Effect,
        schedule: Schedule,
        ledger: Ledger,
        gauge: Gauge,
        stream: Stream,
    ) -> None:
        self._plan: Final = plan
        self._effect: Final = effect
        self._schedule: Final = schedule
        self._ledger: Final = ledger
        self._gauge: Final = gauge
        self._stream: Final = stream  # of times alone: what a fault does draws from another
        self._begun = 0
        self._since_s = NOT_YET  # since when the condition holds
        self._fired = False  # whether it has begun since then

    def start(self) -> None:
        """Plans the first thing, before a run begins."""
        timing = self._plan.timing
        if isinstance(timing, AtPlan):
            self._schedule.plan(timing.at_s, self._at, helps=False)
        elif isinstance(timing, EveryPlan):
            self._draw(timing, timing.from_s)
        else:
            self._schedule.plan(timing.interval_s, self._look, helps=False)

    def _at(self, now_s: float) -> None:
        self._begin(now_s, f"at {now_s:g} s")

    def _draw(self, timing: EveryPlan, since_s: float) -> None:
        at_s = since_s + self._stream.exponential(timing.mean_s)
        over = timing.until_s is not None and at_s > timing.until_s
        if not over and (timing.most is None or self._begun < timing.most):
            self._schedule.plan(at_s, self._by_chance, helps=False)

    def _by_chance(self, now_s: float) -> None:
        timing = self._plan.timing
        assert isinstance(timing, EveryPlan)
        self._begin(now_s, "by chance")
        self._draw(timing, now_s)

    def _look(self, now_s: float) -> None:
        timing = self._plan.timing
        assert isinstance(timing, WhenPlan)
        value = self._gauge.read(timing.metric, timing.pool, now_s)
        if not _holds(timing, value):
            self._since_s, self._fired = NOT_YET, False
        elif self._since_s == NOT_YET:
            self._since_s = now_s
        if self._since_s != NOT_YET and not self._fired and now_s - self._since_s >= timing.for_s:
            self._fired = True
            self._begin(now_s, said(timing))
        if self._begun < timing.most:
            self._schedule.plan(now_s + timing.interval_s, self._look, helps=False)

    def _begin(self, now_s: float, why: str) -> None:
        self._begun += 1
        for_s = self._plan.for_s
        until_s = float("inf") if for_s is None else now_s + for_s
        strike = self._effect.choose()
        entry = Entry(self._plan.name, self._plan.kind, now_s, strike.subjects, why)
        if not strike.lasts:
            entry.until_s = until_s = now_s
        self._ledger.begin(entry, None if until_s == float("inf") else until_s)
        strike.begin(now_s, until_s)
        if strike.lasts and for_s is not None:
            self._schedule.plan(until_s, lambda end_s: self._end(strike, entry, end_s), helps=True)

    def _end(self, strike: Strike, entry: Entry, now_s: float) -> None:
        strike.end(now_s)
        self._ledger.end(entry, now_s)


def _holds(timing: WhenPlan, value: float) -> bool:
    if timing.above is not None:
        return value > timing.above
    assert timing.below is not None
    return value < timing.below


def said(timing: WhenPlan) -> str:
    """The condition in words."""
    which = f"{timing.metric} of {timing.pool}" if timing.pool is not None else timing.metric
    if timing.above is not None:
        words = f"{which} above {timing.above:g}"
    else:
        words = f"{which} below {timing.below:g}"
    return f"{words} for {timing.for_s:g} s" if timing.for_s else words
