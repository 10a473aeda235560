"""The decision cycle, slowly and obviously: what the fast one is held equal to.

Everything is computed from the records of machines and needs, each time anew. No cleverness, no
indexes; read this first. A machine is counted for one need, its holder, from the moment that a plan
says so: what is planned, configuring or being created counts, so nothing is asked for twice.
"""

from collections.abc import Collection, Iterable, Sequence

import msgspec

from tests.fleet.reference_rows import (
    ReferenceRow,
    coverage,
    is_free,
    room_of,
    size,
    stage_of,
    total,
)
from windtunnel.fleet.machine import Machine
from windtunnel.fleet.need import Need, NeedKey, merge
from windtunnel.fleet.planner.actions import (
    ADOPT,
    BOOTSTRAP,
    DELETE,
    DELETE_REASON,
    IDLE_REASON,
    NO_MATCHING_SUPPLY,
    NOTHING,
    OWN_VICTIM_REASON,
    PREEMPT,
    PREEMPTING,
    PREEMPTION_EXHAUSTED,
    PRIORITY_STARVED,
    PROVISION,
    QUOTA_EXHAUSTED,
    RECLAIM,
    RECLAIM_REASON,
    SATISFIED,
    SPECULATIVE_REASON,
    SURPLUS_REASON,
    TOPOLOGY_UNSATISFIABLE,
    VICTIM_REASON,
    Action,
    CyclePlan,
    NeedVerdict,
    in_words,
)
from windtunnel.fleet.planner.costs import (
    PINNED,
    RECLAIM_GRACE_S,
    preemption_grace_s,
    victim_score,
)
from windtunnel.fleet.planner.entries import Sizing
from windtunnel.fleet.planner.exchange.auction import BiddingNeed, Choice, is_worth_it, share_out
from windtunnel.fleet.planner.exchange.trading import MOST_TRADERS, Trader, Ware, trade
from windtunnel.fleet.shape import IDLE_HOLD_S, Resources
from windtunnel.fleet.states import (
    CONFIGURED,
    CONFIGURING,
    DRAINING,
    FAILED,
    IDLE,
    SPECULATIVE,
)


def cycle(
    machines: Iterable[Machine], needs: Iterable[Need], ready: Collection[str], now_s: float
) -> tuple[list[Machine], CyclePlan]:
    """The machines with what is now planned for them, and the plan.

    `ready` are the clusters that have said what they need; of no other is anything reclaimed.
    """
    return _Cycle(machines, needs, ready).run(now_s)


class _Cycle:
    """One run of the cycle over copies of the records."""

    def __init__(
        self, machines: Iterable[Machine], needs: Iterable[Need], ready: Collection[str]
    ) -> None:
        self.machines = {m.id: m for m in sorted(machines, key=lambda m: m.id)}
        self.rows = [ReferenceRow(need) for need in sorted(merge(needs).values(), key=Need.order)]
        self.ready = ready
        self.surplus: dict[str, None] = {}
        self.back: dict[str, None] = {}
        """Not to be drained after all: nobody counts on them before the next cycle."""
        self.actions: list[Action] = []
        self.withdrawn: list[str] = []
        self.acquired: list[tuple[ReferenceRow, list[Action]]] = []
        """What each need that lacked something got, in the order of service."""

    def run(self, now_s: float) -> tuple[list[Machine], CyclePlan]:
        self.seed()
        for row in self.rows:
            if not row.whole:
                before = len(self.actions)
                self.acquire(row)
                self.acquired.append((row, self.actions[before:]))
        if self.exchange():
            for row in self.rows:
                if not row.whole and not row.same:
                    self.acquire(row)  # of what others no longer need
        self.settle_promises()
        shortfalls = [self.preempt(row) for row in self.rows if not row.whole]
        self.reclaim()
        self.release(now_s)
        told = [one for one in shortfalls if one.verdict != SATISFIED]
        plan = CyclePlan(self.actions, sorted(self.withdrawn), told, len(self.rows))
        return list(self.machines.values()), plan

    # What a machine becomes.

    def change(self, machine: Machine, planned: int, holder: NeedKey | None) -> None:
        self.machines[machine.id] = msgspec.structs.replace(
            machine, planned=planned, holder=holder, promised=None
        )

    def withdraw(self, machine: Machine) -> None:
        """Takes back what was planned and has not begun."""
        self.withdrawn.append(machine.id)
        holder = machine.holder if machine.state in (CONFIGURED, CONFIGURING) else None
        self.change(machine, NOTHING, holder)

    def credit(self, row: ReferenceRow, machine: Machine) -> None:
        """Counts a machine for a need that has or gets it."""
        row.credited.append(machine.id)
        self.surplus.pop(machine.id, None)
        if machine.planned == RECLAIM:
            self.withdraw(machine)

    def uncredit(self, machine: Machine) -> None:
        """What is taken from a need no longer counts for it."""
        for row in self.rows:
            if row.key == machine.holder:
                row.credited.remove(machine.id)

    def spare(self, machines: Iterable[Machine]) -> None:
        """What a need has too much: planned ones are free again, bound ones go to the surplus."""
        for machine in machines:
            stage = stage_of(machine)
            if stage == 3:
                self.withdraw(machine)
            elif stage in (0, 1):
                self.surplus[machine.id] = None

    def has(self, row: ReferenceRow) -> list[Machine]:
        return [self.machines[name] for name in row.credited]

    def left(self, row: ReferenceRow, coming: Sequence[Machine] = ()) -> list[Resources]:
        """The units of a need for which its machines have no room."""
        return row.unplaced([*self.has(row), *coming])

    # Phase 1, first: what each need has.

    def seed(self) -> None:
        own: dict[NeedKey, list[Machine]] = {}
        for machine in self.machines.values():
            if machine.holder is not None and stage_of(machine) >= 0:
                own.setdefault(machine.holder, []).append(machine)
            elif machine.holder is None and stage_of(machine) in (0, 1):
                self.surplus[machine.id] = None
        for row in self.rows:
            mine = own.pop(row.key, [])
            if row.same and not self.whole_domain(row, mine):
                row.credited = [m.id for m in mine]  # until its turn, nobody else counts on them
                continue
            self.keep(row, mine)
        for key in sorted(own):
            self.spare(own[key])

    def whole_domain(self, row: ReferenceRow, mine: Sequence[Machine]) -> bool:
        """Whether a gang is whole somewhere; there it stays, whatever else there is."""
        fitting = [m for m in mine if row.matches(m)]
        for value in sorted({row.domain_of(m) for m in fitting}):
            if row.holds(m for m in fitting if row.domain_of(m) == value):
                row.domain = value
                return True
        return False

    def keep(self, row: ReferenceRow, mine: Sequence[Machine]) -> None:
        """Credits what a need has until its units fit.

        What is there first; of that, each time the machine that costs least for a unit of what is
        still left; then without those that the others make needless. A spread keeps one of each
        domain, then a second one of each, and so on.
        """
        fitting = [m for m in mine if row.matches(m)]
        if row.domain:
            fitting = [m for m in fitting if row.domain_of(m) == row.domain]
        kept = self.chosen(row, fitting)
        for machine in kept:
            self.credit(row, machine)
        row.whole = not self.left(row)
        self.spare(m for m in mine if m not in kept)

    def chosen(self, row: ReferenceRow, fitting: Sequence[Machine]) -> list[Machine]:
        """Of some machines those that a need keeps."""
        kept: list[Machine] = []
        if row.skew:
            fitting = self.evenly(row, sorted(fitting, key=row.keep_order))
        while fitting and (left := row.unplaced(kept)):
            machine = fitting[0]
            if not row.skew:
                first = min(stage_of(m) for m in fitting)
                machine = min(
                    [m for m in fitting if stage_of(m) == first],
                    key=lambda m: (row.price(left, m), m.shape.key(), m.id),
                )
                if not row.helps(left, machine):  # nor does any other of its stage
                    fitting = [m for m in fitting if stage_of(m) != first]
                    continue
            fitting = [m for m in fitting if m.id != machine.id]
            kept.append(machine)
        return kept if row.skew or row.unplaced(kept) else self.needed(row, kept)

    def needed(self, row: ReferenceRow, kept: list[Machine]) -> list[Machine]:
        """Without those that the rest makes needless, the dearest first; of the farthest machines
        only, so that what is there or idle does not go for what is not."""
        last = max((far(m) for m in kept), default=(0, False))
        by_id = sorted(kept, key=lambda m: m.id, reverse=True)
        for machine in sorted(by_id, key=lambda m: (-row.cost(m), m.shape.key())):
            rest = [m for m in kept if m.id != machine.id]
            if far(machine) == last and not row.unplaced(rest):
                kept = rest
        return kept

    def evenly(self, row: ReferenceRow, machines: Sequence[Machine]) -> list[Machine]:
        """One of each domain, then a second one of each, and so on."""
        seen: dict[str, int] = {}
        ranked = []
        for place, machine in enumerate(machines):
            value = row.domain_of(machine)
            seen[value] = seen.get(value, 0) + 1
            ranked.append((seen[value], place, machine))
        return [machine for _, _, machine in sorted(ranked, key=lambda one: one[:2])]

    # Phase 1, then: what each need can get, by priority.

    def acquire(self, row: ReferenceRow) -> None:
        before = len(self.actions)
        if row.same:
            self.settle_domain(row)
            if not row.domain:
                return
        for machine in self.spare_of(row):
            if not self.left(row):
                break
            if not row.helps(self.left(row), machine):
                continue
            if not row.skew or self.allowed(row, machine):
                self.adopt(row, machine, SURPLUS_REASON)
        while self.left(row):
            free = [m for m in self.free_for(row) if row.helps(self.left(row), m)]
            if not free:
                break
            left = self.left(row)
            self.take(row, min(free, key=lambda m: self.take_order(row, left, m)))
        row.whole = not self.left(row)
        if row.whole:
            self.tidy(row, [one for one in self.actions[before:] if one.kind != ADOPT])

    def tidy(self, row: ReferenceRow, taken: Sequence[Action]) -> None:
        """Gives back what a need just took and would not keep."""
        kept = [m.id for m in self.chosen(row, self.has(row))]
        needless = [one for one in taken if one.machine not in kept]
        if len(needless) == len(row.credited) - len(kept):
            for one in needless:
                row.credited.remove(one.machine)
                self.change(self.machines[one.machine], NOTHING, None)
                self.actions.remove(one)

    def spare_of(self, row: ReferenceRow) -> list[Machine]:
        """What the cluster has to spare and this need can use."""
        spare = [self.machines[name] for name in self.surplus]
        fitting = [m for m in spare if m.cluster == row.need.cluster and self.fits(row, m)]
        return sorted(fitting, key=row.keep_order)

    def fits(self, row: ReferenceRow, machine: Machine) -> bool:
        return row.matches(machine) and (not row.domain or row.domain_of(machine) == row.domain)

    def free(self, row: ReferenceRow) -> list[Machine]:
        """What nobody holds and this need could use, leaving aside where it is."""
        return [m for m in self.machines.values() if is_free(m) and row.matches(m)]

    def free_for(self, row: ReferenceRow) -> list[Machine]:
        return [
            m
            for m in self.free(row)
            if self.fits(row, m) and (not row.skew or self.allowed(row, m))
        ]

    def take_order(
        self, row: ReferenceRow, left: Sequence[Resources], machine: Machine
    ) -> tuple[int, bool, float, str, str]:
        """For the largest unit that is left; then idle before speculative; then by what a unit
        costs; then by shape, then by id."""
        largest, price = row.price(left, machine)
        created = machine.state == SPECULATIVE
        return (largest, created, price, machine.shape.key(), machine.id)

    def allowed(self, row: ReferenceRow, machine: Machine, more: Sequence[Machine] = ()) -> bool:
        """Whether one more in this machine's domain keeps a spread within its skew."""
        counts = {
            row.domain_of(m): 0
            for m in self.machines.values()
            if m.state != FAILED and row.matches(m)
        }
        for one in [*(self.machines[name] for name in row.credited), *more]:
            value = row.domain_of(one)
            counts[value] = counts.get(value, 0) + 1
        return counts[row.domain_of(machine)] <= min(counts.values()) + row.skew - 1

    def take(self, row: ReferenceRow, machine: Machine) -> None:
        idle = machine.state == IDLE
        if machine.planned == DELETE:
            self.withdrawn.append(machine.id)
        kind, reason = (BOOTSTRAP, IDLE_REASON) if idle else (PROVISION, SPECULATIVE_REASON)
        self.change(machine, kind, row.key)
        row.credited.append(machine.id)
        self.act(row, kind, machine, reason, cost=row.cost(machine))

    def adopt(self, row: ReferenceRow, machine: Machine, reason: str) -> None:
        self.credit(row, machine)
        self.change(self.machines[machine.id], NOTHING, row.key)
        self.act(row, ADOPT, machine, reason, cost=row.cost(machine))

    def act(
        self,
        row: ReferenceRow,
        kind: int,
        machine: Machine,
        reason: str,
        *,
        grace_s: float = 0.0,
        cost: float = 0.0,
    ) -> None:
        cluster = machine.cluster if kind == PREEMPT else row.need.cluster
        priority = row.need.profile.priority
        action = Action(kind, machine.id, cluster, row.key, grace_s, priority, cost, reason)
        self.actions.append(action)

    # What needs exchange of what they just took.

    def exchange(self) -> bool:
        """Idle machines and places in quotas apart; with needs that are short, else without."""
        changed: list[ReferenceRow] = []
        for kind, state in ((BOOTSTRAP, IDLE), (PROVISION, SPECULATIVE)):
            asking = [
                (row, taken)
                for row, taken in self.acquired
                if not row.domain_key
                and (len(row.need.sizes()) == 1 or self.is_new(row, taken))
                and row not in changed
                and all(one.kind == kind for one in taken)
            ]
            if any(len(row.need.sizes()) > 1 for row, _ in asking):
                if len(asking) <= MOST_TRADERS:
                    changed += self.trade(asking, state)
                    continue
                asking = [one for one in asking if len(one[0].need.sizes()) == 1]
            if any(row.whole for row, _ in asking):
                rows = self.exchange_some(asking, state)
                rows = rows or self.exchange_some([one for one in asking if one[0].whole], state)
                changed += rows
        return bool(changed)

    def exchange_some(
        self, asking: Sequence[tuple[ReferenceRow, list[Action]]], state: int
    ) -> list[ReferenceRow]:
        """The needs that have other machines now."""
        kinds, pools = self.pools(asking, state)
        asks = [
            self.ask(row, kinds.index(kind), actions, pools)
            for (row, actions), kind in zip(asking, kinds, strict=True)
        ]
        free = [len(pool) for pool in pools]
        is_short = not all(row.whole for row, _ in asking)
        if not is_worth_it(free, together(asks), is_short=is_short):
            return []
        shares = share_out(free, asks)
        if shares is None:
            return []
        moved = [at for at, share in enumerate(shares) if share != asks[at].has]
        chosen = [
            [(pools[choice.stock], count) for choice, count in zip(ask.choices, share, strict=True)]
            for ask, share in zip(asks, shares, strict=True)
        ]
        return self.move(asking, chosen, moved)

    def pools(
        self, asking: Sequence[tuple[ReferenceRow, list[Action]]], state: int
    ) -> tuple[list[tuple[object, ...]], list[list[Machine]]]:
        """The kind of each need, and machines that are alike to all of them."""
        taken = {one.machine: row for row, actions in asking for one in actions}
        kinds: list[tuple[object, ...]] = [
            (row.need.profile.fingerprint(), tuple(size for size, _ in row.need.sizes()))
            for row, _ in asking
        ]
        pools: dict[tuple[object, ...], list[Machine]] = {}
        for machine in sorted(self.machines.values(), key=lambda m: (m.shape.key(), m.id)):
            users = [
                kind for kind, (row, _) in zip(kinds, asking, strict=True) if row.matches(machine)
            ]
            shape = machine.shape
            alike = (shape.resources, shape.price_per_hour, shape.interruption_probability)
            available = is_free(machine) or machine.id in taken
            if users and machine.state == state and available:
                pools.setdefault((*alike, *users), []).append(machine)
        return kinds, list(pools.values())

    def move(
        self,
        asking: Sequence[tuple[ReferenceRow, list[Action]]],
        chosen: Sequence[Sequence[tuple[list[Machine], int]]],
        moved: Sequence[int],
    ) -> list[ReferenceRow]:
        """Some needs give back what they took, and take so many of each pool."""
        for at in moved:
            row, actions = asking[at]
            for one in actions:
                row.credited.remove(one.machine)
                self.change(self.machines[one.machine], NOTHING, None)
                self.actions.remove(one)
        for at in moved:
            row, _ = asking[at]
            for pool, count in chosen[at]:
                current = [self.machines[m.id] for m in pool]
                for machine in [m for m in current if is_free(m)][:count]:
                    self.take(row, machine)
            row.whole = not self.left(row)
        return [asking[at][0] for at in moved]

    def is_new(self, row: ReferenceRow, actions: list[Action]) -> bool:
        """Whether a need has nothing but what it just took."""
        taken = [one.machine for one in actions]
        return all(m.id in taken for m in self.machines.values() if m.holder == row.key)

    def trade(
        self, asking: Sequence[tuple[ReferenceRow, list[Action]]], state: int
    ) -> list[ReferenceRow]:
        """The needs that have other machines now, after every two could trade."""
        kinds, pools = self.pools(asking, state)
        if len(set(kinds)) < 2:
            return []
        numbers = {
            resources: at for at, resources in enumerate({p[0].shape.resources: 0 for p in pools})
        }
        traders = [self.trader(row, actions, pools, numbers) for row, actions in asking]
        before = [one.has for one in traders]
        free = [len(pool) for pool in pools]
        for one in traders:
            for ware, count in zip(one.wares, one.has, strict=True):
                free[ware.pool] -= count
        if not trade(free, traders):
            return []
        moved = [at for at, one in enumerate(traders) if one.has != before[at]]
        chosen = [
            [(pools[ware.pool], count) for ware, count in zip(one.wares, one.has, strict=True)]
            for one in traders
        ]
        return self.move(asking, chosen, moved)

    def trader(
        self,
        row: ReferenceRow,
        actions: list[Action],
        pools: list[list[Machine]],
        numbers: dict[Resources, int],
    ) -> Trader:
        taken = [one.machine for one in actions]
        names = sorted(row.want)
        sizes = [[dict(size).get(name, 0) for name in names] for size, _ in row.need.sizes()]
        usable = [at for at, pool in enumerate(pools) if row.matches(pool[0])]
        usable.sort(key=lambda at: (row.unit_cost(pools[at][0]), pools[at][0].shape.key()))
        wares = []
        for at in usable:
            offered = dict(pools[at][0].shape.resources)
            amounts = [offered.get(name, 0) for name in names]
            number = numbers[pools[at][0].shape.resources]
            wares.append(Ware(at, number, amounts, row.cost(pools[at][0])))
        has = [sum(m.id in taken for m in pools[at]) for at in usable]
        left = row.unplaced([m for m in self.has(row) if m.id not in taken])
        counts = tuple(left.count(size) for size, _ in row.need.sizes())
        return Trader(Sizing(list(range(len(names))), sizes), counts, wares, has)

    def ask(
        self, row: ReferenceRow, kind: int, actions: list[Action], pools: list[list[Machine]]
    ) -> BiddingNeed:
        """The units that a need has no machine for but those that it just took."""
        taken = [one.machine for one in actions]
        choices = [
            Choice(at, room_of(pool[0], row.need.min_unit), row.cost(pool[0]))
            for at, pool in enumerate(pools)
            if row.matches(pool[0])
        ]
        has = [sum(m.id in taken for m in pools[one.stock]) for one in choices]
        before = [m for m in self.has(row) if m.id not in taken]
        return BiddingNeed(kind, len(row.unplaced(before)), choices, has)

    # The one domain of a gang.

    def settle_domain(self, row: ReferenceRow) -> None:
        """Chooses the domain of a gang that is not whole, and lets go of what it has elsewhere.

        Where no domain can have all of it, nothing is taken and what is there stays.
        """
        row.domain = ""
        held = [m for m in self.machines.values() if m.holder == row.key]
        mine = [m for m in held if stage_of(m) >= 0]
        fitting = [m for m in mine if row.matches(m)]
        alive = [m for m in self.machines.values() if m.state != FAILED and row.matches(m)]
        values = sorted({row.domain_of(m) for m in alive})
        ranked = [self.rank_domain(row, fitting, value) for value in values]
        best = min(ranked, default=None)
        if best is None or best[0] == 2:
            row.credited = []
            for machine in fitting:
                if stage_of(machine) != 3:
                    self.credit(row, machine)
            self.spare(m for m in mine if m.id not in row.credited)
            return
        row.domain = best[-1]
        row.credited = []
        self.keep(row, mine)

    def rank_domain(
        self, row: ReferenceRow, mine: Sequence[Machine], value: str
    ) -> tuple[int, float, float, float, str]:
        """Satisfiable first; then what is there already or being drained for it; then the tightest
        fit; then the name."""

        def there(machines: Iterable[Machine]) -> list[Machine]:
            return [m for m in machines if row.domain_of(m) == value]

        own = there(mine)
        others = [m for m in self.spare_of(row) if m.holder != row.key]
        creditable = own + there(others)
        coming = there(self.promises(row))
        joint = creditable + there(self.free(row))
        tier = 0
        if not row.holds(joint):
            joint = joint + coming + there(self.victims(row))
            tier = 1 if row.holds(joint) else 2
        return (
            tier,
            -coverage(total(creditable + coming), row.want),
            -coverage(total(own), row.want),
            size(total(joint), row.want),
            value,
        )

    # Phase 2: what must leave needs of lower priority.

    def promises(self, row: ReferenceRow) -> list[Machine]:
        """What is being drained for a need, or will be."""
        found = [m for m in self.machines.values() if m.promised == row.key and row.matches(m)]
        return sorted(found, key=lambda m: (m.state != DRAINING, m.id))

    def settle_promises(self) -> None:
        """Takes back each drain, not begun, that its need no longer waits for."""
        wanted: dict[str, None] = {}
        for row in self.rows:
            coming: list[Machine] = []
            if row.whole or (row.same and not row.domain):
                continue
            for machine in self.promises(row):
                left = self.left(row, coming)
                if self.fits(row, machine) and left and row.helps(left, machine):
                    wanted[machine.id] = None
                    coming.append(machine)
        for machine in list(self.machines.values()):
            if machine.planned == PREEMPT and machine.id not in wanted:
                self.withdraw(machine)
                self.back[machine.id] = None

    def victims(self, row: ReferenceRow) -> list[Machine]:
        """Machines of needs of lower priority: of the own cluster first, then the best to take."""
        found = []
        for machine in self.machines.values():
            holder = machine.holder
            if (
                machine.state == CONFIGURED
                and machine.planned == NOTHING
                and holder is not None
                and machine.id not in self.surplus
                and machine.id not in self.back
                and holder.priority() < row.need.profile.priority
                and holder.reclamation_bucket() != PINNED
                and row.matches(machine)
            ):
                score = victim_score(holder.interruption_bucket(), holder.reclamation_bucket())
                other = machine.cluster != row.need.cluster
                found.append((other, holder.priority() - score, holder, machine.id, machine))
        return [one[-1] for one in sorted(found, key=lambda one: one[:-1])]

    def preempt(self, row: ReferenceRow) -> NeedVerdict:
        if row.domain:  # gangs before it may have taken what it was to have there
            there = [m for m in self.promises(row) + self.victims(row) if self.fits(row, m)]
            if not row.holds([*self.has(row), *there]):
                self.settle_domain(row)
        if row.same and not row.domain:
            return self.verdict(row, [])
        coming = [m for m in self.promises(row) if self.fits(row, m)]
        while left := self.left(row, coming):
            victims = [
                m
                for m in self.victims(row)
                if self.fits(row, m)
                and row.helps(left, m)
                and (not row.skew or self.allowed(row, m, coming))
            ]
            if not victims:
                return self.verdict(row, coming)
            largest = min(row.largest(left, m) for m in victims)
            machine = next(m for m in victims if row.largest(left, m) == largest)
            self.uncredit(machine)
            if machine.cluster == row.need.cluster:
                self.adopt(row, machine, OWN_VICTIM_REASON)
            else:
                coming.append(self.promise(row, machine))
        verdict = PREEMPTING if coming else SATISFIED
        return NeedVerdict(row.key, verdict, in_words(verdict, amounts_of(self.left(row))))

    def promise(self, row: ReferenceRow, machine: Machine) -> Machine:
        assert machine.holder is not None
        gap = row.need.profile.priority - machine.holder.priority()
        promised = msgspec.structs.replace(machine, planned=PREEMPT, promised=row.key)
        self.machines[machine.id] = promised
        self.act(row, PREEMPT, machine, VICTIM_REASON, grace_s=preemption_grace_s(gap))
        return promised

    def verdict(self, row: ReferenceRow, coming: list[Machine]) -> NeedVerdict:
        alive = [m for m in self.machines.values() if m.state != FAILED and row.matches(m)]
        if not alive:
            found = NO_MATCHING_SUPPLY
        elif row.domain_key and row.holds([*self.has(row), *coming, *self.free(row)]):
            found = TOPOLOGY_UNSATISFIABLE
        elif coming:
            found = PREEMPTION_EXHAUSTED
        elif row.holds(alive):
            highest = max(one.need.profile.priority for one in self.rows)
            starved = row.need.profile.priority < highest
            found = PRIORITY_STARVED if starved else QUOTA_EXHAUSTED
        else:
            found = NO_MATCHING_SUPPLY
        missing = amounts_of(self.left(row, coming))
        return NeedVerdict(row.key, found, in_words(found, missing, some_match=bool(alive)))

    # Phase 3: what nobody needs.

    def reclaim(self) -> None:
        """Drains what no need of its cluster counts on, the dearest first."""
        spare = [self.machines[name] for name in self.surplus]
        for machine in sorted(spare, key=lambda m: (m.cluster, -m.shape.price_per_hour, m.id)):
            if (
                machine.state == CONFIGURED
                and machine.planned == NOTHING
                and machine.cluster in self.ready
            ):
                self.machines[machine.id] = msgspec.structs.replace(machine, planned=RECLAIM)
                action = Action(
                    RECLAIM,
                    machine.id,
                    machine.cluster,
                    grace_s=RECLAIM_GRACE_S,
                    reason=RECLAIM_REASON,
                )
                self.actions.append(action)

    def release(self, now_s: float) -> None:
        """Gives back idle machines that were held long enough."""
        for machine in list(self.machines.values()):
            held_s = IDLE_HOLD_S[machine.shape.capacity_type]
            if (
                machine.state == IDLE
                and machine.planned == NOTHING
                and machine.since_s + held_s <= now_s
            ):
                self.change(machine, DELETE, None)
                self.actions.append(Action(DELETE, machine.id, reason=DELETE_REASON))


def far(machine: Machine) -> tuple[int, bool]:
    """How long it takes until a machine is there."""
    return (stage_of(machine), machine.state == SPECULATIVE)


def together(asks: Iterable[BiddingNeed]) -> list[BiddingNeed]:
    """What needs of one kind ask for and have, as one."""
    kinds: dict[int, BiddingNeed] = {}
    for ask in asks:
        has, units = [0] * len(ask.choices), 0
        if ask.kind in kinds:
            has, units = kinds[ask.kind].has, kinds[ask.kind].units
        has = [one + more for one, more in zip(has, ask.has, strict=True)]
        kinds[ask.kind] = BiddingNeed(ask.kind, units + ask.units, ask.choices, has)
    return list(kinds.values())


def amounts_of(units: Iterable[Resources]) -> list[tuple[str, int]]:
    """What units ask for in sum, by name."""
    found: dict[str, int] = {}
    for unit in units:
        for name, amount in unit:
            if amount:
                found[name] = found.get(name, 0) + amount
    return sorted(found.items())
