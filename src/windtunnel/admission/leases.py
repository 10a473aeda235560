"""Leases, and the result of releasing one twice, late, or at another controller.

Lease ids count up from 1 within a controller's generation, so it is always known, without storing
them, whether an id was ever issued: a second release is never taken for an unknown one.
"""

from typing import Final

from windtunnel.admission.queues.groups import DemandLane, QueueGroup
from windtunnel.admission.reasons import ReleaseResult

_RELEASED: Final = ReleaseResult.RELEASED


class Lease:
    """The right to have one unit of work in flight; released exactly once."""

    def __init__(
        self,
        id: int,  # noqa: A002 - an id is what it is
        generation: str,
        work_id: str,
        group_key: str,
        acquired_s: float,
    ) -> None:
        self.id: Final = id
        self.generation: Final = generation
        self.work_id: Final = work_id
        self.group_key: Final = group_key
        self.acquired_s: Final = acquired_s


class TaskLease(Lease):
    """The lease of a running task, with the amounts it took and what it borrowed of them."""

    def __init__(
        self,
        id: int,  # noqa: A002 - an id is what it is
        generation: str,
        work_id: str,
        group: QueueGroup,
        lane: DemandLane,
        borrowed: list[int] | None,
        acquired_s: float,
    ) -> None:
        super().__init__(id, generation, work_id, group.spec.key, acquired_s)
        self.group: Final = group
        self.lane: Final = lane
        self.borrowed: Final = borrowed

    def amounts(self) -> dict[str, int]:
        """Returns the amounts it holds, as plain data."""
        return self.lane.request()


class LeaseLedger:
    """The leases of one controller generation."""

    def __init__(self, generation: str) -> None:
        self.generation: Final = generation
        self.issued = 0
        self.active: Final[dict[int, Lease]] = {}
        self.refused: Final[dict[ReleaseResult, int]] = {}

    def next_id(self) -> int:
        self.issued += 1
        return self.issued

    def release(self, lease: Lease) -> ReleaseResult:
        """Takes a lease back, or returns why that is not possible and changes nothing."""
        held = self.active.get(lease.id)
        if held is not None and (
            held is lease or (lease.generation == self.generation and lease.work_id == held.work_id)
        ):
            del self.active[lease.id]
            return _RELEASED
        if lease.generation != self.generation:
            result = ReleaseResult.WRONG_GENERATION
        elif held is not None:
            result = ReleaseResult.STALE
        elif 1 <= lease.id <= self.issued:
            result = ReleaseResult.DUPLICATE
        else:
            result = ReleaseResult.UNKNOWN
        self.refused[result] = self.refused.get(result, 0) + 1
        return result
