"""The queued tickets of one priority, and which of them is next: one class for each order.

Every band keeps its tickets in order of arrival: the oldest expires first, the newest is shed
first. Orders that depend on more than arrival keep heaps in addition, so that everything is O(log
n).
"""

from typing import Final

from windtunnel.admission.gateway.tickets import QUEUED, SHEDDABLE_BELOW, Ticket
from windtunnel.core.heap import NOWHERE, HeapNode, NodeHeap, before


class PriorityBand:
    """Tickets of one priority, first come, first served, also across bands."""

    def __init__(self, priority: int) -> None:
        self.priority: Final = priority
        self.protected: Final = priority >= SHEDDABLE_BELOW
        self.ceiling = 1.0  # at this saturation no ticket of this band is sent
        self.queued = 0
        self.oldest: Ticket | None = None
        self.newest: Ticket | None = None
        self.awaiting_eviction: Ticket | None = None  # the oldest for which nothing was evicted yet

    def first(self) -> Ticket:
        """Returns the next ticket of a band that is not empty."""
        assert self.oldest is not None
        return self.oldest

    def overtakes(self, higher: "PriorityBand") -> bool:
        """Whether its first ticket goes before the first of a band of higher priority."""
        return self.first().sequence < higher.first().sequence

    def push(self, ticket: Ticket) -> None:
        self.queued += 1
        newest = self.newest
        ticket.ahead = newest
        self.newest = ticket
        if newest is None:
            self.oldest = ticket
        else:
            newest.after = ticket
        if self.awaiting_eviction is None:
            self.awaiting_eviction = ticket

    def remove(self, ticket: Ticket) -> None:
        self.queued -= 1
        ahead, after = ticket.ahead, ticket.after
        if ahead is None:
            self.oldest = after
        else:
            ahead.after = after
        if after is None:
            self.newest = ahead
        else:
            after.ahead = ahead
        if self.awaiting_eviction is ticket:
            self.awaiting_eviction = after
        ticket.ahead = ticket.after = None

    def evicted_for(self) -> None:
        """Advances `awaiting_eviction`, as a request was evicted for that ticket."""
        awaiting_eviction = self.awaiting_eviction
        assert awaiting_eviction is not None
        self.awaiting_eviction = awaiting_eviction.after

    def served(self, ticket: Ticket) -> None:
        """Called when one of its tickets is about to be removed and sent."""

    def check(self) -> str | None:
        """Returns what is inconsistent in its state, or None."""
        tickets = self.tickets()
        if len(tickets) != self.queued:
            return f"{len(tickets)} tickets listed, {self.queued} counted"
        for ticket in tickets:
            if ticket.priority != self.priority or ticket.state != QUEUED:
                return f"ticket {ticket.id} is in the wrong band, {self.priority}"
        if self.awaiting_eviction is not None and self.awaiting_eviction not in tickets:
            return f"band {self.priority} evicts for ticket {self.awaiting_eviction.id} of another"
        return None

    def tickets(self) -> list[Ticket]:
        """Returns all queued tickets, by arrival."""
        found: list[Ticket] = []
        ticket = self.oldest
        while ticket is not None:
            found.append(ticket)
            ticket = ticket.after
        return found


class DeadlineBand(PriorityBand):
    """Earliest TTFT deadline first, also across bands; then by arrival."""

    def __init__(self, priority: int) -> None:
        super().__init__(priority)
        self._by_target: Final = NodeHeap()

    def first(self) -> Ticket:
        ticket = self._by_target.nodes[0]
        assert isinstance(ticket, Ticket)
        return ticket

    def overtakes(self, higher: PriorityBand) -> bool:
        return before(self.first(), higher.first())

    def push(self, ticket: Ticket) -> None:
        super().push(ticket)
        ticket.tag = ticket.target_s
        self._by_target.push(ticket)

    def remove(self, ticket: Ticket) -> None:
        super().remove(ticket)
        self._by_target.remove(ticket)

    def check(self) -> str | None:
        if len(self._by_target) != self.queued:
            return f"{len(self._by_target)} tickets by target, {self.queued} counted"
        return super().check()


class TenantFlow(HeapNode):
    """One tenant's tickets within a band, the oldest first; in a heap while it has any.

    Its tag is when its turn comes: a virtual time, or when it was last served. Of flows with equal
    tags, the one with the older first ticket goes first.
    """

    def __init__(self) -> None:
        super().__init__()
        self.tickets: Final = NodeHeap()
        self.finish = 0.0  # where its next turn starts, while it stays backlogged


class FlowBand(PriorityBand):
    """The common part of bands with a flow for each tenant."""

    def __init__(self, priority: int) -> None:
        super().__init__(priority)
        self._flows: Final[dict[int, TenantFlow]] = {}  # by tenant
        self._backlogged: Final = NodeHeap()  # flows with tickets

    def first(self) -> Ticket:
        flow = self._backlogged.nodes[0]
        assert isinstance(flow, TenantFlow)
        ticket = flow.tickets.nodes[0]
        assert isinstance(ticket, Ticket)
        return ticket

    def push(self, ticket: Ticket) -> None:
        super().push(ticket)
        flow = self._flows.get(ticket.tenant)
        if flow is None:
            flow = TenantFlow()
            self._flows[ticket.tenant] = flow
        flow.tickets.push(ticket)
        if flow.place == NOWHERE:
            flow.tag = self._start_of(flow, ticket)
            flow.sequence = ticket.sequence
            self._backlogged.push(flow)

    def remove(self, ticket: Ticket) -> None:
        super().remove(ticket)
        flow = self._flows[ticket.tenant]
        flow.tickets.remove(ticket)
        if flow.tickets.nodes:
            flow.sequence = flow.tickets.nodes[0].sequence
            self._backlogged.fix(flow)
        else:
            self._backlogged.remove(flow)

    def _start_of(self, flow: TenantFlow, ticket: Ticket) -> float:
        """Returns the tag of a flow that has just become backlogged."""
        raise NotImplementedError

    def check(self) -> str | None:
        backlogged = 0
        for tenant, flow in self._flows.items():
            backlogged += len(flow.tickets)
            if (len(flow.tickets) > 0) != (flow.place != NOWHERE):
                return f"tenant {tenant} has {len(flow.tickets)} tickets, at place {flow.place}"
        if backlogged != self.queued:
            return f"{backlogged} tickets in flows, {self.queued} counted"
        return super().check()


class Weights:
    """Weights of tenants, by number; 1 for tenants that have none."""

    def __init__(self, by_name: dict[str, float], tenants: list[str]) -> None:
        self._by_name: Final = by_name
        self._tenants: Final = tenants  # names by number; the driver may add to it
        self._known: Final[list[float]] = []

    def of(self, tenant: int) -> float:
        known = self._known
        while tenant >= len(known):
            name = self._tenants[len(known)]
            known.append(self._by_name.get(name, 1.0))
        return known[tenant]


class FairBand(FlowBand):
    """Tenants get prompt tokens sent in proportion to their weights; higher bands go first.

    This is start-time fair queueing: after a turn at tag S, a tenant's next turn is at S plus
    tokens over weight, and the smallest tag is next. A flow that becomes backlogged starts at the
    tag that was served last, or at its own finish tag if that is later: idle time earns no credit,
    and debt remains.
    """

    def __init__(self, priority: int, weights: Weights) -> None:
        super().__init__(priority)
        self._weights: Final = weights
        self._virtual = 0.0  # the tag that was served last
        self._latest = 0.0  # the largest finish

    def overtakes(self, higher: PriorityBand) -> bool:
        return False

    def served(self, ticket: Ticket) -> None:
        flow = self._flows[ticket.tenant]
        self._virtual = flow.tag
        finish = flow.tag + ticket.tokens / self._weights.of(ticket.tenant)
        flow.finish = flow.tag = finish
        self._backlogged.fix(flow)
        if finish > self._latest:
            self._latest = finish

    def remove(self, ticket: Ticket) -> None:
        super().remove(ticket)
        if self.queued == 0:
            self._virtual = self._latest  # nothing is queued: all debt is forgiven

    def _start_of(self, flow: TenantFlow, ticket: Ticket) -> float:
        return flow.finish if flow.finish > self._virtual else self._virtual


class Turns:
    """When each tenant was last served, counted in turns over all bands; 0: never."""

    def __init__(self) -> None:
        self.bands: Final[list[TurnBand]] = []
        self._turn = 0.0
        self._last: Final[dict[int, float]] = {}

    def last(self, tenant: int) -> float:
        return self._last.get(tenant, 0.0)

    def serve(self, tenant: int) -> None:
        self._turn += 1.0
        self._last[tenant] = self._turn
        for band in self.bands:
            band.turned(tenant)


class TurnBand(FlowBand):
    """The tenant that was served longest ago goes next, with its best ticket in any band."""

    def __init__(self, priority: int, turns: Turns) -> None:
        super().__init__(priority)
        self._turns: Final = turns
        turns.bands.append(self)

    def overtakes(self, higher: PriorityBand) -> bool:
        mine, theirs = self.first().tenant, higher.first().tenant
        return self._turns.last(mine) < self._turns.last(theirs)

    def served(self, ticket: Ticket) -> None:
        self._turns.serve(ticket.tenant)

    def turned(self, tenant: int) -> None:
        """Updates the flow of a tenant that was served, here or in another band."""
        flow = self._flows.get(tenant)
        if flow is not None and flow.place != NOWHERE:
            flow.tag = self._turns.last(tenant)
            self._backlogged.fix(flow)

    def _start_of(self, flow: TenantFlow, ticket: Ticket) -> float:
        return self._turns.last(ticket.tenant)


def set_ceilings(bands: list[PriorityBand], limit: float) -> None:
    """Spreads the ceilings evenly: 1 for the first band, `limit` for the last."""
    steps = len(bands) - 1
    for number, band in enumerate(bands):
        band.ceiling = 1.0 - number * (1.0 - limit) / steps if steps else 1.0
