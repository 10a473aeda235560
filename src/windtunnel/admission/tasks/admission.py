"""Task admission: whether a ready unit of work may start, and on which resources.

It works in phases: `select` says whose turn it is, `acquire` gives it a lease or the reason why
not, `commit` takes it out of the queue and fails if the queue changed meanwhile (the lease must
then be released). `admit` does the last two at once. Time is an argument; nothing here waits.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from windtunnel.admission.events import Correlation, EventKind, EventReporter
from windtunnel.admission.leases import Lease, LeaseLedger, TaskLease
from windtunnel.admission.queues.fair_queue import FairQueue, Selection
from windtunnel.admission.queues.groups import (
    READY,
    REFUSED,
    DemandLane,
    GroupAccount,
    GroupShare,
    Hold,
    LaneGroup,
    QueuedWork,
    QueueGroup,
    SharedResource,
)
from windtunnel.admission.reasons import ReleaseResult, TaskDenial
from windtunnel.admission.tasks.sharing import BoundedBorrow, SharePolicy
from windtunnel.core.errors import InputError, nearest

SUBMISSION: Final = "submission"
"""Every task takes one: it limits how many may be in flight at all."""
LLM_WAIT: Final = "llm_wait"
"""Taken by tasks that will wait for a model."""

_RELEASED: Final = ReleaseResult.RELEASED


@dataclass(frozen=True)
class TaskDenied:
    """A task may not start now: why, and the decisive numbers."""

    task_id: str
    reason: TaskDenial
    resource: str
    requested: int
    available: int


class TaskAdmission:
    """The queue of ready tasks, the resources they need, and the leases on those."""

    def __init__(
        self,
        generation: str,
        limits: Mapping[str, int],
        policy: SharePolicy | None = None,
        reporter: EventReporter | None = None,
    ) -> None:
        self.queue: Final = FairQueue()
        self.ledger: Final = LeaseLedger(generation)
        self.is_shut = False
        self._policy: Final[SharePolicy] = policy if policy is not None else BoundedBorrow()
        self._reporter: Final = reporter if reporter is not None else EventReporter()
        self._reports: Final = self._reporter.wants_any
        self._resources: Final[dict[str, SharedResource]] = {}
        self._lanes: Final[dict[str, DemandLane]] = {}
        self._bays: Final[dict[str, LaneGroup]] = {}
        for name, limit in limits.items():
            if isinstance(limit, bool) or limit < 1:
                where = f"resource {name}"
                raise InputError(f"{limit} is not a limit", where=where, allowed="1 or more")
            self._resources[name] = SharedResource(
                name,
                len(self._resources),
                limit,
                shared=name in (SUBMISSION, LLM_WAIT),
                universal=name == SUBMISSION,
            )

    def demand(self, amounts: Mapping[str, int]) -> DemandLane:
        """Returns the lane of tasks that need these amounts; equal amounts share a lane."""
        for name, amount in amounts.items():
            if name not in self._resources:
                raise InputError(
                    f"there is no resource {name!r}",
                    allowed=", ".join(self._resources),
                    hint=nearest(name, self._resources),
                )
            if amount < 1:
                raise InputError(f"{amount} of {name} cannot be asked for", allowed="1 or more")
        wanted = [(self._resources[name], amounts[name]) for name in sorted(amounts)]
        wanted.sort(key=_narrow_first)
        name = " ".join(f"{resource.name}={amount}" for resource, amount in wanted)
        lane = self._lanes.get(name)
        if lane is None:
            lane = self._new_lane(name, wanted)
            self._lanes[name] = lane
        return lane

    def enqueue(
        self,
        task_id: str,
        group: GroupShare,
        lane: DemandLane,
        now: float,
        payload: object = None,
        cost: float = 1.0,
        is_again: bool = False,  # noqa: FBT001, FBT002 - compiled calls are cheaper by place
    ) -> bool:
        """Queues a ready task, first in its group if it had its turn; False if already queued."""
        work = QueuedWork(task_id, group, lane, payload, cost)
        accepted = self.queue.enqueue(work, is_again)
        if accepted and self._reports:
            self._report(now, EventKind.TASK_ENQUEUED, task_id, group.key)
        return accepted

    def discard(self, task_id: str, now: float) -> bool:
        """Withdraws a queued task; False if it is not queued."""
        item = self.queue.discard(task_id)
        if item is not None and self._reports:
            self._report(now, EventKind.TASK_DISCARDED, task_id, item.group.key)
        return item is not None

    def select(self) -> Selection | None:
        """Returns the next task that may start; asking again gives the same answer."""
        if self.is_shut:
            return None
        queue = self.queue
        if queue.dirty:
            self._wake()
        while True:
            group = queue.next_group()
            if group is None:
                return None
            lane = group.lane
            assert lane is not None
            standing = self._policy.judge(group, lane, group.head_accounts)
            if standing in (READY, group.standing):
                return queue.select()
            self._hold(group, standing)

    def acquire(self, selection: Selection, now: float) -> TaskLease | TaskDenied:
        """Returns a lease for the selected task, unless what it needs is no longer available."""
        group, item = selection.group, selection.item
        lane = item.lane
        denied = self._lacks(item)
        if denied is not None:
            kind = EventKind.TASK_ADMISSION_DENIED
            self._report(now, kind, item.id, group.spec.key, denied.reason.value)
            return denied
        accounts = group.accounts_for(lane)
        borrowed = self._policy.borrowed(group, lane, accounts)
        lease = TaskLease(
            self.ledger.next_id(), self.ledger.generation, item.id, group, lane, borrowed, now
        )
        self.ledger.active[lease.id] = lease
        group.running += 1
        for number, resource in enumerate(lane.resources):
            amount = lane.amounts[number]
            accounts[number].leased += amount
            if borrowed is not None:
                accounts[number].debt += borrowed[number]
            self._use(resource, amount)
        if self._reports:
            kind = EventKind.TASK_LEASE_ACQUIRED
            self._report(now, kind, item.id, group.spec.key, "", lease.id)
        return lease

    def commit(self, selection: Selection, now: float) -> QueuedWork | None:
        """Takes the selected task out of the queue; None if the queue has changed since."""
        item = self.queue.commit(selection)
        if item is None and self._reports:
            kind = EventKind.TASK_STALE_SELECTION
            self._report(now, kind, selection.item.id, selection.group.spec.key)
        return item

    def admit(self, selection: Selection, now: float) -> TaskLease:
        """Returns a lease for the task just selected, and takes it out of the queue."""
        lease = self.acquire(selection, now)
        assert isinstance(lease, TaskLease), "what was selected fits"
        item = self.queue.commit(selection)
        assert item is not None, "nothing came between"
        return lease

    def release(self, lease: Lease, now: float) -> ReleaseResult:
        """Takes a lease back, once; anything else is reported and changes nothing."""
        held = self.ledger.active.get(lease.id)
        result = self.ledger.release(lease)
        if result is not _RELEASED:
            kind = EventKind.TASK_RELEASE_REFUSED
            self._report(now, kind, lease.work_id, lease.group_key, result.value, lease.id)
            return result
        assert isinstance(held, TaskLease)
        group, lane = held.group, held.lane
        accounts = group.accounts_for(lane)
        group.running -= 1
        for number, resource in enumerate(lane.resources):
            amount = lane.amounts[number]
            accounts[number].leased -= amount
            self._repay(held, accounts[number], number, amount)
            self._use(resource, -amount)
        if group.lane is None:
            self.queue.release_group(group)
        elif group.standing != READY:
            self._readmit(group)
        if self._reports:
            kind = EventKind.TASK_LEASE_RELEASED
            self._report(now, kind, held.work_id, held.group_key, "", held.id)
        return result

    def shut_down(self) -> None:
        """Selects nothing more; leases can still be released."""
        self.is_shut = True

    def evaluate(self, group: QueueGroup) -> TaskDenied | None:
        """Returns why a group's first task may not start within its share, or None; changes
        nothing."""
        head, lane = group.first, group.lane
        assert head is not None
        assert lane is not None
        if self.is_shut:
            return TaskDenied(head.id, TaskDenial.SHUTDOWN, "", 0, 0)
        denied = self._lacks(head)
        if denied is not None:
            return denied
        if self._policy.judge(group, lane, group.head_accounts) == READY:
            return None
        tipped = self._policy.resource
        assert tipped is not None
        requested = lane.request()[tipped.name]
        return TaskDenied(
            head.id, self._policy.denial, tipped.name, requested, tipped.limit - tipped.leased
        )

    def explain_blocked(self) -> dict[str, TaskDenied]:
        """Returns why each waiting group's first task may not start, in O(groups)."""
        denials: dict[str, TaskDenied] = {}
        for key, group in self.queue.groups.items():
            denied = self.evaluate(group) if group.lane is not None else None
            if denied is not None:
                denials[key] = denied
        return denials

    def resource(self, name: str) -> SharedResource:
        return self._resources[name]

    def resources(self) -> list[SharedResource]:
        return list(self._resources.values())

    # Consistency of resources, lanes and standings.

    def _new_lane(self, name: str, wanted: list[tuple[SharedResource, int]]) -> DemandLane:
        shared = [(resource, amount) for resource, amount in wanted if resource.shared]
        bay_name = " ".join(f"{resource.name}={amount}" for resource, amount in shared)
        bay = self._bays.get(bay_name)
        if bay is None:
            bay = self.queue.add_bay()
            self._bays[bay_name] = bay
            for resource, amount in shared:
                resource.short_bays.append(bay)
                resource.short_amounts.append(amount)
                if resource.limit - resource.leased < amount:
                    bay.shortages += 1
        lane = DemandLane(
            name, bay, [resource for resource, _ in wanted], [amount for _, amount in wanted]
        )
        for resource, amount in wanted:
            if not resource.shared:
                resource.lanes.append(lane)
                resource.lane_amounts.append(amount)
                if resource.limit - resource.leased < amount:
                    lane.blocks += 1
        return lane

    def _lacks(self, item: QueuedWork) -> TaskDenied | None:
        lane = item.lane
        for number, resource in enumerate(lane.resources):
            available = resource.limit - resource.leased
            if available < lane.amounts[number]:
                return TaskDenied(
                    item.id,
                    TaskDenial.NO_CAPACITY,
                    resource.name,
                    lane.amounts[number],
                    available,
                )
        return None

    def _use(self, resource: SharedResource, amount: int) -> None:
        before = resource.limit - resource.leased
        resource.leased += amount
        if resource.leased > resource.peak_leased:
            resource.peak_leased = resource.leased
        self._availability_changed(resource, before, before - amount)

    def _availability_changed(self, resource: SharedResource, before: int, after: int) -> None:
        """Opens and closes the lanes and bays whose demand newly fits, or no longer does."""
        if resource.shared:
            for number, bay in enumerate(resource.short_bays):
                needed = resource.short_amounts[number]
                if after < needed <= before:
                    bay.shortages += 1
                elif before < needed <= after:
                    bay.shortages -= 1
        else:
            for number, lane in enumerate(resource.lanes):
                needed = resource.lane_amounts[number]
                if after < needed <= before:
                    self.queue.block(lane)
                elif before < needed <= after:
                    self.queue.unblock(lane)
        if (
            before <= 0 < after
            and not resource.is_dirty
            and (resource.holds.nodes or resource.refused)
        ):
            resource.is_dirty = True
            self.queue.dirty.append(resource)

    def _repay(self, lease: TaskLease, account: GroupAccount, number: int, amount: int) -> None:
        if self._policy.repays_by_lease:
            if lease.borrowed is not None:
                account.debt -= lease.borrowed[number]
        elif account.debt > 0:
            account.debt = account.debt - amount if account.debt > amount else 0

    def _hold(self, group: QueueGroup, standing: int) -> None:
        """Records what must change before a yielding group is judged again."""
        self.queue.release_hold(group)
        resource = self._policy.resource
        assert resource is not None
        group.held_on = resource
        if standing == REFUSED:
            if group not in resource.refused:
                resource.refused.append(group)
        else:
            hold = group.hold
            if hold is None:
                hold = Hold(group)
                group.hold = hold
            hold.tag = -float(self._policy.wake_weight)
            hold.sequence = group.sequence
            resource.holds.push(hold)
        self.queue.set_standing(group, standing)

    def _readmit(self, group: QueueGroup) -> None:
        """Lets a group be judged again when its turn comes."""
        self.queue.release_hold(group)
        self.queue.set_standing(group, READY)

    def _wake(self) -> None:
        """Readmits groups that yielded to contenders that are fewer now, or were refused while
        alone."""
        dirty = self.queue.dirty
        for resource in dirty:
            resource.is_dirty = False
            if resource.limit > resource.leased:
                holds = resource.holds.nodes
                while holds and -holds[0].tag >= resource.contending_weight:
                    hold = holds[0]
                    assert isinstance(hold, Hold)
                    self._readmit(hold.group)
                if resource.refused and resource.contenders > 1:
                    for group in resource.refused:
                        if group.held_on is resource and group.standing == REFUSED:
                            self._readmit(group)
                    resource.refused.clear()
        dirty.clear()

    def _report(
        self,
        now: float,
        kind: EventKind,
        task_id: str,
        group: str,
        reason: str = "",
        lease: int = 0,
    ) -> None:
        about = Correlation(group, task_id)
        self._reporter.report(now, kind, task_id, reason=reason, correlation=about, lease=lease)


def _narrow_first(wanted: tuple[SharedResource, int]) -> tuple[bool, bool, str]:
    return wanted[0].universal, wanted[0].shared, wanted[0].name
