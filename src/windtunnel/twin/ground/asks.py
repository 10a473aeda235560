"""Which pods a replica of a pool is made of."""

from typing import Final

from windtunnel.gangs.objects import CLIQUE, GROUP
from windtunnel.gangs.templates import SetSpec

ALONE: Final = -1
"""In the place of a group's replica, for cliques that belong to no group."""

Slot = tuple[str, int]
"""A role, and which replica of its scaling group; `ALONE` for none."""


def slots_of(spec: SetSpec, kind: str, name: str) -> dict[Slot, int]:
    """How many pods of each role one replica needs to serve; a group's counts as its replica 0."""
    if kind == CLIQUE:
        return {(name, ALONE): 1}
    if kind == GROUP:
        group = next(one for one in spec.groups if one.name == name)
        return {(role, 0): spec.roles[role].min_available for role in group.roles}
    slots = {(role.name, ALONE): role.min_available for role in spec.alone}
    for group in spec.groups:
        for number in range(group.min_available):
            for role in group.roles:
                slots[role, number] = spec.roles[role].min_available
    return slots
