"""Gangs that fit on one machine are no gangs: they are packed like anything else.

A hundred gangs of two small pods, each with a Same of its own, would take a hundred machines. Where
the whole of a gang fits on one machine its Same holds by itself, so it is asked for as one unit,
and those that are alike are merged.
"""

from collections.abc import Iterable, Sequence

import msgspec

from windtunnel.fleet.need import Need, Profile
from windtunnel.fleet.requirements import EXISTS, IN, SAME, Requirement, accepts_all
from windtunnel.fleet.shape import Resources, Shape

Places = dict[tuple[Profile, Resources], bool]
"""Whether an amount fits on one machine, for all that ask for it in the same way."""


def fold(needs: Iterable[Need], shapes: Sequence[Shape], known: Places | None = None) -> list[Need]:
    """The needs, with each gang that fits on one machine of these shapes as a plain unit.

    `known` remembers what was found for the same shapes, from one roll-up to the next.
    """
    if known is None:
        known = {}
    return [_folded(one) if _fits_on_one(one, shapes, known) else one for one in needs]


def _fits_on_one(one: Need, shapes: Sequence[Shape], known: Places) -> bool:
    """Whether some machine that matches could host all of it; looked up once for all alike."""
    if not one.profile.same_key:
        return False
    key = (one.profile, one.aggregate)
    found = known.get(key)
    if found is None:
        found = any(_hosts(shape, one) for shape in shapes)
        known[key] = found
    return found


def _hosts(shape: Shape, one: Need) -> bool:
    offered = dict(shape.resources)
    return all(offered.get(name, 0) >= amount for name, amount in one.aggregate) and accepts_all(
        one.profile.requirements, shape.attributes()
    )


def _folded(one: Need) -> Need:
    """The same need without its Same; what that asked of each machine is still asked."""
    first = next(each for each in one.profile.requirements if each.operator == SAME)
    wish = Requirement(first.key, IN if first.values else EXISTS, first.values)
    others = [each for each in one.profile.requirements if each is not first]
    profile = msgspec.structs.replace(
        one.profile, requirements=tuple(sorted({*others, wish})), spread=()
    )
    return msgspec.structs.replace(one, profile=profile, min_unit=one.aggregate, group="")
