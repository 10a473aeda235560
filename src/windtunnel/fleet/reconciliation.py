"""Folds the lists of providers into the inventory; rejects, counts and keeps impossible records."""

import math
from collections.abc import Iterable
from typing import Final

import msgspec

from windtunnel.fleet.execution import Executor
from windtunnel.fleet.instruments import REJECTED_TOTAL, Instruments
from windtunnel.fleet.machine import Machine, fault_of
from windtunnel.fleet.planner.actions import NOTHING
from windtunnel.fleet.planner.entries import MachineEntry, NeedRow
from windtunnel.fleet.planner.inventory import Inventory
from windtunnel.fleet.states import (
    CONFIGURED,
    CONFIGURING,
    FAILED,
    IDLE,
    SPECULATIVE,
    STATES,
    is_legal,
)

MOST_KEPT: Final = 1000
"""Number of rejected records kept for inspection; the oldest are dropped first."""

IMPOSSIBLE: Final = "impossible_record"
ILLEGAL: Final = "illegal_transition"
RESHAPED: Final = "another_shape"


class Reconciler:
    """Updates the inventory to a provider's list, as far as its records are possible."""

    def __init__(
        self, inventory: Inventory, executor: Executor, instruments: Instruments | None = None
    ) -> None:
        self._inventory: Final = inventory
        self._executor: Final = executor
        self._instruments: Final = instruments or Instruments()
        self._folds = 0
        self._listed = 0  # how many machines were on the last list
        self._strange: dict[str, None] = {}  # unknown ones on it, whose records were rejected
        self.rejected: Final[dict[str, tuple[Machine, str]]] = {}
        """By machine: the last impossible record, and why."""
        self.doubtful: Final[dict[str, None]] = {}
        """Machines without an accepted record since an impossible one."""

    def fold(
        self, records: list[Machine], now_s: float, *, complete: bool = False
    ) -> list[Machine]:
        """Takes a list of records; if it is `complete`, machines that are not on it are gone.

        Returns the records of machines that were not known before.
        """
        entries = self._inventory.entries
        fresh: list[Machine] = []
        self._folds += 1
        self._listed = 0
        self._strange = {}
        for record in records:
            name = record.id
            if self.doubtful:
                self.doubtful.pop(name, None)
            entry = entries.get(name)
            if entry is None:
                self._fold_one(None, record, now_s)
                entry = entries.get(name)
                if entry is None:
                    self._strange[name] = None
                    continue
                fresh.append(record)
            elif not _is_known(entry, record):
                self._fold_one(entry, record, now_s)
            if entry.listed != self._folds:
                entry.listed = self._folds
                self._listed += 1
        if complete:
            self.forget(self.unlisted())
        return fresh

    def unlisted(self) -> list[str]:
        """The machines that were not on the last list, by id."""
        entries = self._inventory.entries
        found: list[str] = []
        if self._listed < len(entries):
            found = [name for name, entry in entries.items() if entry.listed != self._folds]
            found.sort()
        for name in self.doubtful:
            if name not in entries and name not in self._strange:
                found.append(name)
        return found

    def forget(self, tombstones: Iterable[str]) -> None:
        """Removes machines that a provider no longer has, by id."""
        for name in tombstones:
            self._gone(name)

    def _gone(self, name: str) -> None:
        self.doubtful.pop(name, None)
        if name in self._inventory.entries:
            self._executor.gone(name)

    def _fold_one(self, entry: MachineEntry | None, record: Machine, now_s: float) -> None:
        fault = fault_of(record)
        if fault:
            self._reject(record, IMPOSSIBLE, fault)
        elif entry is None:
            # Plans are ours alone: a machine planned elsewhere would never be free.
            self._inventory.insert(msgspec.structs.replace(record, planned=NOTHING))
        elif entry.stock.shape != record.shape:
            self._reject(record, RESHAPED, "a machine keeps its shape for life")
        elif entry.state == record.state:
            self._fold_same_state(entry, record)
        elif record.state == FAILED and is_legal(int(entry.state), FAILED):
            self._executor.lost(record.id, record.error, now_s)
        elif self._executor.is_running(record.id):
            return  # our own action is answered by its completion
        elif entry.state == FAILED and not self._has_recovered(entry, record):
            return
        elif not is_legal(int(entry.state), record.state):
            before, after = STATES[int(entry.state)], STATES[record.state]
            self._reject(record, ILLEGAL, f"it cannot go from {before} to {after}")
        else:
            row = self._row_of(record)
            self._inventory.transition(entry, record.state, now_s, host=record.host, row=row)

    def _has_recovered(self, entry: MachineEntry, record: Machine) -> bool:
        """Whether a machine that failed can be used again.

        Its provider must list it as usable; after a permanent error, with a later time, or
        differently from its first record after the error.
        """
        permanent = self._executor.permanent
        if record.id in permanent:
            listed = permanent[record.id]
            if record.since_s <= entry.since_s and (listed is None or listed == record):
                permanent[record.id] = record
                return False
            del permanent[record.id]
        return record.state in (SPECULATIVE, IDLE, CONFIGURED)

    def _fold_same_state(self, entry: MachineEntry, record: Machine) -> None:
        """Takes a record without a change of state. A machine leaves a cluster only by being
        drained, not by being listed for another."""
        if record.id in self._executor.permanent:
            self._executor.permanent[record.id] = record  # its provider knows that it failed
        row = entry.row
        cluster = record.cluster if row is None else row.cluster.name
        if record.cluster and record.cluster != cluster and record.state != FAILED:
            sentence = f"it cannot go from cluster {cluster!r} to {record.cluster!r}"
            self._reject(record, ILLEGAL, sentence)
            return
        if record.host:
            entry.host = record.host
        is_bound = record.state in (CONFIGURING, CONFIGURED)
        if is_bound and row is not None and row.live and record.holder != row.key:
            self._executor.tag_again(record.id)

    def _row_of(self, record: Machine) -> NeedRow | None:
        if record.holder is not None:
            return self._inventory.row(record.holder)
        return self._inventory.cluster(record.cluster).unknown if record.cluster else None

    def _reject(self, record: Machine, reason: str, sentence: str) -> None:
        self._instruments.count(REJECTED_TOTAL, (reason,))
        self.doubtful[record.id] = None
        self.rejected.pop(record.id, None)
        if len(self.rejected) >= MOST_KEPT:
            del self.rejected[next(iter(self.rejected))]
        self.rejected[record.id] = (record, sentence)


def _is_known(entry: MachineEntry, record: Machine) -> bool:
    """Whether a record has no news about a machine, as is true of most in a long list."""
    if record.state != entry.state or record.state == FAILED or record.host != entry.host:
        return False
    row = entry.row
    if row is None:
        is_same = record.holder is None and not record.cluster
    else:
        is_same = record.holder == row.key and record.cluster == row.cluster.name
    shape, since_s = record.shape, record.since_s
    return (
        is_same
        and (shape is entry.stock.shape or shape == entry.stock.shape)
        and record.promised is None
        and record.planned == NOTHING
        and -math.inf < since_s < math.inf
    )
