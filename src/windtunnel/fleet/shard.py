"""One shard: planner, execution and the lists of its provider, as one controller without I/O.

It takes pages, answers and roll-ups, and returns orders. All its lasting state is with its
provider: a shard that restarts lists from the start, under its next epoch, and continues.
Operations under way continue at the provider, so they are counted on and not ordered a second time.
"""

import heapq
import math
from collections.abc import Iterable
from typing import Final

from windtunnel.fleet.execution import Executor
from windtunnel.fleet.instruments import (
    BELIEVED,
    BUFFER,
    CONSOLIDATION,
    LISTS_TOTAL,
    QUARANTINED,
    RECONCILE,
    ROLLUP,
    Instruments,
)
from windtunnel.fleet.machine import Machine
from windtunnel.fleet.need import Need, NeedKey
from windtunnel.fleet.orders import ExecutionLimits, MachineOrder, Token
from windtunnel.fleet.planner.actions import CyclePlan
from windtunnel.fleet.planner.buffer import Buffer, BufferLimits
from windtunnel.fleet.planner.consolidation import ConsolidationLimits, Consolidator
from windtunnel.fleet.planner.costs import RECLAIM_GRACE_S
from windtunnel.fleet.planner.cycle import Planner
from windtunnel.fleet.planner.entries import MachineEntry
from windtunnel.fleet.planner.table import check_owner
from windtunnel.fleet.provider import FROM_THE_START, Completion, Page
from windtunnel.fleet.reconciliation import Reconciler
from windtunnel.fleet.shape import ZONE
from windtunnel.fleet.states import CONFIGURING, CREATING, DELETING, DRAINING, FAILED, SPECULATIVE

QUARANTINE_MACHINES: Final = 10
QUARANTINE_LISTS: Final = 3
"""With ten machines or more, a complete list without a large share of them (`missing_share` of the
limits) is rejected until it was received three times."""

TRANSITIONAL: Final = (CREATING, CONFIGURING, DRAINING, DELETING)
"""States in which an operation is under way."""


class Territory:
    """The machines of a shard: those of its domains, and those that it was given."""

    def __init__(self, domains: Iterable[str] | None = None, key: str = ZONE) -> None:
        self._key: Final = key
        self.domains: Final = None if domains is None else sorted(domains)
        """Values of the key; None for a shard that has everything."""
        self.given: Final[dict[str, None]] = {}
        """Machines of other domains that are ours."""
        self.left: Final[dict[str, None]] = {}
        """Machines of our domains that belong to another shard."""

    def has(self, machine: Machine) -> bool:
        if machine.id in self.left:
            return False
        if self.domains is None or machine.id in self.given:
            return True
        return machine.shape.attributes().get(self._key, "") in self.domains

    def among(self, records: list[Machine]) -> list[Machine]:
        """The machines, out of these, that belong to the shard."""
        if self.domains is None and not self.left:
            return records
        return [record for record in records if self.has(record)]

    def take(self, machine: str) -> None:
        """Adds a machine to the territory."""
        if machine in self.left:
            del self.left[machine]
        else:
            self.given[machine] = None

    def leave(self, machine: str) -> None:
        """Removes a machine from the territory."""
        if machine in self.given:
            del self.given[machine]
        else:
            self.left[machine] = None


class Shard:
    """Decides about the machines of its territory, and follows its decisions to their end."""

    def __init__(
        self,
        name: str,
        limits: ExecutionLimits | None = None,
        *,
        epoch: int = 1,
        territory: Territory | None = None,
        instruments: Instruments | None = None,
        buffer: BufferLimits | None = None,
        consolidation: ConsolidationLimits | None = None,
    ) -> None:
        self.name: Final = name
        self.epoch: Final = epoch
        """The number of starts of the shard, issued with its lease."""
        self.limits: Final = limits or ExecutionLimits()
        self.instruments: Final = instruments or Instruments()
        self.territory: Final = territory or Territory()
        self.planner: Final = Planner(self.instruments)
        self.executor: Final = Executor(
            self.planner.inventory, self.limits, epoch=epoch, instruments=self.instruments
        )
        self.reconciler: Final = Reconciler(self.planner.inventory, self.executor, self.instruments)
        self.buffer: Final = Buffer(self.planner.inventory, buffer) if buffer else None
        self.consolidator: Final = (
            Consolidator(self.planner, consolidation) if consolidation else None
        )
        self.cursor = FROM_THE_START
        self._first: list[Machine] = []  # records of a list from the start, until its last page
        self._from_start = True
        self._short_lists = 0  # consecutive lists without a large share of its machines
        self._early: Final[dict[str, list[Need]]] = {}
        self.is_ready = False
        """Whether it has seen a complete list; before that it must not decide anything."""
        self._orphans: Final[list[tuple[float, str]]] = []
        self.reasked: Final[dict[Token, None]] = {}
        """Orders that were repeated at their deadline."""

    # Inputs.

    def fold(self, page: Page, now_s: float) -> bool:
        """Takes a page of its provider's list. True if another page must be requested."""
        self.executor.unreachable = page.unreachable
        if page.unreachable:
            return False
        if page.expired:
            self.relist()
            return True
        began = self.instruments.begin()
        self._fold(page, now_s)
        self.instruments.took(RECONCILE, self.instruments.begin() - began)
        return page.more

    def _fold(self, page: Page, now_s: float) -> None:
        self.cursor = page.cursor
        mine = self.territory.among(page.records)
        if not self._from_start:
            self.reconciler.fold(mine, now_s)
            self.reconciler.forget(page.tombstones)
            return
        self._first = self._first + mine if self._first else mine
        if not page.more:
            fresh = self.reconciler.fold(self._first, now_s)
            missing = self.reconciler.unlisted()
            believed = self._believes(missing)
            self.instruments.count(LISTS_TOTAL, (BELIEVED if believed else QUARANTINED,))
            if believed:
                self.reconciler.forget(missing)
            self._watch(fresh, now_s)
            self._from_start, self._first = False, []
            if not believed:
                self.relist()
            self._begin_to_decide()

    def _believes(self, missing: list[str]) -> bool:
        """Whether machines missing from a complete list are gone.

        A list that suddenly lacks a large share of them is more often a fault than a loss: it is
        requested again, and accepted the third time.
        """
        entries = self.planner.inventory.entries
        lost = sum(name in entries and _has_host(entries[name]) for name in missing)
        hosts = sum(map(_has_host, entries.values())) if lost else 0
        if hosts < QUARANTINE_MACHINES or lost <= self.limits.missing_share * hosts:
            self._short_lists = 0
            return True
        self._short_lists += 1
        if self._short_lists < QUARANTINE_LISTS:
            return False
        self._short_lists = 0
        return True

    def _begin_to_decide(self) -> None:
        self.is_ready = True
        for cluster, needs in self._early.items():
            self.planner.needs.replace(cluster, needs)
        self._early.clear()

    def want(self, cluster: str, needs: Iterable[Need]) -> bool:
        """Takes the roll-up of a cluster. False while it is quarantined.

        A roll-up before the first complete list is kept until then: whether a gang fits on one
        machine depends on the known machines.
        """
        if not self.is_ready:
            early = list(needs)
            check_owner(cluster, early)
            self._early[cluster] = early
            return True
        began = self.instruments.begin()
        believed = self.planner.needs.replace(cluster, needs)
        self.instruments.took(ROLLUP, self.instruments.begin() - began)
        return believed

    def folds_as_before(self) -> bool:
        """Whether the same gangs as before fit on one machine; if not, send everything again."""
        return self.planner.needs.folds_as_before()

    def revise(self, cluster: str, asked: Iterable[Need], withdrawn: Iterable[NeedKey]) -> bool:
        """Takes the changes since the last accepted roll-up of a cluster.

        False if they are quarantined: the next roll-up must be complete.
        """
        began = self.instruments.begin()
        believed = self.planner.needs.revise(cluster, asked, withdrawn)
        self.instruments.took(ROLLUP, self.instruments.begin() - began)
        return believed

    def answer(self, answer: Completion, now_s: float) -> list[MachineOrder]:
        """Takes an answer; returns the next orders."""
        orders: list[MachineOrder] = []
        if answer.error:
            self.executor.failed(answer.machine, answer.token, answer.error, answer.cause, now_s)
        else:
            self.executor.completed(answer.machine, answer.token, now_s, orders, answer.host)
        return orders + self.executor.begin(now_s)

    def relist(self) -> None:
        """Starts listing from the beginning again, in case an earlier list was wrong."""
        self.cursor, self._from_start, self._first = FROM_THE_START, True, []

    # Cycles and deadlines.

    def cycle(self, now_s: float) -> tuple[CyclePlan, list[MachineOrder]]:
        """Decides; returns the plan and the orders to send now."""
        self.executor.hold_back(now_s)
        plan = self.planner.cycle(now_s)
        self.instruments.begin()
        if self.buffer is not None:
            self.buffer.keep(plan)
            self.instruments.lap(BUFFER)
        if self.consolidator is not None:
            plan.actions += self.consolidator.propose(now_s)
            self.instruments.lap(CONSOLIDATION)
        return plan, self.executor.submit(plan, now_s)

    def expire(self, now_s: float) -> list[MachineOrder]:
        """Repeats orders that were not answered in time, or gives them up."""
        orders = self.executor.expire(now_s)
        self.reasked.update((order.token, None) for order in orders)
        self._give_up_orphans(now_s)
        return orders + self.executor.begin(now_s)

    def next_deadline_s(self) -> float:
        """When to call `expire` next, at the latest."""
        orphan_s = self._orphans[0][0] if self._orphans else math.inf
        return min(self.executor.next_deadline_s(), orphan_s)

    # What was under way before it started.

    def _watch(self, records: list[Machine], now_s: float) -> None:
        """Watches operations begun by an earlier process, which are listed but not answered."""
        for record in records:
            if record.state in TRANSITIONAL and record.id in self.planner.inventory.entries:
                limits = self.limits
                limit_s = limits.create_timeout_s if record.state == CREATING else limits.timeout_s
                grace_s = RECLAIM_GRACE_S if record.state == DRAINING else 0.0
                due_s = now_s + limits.attempts * (limit_s + grace_s)
                heapq.heappush(self._orphans, (due_s, record.id))

    def _give_up_orphans(self, now_s: float) -> None:
        inventory = self.planner.inventory
        while self._orphans and self._orphans[0][0] <= now_s:
            _, name = heapq.heappop(self._orphans)
            entry = inventory.entries.get(name)
            if (
                entry is not None
                and entry.state in TRANSITIONAL
                and not self.executor.is_running(name)
            ):
                error = "what was begun before the shard started again never ended"
                inventory.transition(entry, FAILED, now_s, error=error)


def _has_host(entry: MachineEntry) -> bool:
    return entry.state not in (SPECULATIVE, FAILED)
