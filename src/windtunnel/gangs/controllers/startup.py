"""Startup order: which cliques wait for which, and whether the order has a cycle.

The order governs when the containers of a pod start, not when it is placed: all pods of a gang are
placed together, and those that must wait hold their places meanwhile.
"""

from collections.abc import Mapping, Sequence

from windtunnel.gangs import names
from windtunnel.gangs.objects import Pod
from windtunnel.gangs.templates import EXPLICIT, IN_ORDER, SetSpec
from windtunnel.gangs.view import View


def cycle_in(graph: Mapping[str, Sequence[str]]) -> list[str]:
    """Returns a cycle of names, each after the next, its first name repeated at the end; or [].

    `graph` maps each name to the names that come before it.
    """
    done: dict[str, bool] = {}  # False while it is on the current path
    for start in graph:
        if start in done:
            continue
        path = [(start, iter(graph[start]))]
        done[start] = False
        while path:
            name, parents = path[-1]
            parent = next(parents, None)
            if parent is None:
                done[name] = True
                path.pop()
            elif parent in graph and parent not in done:
                done[parent] = False
                path.append((parent, iter(graph[parent])))
            elif done.get(parent) is False:
                found = [name for name, _ in path]
                return [*found[found.index(parent) :], parent]
    return []


def parents_of(spec: SetSpec, role: str) -> tuple[str, ...]:
    """Returns the roles that a role waits for."""
    if spec.startup == EXPLICIT:
        return spec.roles[role].starts_after
    if spec.startup == IN_ORDER:
        roles = list(spec.roles)
        place = roles.index(role)
        return (roles[place - 1],) if place else ()
    return ()


def starts_after(
    spec: SetSpec, set_name: str, replica: int, role: str, group_replica: int = -1
) -> tuple[tuple[str, int], ...]:
    """Returns the cliques that a clique waits for, each with the number of pods that must be ready.

    A clique of the base gang waits for every base replica of a scaled role. One of a scaled gang
    waits only for its own group replica, as the base gang was placed before it anyway.
    """
    group = spec.group_of.get(role)
    scaled = group is not None and group_replica >= group.min_available
    found: list[tuple[str, int]] = []
    for parent in parents_of(spec, role):
        minimum = spec.roles[parent].min_available
        around = spec.group_of.get(parent)
        if scaled:
            if around is group and group is not None:
                name = names.group(set_name, replica, group.name)
                found.append((names.member(name, group_replica, parent), minimum))
        elif around is None:
            found.append((names.clique(set_name, replica, parent), minimum))
        else:
            name = names.group(set_name, replica, around.name)
            found += [
                (names.member(name, index, parent), minimum)
                for index in range(around.min_available)
            ]
    return tuple(found)


def waits_for(view: View, pod: Pod) -> str:
    """Returns the first clique whose pods this pod's containers still wait for, or "".

    A role that was scaled to zero delays no other.
    """
    for name, minimum in pod.waits_for:
        clique = view.cliques.get(name)
        if clique is None:
            if not _asleep(view, name):
                return name
            continue
        ready = sum(1 for one in clique.pods.values() if one.ready and one.active)
        if ready < min(minimum, clique.replicas):
            return name
    return ""


def _asleep(view: View, clique: str) -> bool:
    """Whether a clique is missing because its scaling group was scaled to zero."""
    while "-" in clique:
        clique = clique.rpartition("-")[0]
        group = view.groups.get(clique)
        if group is not None:
            return group.replicas == 0
    return False
