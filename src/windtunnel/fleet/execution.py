"""From plans to orders: rate limits, order of actions, and their outcomes.

A state machine: it takes plans, the time, completions and failures, and returns orders for
providers. Actions that may not begin yet are queued here and not planned again: the inventory shows
them as planned, and the next cycle counts on them.
"""

import heapq
import sys
from collections import deque
from typing import Final

from windtunnel.fleet.instruments import (
    ACTIONS_TOTAL,
    BOOTSTRAP_FETCH,
    DEFERRALS_TOTAL,
    EXECUTE,
    PROVISIONING,
    Instruments,
)
from windtunnel.fleet.instruments import CONFIGURE as CONFIGURE_TIME
from windtunnel.fleet.instruments import DRAIN as DRAIN_TIME
from windtunnel.fleet.machine import Machine
from windtunnel.fleet.orders import (
    CONFIGURE,
    CREATE,
    DELETE,
    DRAIN,
    FETCH,
    TAG,
    ExecutionLimits,
    MachineOrder,
    Token,
)
from windtunnel.fleet.planner.actions import (
    ACTIONS,
    ADOPT,
    BOOTSTRAP,
    PREEMPT,
    PROVISION,
    RECLAIM,
    START_STATE,
    Action,
    CyclePlan,
)
from windtunnel.fleet.planner.entries import MachineEntry
from windtunnel.fleet.planner.inventory import Inventory
from windtunnel.fleet.provider import CAPACITY, PERMANENT
from windtunnel.fleet.shape import MachineShape
from windtunnel.fleet.states import (
    CONFIGURED,
    CONFIGURING,
    CREATING,
    DELETING,
    DRAINING,
    FAILED,
    IDLE,
    SPECULATIVE,
)

SUCCESS: Final = "success"
DEFERRED: Final = "deferred"
ERROR: Final = "error"
TIMEOUT: Final = "timeout"
ROLLED_BACK: Final = "rolled_back"
STALE: Final = "stale"
LOST: Final = "lost"
NO_CAPACITY: Final = "no_capacity"
DRY_RUN: Final = "dry_run"
REPEATED: Final = "repeated"

BY_CAP: Final = "cap"
BY_CONCURRENCY: Final = "concurrency"
BY_RECLAIM_CAP: Final = "reclaim_cap"
BY_PAUSE: Final = "paused"


class QueuedAction:
    """An action that has not begun."""

    __slots__ = ("action", "begun")

    def __init__(self, action: Action) -> None:
        self.action: Final = action
        self.begun = False  # or was dropped as stale


Offering = tuple[str, str, int]
"""An instance type, a zone and a capacity type."""


class OfferingBackoff:
    """The back-off of an offering for which its provider had no capacity."""

    __slots__ = ("since_s", "times", "until_s")

    def __init__(self) -> None:
        self.times = 0  # in a row
        self.since_s = 0.0
        self.until_s = 0.0


class RunningAction:
    """An action that has begun, and the order whose completion it awaits."""

    __slots__ = ("action", "attempts", "entry", "operation", "sequence", "since_s")

    def __init__(self, action: Action, entry: MachineEntry) -> None:
        self.action: Final = action
        self.entry: Final = entry
        self.operation = ""
        self.sequence = 0
        self.attempts = 0
        self.since_s = 0.0


class Executor:
    """Begins planned actions, within limits, and follows them to their end."""

    def __init__(
        self,
        inventory: Inventory,
        limits: ExecutionLimits,
        *,
        epoch: int = 0,
        instruments: Instruments | None = None,
    ) -> None:
        self._inventory: Final = inventory
        self._limits: Final = limits.check()
        self._most_begun: Final = limits.actions_per_cycle or sys.maxsize
        self._epoch: Final = epoch
        self._instruments: Final = instruments or Instruments()
        self._sequence = 0
        self._queues: Final[dict[int, deque[QueuedAction]]] = {}  # by rank
        self._reclaims: Final[dict[str, deque[QueuedAction]]] = {}  # by cluster
        self._adopting: Final[dict[str, None]] = {}  # machines whose adoption is queued
        self._to_tag: Final[dict[str, None]] = {}  # machines whose holder must be sent again
        self._running: Final[dict[str, RunningAction]] = {}
        self._deadlines: Final[list[tuple[float, int, str]]] = []
        self._backoffs: Final[dict[Offering, OfferingBackoff]] = {}
        self.permanent: Final[dict[str, Machine | None]] = {}
        """Machines that failed permanently, as reported by their provider, and their records since.
        """
        self._begun_in_cycle = 0
        self._reclaimed_in_cycle: Final[dict[str, int]] = {}
        self.waiting = 0
        self.paused = False
        """The kill switch: nothing begins. Actions under way continue, since half a drain is worse.
        """
        self.dry_run = False
        """Plans are counted and withdrawn; nothing begins. Actions queued before stay queued."""
        self.unreachable = False
        """The provider is unreachable: orders given meanwhile do not count as attempts."""

    @property
    def running(self) -> int:
        return len(self._running)

    # Plans.

    def submit(self, plan: CyclePlan, now_s: float) -> list[MachineOrder]:
        """Queues the plan of a cycle; returns the orders to send now."""
        self._begun_in_cycle = 0
        self._reclaimed_in_cycle.clear()
        if self.dry_run:
            self._take_back(plan)
            return []
        began = self._instruments.begin()
        fresh = [QueuedAction(action) for action in plan.actions]
        for one in fresh:
            self._queue_of(one.action).append(one)
            if one.action.kind == ADOPT:
                self._adopting[one.action.machine] = None
        self.waiting += len(fresh)
        orders = self.begin(now_s)
        self._count_deferred(fresh)
        self._instruments.took(EXECUTE, self._instruments.begin() - began)
        return orders

    def _take_back(self, plan: CyclePlan) -> None:
        for action in plan.actions:
            self._instruments.count(ACTIONS_TOTAL, (ACTIONS[action.kind], DRY_RUN))
            if action.kind != ADOPT:
                self._inventory.withdraw(self._inventory.entries[action.machine])

    def _queue_of(self, action: Action) -> deque[QueuedAction]:
        if action.kind == RECLAIM:
            return self._reclaims.setdefault(action.cluster, deque())
        # Acquisitions and preemptions by priority; deletions come after them.
        rank = -action.priority if action.need is not None else _LAST
        found = self._queues.get(rank)
        if found is None:
            found = deque()
            self._queues[rank] = found
        return found

    def _count_deferred(self, fresh: list[QueuedAction]) -> None:
        """Counts each deferred action once, with the reason."""
        counts: dict[int, int] = {}
        for one in fresh:
            if not one.begun:
                kind: int = one.action.kind
                counts[kind] = counts.get(kind, 0) + 1
        for kind, times in counts.items():
            self._instruments.count(ACTIONS_TOTAL, (ACTIONS[kind], DEFERRED), times)
            self._instruments.count(DEFERRALS_TOTAL, (self._why_wait(),), times)

    def _why_wait(self) -> str:
        if self.paused:
            return BY_PAUSE
        if self._begun_in_cycle >= self._most_begun:
            return BY_CAP
        if len(self._running) >= self._limits.concurrency:
            return BY_CONCURRENCY
        return BY_RECLAIM_CAP

    def begin(self, now_s: float) -> list[MachineOrder]:
        """Begins what the limits allow: after a plan, and whenever an action has ended."""
        orders: list[MachineOrder] = []
        if self.paused or self.dry_run:
            return orders
        self._tag_again(orders)
        for rank in sorted(self._queues):
            queue = self._queues[rank]
            while queue and self._has_room():
                self._begin_one(queue.popleft(), now_s, orders)
            if not queue:
                del self._queues[rank]
        for cluster in sorted(self._reclaims):
            queue = self._reclaims[cluster]
            while queue and self._has_room() and self._may_reclaim(cluster):
                self._begin_one(queue.popleft(), now_s, orders)
            if not queue:
                del self._reclaims[cluster]
        return orders

    def tag_again(self, machine: str) -> None:
        """Has the tag of a machine sent again that is listed for another need than ours."""
        if machine not in self._adopting:
            self._to_tag[machine] = None

    def _tag_again(self, orders: list[MachineOrder]) -> None:
        while self._to_tag and self._has_room():
            machine = next(iter(self._to_tag))
            del self._to_tag[machine]
            entry = self._inventory.entries.get(machine)
            row = None if entry is None else entry.row
            if (
                entry is not None
                and row is not None
                and row.live
                and entry.state in (CONFIGURING, CONFIGURED)
                and machine not in self._running
            ):
                self._begun_in_cycle += 1
                orders.append(MachineOrder(TAG, machine, self._token(), row.cluster.name, row.key))
                self._instruments.count(ACTIONS_TOTAL, (ACTIONS[ADOPT], REPEATED))

    def _has_room(self) -> bool:
        return (
            self._begun_in_cycle < self._most_begun
            and len(self._running) < self._limits.concurrency
        )

    def _may_reclaim(self, cluster: str) -> bool:
        configured = self._inventory.clusters[cluster].configured
        done = self._reclaimed_in_cycle.get(cluster, 0)
        # Draining machines no longer count as configured, so they are added back for the share.
        return done < max(1, int(self._limits.reclaim_share * (configured + done)))

    def _begin_one(self, one: QueuedAction, now_s: float, orders: list[MachineOrder]) -> None:
        """Begins an action if its assumptions still hold."""
        self.waiting -= 1
        one.begun = True
        action = one.action
        if action.kind == ADOPT:
            self._adopting.pop(action.machine, None)
        entry = self._inventory.entries.get(action.machine)
        if entry is None or not self._holds(action, entry):
            self._instruments.count(ACTIONS_TOTAL, (ACTIONS[action.kind], STALE))
            return
        self._begun_in_cycle += 1
        if action.kind == ADOPT:
            orders.append(
                MachineOrder(TAG, action.machine, self._token(), action.cluster, action.need)
            )
            self._instruments.count(ACTIONS_TOTAL, (ACTIONS[ADOPT], SUCCESS))
            return
        running = RunningAction(action, entry)
        self._running[action.machine] = running
        if action.kind == BOOTSTRAP:
            self._inventory.transition(entry, CONFIGURING, now_s, row=entry.row)
            self._ask(running, FETCH, now_s, orders)
        elif action.kind == PROVISION:
            self._inventory.transition(entry, CREATING, now_s, row=entry.row)
            self._ask(running, CREATE, now_s, orders)
        elif action.kind in (PREEMPT, RECLAIM):
            if action.kind == RECLAIM:
                done = self._reclaimed_in_cycle.get(action.cluster, 0)
                self._reclaimed_in_cycle[action.cluster] = done + 1
            self._inventory.transition(entry, DRAINING, now_s)
            self._ask(running, DRAIN, now_s, orders)
        else:
            self._inventory.transition(entry, DELETING, now_s)
            self._ask(running, DELETE, now_s, orders)

    def _holds(self, action: Action, entry: MachineEntry) -> bool:
        """Whether a machine is still as planned: the same state and need, and not busy."""
        row = entry.row
        if action.machine in self._running:
            return False
        if action.kind == ADOPT:
            return entry.state in (CONFIGURING, CONFIGURED) and (
                row is not None and row.key == action.need
            )
        if entry.planned != action.kind or entry.state != START_STATE[action.kind]:
            return False
        if action.kind == PREEMPT:
            promised = self._inventory.promises.get(entry)
            return promised is not None and promised.key == action.need
        return action.need is None or (row is not None and row.key == action.need)

    def _token(self) -> Token:
        self._sequence += 1
        return Token(self._epoch, self._sequence)

    def _ask(
        self, running: RunningAction, operation: str, now_s: float, orders: list[MachineOrder]
    ) -> None:
        action = running.action
        if operation != running.operation:
            running.operation = operation
            running.attempts = 0
            running.since_s = now_s
        running.attempts += 1
        token = self._token()
        running.sequence = token.sequence
        limit_s = self._limits.create_timeout_s if operation == CREATE else self._limits.timeout_s
        deadline_s = now_s + action.grace_s + limit_s
        heapq.heappush(self._deadlines, (deadline_s, token.sequence, action.machine))
        orders.append(
            MachineOrder(
                operation,
                action.machine,
                token,
                action.cluster,
                action.need,
                action.grace_s,
                deadline_s,
            )
        )

    # Outcomes.

    def completed(
        self, machine: str, token: Token, now_s: float, orders: list[MachineOrder], host: str = ""
    ) -> bool:
        """Takes the completion of an order. False for a late, duplicate or foreign answer."""
        running = self._answered(machine, token)
        if running is None:
            return False
        entry, inventory = running.entry, self._inventory
        operation = running.operation
        if operation == CONFIGURE:
            inventory.transition(entry, CONFIGURED, now_s)
            self._end(running, SUCCESS, CONFIGURE_TIME, now_s)
        elif operation == FETCH:
            self._instruments.waited(BOOTSTRAP_FETCH, now_s - running.since_s)
            self._ask(running, CONFIGURE, now_s, orders)
        elif operation == CREATE:
            self._instruments.waited(PROVISIONING, now_s - running.since_s)
            self._recover(running)
            row = entry.row
            inventory.transition(entry, IDLE, now_s, host=host or entry.id)
            if row is not None and row.live:
                inventory.transition(entry, CONFIGURING, now_s, row=row)
                self._ask(running, FETCH, now_s, orders)
            else:  # its need is gone, so it joins no cluster
                self._end(running, SUCCESS, "", now_s)
        elif operation == DRAIN:
            inventory.transition(entry, IDLE, now_s)
            self._end(running, SUCCESS, DRAIN_TIME, now_s)
        else:
            inventory.transition(entry, SPECULATIVE, now_s)
            self._end(running, SUCCESS, "", now_s)
        return True

    def failed(self, machine: str, token: Token, error: str, cause: str, now_s: float) -> bool:
        """Takes the failure of an order. False for a late, duplicate or foreign answer."""
        running = self._answered(machine, token)
        if running is None:
            return False
        if cause == PERMANENT:
            self.permanent[machine] = None
            self._inventory.transition(running.entry, FAILED, now_s, error=error)
            self._end(running, ERROR, "", now_s)
        elif cause == CAPACITY and running.operation == CREATE:
            self._back_off(running, now_s)
            self._inventory.transition(running.entry, SPECULATIVE, now_s)
            self._end(running, NO_CAPACITY, "", now_s)
        return True  # anything else is repeated at its deadline

    def _back_off(self, running: RunningAction, now_s: float) -> None:
        """Closes an offering for a while; for longer if it was tried since the last failure."""
        offering = _offering_of(running.entry.stock.shape)
        found = self._backoffs.get(offering)
        if found is None:
            found = self._backoffs[offering] = OfferingBackoff()
        if found.times and running.since_s < found.since_s:
            return  # the order was sent before the back-off began
        longest_s = self._limits.longest_backoff_s
        wait_s = min(self._limits.backoff_s * 2.0 ** min(found.times, 60), longest_s)
        found.times += 1
        found.since_s = now_s
        found.until_s = now_s + wait_s
        self._close(offering, closed=True)

    def _recover(self, running: RunningAction) -> None:
        """Ends the back-off of an offering after a machine was created."""
        offering = _offering_of(running.entry.stock.shape)
        found = self._backoffs.get(offering)
        if found is not None and running.since_s >= found.since_s:
            del self._backoffs[offering]
            self._close(offering, closed=False)

    def hold_back(self, now_s: float) -> None:
        """Excludes places of offerings in back-off from planning; called before a cycle."""
        for offering, found in self._backoffs.items():
            self._close(offering, closed=now_s < found.until_s)

    def _close(self, offering: Offering, *, closed: bool) -> None:
        for stock in self._inventory.stocks:
            if _offering_of(stock.shape) == offering:
                self._inventory.close(stock, closed=closed)

    def lost(self, machine: str, error: str, now_s: float) -> None:
        """Marks a machine as failed by itself, such as by spot interruption or hardware failure."""
        self._forget(machine)
        self._inventory.transition(
            self._inventory.entries[machine], FAILED, now_s, error=f"lost: {error}"
        )

    def gone(self, machine: str) -> None:
        """Removes a machine that its provider no longer lists."""
        self._forget(machine)
        self.permanent.pop(machine, None)
        self._inventory.remove(machine)

    def is_running(self, machine: str) -> bool:
        """Whether an action of a machine is under way."""
        return machine in self._running

    def _forget(self, machine: str) -> None:
        running = self._running.get(machine)
        if running is not None:
            self._end(running, LOST, "", running.since_s)

    def _answered(self, machine: str, token: Token) -> RunningAction | None:
        running = self._running.get(machine)
        if running is None or running.sequence != token.sequence or token.epoch != self._epoch:
            self._instruments.count(ACTIONS_TOTAL, ("answer", STALE))
            return None
        return running

    def _end(self, running: RunningAction, result: str, waited: str, now_s: float) -> None:
        del self._running[running.action.machine]
        self._instruments.count(ACTIONS_TOTAL, (ACTIONS[running.action.kind], result))
        if waited:
            self._instruments.waited(waited, now_s - running.since_s)

    def expire(self, now_s: float) -> list[MachineOrder]:
        """Repeats orders that were not answered in time, under a newer token, or gives them up.

        A machine for which only its cluster was asked goes back to idle: no provider knows of it.
        """
        orders: list[MachineOrder] = []
        while self._deadlines and self._deadlines[0][0] <= now_s:
            _, sequence, machine = heapq.heappop(self._deadlines)
            running = self._running.get(machine)
            if running is None or running.sequence != sequence:
                continue
            if running.operation == FETCH:
                self._inventory.transition(running.entry, IDLE, now_s)
                self._end(running, ROLLED_BACK, "", now_s)
            elif running.attempts < self._limits.attempts or self.unreachable:
                if self.unreachable:
                    running.attempts -= 1
                self._ask(running, running.operation, now_s, orders)
            else:
                error = f"{running.operation} was not answered {running.attempts} times"
                self._inventory.transition(running.entry, FAILED, now_s, error=error)
                self._end(running, TIMEOUT, "", now_s)
        return orders

    def next_deadline_s(self) -> float:
        """When to call `expire` next, at the latest; infinity if nothing is under way."""
        return self._deadlines[0][0] if self._deadlines else float("inf")


def _offering_of(shape: MachineShape) -> Offering:
    return (shape.instance_type, shape.zone, shape.capacity_type)


_LAST: Final = 2**40
"""The rank after all priorities."""
