"""The scale subresource of cliques, scaling groups and sets: what an autoscaler may turn.

The number of replicas belongs to the autoscaler: controllers never put it back, and a template's
replicas only count when something comes into being. Everything can be scaled to zero and back; in
between zero and `minAvailable` there is no gang, so that is refused.
"""

from typing import NamedTuple

from windtunnel.core.errors import InputError, nearest
from windtunnel.gangs import names
from windtunnel.gangs.commands import Scale
from windtunnel.gangs.objects import CLIQUE, GROUP, SET, PodClique, PodCliqueSet, ScalingGroup
from windtunnel.gangs.templates import ScaleBounds
from windtunnel.gangs.view import View


class Target(NamedTuple):
    """Something that can be scaled, and how it stands."""

    kind: str
    name: str
    wanted: int
    """Replicas that are asked for."""
    seen: int
    """Replicas that were last seen."""
    minimum: int
    """The fewest above zero."""
    selector: str
    """Which pods count for a metric, as a label selector."""
    bounds: ScaleBounds | None
    """What the manifest allows an autoscaler."""


def targets(view: View, set_name: str) -> list[Target]:
    """All that can be scaled of a set: itself, its groups, and its cliques that stand alone."""
    owner = _set(view, set_name)
    label = f"app.kubernetes.io/part-of={names.short(set_name)}"
    status = owner.status
    found = [Target(SET, set_name, owner.replicas, status.replicas, 0, label, None)]
    for replica in sorted(owner.parts):
        part = owner.parts[replica]
        found += [_of_group(owner, group) for group in part.groups.values()]
        found += [_of_clique(owner, clique) for clique in part.cliques.values()]
    return found


def _of_group(owner: PodCliqueSet, group: ScalingGroup) -> Target:
    selector = f"grove.io/podcliquescalinggroup={names.short(group.name)}"
    bounds = owner.spec.group_of[group.members[0]].scale
    seen, minimum = group.status.replicas, group.min_available
    return Target(GROUP, group.name, group.replicas, seen, minimum, selector, bounds)


def _of_clique(owner: PodCliqueSet, clique: PodClique) -> Target:
    selector = f"grove.io/podclique={names.short(clique.name)}"
    bounds = owner.spec.roles[clique.role].scale
    seen, minimum = clique.status.replicas, clique.min_available
    return Target(CLIQUE, clique.name, clique.replicas, seen, minimum, selector, bounds)


def scale(view: View, kind: str, name: str, replicas: int) -> Scale:
    """The command that scales something, if that is possible."""
    if replicas < 0:
        raise InputError(f"{name} cannot have {replicas} replicas", allowed="0 or more")
    if kind == SET:
        _set(view, name)
        return Scale(SET, name, replicas)
    if kind == GROUP:
        group = view.groups.get(name)
        if group is None:
            raise _unknown("scaling group", name, view.groups)
        _refuse_half(name, replicas, group.min_available)
        return Scale(GROUP, name, replicas)
    clique = view.cliques.get(name)
    if clique is None:
        raise _unknown("clique", name, view.cliques)
    if clique.group:
        what = f"the clique {name} is scaled with its scaling group"
        raise InputError(what, hint=f"scale {clique.group}")
    _refuse_half(name, replicas, clique.min_available)
    return Scale(CLIQUE, name, replicas)


def _refuse_half(name: str, replicas: int, minimum: int) -> None:
    if 0 < replicas < minimum:
        what = f"{name} with {replicas} replicas would never be a whole gang"
        raise InputError(what, allowed=f"0, or {minimum} and more (its minAvailable)")


def _set(view: View, name: str) -> PodCliqueSet:
    owner = view.sets.get(name)
    if owner is None:
        raise _unknown("set", name, view.sets)
    return owner


def _unknown(
    noun: str,
    name: str,
    known: "dict[str, PodCliqueSet] | dict[str, ScalingGroup] | dict[str, PodClique]",
) -> InputError:
    return InputError(f"there is no {noun} {name!r}", hint=nearest(name, known))
