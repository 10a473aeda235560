"""Whether a gang can be placed at all, by trying every node for every pod: for tiny cases only.

Nothing here is clever. Property tests hold the search to it.
"""

from windtunnel.gangs.placement.requests import (
    GangRequest,
    GroupRequest,
    PodRules,
    PodTerm,
    UnboundPod,
)
from windtunnel.gangs.placement.space import NodeRoom, Space, Tree
from windtunnel.gangs.placement.units import keys_of

Placed = list[tuple[PodRules, NodeRoom]]
Assignment = list[tuple[GroupRequest, str]]
"""The node of each pod, those included that had one before."""


def can_be_placed(space: Space, gang: GangRequest) -> bool:
    """Whether any assignment of the missing pods keeps every rule."""
    tree = space.tree(gang.topology, keys_of(gang))
    pods = [(group, pod) for group in gang.groups for pod in group.pods[: group.missing()]]
    free = {node.name: list(node.free) for node in space.nodes if node.usable}
    bound = [(group, node) for group in gang.groups for node in group.bound]
    return _try(space, tree, gang, pods, free, bound, [])


def _try(
    space: Space,
    tree: Tree,
    gang: GangRequest,
    pods: list[tuple[GroupRequest, UnboundPod]],
    free: dict[str, list[int]],
    assigned: Assignment,
    placed: Placed,
) -> bool:
    if not pods:
        return keeps_the_rules(space, tree, gang, assigned) and can_follow([], placed)
    group, pod = pods[0]
    for name in sorted(free):
        node, left = space.by_name[name], free[name]
        rules = pod.shape.rules
        if not rules.admits(node.labels, node.taints):
            continue
        if any(in_the_way(rules, node, other, there) for other, there in placed):
            continue
        if any(left[resource] < amount for resource, amount in pod.shape.needs):
            continue
        for resource, amount in pod.shape.needs:
            left[resource] -= amount
        found = _try(
            space,
            tree,
            gang,
            pods[1:],
            free,
            [*assigned, (group, name)],
            [*placed, (rules, node)],
        )
        for resource, amount in pod.shape.needs:
            left[resource] += amount
        if found:
            return True
    return False


def can_follow(there: Placed, coming: Placed) -> bool:
    """Whether pods can come in some order, each near those that it has to be near by then."""
    for number, (rules, node) in enumerate(coming):
        if all(_is_near(term, rules, node, there) for term in rules.joins):
            rest = [*coming[:number], *coming[number + 1 :]]
            if can_follow([*there, coming[number]], rest):
                return True
            if not rules.matches:
                return False  # whoever comes after it can do so before it
    return not coming


def _is_near(term: PodTerm, rules: PodRules, node: NodeRoom, there: Placed) -> bool:
    if term.key not in node.labels:
        return False
    found = [other.labels[term.key] for one, other in there
             if term in one.matches and term.key in other.labels]  # fmt: skip
    return node.labels[term.key] in found or (not found and term in rules.matches)


def in_the_way(rules: PodRules, node: NodeRoom, other: PodRules, there: NodeRoom) -> bool:
    """Whether one of two pods keeps away from the other, and they are in one domain."""
    terms = [term for term in rules.avoids if term in other.matches]
    terms += [term for term in other.avoids if term in rules.matches]
    return any(
        node.labels.get(term.key) is not None
        and node.labels.get(term.key) == there.labels.get(term.key)
        for term in terms
    )


def keeps_the_rules(space: Space, tree: Tree, gang: GangRequest, assigned: Assignment) -> bool:
    """Whether every unit is packed into one domain, and every group spread, as required."""
    units = [(gang.pack, [group.name for group in gang.groups])]
    units += [(part.pack, part.groups) for part in gang.parts]
    units += [(group.pack, [group.name]) for group in gang.groups]
    for pack, groups in units:
        nodes = [space.by_name[node] for group, node in assigned if group.name in groups]
        if pack is not None and pack.required is not None and nodes:
            domains = _domains(tree, nodes, tree.level(pack.required))
            if None in domains or len(set(domains)) > 1:
                return False
    for group in gang.groups:
        if group.spread is None or not group.spread.required:
            continue
        nodes = [space.by_name[node] for other, node in assigned if other is group]
        domains = _domains(tree, nodes, tree.level(group.spread.key))
        if None in domains or any(domains.count(one) > group.spread.most for one in domains):
            return False
    return True


def _domains(tree: Tree, nodes: list[NodeRoom], level: int) -> list[int | None]:
    places = [tree.domain_of(node, level) for node in nodes]
    return [None if place is None else place.number for place in places]
