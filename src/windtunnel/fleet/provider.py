"""What a provider of machines must be able to do: three methods and their promises, no I/O.

A provider is the only store of machines that outlives a shard: whose a machine is by its order
(cluster, need) is kept beside the machine, told with every record, and dropped when the machine is
idle again. A shard that starts again learns all it must know from the list.

An order (`orders.Order`) is one of these; each machine has at most one under way:

    create      Speculative -> Creating -> Idle             makes a host
    configure   Idle -> Configuring -> Configured           joins a cluster
    drain       Configured -> Draining -> Idle              empties it within `grace_s`, and leaves
    delete      Idle -> Deleting -> Speculative             gives the host back
    tag         the state stays                             notes whose the machine is; not answered

Promises of a provider:
- An order that is not newer than the last one of the same shard for the same machine is ignored
  (`orders.Fence`), and so is one of an earlier start of the shard than the newest that has listed.
- To ask again for what is under way or done begins nothing; the answer goes to the newer token.
- An answer comes back once the machine has arrived, or says why it did not. Only an error that is
  PERMANENT is never asked again. After one of CAPACITY the machine is speculative again. After one
  that is PASSING, or no answer at all, the order is asked again at its deadline.
- A record that changed is listed after the cursor from before the change; a machine that is gone is
  a tombstone there. A cursor that is too old for that is said to be expired, never half served.
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
"""How many changes a page has at most, by default."""
TOMBSTONES_KEPT: Final = 100_000


class OperationStates(msgspec.Struct, frozen=True):
    """The states that an operation leads through."""

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
"""Why an order was not carried out: something that may be over when it is asked again; no capacity
for the type, zone and capacity type of the machine; something that asking again does not change."""


class Completion(msgspec.Struct, frozen=True):
    """What became of an order."""

    machine: str
    token: Token
    """Of the order, so that an answer that was overtaken is known as such."""
    error: str = ""
    """Why it was not carried out, in words; empty when it was."""
    cause: str = PASSING
    """The kind of the error."""
    host: str = ""
    """The new host, where one was made."""


class Page(msgspec.Struct, frozen=True):
    """Some of what changed after a cursor, the oldest change first."""

    records: list[Machine]
    tombstones: list[str]
    cursor: int
    """Where the next page begins. Only its provider knows what it means."""
    more: bool = False
    expired: bool = False
    """The cursor was too old to know all that has gone: list again from the start."""
    unreachable: bool = False
    """The provider did not answer: an empty page does not mean that machines are gone."""


class ChangeLog:
    """The records of a provider, and which of them changed after a cursor."""

    def __init__(self) -> None:
        self.records: Final[dict[str, Machine]] = {}
        self._changed: Final[dict[str, int]] = {}  # revision by machine, the oldest change first
        self._gone: Final[dict[str, int]] = {}  # the same for tombstones
        self._forgotten = FROM_THE_START  # the newest tombstone that is no longer kept
        self.revision = FROM_THE_START
        """Of the last change; the cursor of a list that has it."""

    def put(self, record: Machine) -> None:
        """A machine is new, or has changed."""
        self.records[record.id] = record
        self._gone.pop(record.id, None)
        self._changed.pop(record.id, None)
        self.revision += 1
        self._changed[record.id] = self.revision

    def remove(self, machine: str) -> None:
        """A machine is gone; only a tombstone tells of it."""
        del self.records[machine]
        del self._changed[machine]
        self.revision += 1
        self._gone[machine] = self.revision
        if len(self._gone) > TOMBSTONES_KEPT:
            oldest = next(iter(self._gone))
            self._forgotten = self._gone.pop(oldest)

    def since(self, cursor: int, most: int = PAGE) -> Page:
        """What changed after a cursor."""
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
    """What has a revision above the cursor; costs what is found, since the newest are last."""
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
        """One machine as it is, or nothing where there is none."""

    def list_since(self, shard: str, epoch: int, cursor: int, most: int = PAGE) -> Page:
        """What changed after a cursor. Orders of earlier epochs of the shard are void from now."""
