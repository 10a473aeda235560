"""Assigns domains to shards, and moves machines between shards.

A machine belongs to the shard of its domain, unless it was moved. It moves in three steps: the
donor gives it up and forgets it, then it is recorded here as the receiver's, then the receiver is
informed. So no two shards ever decide about one machine, whichever process dies. Shards never wait
for the coordinator: while it is down, nothing moves and everything else continues.
"""

import math
from collections.abc import Iterator
from typing import Final

import msgspec

from windtunnel.core.errors import InputError
from windtunnel.fleet.need import NeedKey
from windtunnel.fleet.planner.costs import effective_cost
from windtunnel.fleet.requirements import accepts_all
from windtunnel.fleet.shape import ZONE, MachineShape, Resources
from windtunnel.fleet.shard import Territory
from windtunnel.fleet.sharding.messages import (
    FreeMachines,
    Instruction,
    Release,
    Retire,
    ShardReport,
    Shortfall,
    Take,
)

IDLE_AGE: Final = 5
QUOTA_AGE: Final = 12
"""Cycles of a shortfall after which places in quotas may be moved, too (`IDLE_AGE`: idle machines):
local machines and those on their way come first."""
MARGIN: Final = 0.1
"""The share of its free machines of a shape that a donor keeps, rounded down."""
COOLDOWN_S: Final = 80.0
"""How long a need waits after a move before more machines are moved for it."""
LEASE_S: Final = 30.0
"""How long a process that does not report is presumed alive."""


FleetOffer = tuple[float, str, FreeMachines]
"""The cost per unit, a donor, and the machines that it could give."""


class MachineMove(msgspec.Struct):
    """Machines on their way from one shard to another."""

    id: int
    donor: str
    receiver: str
    shape: MachineShape
    idle: int
    quota: int
    for_need: NeedKey
    machines: tuple[str, ...] = ()
    given_up: bool = False


class ShardLease(msgspec.Struct):
    """The process that runs a shard, and until when its lease is valid."""

    holder: str
    epoch: int
    until_s: float


class Books(msgspec.Struct):
    """The lasting state of a coordinator."""

    term: int = 0
    domains: dict[str, str] = {}
    shards: list[str] = []
    moved: dict[str, tuple[str, str]] = {}
    """By machine: the shard of its domain, and the shard that has it."""
    moves: dict[int, MachineMove] = {}
    """Moves under way, by number."""
    last_move: int = 0
    leases: dict[str, ShardLease] = {}
    """By shard."""


class Coordinator:
    """Keeps the books; each start is a new term, and shards ignore orders of earlier terms."""

    def __init__(self, books: Books | None = None, key: str = ZONE) -> None:
        self.books: Final = books or Books()
        self.books.term += 1
        self._key: Final = key
        self._free: Final[
            dict[str, dict[MachineShape, FreeMachines]]
        ] = {}  # as last reported, without moving machines
        self._rests: Final[dict[tuple[str, NeedKey], float]] = {}

    # Shards and their domains.

    def add_shard(self, name: str) -> None:
        if name not in self.books.shards:
            self.books.shards.append(name)
            self.books.shards.sort()

    def assign(self, domain: str, shard: str) -> None:
        """Assigns a domain to a shard permanently: its machines may have state only it knows."""
        self._known(shard)
        owner = self.books.domains.setdefault(domain, shard)
        if owner != shard:
            raise InputError(
                f"it belongs to shard {owner!r} and cannot be given to {shard!r}",
                where=f"domain {domain!r}",
                hint="machines that are free move by themselves where they are wanted",
            )

    def _known(self, shard: str) -> None:
        if shard not in self.books.shards:
            raise InputError(
                f"there is no shard {shard!r}",
                allowed=", ".join(self.books.shards) or "none yet",
                hint="add it first",
            )

    def territory(self, shard: str) -> Territory:
        """The territory of a shard that starts."""
        domains = [domain for domain, owner in self.books.domains.items() if owner == shard]
        mine = Territory(domains, self._key)
        for machine, (home, owner) in self.books.moved.items():
            if owner == shard:
                mine.take(machine)
            elif home == shard:
                mine.leave(machine)
        return mine

    # Leases of processes.

    def acquire(self, shard: str, holder: str, now_s: float) -> int:
        """The epoch under which a process may run a shard; 0 while another process holds it.

        Providers refuse orders of earlier epochs, so a process that stalled and wakes up after
        another took over does no harm.
        """
        self._known(shard)
        lease = self.books.leases.get(shard)
        if lease is not None and lease.holder != holder and now_s < lease.until_s:
            return 0
        epoch = 1 if lease is None else lease.epoch + 1
        self.books.leases[shard] = ShardLease(holder, epoch, now_s + LEASE_S)
        return epoch

    # Reports and what follows from them.

    def report(self, report: ShardReport, now_s: float) -> list[Instruction]:
        """Takes a report; returns every instruction that its shard has not answered yet."""
        self._known(report.shard)
        lease = self.books.leases.get(report.shard)
        if lease is not None:
            if report.epoch < lease.epoch:
                return [Retire(self.books.term)]
            lease.until_s = now_s + LEASE_S
        self._hear(report, now_s)
        self._free[report.shard] = {one.shape: one for one in report.free}
        for move in self.books.moves.values():
            if move.donor == report.shard and not move.given_up:
                self._reserve(move)
        for wish in report.wishes:
            self._pull(report.shard, wish, now_s)
        return list(self._pending(report.shard))

    def _hear(self, report: ShardReport, now_s: float) -> None:
        moves = self.books.moves
        for one in report.released:
            move = moves.get(one.instruction)
            if move is None or move.given_up or move.donor != report.shard:
                continue  # already processed
            move.given_up, move.machines = True, one.machines
            home = self._home(move)
            for machine in one.machines:
                self._hand_over(machine, home, move.receiver)
            if not one.machines:
                del moves[move.id]
        for number in report.taken:
            move = moves.get(number)
            if move is not None and move.given_up and move.receiver == report.shard:
                del moves[number]
                self._rests[move.receiver, move.for_need] = now_s + COOLDOWN_S
        for machine in report.gone:
            _, owner = self.books.moved.get(machine, ("", ""))
            if owner == report.shard:
                del self.books.moved[machine]

    def _home(self, move: MachineMove) -> str:
        domain = move.shape.attributes().get(self._key, "")
        return self.books.domains.get(domain, move.donor)

    def _hand_over(self, machine: str, home: str, receiver: str) -> None:
        if home == receiver:
            self.books.moved.pop(machine, None)
        else:
            self.books.moved[machine] = (home, receiver)

    def _pending(self, shard: str) -> Iterator[Instruction]:
        term = self.books.term
        for move in self.books.moves.values():
            if move.donor == shard and not move.given_up:
                yield Release(move.id, term, move.shape, move.idle, move.quota)
            elif move.receiver == shard and move.given_up:
                yield Take(move.id, term, move.machines)

    # Moves.

    def _pull(self, receiver: str, wish: Shortfall, now_s: float) -> None:
        """Begins to move machines for a need that has been short for long enough."""
        key = wish.need.key()
        if wish.age < IDLE_AGE or now_s < self._rests.get((receiver, key), -math.inf):
            return
        if any(
            one.receiver == receiver and one.for_need == key for one in self.books.moves.values()
        ):
            return
        offers, missing = self._offers(receiver, wish), dict(wish.missing)
        if wish.need.profile.same_key:
            offers, missing = self._in_one_domain(receiver, offers, wish)
        over, grown = wish.need.profile.spread_over, list(wish.full)
        for _, donor, free in offers:
            domain = free.shape.attributes().get(over.key, "") if over else ""
            if over and domain in grown:
                continue
            usable = _usable(free.shape, wish.unit)
            lacking = [(left, usable[name]) for name, left in missing.items() if left > 0]
            count = max((-(-left // amount) for left, amount in lacking), default=0)
            if count <= 0:
                break
            if over:  # one per domain, so that the spread stays even
                count = 1
                grown.append(domain)
            idle = min(count, free.idle)
            quota = min(count - idle, free.quota)
            self._begin(donor, receiver, free.shape, idle, quota, key)
            for name, amount in usable.items():
                missing[name] -= amount * (idle + quota)

    def _offers(self, receiver: str, wish: Shortfall) -> list[FleetOffer]:
        """Offers of other shards for a shortfall, the lowest cost per unit first."""
        need, found = wish.need, []
        for donor in sorted(self._free):
            if donor == receiver:
                continue
            for free in self._free[donor].values():
                idle = free.idle - math.floor(MARGIN * free.idle)
                quota = free.quota if wish.age >= QUOTA_AGE else 0
                shape = free.shape
                units = _units(shape, wish.unit)
                if idle + quota <= 0 or not units:
                    continue
                cost = effective_cost(
                    shape.price_per_hour,
                    shape.interruption_probability,
                    need.profile.interruption_bucket,
                )
                if cost < math.inf and accepts_all(need.profile.requirements, shape.attributes()):
                    found.append((cost / units, donor, FreeMachines(shape, max(0, idle), quota)))
        found.sort(key=lambda one: (one[0], one[1], one[2].shape.key()))
        return found

    def _in_one_domain(
        self, receiver: str, offers: list[FleetOffer], wish: Shortfall
    ) -> tuple[list[FleetOffer], dict[str, int]]:
        """The offers to a gang in one domain, and what is missing there; or none.

        The whole gang must fit there, with the free machines of its shard in that domain; those
        elsewhere do not help a gang.
        """
        need, key = wish.need, wish.need.profile.same_key
        by_domain: dict[str, list[FleetOffer]] = {}
        for one in offers:
            by_domain.setdefault(one[2].shape.attributes()[key], []).append(one)
        for domain in sorted(by_domain, key=lambda value: (by_domain[value][0][0], value)):
            missing = dict(need.aggregate)
            for own in self._free[receiver].values():
                attributes = own.shape.attributes()
                suits = accepts_all(need.profile.requirements, attributes)
                if suits and attributes[key] == domain:
                    _take(missing, own, wish.unit)
            left = dict(missing)
            for _, _, free in by_domain[domain]:
                _take(left, free, wish.unit)
            if all(amount <= 0 for amount in left.values()):
                return by_domain[domain], missing
        return [], {}

    def _begin(
        self, donor: str, receiver: str, shape: MachineShape, idle: int, quota: int, key: NeedKey
    ) -> None:
        self.books.last_move += 1
        move = MachineMove(self.books.last_move, donor, receiver, shape, idle, quota, key)
        self.books.moves[move.id] = move
        self._reserve(move)

    def _reserve(self, move: MachineMove) -> None:
        """Reserves the machines of a move, so that they are not offered to a second receiver."""
        free = self._free[move.donor].get(move.shape)
        if free is not None:
            left = FreeMachines(
                free.shape, max(0, free.idle - move.idle), max(0, free.quota - move.quota)
            )
            self._free[move.donor][move.shape] = left


def _units(shape: MachineShape, unit: Resources) -> int:
    """How many whole units fit on one machine."""
    offered = dict(shape.resources)
    return min(offered.get(name, 0) // amount for name, amount in unit if amount)


def _usable(shape: MachineShape, unit: Resources) -> dict[str, int]:
    """The amounts of one machine that units can use."""
    units = _units(shape, unit)
    return {name: amount * units for name, amount in unit}


def _take(missing: dict[str, int], free: FreeMachines, unit: Resources) -> None:
    """Subtracts these machines from the missing amounts."""
    for name, amount in _usable(free.shape, unit).items():
        missing[name] -= amount * (free.idle + free.quota)
