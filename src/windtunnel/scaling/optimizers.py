"""Optimizers: how many replicas to add or remove, and of which variant, cheapest first."""

import math
from typing import Final

from mypy_extensions import mypyc_attr

from windtunnel.scaling.analyzers import Finding, Group, PolicyPart


@mypyc_attr(allow_interpreted_subclasses=True)
class Allocation:
    """The total number of replicas for a group, and how any total is spread over its variants.

    `counts_at` is deterministic, never takes from a variant as the total grows, and always sums to
    the total. Within the sum of the bounds every variant stays within its own; beyond them it shows
    where the rest would go, so that a limit can be explained.
    """

    def __init__(
        self,
        group: Group,
        total: int,
        *,
        up: list[int],
        down: list[int],
        cuts: list[int] | None = None,
        free: dict[str, int] | None = None,
        reason: str = "",
    ) -> None:
        assert total >= 0
        self.group: Final = group
        self.total: Final = total
        self.up: Final = up  # indices of all variants, in the order in which they grow
        self.down: Final = down  # in the order in which they shrink
        self.cuts: Final = cuts  # by variant: how many to remove first
        self.free: Final = free  # accelerators by kind available for growth; None: no limit
        self.reason: Final = reason

    def counts_at(self, total: int) -> list[int]:
        variants = self.group.variants
        counts = []
        left = total
        for variant in variants:
            count = variant.target
            if count < variant.minimum:
                count = variant.minimum
            if count > variant.maximum:
                count = variant.maximum
            counts.append(count)
            left -= count
        if left > 0:
            self._grow(counts, left)
        elif left < 0:
            self._shrink(counts, -left)
        return counts

    def reachable(self) -> int:
        """The largest total that the free accelerators allow; -1: no limit."""
        if self.free is None:
            return -1
        counts = self.group.counts()
        left = self._fill(counts, self.group.maximum)
        return self.group.current + self.group.maximum - left

    def _grow(self, counts: list[int], left: int) -> None:
        left = self._fill(counts, left)
        for number in self.up:  # no accelerators left: requested anyway, and explained
            if left <= 0:
                return
            more = min(left, max(0, self.group.variants[number].maximum - counts[number]))
            counts[number] += more
            left -= more
        counts[self.up[0]] += left

    def _fill(self, counts: list[int], left: int) -> int:
        """Adds replicas within bounds and free accelerators; returns how many are left over."""
        free = dict(self.free) if self.free is not None else None
        for number in self.up:
            if left <= 0:
                break
            variant = self.group.variants[number]
            more = min(left, max(0, variant.maximum - counts[number]))
            if free is not None:
                kind = variant.spec.accelerator
                there = free.get(kind, 0) // variant.spec.accelerators
                more = min(more, max(0, there))
                free[kind] = free.get(kind, 0) - more * variant.spec.accelerators
            counts[number] += more
            left -= more
        return left

    def _shrink(self, counts: list[int], left: int) -> None:
        if self.cuts is not None:
            for number in self.down:
                left -= self._cut(counts, number, min(left, self.cuts[number]))
        for number in self.down:
            left -= self._cut(counts, number, left)
        for number in self.down:  # below the minimum: the bounds will correct and explain it
            less = min(left, counts[number])
            counts[number] -= less
            left -= less

    def _cut(self, counts: list[int], number: int, most: int) -> int:
        less = min(most, max(0, counts[number] - self.group.variants[number].minimum))
        counts[number] -= less
        return less


def take(free: dict[str, int], group: Group, counts: list[int]) -> None:
    """Subtracts the accelerators needed for growth to these counts from the free ones."""
    for number, variant in enumerate(group.variants):
        more = counts[number] - variant.target
        if more > 0:
            kind = variant.spec.accelerator
            free[kind] = free.get(kind, 0) - more * variant.spec.accelerators


@mypyc_attr(allow_interpreted_subclasses=True)
class Optimizer(PolicyPart):
    """Turns findings into replica counts: the total, and which variant grows or shrinks first."""

    def allocate(
        self, groups: list[Group], findings: list[list[Finding]], free: dict[str, int] | None
    ) -> list[Allocation]:
        """Returns one allocation per group; `findings` are by group, then by analyzer."""
        raise NotImplementedError


class CostOrdered(Optimizer):
    """Grows where capacity is cheapest and shrinks where it is most expensive.

    One analyzer is enough to grow; to shrink, all whose findings are known must agree. Engine
    `greedy` grows only onto free accelerators and continues with the next variant where there are
    none; `unlimited` ignores them. `one_variant`: a tick adds all replicas to the first variant in
    order, or removes all from the last, at least one (as in BLIS). `keep_one`: variants with a
    single replica shrink after all others (as in WVA). `costs`: costs by variant that replace
    prices.
    """

    def __init__(
        self,
        *,
        order: str = "price-per-capacity",
        engine: str = "greedy",
        one_variant: bool = False,
        keep_one: bool = False,
        costs: dict[str, float] | None = None,
    ) -> None:
        super().__init__("cost-ordered")
        assert order in ("price-per-capacity", "price")
        assert engine in ("greedy", "unlimited")
        self._per_capacity: Final = order == "price-per-capacity"
        self.greedy: Final = engine == "greedy"
        self._one_variant: Final = one_variant
        self._keep_one: Final = keep_one
        self._costs: Final[dict[str, float]] = {} if costs is None else costs

    def allocate(
        self, groups: list[Group], findings: list[list[Finding]], free: dict[str, int] | None
    ) -> list[Allocation]:
        allocations: list[Allocation] = []
        there = None if free is None or not self.greedy else dict(free)
        for number, group in enumerate(groups):
            known = [finding for finding in findings[number] if finding.known]
            # A role gets what the roles before it leave.
            allocation = self._of(group, known, None if there is None else dict(there))
            allocations.append(allocation)
            if there is not None and len(groups) > 1 and allocation.total > group.current:
                most = min(allocation.total, allocation.reachable())
                take(there, group, allocation.counts_at(most))
        return allocations

    def _of(self, group: Group, known: list[Finding], free: dict[str, int] | None) -> Allocation:
        up, down = self._orders(group, known)
        more = self._more(group, known, up, free)
        cuts = [0] * len(group.variants)
        if more == 0:
            self._cut(group, known, down, cuts)
        total = group.current + more - sum(cuts)
        reason = ""
        if free is not None and more > 0 and len(group.variants) > 1:
            reason = _spill(group, total, up, down, free)
        return Allocation(group, total, up=up, down=down, cuts=cuts, free=free, reason=reason)

    def _orders(self, group: Group, known: list[Finding]) -> tuple[list[int], list[int]]:
        """Variants from the cheapest to the most expensive, and the reverse."""
        up: list[int] = []
        prices: list[float] = []
        for number, variant in enumerate(group.variants):
            price = variant.spec.price_per_hour
            if self._costs:
                price = self._costs.get(variant.name, price)
            if self._per_capacity and known:
                capacity = known[0].per_replica[number]
                # A variant of unknown capacity is tried when all others are full.
                price = price / capacity if capacity > 0 else math.inf
            prices.append(price)
            up.append(number)
            place = number
            while place > 0:  # insertion sort: few variants, usually already in order
                before = up[place - 1]
                if prices[before] < price or (
                    prices[before] == price and group.variants[before].name < variant.name
                ):
                    break
                up[place] = before
                place -= 1
            up[place] = number
        down = up[::-1]
        if self._keep_one:
            single = [number for number in down if group.variants[number].target <= 1]
            down = [number for number in down if group.variants[number].target > 1] + single
        return up, down

    def _more(
        self, group: Group, known: list[Finding], up: list[int], free: dict[str, int] | None
    ) -> int:
        needs = [finding for finding in known if finding.required > 0]
        if not needs:
            return 0
        if self._one_variant:
            return max(1, _covering(needs, [finding.required for finding in needs], up[0]))
        left = [finding.required for finding in needs]
        there = None if free is None else dict(free)
        more = 0
        for number in up:
            variant = group.variants[number]
            room = max(0, variant.maximum - variant.target)
            if there is not None:
                kind = variant.spec.accelerator
                room = min(room, max(0, there.get(kind, 0) // variant.spec.accelerators))
            taken = min(_covering(needs, left, number), room)
            if there is not None:
                there[kind] = there.get(kind, 0) - taken * variant.spec.accelerators
            more += taken
            for index, finding in enumerate(needs):
                capacity = finding.per_replica[number]
                # Unknown capacity counts as enough: the next tick shows its effect.
                left[index] -= taken * capacity if capacity > 0 else taken * left[index]
            if not any(rest > 0 for rest in left):
                return max(1, more)
        # More than there is room for: requested anyway, so that the limit is visible.
        return more + max(1, _covering(needs, left, up[0]))

    def _cut(self, group: Group, known: list[Finding], down: list[int], cuts: list[int]) -> None:
        """Sets how many replicas each variant can spare."""
        if not known or any(finding.spare <= 0 for finding in known):
            return
        left = [finding.spare for finding in known]
        for number in down:
            variant = group.variants[number]
            there = variant.target if self._one_variant else variant.target - variant.minimum
            if there <= 0:
                continue
            most = there
            for index, finding in enumerate(known):
                capacity = finding.per_replica[number]
                # If the capacity of a replica is unknown, none is removed.
                most = min(most, math.floor(left[index] / capacity)) if capacity > 0 else 0
            if self._one_variant:
                cuts[number] = max(1, most)
                return
            cuts[number] = most
            for index, finding in enumerate(known):
                left[index] -= most * finding.per_replica[number]


def _spill(group: Group, total: int, up: list[int], down: list[int], free: dict[str, int]) -> str:
    """A sentence for when missing accelerators move replicas to another variant."""
    bound = Allocation(group, total, up=up, down=down, free=free)
    most = min(total, bound.reachable())  # the rest beyond it cannot be placed
    counts = bound.counts_at(most)
    wished = Allocation(group, most, up=up, down=down).counts_at(most)
    short = []
    takers = []
    for number, variant in enumerate(group.variants):
        if counts[number] < wished[number]:
            kind = variant.spec.accelerator
            has, needs = counts[number], wished[number]
            short.append(f"{kind} for {has} replicas of {variant.name}, not {needs}")
        elif counts[number] > wished[number]:
            takers.append(variant.name)
    if not takers:
        return ""
    return f"There are only {' and '.join(short)}: {' and '.join(takers)} takes the rest."


def _covering(needs: list[Finding], left: list[float], number: int) -> int:
    """Replicas of a variant that cover the rest of all needs; one if its capacity is unknown."""
    count = 0
    for index, finding in enumerate(needs):
        capacity = finding.per_replica[number]
        if left[index] > 0:
            count = max(count, math.ceil(left[index] / capacity) if capacity > 0 else 1)
    return count
