"""The needs of clusters: requirements, amounts, priority, penalties; equal ones are merged.

A need is an amount, not a number of machines: units of one or several sizes, each of which must fit
on one machine as a whole. Needs of one cluster with the same profile and group are one row, so that
a fleet decides about thousands of rows where there are millions of pods.
"""

import math
import sys
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Final

import msgspec

from windtunnel.core.errors import InputError
from windtunnel.fleet.planner.costs import BUCKETS
from windtunnel.fleet.requirements import (
    EXISTS,
    IN,
    SAME,
    MachineRequirement,
    MachineSpread,
    accepts_all,
)
from windtunnel.fleet.shape import MachineShape, Resources

MOST_PRIORITY: Final = 2**31 - 1
_NUMBERS: Final = ("p=", "ipb=", "rpb=")
"""The prefixes of a fingerprint's numbers."""
MOST_SIZES: Final = 32
"""Maximum unit sizes of a need; beyond that, small ones are rounded up."""

UnitSizes = tuple[tuple[Resources, int], ...]
"""Unit sizes with the number of units of each, largest first."""


class NeedProfile(msgspec.Struct, frozen=True):
    """Everything that must be equal for two needs of a cluster to be merged.

    Only the first Same and the first spread count; with a Same, no spread does.
    """

    requirements: tuple[MachineRequirement, ...] = ()
    spread: tuple[MachineSpread, ...] = ()
    priority: int = 0
    interruption_bucket: int = 0
    reclamation_bucket: int = 0

    @property
    def same_key(self) -> str:
        """The key whose value all machines must share; empty: none."""
        return next((one.key for one in self.requirements if one.operator == SAME), "")

    @property
    def spread_over(self) -> MachineSpread | None:
        """The spread that counts."""
        return self.spread[0] if self.spread and not self.same_key else None

    def fingerprint(self) -> str:
        """A canonical text, equal only for equal profiles."""
        requirements = ";".join(one.text() for one in self.requirements)
        spreads = ";".join(one.text() for one in self.spread)
        return sys.intern(
            f"p={self.priority}|ipb={self.interruption_bucket}|rpb={self.reclamation_bucket}"
            f"|reqs={requirements}|spr={spreads}"
        )


@lru_cache(maxsize=4096)
def _is_fingerprint(text: str) -> bool:
    """Whether a text is a valid fingerprint; cached, since thousands of machines share one."""
    parts = text.split("|", 3)
    if len(parts) < 4:
        return False
    texts = [one.removeprefix(name) for one, name in zip(parts, _NUMBERS, strict=False)]
    return all(one.removeprefix("-").isdecimal() for one in texts) and all(
        int(one) in range(BUCKETS) for one in texts[1:]
    )


class NeedKey(msgspec.Struct, frozen=True, order=True, gc=False):
    """The identity of a need. Machines carry it, so that a restart knows what each is for."""

    cluster: str
    fingerprint: str
    group: str = ""

    def fault(self) -> str:
        """The fault in a key that was stored elsewhere, as a sentence; empty: none."""
        if _is_fingerprint(self.fingerprint):
            return ""
        return f"{self.fingerprint!r} is not the fingerprint of a need"

    def priority(self) -> int:
        return self._number(0, "p=")

    def reclamation_bucket(self) -> int:
        return self._number(2, "rpb=")

    def interruption_bucket(self) -> int:
        return self._number(1, "ipb=")

    def _number(self, place: int, name: str) -> int:
        """A number from the fingerprint, which a machine keeps when its need is gone."""
        return int(self.fingerprint.split("|", 3)[place].removeprefix(name))


class Need(msgspec.Struct, frozen=True):
    """An amount that a cluster asks for."""

    cluster: str
    profile: NeedProfile
    aggregate: Resources
    """The total that all machines together must offer."""
    min_unit: Resources
    """The largest unit: the maximum of each resource."""
    group: str = ""
    """The gang that it belongs to; different gangs are never merged."""
    arrival_s: float = 0.0
    units: UnitSizes = ()
    """Its units; empty if they follow from `aggregate` and `min_unit`."""

    def key(self) -> NeedKey:
        return NeedKey(self.cluster, self.profile.fingerprint(), self.group)

    def sizes(self) -> UnitSizes:
        """Its units by size, largest first; each must fit on one machine as a whole."""
        return self.units or cut(self.aggregate, self.min_unit)

    def order(self) -> tuple[int, float, NeedKey]:
        """The order of service: by higher priority, then earlier arrival, then key."""
        return (-self.profile.priority, self.arrival_s, self.key())


def profile(
    requirements: Iterable[MachineRequirement] = (),
    *,
    spread: Iterable[MachineSpread] = (),
    priority: int = 0,
    interruption_bucket: int = 0,
    reclamation_bucket: int = 0,
) -> NeedProfile:
    """Builds a checked profile, with unordered parts sorted."""
    for name, bucket in (
        ("interruption", interruption_bucket),
        ("reclamation", reclamation_bucket),
    ):
        if not 0 <= bucket < BUCKETS:
            raise InputError(f"the {name} bucket is {bucket}", allowed=f"0 to {BUCKETS - 1}")
    if not isinstance(priority, int) or abs(priority) > MOST_PRIORITY:
        raise InputError(f"the priority is {priority}", allowed="a number of 32 bits")
    return NeedProfile(
        tuple(sorted(set(requirements))),
        tuple(sorted(set(spread))),
        priority,
        interruption_bucket,
        reclamation_bucket,
    )


def need(
    cluster: str,
    profile: NeedProfile,
    aggregate: Mapping[str, int],
    min_unit: Mapping[str, int],
    *,
    group: str = "",
    arrival_s: float = 0.0,
) -> Need:
    """Builds a checked need."""
    where = f"need of cluster {cluster!r}"
    if not cluster:
        raise InputError("a need has no cluster", hint="name the cluster that asks")
    if not math.isfinite(arrival_s):
        raise InputError(f"it arrived at {arrival_s}", where=where, allowed="seconds")
    if not aggregate:
        raise InputError("nothing is asked for", where=where, allowed="one resource or more")
    if sorted(aggregate) != sorted(min_unit):
        raise InputError(
            f"the smallest unit names {', '.join(sorted(min_unit)) or 'nothing'}, "
            f"the sum names {', '.join(sorted(aggregate))}",
            where=where,
            allowed="the same resources in both",
        )
    for name, amount in sorted(aggregate.items()):
        whole = isinstance(amount, int) and isinstance(min_unit[name], int)
        if not whole or not 0 < min_unit[name] <= amount:
            raise InputError(
                f"of {name!r} the smallest unit is {min_unit[name]} and the sum is {amount}",
                where=where,
                allowed="whole amounts above 0, the unit at most the sum",
            )
    return Need(
        cluster,
        profile,
        tuple(sorted(aggregate.items())),
        tuple(sorted(min_unit.items())),
        group,
        arrival_s,
    )


def cut(aggregate: Resources, unit: Resources) -> UnitSizes:
    """Cuts an amount into units of at most a size: whole ones first, then the remainder.

    Resources in other proportions than those of a unit run out one after the other.
    """
    whole = [amount // size for (_, amount), (_, size) in zip(aggregate, unit, strict=True)]
    rest = [amount % size for (_, amount), (_, size) in zip(aggregate, unit, strict=True)]
    ends = sorted({*whole, *(count + 1 for count, left in zip(whole, rest, strict=True) if left)})
    found: list[tuple[Resources, int]] = []
    begin = 0
    for end in ends:
        if end > begin:
            amounts = (
                (name, size if end <= count else left if begin == count else 0)
                for (name, size), count, left in zip(unit, whole, rest, strict=True)
            )
            found.append((tuple(amounts), end - begin))
            begin = end
    return tuple(found)


def merge(needs: Iterable[Need]) -> dict[NeedKey, Need]:
    """Merges needs by key: sum of amounts, largest unit, earliest arrival."""
    groups: dict[NeedKey, list[Need]] = {}
    for one in needs:
        groups.setdefault(one.key(), []).append(one)
    return {key: _joined(some) if len(some) > 1 else some[0] for key, some in groups.items()}


def _joined(needs: list[Need]) -> Need:
    total: dict[str, int] = {}
    largest: dict[str, int] = {}
    counts: dict[Resources, int] = {}
    for one in needs:
        for name, amount in one.aggregate:
            total[name] = total.get(name, 0) + amount
        for name, amount in one.min_unit:
            largest[name] = max(largest.get(name, 0), amount)
        if one.aggregate == one.min_unit:
            counts[one.min_unit] = counts.get(one.min_unit, 0) + 1
        else:
            for size, count in one.sizes():
                counts[size] = counts.get(size, 0) + count
    aggregate, min_unit = tuple(sorted(total.items())), tuple(sorted(largest.items()))
    units: UnitSizes = ()
    if len(counts) > 1 or len(needs[0].min_unit) < len(min_unit):
        units = _in_order(counts, list(largest))
        if len(units) <= MOST_SIZES and units == cut(aggregate, min_unit):
            units = ()
    return msgspec.structs.replace(
        needs[0],
        aggregate=aggregate,
        min_unit=min_unit,
        arrival_s=min(one.arrival_s for one in needs),
        units=units,
    )


def _in_order(counts: Mapping[Resources, int], names: list[str]) -> UnitSizes:
    """Sorts units, largest first; with too many sizes, the smallest are rounded up and merged."""
    names.sort()
    found: dict[Resources, int] = {}
    for size, count in counts.items():
        amounts = dict(size)
        full = tuple((name, amounts.get(name, 0)) for name in names)
        found[full] = found.get(full, 0) + count
    units = sorted(found.items(), reverse=True)
    while len(units) > MOST_SIZES:
        (size, count), (other, more) = units[-2:]
        both = tuple(max(one, two) for one, two in zip(size, other, strict=True))
        units[-2:] = [(both, count + more)]
        units.sort(reverse=True)
    return tuple(units)


# Gangs that fit on one machine. A hundred gangs of two small pods, each with a Same of its own,
# would take a hundred machines. If a whole gang fits on one machine, its Same is met
# automatically, so it is requested as one unit, and equal ones are merged.

Places = dict[tuple[NeedProfile, Resources], bool]
"""Whether an amount fits on one machine, by profile and amount."""


def fold(
    needs: Iterable[Need], shapes: Sequence[MachineShape], known: Places | None = None
) -> list[Need]:
    """Replaces each gang that fits on one machine of these shapes by a plain unit.

    `known` caches the results for the same shapes between roll-ups.
    """
    if known is None:
        known = {}
    return [_folded(one) if _fits_on_one(one, shapes, known) else one for one in needs]


def _fits_on_one(one: Need, shapes: Sequence[MachineShape], known: Places) -> bool:
    """Whether some matching machine could host all of it; cached by profile and amount."""
    if not one.profile.same_key:
        return False
    key = (one.profile, one.aggregate)
    found = known.get(key)
    if found is None:
        found = any(_hosts(shape, one) for shape in shapes)
        known[key] = found
    return found


def _hosts(shape: MachineShape, one: Need) -> bool:
    offered = dict(shape.resources)
    return all(offered.get(name, 0) >= amount for name, amount in one.aggregate) and accepts_all(
        one.profile.requirements, shape.attributes()
    )


def _folded(one: Need) -> Need:
    """The same need without its Same, whose requirement on each machine is kept."""
    first = next(each for each in one.profile.requirements if each.operator == SAME)
    wish = MachineRequirement(first.key, IN if first.values else EXISTS, first.values)
    others = [each for each in one.profile.requirements if each is not first]
    profile = msgspec.structs.replace(
        one.profile, requirements=tuple(sorted({*others, wish})), spread=()
    )
    return msgspec.structs.replace(one, profile=profile, min_unit=one.aggregate, group="", units=())
