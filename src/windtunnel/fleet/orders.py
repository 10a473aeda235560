"""Orders to providers and clusters, the tokens that fence them, and limits on their rate."""

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
"""Create a host; ask the cluster for what a machine needs to join it; join it; empty and leave it;
delete the host; record the machine's holder, which changes nothing else."""


class Token(msgspec.Struct, frozen=True, order=True, gc=False):
    """The position of an order among those for its machine; the newer one is larger."""

    epoch: int
    """The number of starts of the shard."""
    sequence: int


class MachineOrder(msgspec.Struct, frozen=True, gc=False):
    """One operation that a provider or a cluster is asked for, and its deadline."""

    operation: str
    machine: str
    token: Token
    cluster: str = ""
    need: NeedKey | None = None
    """Stored with the machine and listed with it, so that a restart knows its holder."""
    grace_s: float = 0.0
    deadline_s: float = 0.0


class Fence:
    """A provider's record of the newest orders, so that an order that was overtaken does no harm.

    A mark is kept per shard and machine. One mark for a whole shard would refuse orders that merely
    overtook each other on the way.
    """

    def __init__(self) -> None:
        self._marks: Final[dict[tuple[str, str], Token]] = {}

    def admits(self, shard: str, machine: str, token: Token) -> bool:
        """Whether an order is newer than all before it; if so, it becomes the new mark."""
        mark = self._marks.get((shard, machine))
        if mark is not None and token <= mark:
            return False
        self._marks[shard, machine] = token
        return True


class ExecutionLimits(msgspec.Struct, frozen=True):
    """Limits on actions."""

    actions_per_cycle: int = 1000
    """Maximum actions begun per cycle; the rest stays queued. 0: no limit."""
    concurrency: int = 256
    """Maximum actions under way at once."""
    timeout_s: float = 30.0
    """How long an order may take before it is repeated, or undone if no provider was asked yet.

    For a drain, the cluster's grace period is added.
    """
    create_timeout_s: float = 600.0
    """The same for creating a host: clouds take minutes."""
    attempts: int = 3
    """How often an order is sent before its machine is given up."""
    backoff_s: float = 30.0
    """How long no machine of an instance type, zone and capacity type is created after its provider
    had no capacity; doubled each further time, until one was created."""
    longest_backoff_s: float = 600.0
    missing_share: float = 0.3
    """The share of machines that may be missing from a list accepted at once; 1: any share."""
    reclaim_share: float = 0.05
    """The share of a cluster's machines that may be reclaimed per cycle; at least one machine."""

    def check(self) -> "ExecutionLimits":
        """Returns itself if every limit is valid."""
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
