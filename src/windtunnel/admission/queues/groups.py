"""Groups of queued work, lanes of equal demand, and the resources they want.

This is the state of the fair queue and of the controller that owns it; nothing else changes it.
"""

from dataclasses import dataclass
from typing import Final

from windtunnel.core.errors import InputError
from windtunnel.core.heap import HeapNode, NodeHeap

READY: Final = 0
YIELDING: Final = 1
REFUSED: Final = 2
"""The policy's decision on a group: goes in its turn, goes if no other can, does not go."""

PRIORITY_MAX: Final = 1000


@dataclass(frozen=True)
class GroupShare:
    """A group of work: its weight and priority among groups, and how much it may have running."""

    key: str
    weight: int = 1
    priority: int = 0
    admitted_limit: int = 0

    def __post_init__(self) -> None:
        priorities = f"-{PRIORITY_MAX} to {PRIORITY_MAX}"
        for value, noun, is_right, allowed in (
            (self.weight, "a weight", self.weight >= 1, "1 or more"),
            (self.priority, "a priority", abs(self.priority) <= PRIORITY_MAX, priorities),
            (self.admitted_limit, "a limit", self.admitted_limit >= 0, "0 (none) or more"),
        ):
            if not is_right:
                where = f"group {self.key}"
                raise InputError(f"{value} is not {noun}", where=where, allowed=allowed)


class SharedResource:
    """A resource with a limit on what may be in use at once, and the demand for it."""

    def __init__(
        self, name: str, index: int, limit: int, *, shared: bool = False, universal: bool = False
    ) -> None:
        """Creates a resource. Shared: wanted by so many lanes that it opens and closes whole bays.
        Universal: wanted by all work alike, so that wanting it is not a contention."""
        self.name: Final = name
        self.index: Final = index
        self.shared: Final = shared
        self.universal: Final = universal
        self.limit = limit
        self.leased = 0
        self.queued = 0
        self.peak_leased = 0
        self.peak_queued = 0
        self.contenders = 0
        self.contending_weight = 0
        self.lanes: Final[list[DemandLane]] = []
        self.lane_amounts: Final[list[int]] = []
        self.short_bays: Final[list[LaneGroup]] = []
        self.short_amounts: Final[list[int]] = []
        self.holds: Final = NodeHeap()
        self.refused: Final[list[QueueGroup]] = []
        self.is_dirty = False


class GroupAccount:
    """One group's use of one resource."""

    def __init__(self) -> None:
        self.leased = 0
        self.queued = 0
        self.debt = 0


class LaneGroup:
    """Lanes that want the same shared resources."""

    def __init__(self) -> None:
        self.lanes: Final = NodeHeap()
        self.shortages = 0


class DemandLane(HeapNode):
    """Work of any group that needs the same amounts of the same resources."""

    def __init__(
        self, name: str, bay: LaneGroup, resources: list[SharedResource], amounts: list[int]
    ) -> None:
        super().__init__()
        self.name: Final = name
        self.bay: Final = bay
        self.resources: Final = resources
        self.amounts: Final = amounts
        alone = all(resource.universal for resource in resources)
        self.considered: Final[list[bool]] = [
            alone or not resource.universal for resource in resources
        ]
        self.groups: Final = NodeHeap()
        self.is_rationed = False
        """Whether a budget is the scarce resource: turns then share it by cost, rather than slots
        by number."""
        self.blocks = 0
        self.members = 0
        self.weight = 0
        self.queued = 0

    def request(self) -> dict[str, int]:
        """Returns the amounts it requests, as plain data."""
        return {
            resource.name: self.amounts[number] for number, resource in enumerate(self.resources)
        }


class QueuedWork:
    """A unit of queued work. It is in one queue at most, and linked to its neighbours there."""

    def __init__(
        self,
        id: str,  # noqa: A002 - an id is what it is
        group: GroupShare,
        lane: DemandLane,
        payload: object,
        cost: float = 1.0,
    ) -> None:
        if not cost > 0.0:
            raise InputError(f"{cost} is not a cost", where=f"work {id}", allowed="above 0")
        self.id: Final = id
        self.group: Final = group
        self.lane: Final = lane
        self.payload: Final = payload
        self.cost = cost
        """The cost of its turn; it may be changed until then."""
        self.ahead: QueuedWork | None = None
        self.after: QueuedWork | None = None


class QueueGroup(HeapNode):
    """A group with queued work, or with leases, or with a finish tag that must be kept for now."""

    def __init__(self, spec: GroupShare) -> None:
        super().__init__()
        self.spec = spec
        self.first: QueuedWork | None = None
        self.last: QueuedWork | None = None
        self.lane: DemandLane | None = None
        self.queued = 0
        self.running = 0
        self.finish = 0.0
        self.standing = READY
        self.accounts: Final[dict[int, GroupAccount]] = {}
        self.head_accounts: list[GroupAccount] = []
        self.hold: Hold | None = None
        self.held_on: SharedResource | None = None

    def account(self, resource: SharedResource) -> GroupAccount:
        account = self.accounts.get(resource.index)
        if account is None:
            account = GroupAccount()
            self.accounts[resource.index] = account
        return account

    def accounts_for(self, lane: DemandLane) -> list[GroupAccount]:
        """Returns its accounts for the resources of a lane, in the lane's order."""
        if lane is self.lane:
            return self.head_accounts
        return [self.account(resource) for resource in lane.resources]


class Hold(HeapNode):
    """A group that yields on a resource until fewer others want it."""

    def __init__(self, group: QueueGroup) -> None:
        super().__init__()
        self.group: Final = group
