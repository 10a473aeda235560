"""Drives an autoscaler in a run: takes its snapshots, and carries out its orders after a delay.

A snapshot is taken every interval; the scaling loop gets it after the scrape delay, and its orders
take effect after a random actuation delay. `scaling.actuation` decides when to look, what to order
and which orders are superseded.
"""

from typing import Any, Final

from windtunnel.core.loop import Component, EventQueue, SkewedClock
from windtunnel.core.random import Stream
from windtunnel.core.telemetry import Event, Plain, Telemetry
from windtunnel.core.vocabulary import APPLIED, KEPT, RESIZED, SUPERSEDED
from windtunnel.scaling.actuation import IssuedDecision, OrderOutcome, ScalingLoop, ScalingOrder
from windtunnel.scaling.measures import Measures
from windtunnel.scaling.settings import ActuationDelay
from windtunnel.scaling.snapshot import Snapshot
from windtunnel.twin.servers.lifecycle import Lifecycle
from windtunnel.twin.servers.observation import FleetObserver
from windtunnel.twin.servers.replicas import Pool

# Planned events, in order within one instant.
APPLY: Final = 1
DECIDE: Final = 2
TICK: Final = 3


class Autoscaling(Component):
    """Feeds the loop of one autoscaler, and carries out its orders."""

    def __init__(
        self,
        loop: ScalingLoop,
        delay: ActuationDelay,
        lifecycle: Lifecycle,
        pools: list[Pool],
        observer: FleetObserver,
        stream: Stream,
        telemetry: Telemetry,
    ) -> None:
        self.loop: Final = loop
        self._delay: Final = delay
        self._lifecycle: Final = lifecycle
        self._pools: Final = {pool.name: pool for pool in pools}
        self._observer: Final = observer
        self._stream: Final = stream
        self._telemetry: Final = telemetry
        self._measures: Final = Measures()
        self.changes = 0  # decisions that changed the size of a pool
        self._asked: Final[dict[tuple[str, int], int]] = {}  # (pool, target): orders in transit
        self._futile: Final[dict[str, int]] = {}  # by pool: a target that did not change it
        self.dark = 0  # the number of faults that withhold all metrics
        self.missed: Final = observer.missed  # the same for single servers
        self.lag_s = 0.0  # how late metrics are
        self.clock: Final = SkewedClock()
        self._planned: Final = EventQueue()
        self._planned.push(loop.next_tick_s, TICK, None)

    def next_s(self) -> float:
        return self._planned.next_s

    def advance(self, now_s: float) -> None:
        entry = self._planned.pop()
        assert entry is not None
        payload = entry.payload
        if entry.priority == TICK:
            self._planned.push(self.loop.tick(now_s), TICK, None)
            true, seen = self._observer.look(now_s)
            self._measures.look(true)
            arrives_s = self.loop.arrival_s(now_s, self.lag_s)
            if not self.dark and arrives_s is not None:
                self._planned.push(arrives_s, DECIDE, seen)
        elif entry.priority == DECIDE:
            assert isinstance(payload, Snapshot)
            self._decide(payload, now_s)
        else:
            assert isinstance(payload, ScalingOrder)
            self._apply(payload, now_s)

    @property
    def is_blind(self) -> bool:
        """Whether no snapshot reaches it: a fault withholds metrics, or it is stopped."""
        return self.dark > 0 or self.loop.is_stopped

    @property
    def is_under_way(self) -> bool:
        """Whether a decision in transit may change a pool. A decision whose target has just left
        the pool unchanged does not count: a gang, for example, stays at its minimum."""
        return any(self._futile.get(pool) != target for pool, target in self._asked)

    def _decide(self, snapshot: Snapshot, now_s: float) -> None:
        issued = self.loop.decide(snapshot, self.clock.read(now_s))
        if issued is None:
            return
        for one in issued.decisions:
            kind = RESIZED if one.decision.changes else KEPT
            if self._telemetry.wants(kind):
                self._telemetry.emit(_decided(kind, one, snapshot.taken_s, now_s))
        if issued.order is not None:
            delay_s = max(0.0, self._stream.normal(self._delay.mean_s, self._delay.stddev_s))
            for one in issued.order.decisions:
                asked = (one.decision.variant, one.decision.target)
                self._asked[asked] = self._asked.get(asked, 0) + 1
            self._planned.push(now_s + delay_s, APPLY, issued.order)

    def _apply(self, order: ScalingOrder, now_s: float) -> None:
        """Carries out an order, except for pools that a later order reached first."""
        sizes = {name: pool.target for name, pool in self._pools.items()}
        for outcome in self.loop.arrived(order, sizes):
            self._log(outcome, now_s)
            decision = outcome.issued.decision
            asked = (decision.variant, decision.target)
            self._asked[asked] -= 1
            if not self._asked[asked]:
                del self._asked[asked]
            if not outcome.change:
                continue
            pool = self._pools[decision.variant]
            self._lifecycle.set_target(pool, decision.target, now_s, decision.reason)
            change = pool.target - outcome.current
            if change:
                self.changes += 1
                self._measures.changed(pool.name, change)
                self._futile.pop(pool.name, None)
            else:
                self._futile[pool.name] = decision.target

    def _log(self, outcome: OrderOutcome, now_s: float) -> None:
        """Logs a decision that has reached the cluster."""
        kind = SUPERSEDED if outcome.superseded else APPLIED
        if self._telemetry.wants(kind):
            decision = outcome.issued.decision
            data: dict[str, Plain] = {
                "id": outcome.issued.id,
                "current": outcome.current,
                "target": decision.target,
            }
            name = f"pool/{decision.variant}"
            self._telemetry.emit(Event(now_s, kind, name, decision.reason, data))

    def result(self, now_s: float) -> dict[str, Any]:
        """The section of `result.json`, at the end of a run."""
        self._measures.close(now_s)
        return {
            "ticks": self.loop.ticks,
            "changes": self.changes,
            "superseded": self.loop.superseded,
            **self._measures.result(),
            "pools": {name: {"sizes": pool.sizes()} for name, pool in self._pools.items()},
        }


def _decided(kind: str, issued: IssuedDecision, seen_s: float, now_s: float) -> Event:
    """A decision as an event: the sizes, the numbers, the binding limits, and the snapshot's
    time."""
    decision = issued.decision
    data: dict[str, Plain] = {"id": issued.id, "seen": seen_s, **decision.as_data()}
    return Event(now_s, kind, f"pool/{decision.variant}", decision.reason, data)
