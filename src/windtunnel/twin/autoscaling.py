"""Feeds an autoscaler in a run: when it looks, what it sees, and what becomes of its decisions.

Every interval a snapshot is taken; the scaler gets it after the scrape delay, and what it decides
is done after an actuation delay that is drawn. Nothing here looks at servers in between.
"""

from collections.abc import Callable
from typing import Any, Final, Protocol

from windtunnel.core.loop import Component, EventQueue
from windtunnel.core.random import Stream
from windtunnel.core.telemetry import Event, Plain, Telemetry
from windtunnel.core.vocabulary import APPLIED, KEPT, RESIZED, SUPERSEDED
from windtunnel.scaling.decision import Decision
from windtunnel.scaling.measures import Measures
from windtunnel.scaling.settings import ScalerTiming
from windtunnel.scaling.snapshot import Snapshot
from windtunnel.twin.lifecycle import Lifecycle
from windtunnel.twin.observation import Observer
from windtunnel.twin.replicas import Pool

# What is planned, by what goes first of one instant.
APPLY: Final = 1
DECIDE: Final = 2
TICK: Final = 3


class Ticking(Protocol):
    """Whoever decides how many servers there should be."""

    def tick(self, snapshot: Snapshot, now_s: float) -> list[Decision]: ...


class Order:
    """Decisions of one tick, on their way to the cluster."""

    def __init__(self, number: int, decisions: list[tuple[str, Decision]]) -> None:
        self.number: Final = number
        self.decisions: Final = decisions  # each with its id


class Autoscaling(Component):
    """The loop of one autoscaler: tick, look, decide, act."""

    def __init__(
        self,
        scaler: Ticking,
        build: Callable[[], Ticking],
        timing: ScalerTiming,
        lifecycle: Lifecycle,
        pools: list[Pool],
        observer: Observer,
        stream: Stream,
        telemetry: Telemetry,
    ) -> None:
        self._scaler = scaler
        self._build: Final = build  # another one, that remembers nothing
        self._timing: Final = timing
        self._lifecycle: Final = lifecycle
        self._pools: Final = {pool.name: pool for pool in pools}
        self._observer: Final = observer
        self._stream: Final = stream
        self._telemetry: Final = telemetry
        self._measures: Final = Measures()
        self.ticks = 0
        self.decided = 0  # decisions, each of which has its number as its id
        self.orders = 0
        self.under_way = 0  # orders that were given and have not reached the cluster
        self.seen_s = -1.0  # when the snapshot was taken that the latest decision was made on
        self._applied: Final[dict[str, int]] = {}  # the latest order carried out, by pool
        self.changes = 0  # decisions that changed the size of a pool
        self.superseded = 0  # decisions that came later than one that was made after them
        self.dark = 0  # how many faults keep metrics from it
        self.missed: Final = observer.missed  # the same of single servers
        self.lag_s = 0.0  # how much later they come than they should
        self.skew_s = 0.0  # how far its clock is off
        self._clock_s = 0.0  # what that showed last: a clock never runs backwards
        self._away = 0  # how many faults keep it from running
        self._planned: Final = EventQueue()
        self._planned.push(timing.interval_s, TICK, None)

    def next_s(self) -> float:
        return self._planned.peek_time()

    def advance(self, now_s: float) -> None:
        entry = self._planned.pop()
        assert entry is not None
        payload = entry[3]
        if entry[1] == TICK:
            self.ticks += 1
            self._planned.push(now_s + self._timing.interval_s, TICK, None)
            true, seen = self._observer.look(now_s)
            self._measures.look(true)
            if not self.dark and not self._away:
                scraped_s = now_s + self._timing.scrape_delay_s + self.lag_s
                self._planned.push(scraped_s, DECIDE, seen)
        elif entry[1] == DECIDE:
            assert isinstance(payload, Snapshot)
            if not self._away:
                self._decide(payload, now_s)
        else:
            assert isinstance(payload, Order)
            self._apply(payload, now_s)

    def leave(self) -> None:
        """It stops, and forgets all that it knew; what it has ordered is carried out."""
        self._away += 1
        self._scaler = self._build()

    def come_back(self) -> None:
        """It runs again, from its next tick on."""
        self._away -= 1

    def _decide(self, snapshot: Snapshot, now_s: float) -> None:
        self._clock_s = max(self._clock_s, now_s + self.skew_s)
        decisions = self._scaler.tick(snapshot, self._clock_s)
        self.seen_s = snapshot.taken_s
        changing = []
        for decision in decisions:
            self.decided += 1
            name = f"scaling-{self.decided}"
            kind = RESIZED if decision.changes else KEPT
            if self._telemetry.wants(kind):
                self._telemetry.emit(_told(kind, name, decision, snapshot.taken_s, now_s))
            if decision.changes:
                changing.append((name, decision))
        if changing:
            self.orders += 1
            self.under_way += 1
            timing = self._timing.actuation_delay
            delay_s = self._stream.normal(timing.mean_s, timing.stddev_s)
            order = Order(self.orders, changing)
            self._planned.push(now_s + max(0.0, delay_s), APPLY, order)

    def _apply(self, order: Order, now_s: float) -> None:
        """Carries an order out, but for pools that a later one was quicker to reach."""
        self.under_way -= 1
        for name, decision in order.decisions:
            pool = self._pools[decision.variant]
            assert decision.target >= 0, f"{decision.variant} cannot have {decision.target} servers"
            if order.number < self._applied.get(pool.name, 0):
                self.superseded += 1
                self._tell(SUPERSEDED, name, pool, decision, now_s)
                continue
            self._applied[pool.name] = order.number
            self._tell(APPLIED, name, pool, decision, now_s)
            if decision.target != pool.target:  # the same may have been ordered twice meanwhile
                self.changes += 1
                self._measures.changed(pool.name, decision.target - pool.target)
                self._lifecycle.set_target(pool, decision.target, now_s, decision.reason)

    def _tell(self, kind: str, name: str, pool: Pool, decision: Decision, now_s: float) -> None:
        """A decision has reached the cluster."""
        if self._telemetry.wants(kind):
            data: dict[str, Plain] = {
                "id": name,
                "current": pool.target,
                "target": decision.target,
            }
            self._telemetry.emit(Event(now_s, kind, f"pool/{pool.name}", decision.reason, data))

    def result(self, now_s: float) -> dict[str, Any]:
        """What `result.json` says of it, at the end of a run."""
        self._measures.close(now_s)
        return {
            "ticks": self.ticks,
            "changes": self.changes,
            "superseded": self.superseded,
            **self._measures.result(),
            "pools": {name: {"sizes": pool.sizes()} for name, pool in self._pools.items()},
        }


def _told(kind: str, name: str, decision: Decision, seen_s: float, now_s: float) -> Event:
    """A decision as an event: the sizes, the numbers, what bound it, and when it was so."""
    limits: list[Plain] = [
        {
            "name": one.name,
            "before": one.before,
            "after": one.after,
            "without": one.without,
            "reason": one.reason,
        }
        for one in decision.limits
    ]
    data: dict[str, Plain] = {
        "id": name,
        "seen": seen_s,
        "current": decision.current,
        "recommended": decision.recommended,
        "target": decision.target,
        "metrics": dict(decision.metrics),
        "limits": limits,
    }
    return Event(now_s, kind, f"pool/{decision.variant}", decision.reason, data)
