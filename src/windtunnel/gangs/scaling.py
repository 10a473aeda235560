"""The scale subresource of cliques, scaling groups and sets, for autoscalers.

The number of replicas belongs to the autoscaler: controllers never reset it, and a template's
replicas count only at creation. Everything can be scaled to zero and back; a scale between zero and
`minAvailable` is refused, as it is not a whole gang.
"""

from collections.abc import Iterable

from windtunnel.core.errors import InputError, nearest
from windtunnel.gangs.commands import Scale
from windtunnel.gangs.objects import CLIQUE, GROUP, SET
from windtunnel.gangs.view import View


def scale(view: View, kind: str, name: str, replicas: int) -> Scale:
    """Returns the command that scales an object; raises InputError if that is not possible."""
    if replicas < 0:
        raise InputError(f"{name} cannot have {replicas} replicas", allowed="0 or more")
    if kind == SET:
        if name not in view.sets:
            raise _unknown("set", name, view.sets)
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


def _unknown(noun: str, name: str, known: Iterable[str]) -> InputError:
    return InputError(f"there is no {noun} {name!r}", hint=nearest(name, known))
