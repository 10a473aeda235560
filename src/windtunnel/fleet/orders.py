"""What is asked of providers and clusters, the tokens that fence it, and the limits on how much."""

from typing import Final

import msgspec

from windtunnel.core.errors import InputError
from windtunnel.fleet.need import NeedKey

CREATE: Final = "create"
FETCH: Final = "fetch"
CONFIGURE: Final = "configure"
DRAIN: Final = "drain"
DELETE: Final = "delete"
TAG: Final = "tag"
OPERATIONS: Final = (CREATE, FETCH, CONFIGURE, DRAIN, DELETE, TAG)
"""Make a host; ask the cluster for what a machine needs to join it; join it; empty and leave it;
give the host back; note whose the machine is, which changes nothing else."""


class Token(msgspec.Struct, frozen=True, order=True, gc=False):
    """Which of two orders for a machine is the newer one."""

    epoch: int
    """How often the shard was started."""
    sequence: int


class MachineOrder(msgspec.Struct, frozen=True, gc=False):
    """One thing that a provider or a cluster is asked to do, and by when."""

    operation: str
    machine: str
    token: Token
    cluster: str = ""
    need: NeedKey | None = None
    """Stored beside the machine and told with it, so that a restart knows whose it is."""
    grace_s: float = 0.0
    deadline_s: float = 0.0


class Fence:
    """What a provider keeps, so that an order that was overtaken does no harm.

    The mark is kept for each shard and machine. One mark for a whole shard would refuse orders
    that merely overtook each other on their way.
    """

    def __init__(self) -> None:
        self._marks: Final[dict[tuple[str, str], Token]] = {}

    def admits(self, shard: str, machine: str, token: Token) -> bool:
        """Whether an order is newer than all before it; if so, it is the new mark."""
        mark = self._marks.get((shard, machine))
        if mark is not None and token <= mark:
            return False
        self._marks[shard, machine] = token
        return True


class ExecutionLimits(msgspec.Struct, frozen=True):
    """How much may be done at once."""

    actions_per_cycle: int = 1000
    """How many actions may begin between two cycles; the rest waits, remembered. 0: all of them."""
    concurrency: int = 256
    """How many may be under way at once."""
    timeout_s: float = 30.0
    """How long an order may take before it is asked again, or undone where nothing was asked yet.

    A drain has the grace of its cluster on top.
    """
    create_timeout_s: float = 600.0
    """As above, for making a host: clouds take minutes."""
    attempts: int = 3
    """How often an order is asked before its machine is given up."""
    backoff_s: float = 30.0
    """How long no machine of an instance type, zone and capacity type is created after its provider
    had no capacity for one; twice as long after each further time, until one was created."""
    longest_backoff_s: float = 600.0
    missing_share: float = 0.3
    """The share of its machines that a whole list may lack and still be believed at once; 1 is any
    list."""
    reclaim_share: float = 0.05
    """Of the machines of a cluster, how many may be reclaimed between two cycles; at least one."""

    def check(self) -> "ExecutionLimits":
        """Itself, when every limit makes sense."""
        if self.actions_per_cycle < 0:
            raise InputError(
                f"actions_per_cycle is {self.actions_per_cycle}",
                allowed="1 or more, or 0 for no limit",
            )
        for name in ("concurrency", "attempts"):
            if getattr(self, name) < 1:
                raise InputError(f"{name} is {getattr(self, name)}", allowed="1 or more")
        for name in ("timeout_s", "create_timeout_s", "backoff_s", "longest_backoff_s"):
            if not getattr(self, name) > 0:
                raise InputError(f"{name} is {getattr(self, name)}", allowed="more than 0")
        if not 0 <= self.missing_share <= 1:
            raise InputError(f"missing_share is {self.missing_share}", allowed="0 to 1")
        if not 0 < self.reclaim_share <= 1:
            raise InputError(f"reclaim_share is {self.reclaim_share}", allowed="above 0, at most 1")
        return self
