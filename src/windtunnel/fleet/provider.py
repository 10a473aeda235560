"""The interface of a provider of machines: three methods and their guarantees, no I/O.

A provider is the only store of machines that outlives a shard: the holder of a machine (cluster,
need) is stored with the machine by its order, listed with every record, and dropped when the
machine is idle again. A shard that restarts learns all it must know from the list.

An order (`orders.MachineOrder`) is one of these; each machine has at most one under way:

    create      Speculative -> Creating -> Idle             creates a host
    configure   Idle -> Configuring -> Configured           joins a cluster
    drain       Configured -> Draining -> Idle              empties it within `grace_s`, and leaves
    delete      Idle -> Deleting -> Speculative             deletes the host
    tag         the state stays                             records the holder; not answered

Guarantees of a provider:
- An order is ignored unless it is newer than the last one of the same shard for the same machine
  (`orders.Fence`), and also if it is of an earlier epoch than the newest in which the shard listed.
- Repeating an order that is under way or done begins nothing; the answer goes to the newer token.
- An answer is sent once the machine has reached its state, or says why it did not. Only after a
  PERMANENT error is the order never repeated. After a CAPACITY error the machine is speculative
  again. After a PASSING error, or without an answer, the order is repeated at its deadline.
- A changed record is listed after any cursor from before the change; a machine that is gone is
  listed as a tombstone. A cursor that is too old for that is reported as expired, never answered in
  part.
"""

from typing import Final, Protocol

import msgspec

from windtunnel.fleet.machine import Machine
from windtunnel.fleet.orders import CONFIGURE, CREATE, DELETE, DRAIN, MachineOrder, Token
from windtunnel.fleet.states import (
    CONFIGURED,
    CONFIGURING,
    CREATING,
    DELETING,
    DRAINING,
    IDLE,
    SPECULATIVE,
)

FROM_THE_START: Final = 0
"""The cursor before the first page."""
PAGE: Final = 50_000
"""Default maximum of changes per page."""
TOMBSTONES_KEPT: Final = 100_000


class OperationStates(msgspec.Struct, frozen=True):
    """The states that an operation passes through."""

    start: int
    under_way: int
    end: int


STEPS: Final = {
    CREATE: OperationStates(SPECULATIVE, CREATING, IDLE),
    CONFIGURE: OperationStates(IDLE, CONFIGURING, CONFIGURED),
    DRAIN: OperationStates(CONFIGURED, DRAINING, IDLE),
    DELETE: OperationStates(IDLE, DELETING, SPECULATIVE),
}


PASSING: Final = "passing"
CAPACITY: Final = "capacity"
PERMANENT: Final = "permanent"
"""Causes of a failed order: something that may have passed by the next attempt; no capacity for the
type, zone and capacity type of the machine; something that another attempt does not change."""


class Completion(msgspec.Struct, frozen=True):
    """The outcome of an order."""

    machine: str
    token: Token
    """The token of the order, which identifies an answer that was overtaken."""
    error: str = ""
    """Why it failed; empty: it did not."""
    cause: str = PASSING
    """The kind of the error."""
    host: str = ""
    """The new host, if one was created."""


class Page(msgspec.Struct, frozen=True):
    """Some of the changes after a cursor, oldest first."""

    records: list[Machine]
    tombstones: list[str]
    cursor: int
    """Where the next page begins; opaque to all but its provider."""
    more: bool = False
    expired: bool = False
    """The cursor was too old to know all removals: list again from the start."""
    unreachable: bool = False
    """The provider did not answer, so an empty page does not mean that machines are gone."""


class ChangeLog:
    """The records of a provider, with the revision of each change."""

    def __init__(self) -> None:
        self.records: Final[dict[str, Machine]] = {}
        self._changed: Final[dict[str, int]] = {}  # revision by machine, the oldest change first
        self._gone: Final[dict[str, int]] = {}  # the same for tombstones
        self._forgotten = FROM_THE_START  # the newest tombstone that is no longer kept
        self.revision = FROM_THE_START
        """The revision of the last change, which is the cursor of a list that includes it."""

    def put(self, record: Machine) -> None:
        """Records a new or changed machine."""
        self.records[record.id] = record
        self._gone.pop(record.id, None)
        self._changed.pop(record.id, None)
        self.revision += 1
        self._changed[record.id] = self.revision

    def remove(self, machine: str) -> None:
        """Removes a machine, of which only a tombstone remains."""
        del self.records[machine]
        del self._changed[machine]
        self.revision += 1
        self._gone[machine] = self.revision
        if len(self._gone) > TOMBSTONES_KEPT:
            oldest = next(iter(self._gone))
            self._forgotten = self._gone.pop(oldest)

    def since(self, cursor: int, most: int = PAGE) -> Page:
        """The changes after a cursor."""
        if FROM_THE_START < cursor < self._forgotten:
            return Page([], [], cursor, expired=True)
        changes = [(at, name) for name, at in _after(self._changed, cursor)]
        if cursor != FROM_THE_START:  # a first list needs no tombstones
            changes += [(at, name) for name, at in _after(self._gone, cursor)]
        changes.sort()
        page = changes[:most]
        return Page(
            [self.records[name] for _, name in page if name in self.records],
            [name for _, name in page if name not in self.records],
            page[-1][0] if len(page) < len(changes) else self.revision,
            more=len(page) < len(changes),
        )


def _after(revisions: dict[str, int], cursor: int) -> list[tuple[str, int]]:
    """The entries above a revision; cost is proportional to the result (the newest are last)."""
    found = []
    for name in reversed(revisions):
        at = revisions[name]
        if at <= cursor:
            break
        found.append((name, at))
    return found


class Provider(Protocol):
    """A provider of machines. Completions of orders are delivered separately, later."""

    def begin(self, shard: str, order: MachineOrder, now_s: float) -> None:
        """Takes an order and returns at once."""

    def get(self, machine: str) -> Machine | None:
        """The current record of a machine; None if there is none."""

    def list_since(self, shard: str, epoch: int, cursor: int, most: int = PAGE) -> Page:
        """The changes after a cursor. Orders of earlier epochs of the shard become void."""
