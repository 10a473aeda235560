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


class Provider(Protocol):
    """A provider of machines. Completions of orders are delivered separately, later."""

    def begin(self, shard: str, order: MachineOrder, now_s: float) -> None:
        """Takes an order and returns at once."""

    def get(self, machine: str) -> Machine | None:
        """One machine as it is, or nothing where there is none."""

    def list_since(self, shard: str, epoch: int, cursor: int, most: int = PAGE) -> Page:
        """What changed after a cursor. Orders of earlier epochs of the shard are void from now."""
