"""Keeps two roles in a ratio: as Kthena ships it, or exactly, in whole numbers.

The shipped rule raises the short side once and rounds, which may miss a narrow band. The exact rule
finds the smallest pair inside the band that is no smaller than either request; if there is none,
the pair that falls short by least; and if no pair of whole numbers is in the band at all, the
requested sizes stay and the reason says so.
"""

import math
from fractions import Fraction
from typing import Final, NamedTuple

from windtunnel.scaling.limiters import LimitContext, Limiter
from windtunnel.scaling.policies.kthena.behavior import Histories
from windtunnel.scaling.policies.kthena.settings import Ratio


class RoleBounds(NamedTuple):
    """The minimum and maximum replicas of a role."""

    minimum: int
    maximum: int

    def clamp(self, size: int) -> int:
        return min(max(size, self.minimum), self.maximum)


class Paired(NamedTuple):
    """The sizes of both roles; `reason` is empty when the ratio changed nothing."""

    numerator: int
    denominator: int
    reason: str
    held: bool = True
    """Whether the ratio is in the band."""

    @property
    def sizes(self) -> tuple[int, int]:
        return self.numerator, self.denominator


def shipped(
    ratio: Ratio, numerator: int, denominator: int, num: RoleBounds, den: RoleBounds
) -> Paired:
    """Raises the short side in one pass or, if that is at its maximum, cuts the other."""
    n, d = num.clamp(numerator), den.clamp(denominator)
    if n == 0 and d == 0:
        return Paired(0, 0, "")
    alone = n == 0 or d == 0
    n, d = n or num.clamp(1), d or den.clamp(1)
    if n / d < ratio.min:
        raised = math.ceil(ratio.min * d)
        if raised <= num.maximum:
            return _paired(ratio, num.clamp(raised), d, _raised(ratio, ratio.numerator))
        n = num.maximum
        return _paired(ratio, n, den.clamp(math.floor(n / ratio.min)), _full(ratio.numerator))
    if n / d > ratio.max:
        raised = math.ceil(n / ratio.max)
        if raised <= den.maximum:
            return _paired(ratio, n, den.clamp(raised), _raised(ratio, ratio.denominator))
        d = den.maximum
        return _paired(ratio, num.clamp(math.floor(ratio.max * d)), d, _full(ratio.denominator))
    return Paired(n, d, "One role alone cannot be at zero." if alone else "")


def exact(
    ratio: Ratio, numerator: int, denominator: int, num: RoleBounds, den: RoleBounds
) -> Paired:
    """The smallest pair in the band that satisfies both requests, or the nearest one."""
    n, d = num.clamp(numerator), den.clamp(denominator)
    grid = _Grid(ratio, num, den)
    if grid.holds(n, d):
        return Paired(n, d, "")
    above = grid.smallest_above(max(n, 1), max(d, 1))
    if above is not None:
        short = ratio.numerator if above[0] > n else ratio.denominator
        return Paired(*above, _raised(ratio, short))
    nearest = grid.least_short_of(max(n, 1), max(d, 1))
    if nearest is not None:
        full = ratio.numerator if nearest[1] < d else ratio.denominator
        return Paired(*nearest, _full(full))
    band = f"{ratio.min:g} to {ratio.max:g}"
    reason = f"No whole numbers within the bounds have a ratio of {band}: nothing was changed."
    return Paired(n, d, reason, held=False)


def is_possible(ratio: Ratio, num: RoleBounds, den: RoleBounds) -> bool:
    """Whether any whole numbers of replicas within the bounds are in the band."""
    return exact(ratio, max(num.minimum, 1), max(den.minimum, 1), num, den).held


class _Grid:
    """Pairs of whole numbers inside the bounds and the band, in exact arithmetic.

    The limits are taken as written: 0.1 is a tenth, not the float next to it.
    """

    def __init__(self, ratio: Ratio, num: RoleBounds, den: RoleBounds) -> None:
        self._num, self._den = num, den
        low, high = Fraction(repr(ratio.min)), Fraction(repr(ratio.max))
        self._low_n, self._low_d = low.numerator, low.denominator
        self._high_n, self._high_d = high.numerator, high.denominator

    def holds(self, n: int, d: int) -> bool:
        if n == 0 or d == 0:
            return n == d  # both at zero is allowed, one alone is not
        return n * self._low_d >= self._low_n * d and n * self._high_d <= self._high_n * d

    def smallest_above(self, n: int, d: int) -> tuple[int, int] | None:
        """The smallest pair not below (n, d): the first fit, since totals grow with `d`."""
        # Below this denominator, even the largest ratio does not reach n.
        first = max(d, self._den.minimum, -(-n * self._high_d // self._high_n))
        for denominator in range(first, self._den.maximum + 1):
            lowest = max(n, self._num.minimum, self._at_least(denominator))
            if lowest > self._num.maximum:
                return None
            if lowest <= self._at_most(denominator):
                return lowest, denominator
        return None

    def least_short_of(self, n: int, d: int) -> tuple[int, int] | None:
        """The pair with the fewest replicas missing; ties by total, then numerator."""
        best: tuple[int, int, int, int] | None = None
        for denominator in range(max(self._den.minimum, 1), self._den.maximum + 1):
            lowest = max(self._num.minimum, 1, self._at_least(denominator))
            if lowest > self._num.maximum:
                break
            highest = min(self._num.maximum, self._at_most(denominator))
            if lowest > highest:
                continue
            numerator = min(max(n, lowest), highest)
            short = max(n - numerator, 0) + max(d - denominator, 0)
            found = (short, numerator + denominator, numerator, denominator)
            if best is None or found < best:
                best = found
        return None if best is None else (best[2], best[3])

    def _at_least(self, denominator: int) -> int:
        return -(-self._low_n * denominator // self._low_d)

    def _at_most(self, denominator: int) -> int:
        return self._high_n * denominator // self._high_d


def _paired(ratio: Ratio, n: int, d: int, why: str) -> Paired:
    held = n == d == 0 or (d > 0 and ratio.min <= n / d <= ratio.max)
    return Paired(n, d, why, held=held)


def _raised(ratio: Ratio, role: str) -> str:
    names = f"{ratio.numerator}/{ratio.denominator}"
    return f"{names} must be {ratio.min:g} to {ratio.max:g}: {role} was raised."


def _full(role: str) -> str:
    return f"{role} is at its bound, so that the other role is cut to keep the ratio."


class RatioLimiter(Limiter):
    """Keeps two roles in their ratio: as shipped, or exactly and no faster than the rates."""

    def __init__(self, ratio: Ratio, histories: Histories) -> None:
        super().__init__("ratio")
        self._ratio: Final = ratio
        self._histories: Final = histories
        self._as_shipped: Final = ratio.rule == "as-shipped"

    def limit(self, totals: list[int], context: LimitContext) -> list[int]:
        pair = self._pair(context)
        if pair is None:
            return totals
        numerator, denominator = pair
        found = self._paired(totals[numerator], totals[denominator], pair, context)
        limited = list(totals)
        limited[numerator], limited[denominator] = found.sizes
        return limited

    def why(self, before: int, after: int, number: int, context: LimitContext) -> str:
        if after > before:
            short = f"{after - before} more are needed to keep it."
        else:
            short = f"{before - after} fewer keep it, since the other role can grow no further."
        ratio = self._ratio
        names = f"{ratio.numerator} to {ratio.denominator}"
        return f"{names} must be {ratio.min:g} to {ratio.max:g}: {short}"

    def _pair(self, context: LimitContext) -> tuple[int, int] | None:
        """The groups of both roles; None if one of them has no data."""
        numbers = {
            group.variants[0].name: number
            for number, group in enumerate(context.groups)
            if not context.held[number]
        }
        numerator = numbers.get(self._ratio.numerator)
        denominator = numbers.get(self._ratio.denominator)
        return None if numerator is None or denominator is None else (numerator, denominator)

    def _paired(
        self, numerator: int, denominator: int, pair: tuple[int, int], context: LimitContext
    ) -> Paired:
        groups = [context.groups[number] for number in pair]
        num, den = (RoleBounds(group.minimum, group.maximum) for group in groups)
        if self._as_shipped:
            return shipped(self._ratio, numerator, denominator, num, den)
        outlooks = [self._histories.outlook(group) for group in groups]
        near_num, near_den = (
            RoleBounds(bounds.clamp(outlook.lowest), bounds.clamp(outlook.highest))
            for bounds, outlook in zip((num, den), outlooks, strict=True)
        )
        found = exact(self._ratio, numerator, denominator, near_num, near_den)
        if found.held:
            return found
        # Not reachable in one step: go as far as the rates allow.
        goal = exact(self._ratio, numerator, denominator, num, den)
        sizes = near_num.clamp(goal.numerator), near_den.clamp(goal.denominator)
        return Paired(*sizes, goal.reason, held=False)
