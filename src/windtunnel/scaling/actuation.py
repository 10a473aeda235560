"""Actuation: when an autoscaler ticks, what it orders, and which orders arrive too late.

`ScalingLoop` is a state machine without a clock. A driver asks it when the next tick is due, hands
it snapshots when they arrive, sends the orders that it returns, and reports when an order has
reached the cluster:

    at next_tick_s:   snapshot = observe(); loop.tick(now_s); arrives_s = loop.arrival_s(now_s)
    at arrives_s:     issued = loop.decide(snapshot, now_s); send(issued.order)
    when it arrives:  for outcome in loop.arrived(order, sizes): resize(outcome)

Orders take time to arrive, and a later one may overtake an earlier one. Orders are numbered, and
the number of the latest one carried out is kept for each pool; an earlier order that arrives after
it is superseded.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Protocol

from windtunnel.core.errors import InputError
from windtunnel.scaling.decision import Decision
from windtunnel.scaling.scaler import Scaler
from windtunnel.scaling.settings import ScalerTiming
from windtunnel.scaling.snapshot import Snapshot


class Ticking(Protocol):
    """Decides how many replicas there should be: a `Scaler`, or a substitute for it."""

    def tick(self, snapshot: Snapshot, now_s: float) -> list[Decision]: ...


@dataclass(frozen=True, slots=True)
class IssuedDecision:
    """A decision, and the id by which reports and events name it."""

    id: str
    decision: Decision


@dataclass(frozen=True, slots=True)
class ScalingOrder:
    """The decisions of one tick that change something, on their way to the cluster."""

    number: int
    decisions: list[IssuedDecision]


@dataclass(frozen=True, slots=True)
class Issued:
    """The result of a snapshot: a decision per pool, and the order to send; None: no order."""

    decisions: list[IssuedDecision]
    order: ScalingOrder | None


@dataclass(frozen=True, slots=True)
class OrderOutcome:
    """The outcome of one decision of an order that has reached the cluster."""

    issued: IssuedDecision
    current: int
    """The size last requested."""
    superseded: bool
    """A later order arrived first, so this one has no effect."""

    @property
    def change(self) -> int:
        """Replicas to add (negative: to remove); 0 also if an earlier order asked for the same."""
        return 0 if self.superseded else self.issued.decision.target - self.current


class ScalingLoop:
    """The loop of one autoscaler: ticks, decisions, orders in flight.

    `build` makes a scaler with empty memory, initially and after every stop.
    """

    def __init__(self, build: Callable[[], Ticking], timing: ScalerTiming) -> None:
        self._build: Final = build
        self._scaler = build()
        self._interval_s: Final = timing.interval_s
        self._scrape_delay_s: Final = timing.scrape_delay_s
        self.next_tick_s = timing.interval_s
        self.ticks = 0
        self.in_flight = 0  # orders that have not reached the cluster yet
        self.superseded = 0  # decisions that arrived after a later one
        self.seen_s = -1.0  # when the snapshot of the latest decision was taken
        self._decided = 0  # number of decisions, used for their ids
        self._ordered = 0  # orders
        self._carried_out: dict[str, int] = {}  # by pool: the number of the latest order
        self._clock_s = 0.0  # time of the latest decision: the clock never runs backwards
        self._stops = 0  # stops without a start since

    def tick(self, now_s: float) -> float:
        """Starts a tick, for which a snapshot is taken; returns when the next tick is due."""
        self.ticks += 1
        self.next_tick_s = now_s + self._interval_s
        return self.next_tick_s

    def arrival_s(self, taken_s: float, lag_s: float = 0.0) -> float | None:
        """When a snapshot reaches the scaler; None: the scaler is stopped."""
        return None if self._stops else taken_s + self._scrape_delay_s + lag_s

    def decide(self, snapshot: Snapshot, now_s: float) -> Issued | None:
        """Decides on a snapshot that has arrived; None: the scaler is stopped."""
        if self._stops:
            return None
        self._clock_s = max(self._clock_s, now_s)
        decisions = self._scaler.tick(snapshot, self._clock_s)
        self.seen_s = snapshot.taken_s
        issued = []
        for decision in decisions:
            assert decision.target >= 0, f"{decision.variant} cannot have {decision.target} servers"
            self._decided += 1
            issued.append(IssuedDecision(f"scaling-{self._decided}", decision))
        changing = [one for one in issued if one.decision.changes]
        if not changing:
            return Issued(issued, None)
        self._ordered += 1
        self.in_flight += 1
        return Issued(issued, ScalingOrder(self._ordered, changing))

    def arrived(self, order: ScalingOrder, sizes: Mapping[str, int]) -> list[OrderOutcome]:
        """Takes an order that has reached the cluster; `sizes` are those last requested."""
        self.in_flight -= 1
        outcomes = []
        for issued in order.decisions:
            pool = issued.decision.variant
            late = order.number < self._carried_out.get(pool, 0)
            if late:
                self.superseded += 1
            else:
                self._carried_out[pool] = order.number
            outcomes.append(OrderOutcome(issued, sizes[pool], superseded=late))
        return outcomes

    @property
    def is_stopped(self) -> bool:
        return self._stops > 0

    def stop(self) -> None:
        """Stops the scaler, which loses its memory; orders already given are still carried out."""
        self._stops += 1
        self._scaler = self._build()

    def start(self) -> None:
        """Starts the scaler again, from its next tick on."""
        self._stops -= 1

    def state(self) -> dict[str, object]:
        """State to keep across a restart, as plain data: memory, ids, latest orders by pool."""
        return {
            "scaler": self._scaler.state() if isinstance(self._scaler, Scaler) else {},
            "decided": self._decided,
            "ordered": self._ordered,
            "carried_out": dict(self._carried_out),
            "clock_s": self._clock_s,
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Restores a `state`; orders that were in flight at that time may still arrive."""
        try:
            self._decided, self._ordered = int(state["decided"]), int(state["ordered"])
            self._carried_out = {name: int(at) for name, at in state["carried_out"].items()}
            self._clock_s = float(state["clock_s"])
            memory = state["scaler"]
        except (KeyError, TypeError, ValueError, AttributeError):
            what = "this is not the memory of a scaling loop"
            raise InputError(what, where="scaling") from None
        if memory and isinstance(self._scaler, Scaler):
            self._scaler.restore(memory)
