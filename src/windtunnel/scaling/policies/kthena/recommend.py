"""How many replicas the metrics ask for, before any limit on how fast a size may change.

A target is a value per replica. `entries` has the readings: a mapping per replica or, as Kthena
ships it, a single mapping with the sums over all replicas. The rule is the same for both; with sums
it treats the fleet as one replica, so that the tolerance only works around a size of one.
"""

import math
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Final, NamedTuple

LARGEST: Final = 1_000_000_000
ROUNDING: Final = 1e-12
"""Relative error of floats after a few operations."""


class Recommended(NamedTuple):
    """A size within the bounds, and the metric that asked for the most."""

    size: int
    reason: str


class NoData(NamedTuple):
    """No metric could be read: nothing is decided or remembered."""

    reason: str


class Reading(NamedTuple):
    """The readings of one target at one moment."""

    current: int
    """The requested size, not the ready replicas."""
    entries: Sequence[Mapping[str, float]] = ()
    unready: int = 0
    external: Mapping[str, float] = MappingProxyType({})
    """Totals of the whole fleet."""


def recommend(
    reading: Reading, targets: Mapping[str, float], tolerance: float, minimum: int, maximum: int
) -> Recommended | NoData:
    """The largest size that any metric asks for, within the bounds."""
    current = reading.current
    if current < minimum:
        reason = f"There are {current} replicas, and the minimum is {minimum}."
        return Recommended(minimum, reason)
    if current > maximum:
        reason = f"There are {current} replicas, and the maximum is {maximum}."
        return Recommended(maximum, reason)
    wanted: dict[str, int] = {}
    for name, target in targets.items():
        size = _wanted(reading, name, target, tolerance)
        if size is not None:
            wanted[name] = size
    if not wanted:
        return NoData(f"No value of {', '.join(targets) or 'any metric'} could be read.")
    most = max(wanted.values())
    first = next(name for name, size in wanted.items() if size == most)
    reason = f"{first} requires {most} replicas at a target of {targets[first]:g} per replica."
    return Recommended(min(max(most, minimum), maximum), reason)


def _wanted(reading: Reading, name: str, target: float, tolerance: float) -> int | None:
    external = reading.external.get(name)
    if external is not None:
        return for_total(external, target, reading.current, tolerance)
    return for_entries(reading, name, target, tolerance)


def for_total(total: float, target: float, current: int, tolerance: float) -> int:
    """The size for a value of the whole fleet, such as the result of a query."""
    wanted = divided(total, target)
    if abs(divided(wanted, current) - 1.0) <= tolerance:
        return current
    return whole_above(wanted)


def for_entries(reading: Reading, name: str, target: float, tolerance: float) -> int | None:
    """The size for values of single replicas; None if there are none."""
    values = [entry[name] for entry in reading.entries if name in entry]
    have, missing = len(values), len(reading.entries) - len(values)
    if not have:
        return None
    total, current = math.fsum(values), reading.current
    ratio = divided(total / have, target)
    grows = ratio >= 1.0
    unready = reading.unready if grows else 0
    if not unready and not missing:
        return current if abs(ratio - 1.0) <= tolerance else whole_above(ratio * have)
    # Replicas without an answer count as idle when growing and as on target when shrinking; those
    # that are not ready count as idle when growing, and are ignored when shrinking.
    count = have + missing + unready
    if not grows:
        total += missing * target
    careful = divided(total / count, target)
    if abs(careful - 1.0) <= tolerance or (careful >= 1.0) != grows:
        return current
    size = whole_above(careful * count)
    reversed_now = size > current if careful < 1.0 else size < current
    return current if reversed_now else size


def divided(amount: float, by: float) -> float:
    """A quotient that may be infinite: a target of 0 can never be met."""
    if by != 0:
        return amount / by
    return math.nan if amount == 0 or math.isnan(amount) else math.copysign(math.inf, amount)


def whole_above(amount: float) -> int:
    """Rounds up to a whole number; NaN and negative numbers give 0, and the result is bounded.

    2.1 / 0.3 is 7, although floats make it slightly more: rounding never costs a replica.
    """
    if math.isnan(amount) or amount <= 0:
        return 0
    if amount >= LARGEST:
        return LARGEST
    near = round(amount)
    return near if abs(amount - near) <= ROUNDING * amount else math.ceil(amount)
