"""Links that transfers share, max-min fair: no transfer could be faster without slowing one that is
no faster than itself.

Progressive filling computes this: all rates grow together; when a link is full, the transfers on it
keep their current rate, its level, and the others go on. So every transfer is limited by one link,
and all transfers limited by a link are equally fast. A link therefore counts the bytes moved for
each of them, and a change of its level is one change, however many transfers it limits.

A transfer that joins or leaves changes nothing below its own rate. From there up, levels are
recomputed for its links, and otherwise only for links on which a transfer's rate changes.
"""

import math
from heapq import heappop, heappush
from typing import Final

from windtunnel.core.heap import NOWHERE, HeapNode, NodeHeap
from windtunnel.workload.request import Request

FULL: Final = 0
PASSED: Final = 1  # the former level, which the transfers that the link limited now exceed
NEAR: Final = 1e-12
"""Levels that differ by less are equal, because sums are rounded."""


class Link(HeapNode):
    """One direction of a NIC or of a rack's uplink, or a fabric; and the transfers on it.

    In a heap by the time at which the first of the transfers that it limits ends.
    """

    def __init__(self, number: int, bytes_per_s: float) -> None:
        super().__init__()
        self.sequence = number
        self.bytes_per_s: Final = bytes_per_s
        self.level = math.inf  # bytes per second of each transfer it limits; inf: it is not full
        self.before = math.inf  # the former level, while levels are computed
        self.open = False  # whether its level is being computed
        self.version = 0  # of its expected next level
        self.on: Final[dict[Link, dict[int, Transfer]]] = {}  # by the link that limits each
        self.held: Final = NodeHeap()  # the transfers it limits, by `served` at their end
        self.served = 0.0  # bytes moved for each of them, as of `settled_s`
        self.settled_s = 0.0
        self.reach: Final[dict[Link, int]] = {}  # links of the transfers it limits: how many
        self._moving = 0
        self._busy_s = 0.0
        self._since_s = 0.0  # since when something moves
        self._used_s = -math.inf  # its time before this is used, or will stay unused

    def begin(self, now_s: float) -> None:
        """Counts another transfer that moves over the link."""
        if self._moving == 0:
            self._since_s = now_s
        self._moving += 1

    def end(self, now_s: float) -> None:
        self._moving -= 1
        if self._moving == 0:
            self._busy_s += now_s - self._since_s
            self._used_s = now_s

    def idle_s(self, since_s: float, now_s: float) -> float:
        """Seconds since `since_s` that are unused."""
        until_s = self._since_s if self._moving else now_s
        return max(0.0, until_s - max(since_s, self._used_s))

    def use(self, since_s: float, seconds: float) -> None:
        """Counts seconds of past transfer time."""
        self._used_s = max(since_s, self._used_s) + seconds
        self._busy_s += seconds

    def busy_until(self, now_s: float) -> float:
        """Seconds in which something was moving."""
        return self._busy_s + (now_s - self._since_s if self._moving else 0.0)

    def next_level(self) -> float:
        """The rate of its unlimited transfers at which the link is full."""
        levels = sorted([(other.level, len(held)) for other, held in self.on.items()])
        free = 0
        for _, count in levels:
            free += count
        left = self.bytes_per_s
        for level, count in levels:
            share = left / free
            if level >= share:
                return share
            left -= level * count
            free -= count
        return math.inf


class Transfer(HeapNode):
    """Bytes on their way for a request; in a heap of the link that limits it."""

    __slots__ = ("gone", "held_by", "joins_s", "left", "links", "request", "route", "size")

    def __init__(self, request: Request, size: float, joins_s: float, route: list[Link]) -> None:
        super().__init__()
        self.sequence = int(request.id)
        self.request = request
        self.size = size
        self.joins_s = joins_s
        self.route = route
        self.links = route  # the links that it shares
        self.left = size  # bytes left when it joins
        self.held_by: Link | None = None  # None: it does not move
        self.gone = False


class LinkShares:
    """The rates of transfers. After `add` and `remove`, `share` computes the new ones."""

    def __init__(self) -> None:
        self.ends: Final = NodeHeap()  # links by the end of their first transfer
        self.speed = 0.0  # bytes per second of all transfers
        self._moving = 0
        self._outside: Final = Link(-1, math.inf)  # placeholder for what limits new transfers
        self._open: Final[list[Link]] = []
        self._agenda: Final[list[tuple[float, int, int, int, Link]]] = []
        self._outside.open = True

    def add(self, transfer: Transfer, now_s: float) -> None:
        outside = self._outside
        transfer.held_by = outside
        transfer.tag = transfer.left
        for link in transfer.links:
            self._reopen(link, now_s)
            _enter(transfer, link, outside)
        self._moving += 1

    def remove(self, transfer: Transfer, now_s: float) -> None:
        holder = transfer.held_by
        assert holder is not None
        for link in transfer.links:
            self._reopen(link, now_s)
            _leave(transfer, link, holder)
        if transfer.place != NOWHERE:
            holder.held.remove(transfer)
        transfer.held_by = None
        self._moving -= 1

    def next_due(self, now_s: float) -> Transfer | None:
        """A transfer that has ended by now."""
        ends = self.ends
        while len(ends) and ends.nodes[0].tag <= now_s:
            link = ends.nodes[0]
            assert isinstance(link, Link)
            if len(link.held):
                self._plan(link, now_s)
                if link.tag > now_s:
                    continue
                transfer = link.held.nodes[0]
                assert isinstance(transfer, Transfer)
                return transfer
            ends.remove(link)
        return None

    def share(self, now_s: float) -> None:
        """Recomputes the levels affected by the transfers that joined or left."""
        agenda, opened = self._agenda, self._open
        for link in opened:
            self._expect(link)
        while agenda:
            level, kind, _, version, link = heappop(agenda)
            if link.level != math.inf:
                continue
            if kind == PASSED:
                for other in list(link.reach):
                    self._follow(other, now_s)
            elif version == link.version:
                self._fill(link, level, now_s)
        for link in opened:
            link.open = False
            if len(link.held):
                self.speed += link.level * float(len(link.held))
                self._plan(link, now_s)
            else:
                link.served = 0.0
                if link.place != NOWHERE:
                    self.ends.remove(link)
        opened.clear()
        if not self._moving:
            self.speed = 0.0  # drops rounding errors

    def _plan(self, link: Link, now_s: float) -> None:
        """Schedules the end of the first transfer that the link limits, at its current rate."""
        rate = link.before if link.open else link.level
        left = link.held.nodes[0].tag - link.served - rate * (now_s - link.settled_s)
        link.tag = now_s + max(0.0, left) / rate
        if link.place == NOWHERE:
            self.ends.push(link)
        else:
            self.ends.fix(link)

    def _reopen(self, link: Link, now_s: float) -> None:
        """Marks a link's level as to be computed; until then it limits no transfer."""
        if link.open:
            return
        count = len(link.held)
        if count:
            link.served += link.level * (now_s - link.settled_s)
            self.speed -= link.level * float(count)
        link.settled_s = now_s
        link.open = True
        link.before = link.level
        link.level = math.inf
        link.version = 0
        self._open.append(link)

    def _follow(self, link: Link, now_s: float) -> None:
        """Reopens a link on which a transfer's rate has changed."""
        if link.open:
            return
        self._reopen(link, now_s)
        if link.before != math.inf:
            for other in link.reach:
                if other is not link and other.open and other.level == math.inf:
                    self._expect(other)
        self._expect(link)

    def _expect(self, link: Link) -> None:
        """Queues when the link will be full, as far as known; and its former level."""
        level, before = link.next_level(), link.before
        if before < math.inf:
            if math.fabs(level - before) <= NEAR * before:
                level = before
            if link.version == 0:
                heappush(self._agenda, (before, PASSED, link.sequence, 0, link))
        link.version += 1
        if level < math.inf:
            heappush(self._agenda, (level, FULL, link.sequence, link.version, link))

    def _fill(self, link: Link, level: float, now_s: float) -> None:
        """Marks a link as full: from now on it limits its transfers that no other link limits."""
        link.level = level
        changed = level != link.before
        for other in list(link.on):
            if other is link or other.level <= level * (1.0 + NEAR):
                continue
            changed = changed or (other.before if other.open else other.level) != level
            self._follow(other, now_s)
            for transfer in list(link.on[other].values()):
                self._hold(transfer, link)
        for other in list(link.reach):
            if other.open:
                if other.level == math.inf:
                    self._expect(other)
            elif changed and other.level != math.inf:
                self._follow(other, now_s)

    def _hold(self, transfer: Transfer, link: Link) -> None:
        """Makes the link limit a transfer, in place of another."""
        before = transfer.held_by
        assert before is not None
        left = max(0.0, transfer.tag - before.served)
        if transfer.place != NOWHERE:
            before.held.remove(transfer)
        for one in transfer.links:
            _leave(transfer, one, before)
            _enter(transfer, one, link)
        transfer.held_by = link
        transfer.tag = link.served + left
        link.held.push(transfer)


def _enter(transfer: Transfer, link: Link, holder: Link) -> None:
    link.on.setdefault(holder, {})[transfer.sequence] = transfer
    holder.reach[link] = holder.reach.get(link, 0) + 1


def _leave(transfer: Transfer, link: Link, holder: Link) -> None:
    same = link.on[holder]
    del same[transfer.sequence]
    if not same:
        del link.on[holder]
    holder.reach[link] -= 1
    if not holder.reach[link]:
        del holder.reach[link]
