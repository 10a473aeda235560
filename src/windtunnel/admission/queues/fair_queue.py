"""What is next: weighted virtual time between groups, first in, first out within a group.

One queue serves tasks that wait for resources and requests that wait for an endpoint. Eligibility
is not checked during selection but maintained beforehand: work with the same demand waits in one
*lane*, which is open or blocked as a whole; lanes that want the same shared resources form one
*bay*, which is open or short as a whole. A selection thus looks at the first lane of each open bay,
and committing it costs O(log groups), however many tasks and groups wait.

Order: groups that the policy lets go in their turn come first, then higher priority, then the
smaller start tag of start-time fair queueing, then the group queued longer. A test compares it with
a slow, obvious implementation.
"""

from typing import Final

from windtunnel.admission.queues.groups import (
    PRIORITY_MAX,
    READY,
    REFUSED,
    DemandLane,
    GroupShare,
    LaneGroup,
    QueuedWork,
    QueueGroup,
    SharedResource,
)
from windtunnel.core.errors import InputError
from windtunnel.core.heap import NOWHERE, HeapNode, NodeHeap, before

_STANDING_STRIDE: Final = 10 * PRIORITY_MAX
_FARTHEST: Final = 1e15
"""Virtual time beyond which a double no longer distinguishes steps of 1/weight."""


class Selection:
    """The next unit of work; it can be committed as long as the queue has not changed."""

    def __init__(self, item: QueuedWork, group: QueueGroup, version: int) -> None:
        self.item: Final = item
        self.group: Final = group
        self.version: Final = version


class PriorityLevel:
    """The virtual time of one priority; lower priorities must not inherit that of higher ones."""

    def __init__(self) -> None:
        self.virtual = 0.0
        self.latest_finish = 0.0
        self.active = 0
        self.idle: Final = NodeHeap()


class FairQueue:
    """Queued work in fair order, with its demand counted as it comes and goes."""

    def __init__(self) -> None:
        self.version = 0
        self._items: Final[dict[str, QueuedWork]] = {}
        self._groups: Final[dict[str, QueueGroup]] = {}
        self._bays: Final[list[LaneGroup]] = []
        self._levels: Final[dict[int, PriorityLevel]] = {}
        self._sequence = 0
        self.dirty: Final[list[SharedResource]] = []

    def __len__(self) -> int:
        return len(self._items)

    def __contains__(self, item_id: object) -> bool:
        return item_id in self._items

    @property
    def groups(self) -> dict[str, QueueGroup]:
        """All remembered groups; read-only."""
        return self._groups

    def item(self, item_id: str) -> QueuedWork | None:
        return self._items.get(item_id)

    def items(self) -> list[QueuedWork]:
        """Returns all queued work, in order of arrival."""
        return list(self._items.values())

    def add_bay(self) -> LaneGroup:
        bay = LaneGroup()
        self._bays.append(bay)
        return bay

    def enqueue(self, item: QueuedWork, is_again: bool = False) -> bool:  # noqa: FBT001, FBT002 - compiled calls are cheaper by place
        """Adds work at the end of its group, or at the front if it was queued before.

        Returns False, and changes nothing, if its id is already queued.
        """
        if item.id in self._items:
            return False
        spec = item.group
        group = self._groups.get(spec.key)
        if group is None:
            group = QueueGroup(spec)
            self._groups[spec.key] = group
        elif group.spec is not spec:
            self._respecify(group, spec)
        self._items[item.id] = item
        self.version += 1
        group.queued += 1
        self._count(group, item.lane, 1)
        first, last = group.first, group.last
        if first is None or last is None:
            group.first = group.last = item
            self._activate(group, item.lane)
        elif is_again:
            group.first = first.ahead = item
            item.after = first
            self._reorder(group, item)
        else:
            group.last = item
            last.after = item
            item.ahead = last
        return True

    def select(self) -> Selection | None:
        """Returns the next unit of work that may start; changes nothing."""
        group = self.next_group()
        if group is None:
            return None
        head = group.first
        assert head is not None
        return Selection(head, group, self.version)

    def next_group(self) -> QueueGroup | None:
        best: HeapNode | None = None
        for bay in self._bays:
            if bay.shortages == 0:
                nodes = bay.lanes.nodes
                if nodes and (best is None or before(nodes[0], best)):
                    best = nodes[0]
        if best is None:
            return None
        assert isinstance(best, DemandLane)
        group = best.groups.nodes[0]
        assert isinstance(group, QueueGroup)
        return group

    def commit(self, selection: Selection) -> QueuedWork | None:
        """Takes the selected work out and charges its group; None if the queue has changed."""
        if selection.version != self.version:
            return None
        item, group = selection.item, selection.group
        level = self._levels[group.spec.priority]
        if group.tag > level.virtual:
            level.virtual = group.tag
        finish = level.virtual + item.cost / group.spec.weight
        assert finish < _FARTHEST
        group.finish = finish
        if finish > level.latest_finish:
            level.latest_finish = finish
        self._unlink(group, item)
        head = group.first
        if head is None:
            self._deactivate(group)
        else:
            self._sequence += 1
            group.sequence = self._sequence
            group.tag = finish
            self._reorder(group, head)
        self._forget(level)
        return item

    def discard(self, item_id: str) -> QueuedWork | None:
        """Takes work out without charging its group; None if it is not queued."""
        item = self._items.get(item_id)
        if item is None:
            return None
        group = self._groups[item.group.key]
        was_head = group.first is item
        self._unlink(group, item)
        head = group.first
        if head is None:
            self._deactivate(group)
        elif was_head:
            self._reorder(group, head)
        return item

    def set_standing(self, group: QueueGroup, standing: int) -> None:
        """Sets the policy's decision on a group."""
        if group.standing == standing:
            return
        group.standing = standing
        lane = group.lane
        if lane is None:
            return
        if group.place != NOWHERE:
            lane.groups.remove(group)
        self._place(group, lane)

    def block(self, lane: DemandLane) -> None:
        """Counts one more resource of a lane's demand that is not available."""
        lane.blocks += 1
        if lane.blocks == 1:
            self._contend(lane, -lane.members, -lane.weight)
            self._lane_changed(lane)

    def unblock(self, lane: DemandLane) -> None:
        assert lane.blocks > 0
        lane.blocks -= 1
        if lane.blocks == 0:
            self._contend(lane, lane.members, lane.weight)
            self._lane_changed(lane)

    def release_hold(self, group: QueueGroup) -> None:
        """Forgets the resource that a group yielded on."""
        held_on, hold = group.held_on, group.hold
        if held_on is not None and hold is not None and hold.place != NOWHERE:
            held_on.holds.remove(hold)
        group.held_on = None

    def release_group(self, group: QueueGroup) -> None:
        """Forgets a group after the release of its lease, if nothing else needs it."""
        if group.running == 0 and group.lane is None and group.place == NOWHERE:
            self._groups.pop(group.spec.key, None)

    # Maintenance of the order and the counts.

    def _respecify(self, group: QueueGroup, spec: GroupShare) -> None:
        if group.spec.priority != spec.priority:
            raise InputError(
                f"priority {spec.priority} differs from {group.spec.priority}",
                where=f"group {spec.key}",
                hint="one group has one priority; use two groups",
            )
        lane, old = group.lane, group.spec
        group.spec = spec
        if lane is None:
            return
        more = spec.weight - old.weight
        if more != 0:
            lane.weight += more
            if lane.blocks == 0:
                self._contend(lane, 0, more)
        if more != 0 or spec.admitted_limit != old.admitted_limit:
            self.release_hold(group)
            self.set_standing(group, READY)

    def _count(self, group: QueueGroup, lane: DemandLane, sign: int) -> None:
        lane.queued += sign
        accounts = group.accounts_for(lane)
        for number, resource in enumerate(lane.resources):
            amount = sign * lane.amounts[number]
            resource.queued += amount
            if resource.queued > resource.peak_queued:
                resource.peak_queued = resource.queued
            accounts[number].queued += amount

    def _unlink(self, group: QueueGroup, item: QueuedWork) -> None:
        del self._items[item.id]
        self.version += 1
        group.queued -= 1
        self._count(group, item.lane, -1)
        ahead, after = item.ahead, item.after
        if ahead is None:
            group.first = after
        else:
            ahead.after = after
        if after is None:
            group.last = ahead
        else:
            after.ahead = ahead
        item.ahead = item.after = None

    def _activate(self, group: QueueGroup, lane: DemandLane) -> None:
        level = self._levels.get(group.spec.priority)
        if level is None:
            level = PriorityLevel()
            self._levels[group.spec.priority] = level
        if group.place != NOWHERE:
            level.idle.remove(group)
        level.active += 1
        self._sequence += 1
        group.sequence = self._sequence
        group.tag = group.finish if group.finish > level.virtual else level.virtual
        group.standing = READY
        self._join(group, lane)

    def _deactivate(self, group: QueueGroup) -> None:
        self._leave(group)
        level = self._levels[group.spec.priority]
        level.active -= 1
        group.rank = 0
        group.tag = group.finish
        if group.finish > level.virtual:
            level.idle.push(group)
        elif group.running == 0:
            del self._groups[group.spec.key]
        if level.active == 0:
            level.virtual = max(level.virtual, level.latest_finish)
            self._forget(level)

    def _forget(self, level: PriorityLevel) -> None:
        """Drops idle groups whose finish tag the level's clock has passed, so that it is moot."""
        idle = level.idle
        while idle.nodes and idle.nodes[0].tag <= level.virtual:
            group = idle.nodes[0]
            assert isinstance(group, QueueGroup)
            idle.remove(group)
            if group.running == 0:
                del self._groups[group.spec.key]

    def _reorder(self, group: QueueGroup, head: QueuedWork) -> None:
        lane = group.lane
        assert lane is not None
        if head.lane is lane:
            if group.place != NOWHERE:
                lane.groups.fix(group)
                self._lane_changed(lane)
        else:
            self._leave(group)
            group.standing = READY
            self._join(group, head.lane)

    def _join(self, group: QueueGroup, lane: DemandLane) -> None:
        group.lane = lane
        group.head_accounts = [group.account(resource) for resource in lane.resources]
        lane.members += 1
        lane.weight += group.spec.weight
        if lane.blocks == 0:
            self._contend(lane, 1, group.spec.weight)
        self._place(group, lane)

    def _place(self, group: QueueGroup, lane: DemandLane) -> None:
        if group.standing != REFUSED:
            group.rank = group.standing * _STANDING_STRIDE - group.spec.priority
            lane.groups.push(group)
        self._lane_changed(lane)

    def _leave(self, group: QueueGroup) -> None:
        lane = group.lane
        assert lane is not None
        group.lane = None
        group.head_accounts = []
        if group.place != NOWHERE:
            lane.groups.remove(group)
        self.release_hold(group)
        lane.members -= 1
        lane.weight -= group.spec.weight
        if lane.blocks == 0:
            self._contend(lane, -1, -group.spec.weight)
        self._lane_changed(lane)

    def _contend(self, lane: DemandLane, members: int, weight: int) -> None:
        for resource in lane.resources:
            resource.contenders += members
            resource.contending_weight += weight
            if not resource.is_dirty and (resource.holds.nodes or resource.refused):
                resource.is_dirty = True
                self.dirty.append(resource)

    def _lane_changed(self, lane: DemandLane) -> None:
        """Keeps a lane in its bay's order while it is open and one of its groups may go."""
        nodes = lane.groups.nodes
        lanes = lane.bay.lanes
        if lane.blocks > 0 or not nodes:
            if lane.place != NOWHERE:
                lanes.remove(lane)
            return
        first = nodes[0]
        lane.rank, lane.tag, lane.sequence = first.rank, first.tag, first.sequence
        if lane.place == NOWHERE:
            lanes.push(lane)
        else:
            lanes.fix(lane)
