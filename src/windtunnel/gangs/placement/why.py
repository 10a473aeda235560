"""Explains in one sentence why a gang waits, with the decisive numbers."""

from enum import Enum

from windtunnel.core.taints import taint_text
from windtunnel.gangs.placement.requests import HOSTNAME, PodShape, UnboundPod
from windtunnel.gangs.placement.search import PATIENCE, Search
from windtunnel.gangs.placement.space import NodeRoom, Place, Space, Tree, amount
from windtunnel.gangs.placement.units import Unit, UnitLoad, could_hold

MOST_TAINTS = 3
"""The most taints named."""


class Waiting(Enum):
    """The reasons for which a gang waits; each sentence has one of them."""

    PODS = "PodsMissing"
    NO_NODE_MATCHES = "NoNodeMatches"
    NOT_TOLERATED = "TaintsNotTolerated"
    POD_TOO_LARGE = "PodTooLarge"
    NO_ROOM = "NotEnoughRoom"
    NO_LEVEL = "NoSuchLevel"
    NO_DOMAIN = "NoDomainHoldsIt"
    PINNED = "ItsDomainIsFull"
    SPREAD = "KeptApart"
    NEAR = "KeptTogether"
    ARRANGEMENT = "NoArrangement"
    PATIENCE = "SearchCutShort"
    ENDINGS = "WaitsForEndings"
    PREEMPTING = "Preempting"
    EXTRAS = "AboveMinimum"
    CLAIMS = "WaitsForClaims"


def why_not(space: Space, search: Search) -> tuple[Waiting, str]:
    """Returns why a search found nothing: the broadest cause."""
    whole = search.units[0]
    for unit in search.units:
        for load in unit.loads if unit.is_group else []:
            alone = _alone(space, load)
            if alone is not None:
                return alone
    root = search.attempt.tree.root
    if not could_hold(space, search.attempt.tree, root, whole.loads):
        terms = [term for load in whole.loads for term in load.shape.rules.avoids]
        says = ""
        if terms:
            says = terms[0].says or f" that its anti-affinity leaves, by {terms[0].key}"
        reason = Waiting.SPREAD if terms else Waiting.NO_ROOM
        return reason, _no_room(space, search, whole) + says
    for unit in search.units:
        packed = _packed(space, search, unit)
        if packed is not None:
            return packed
    near = _kept_near(space, search)
    if near:
        return Waiting.NEAR, near
    apart = _kept_apart(space, search)
    if apart:
        return Waiting.SPREAD, apart
    if search.cut:
        says = f"no arrangement was found in {PATIENCE:,} steps, and there may be one"
        return Waiting.PATIENCE, says
    return Waiting.ARRANGEMENT, "there is room enough by count, but no arrangement of its pods fits"


def _kept_apart(space: Space, search: Search) -> str:
    """Explains a spread limit or anti-affinity that leaves too few domains; empty if none."""
    spread = search.attempt.gang.spread
    if spread is not None and spread.required and search.deepest == 0:
        gangs = f"{_count(spread.most, 'gang')} of {search.attempt.gang.family}"
        return f"every {_level(space, spread.key)} with room has {gangs} already"
    for group in search.attempt.gang.groups:
        if group.spread is not None and group.spread.required:
            return (
                f"{group.name} may have {_count(group.spread.most, 'pod')} in one "
                f"{_level(space, group.spread.key)}, and too few have room"
            )
    for load in search.units[0].loads:
        if load.shape.rules.apart:
            return _apart(space, search, load)
    return ""


def _kept_near(space: Space, search: Search) -> str:
    """Explains an affinity to pods that are not placed or have no room near them; empty if none."""
    loads = search.units[0].loads
    for load in loads:
        rules, name, count = load.shape.rules, load.group.name, len(load.pods)
        for term in rules.joins:
            level = _level(space, term.key)
            if rules.may_be_first(term):
                return f"{name} keeps its pods together: no {level} has room for {count} of them"
            if term.domains:
                slots = space.room(search.attempt.tree, load.shape).slots
                fit = slots[search.attempt.tree.root.number]
                if fit < count:
                    fits = f"{fit} {'fits' if fit == 1 else 'fit'} there"
                    need = f"it needs {_count(count, 'pod')} in a {level}"
                    return f"{need} with pods that the affinity of {name} selects; {fits}"
            elif not any(term in other.shape.rules.matches for other in loads):
                return f"{name} has to be near pods that its affinity selects, and none has a node"
            elif not search.cut:
                others = f"{name} has to be in one {level} with other pods of its gang"
                return f"{others}, and none has room for all of them"
    return ""


def why_extras(pods: list[UnboundPod], reason: str) -> str:
    """Explains why pods above a minimum wait: for `reason` or, if empty, their previous nodes."""
    names = ", ".join([pod.name for pod in pods[:3]]) + (", ..." if len(pods) > 3 else "")
    waits = "waits" if len(pods) == 1 else "wait"
    reason = reason or "the nodes that they had are about to be free"
    return f"{_count(len(pods), 'pod')} above the minimum {waits} ({names}): {reason}"


def _apart(space: Space, search: Search, load: UnitLoad) -> str:
    """Explains that pods avoid each other and too few domains have room."""
    rules, slots = load.shape.rules, space.room(search.attempt.tree, load.shape).slots
    key = next(term.key for term in rules.avoids if term in rules.matches and term.key != HOSTNAME)
    leaves = [leaf for leaf in search.attempt.tree.leaves if slots[leaf.number]]
    domains = {leaf.node.labels.get(key) for leaf in leaves if leaf.node is not None}
    return (
        f"{load.group.name} keeps its pods apart by {key}: "
        f"it needs {_count(len(load.pods), 'domain')}, and {len(domains)} have room"
    )


def _alone(space: Space, load: UnitLoad) -> tuple[Waiting, str] | None:
    """Explains why a pod would not fit even on empty machines; None if it would."""
    shape, rules = load.shape, load.shape.rules
    if space.fits_empty(shape):
        return None
    selector = rules.selector
    matching = [node for node in space.nodes if selector is None or selector.matches(node.labels)]
    if not matching:
        says = "there are no nodes" if selector is None else f"no node has {selector.says()}"
        return Waiting.NO_NODE_MATCHES, f"{load.group.name}: {says}"
    open_to = [node for node in matching if rules.admits(node.labels, node.taints)]
    if not open_to:
        taints = dict.fromkeys(taint for node in matching for taint in node.taints)
        refused = [taint_text(one) for one in taints if not rules.tolerates(one)]
        nodes = _count(len(matching), "node that matches", "nodes that match")
        says = f"{nodes} have taints that it does not tolerate: {', '.join(refused[:MOST_TAINTS])}"
        return Waiting.NOT_TOLERATED, f"{load.group.name}: {says}"
    matching = open_to
    lacks = _most_lacking(space, matching, shape)
    return Waiting.POD_TOO_LARGE, f"a pod of {load.group.name} needs {shape.says}; {lacks}"


def _most_lacking(space: Space, nodes: list[NodeRoom], shape: PodShape) -> str:
    for resource, needed in shape.needs:
        most = max([node.capacity[resource] for node in nodes])
        if most < needed:
            return f"no node has more than {amount(space.resource_names[resource], most)}"
    return "no node has all of that"


def _no_room(space: Space, search: Search, unit: Unit) -> str:
    need, fit = _need_and_fit(space, search, unit, search.attempt.tree.root)
    return f"{need}; {fit} on {_usable(space, unit)}"


def _usable(space: Space, unit: Unit) -> str:
    """Describes the nodes that count: fewer than all where a selector or taints exclude some."""
    count = len(space.nodes)
    fewest = min(unit.loads, key=lambda load: space.admitted(load.shape))
    admitted = space.admitted(fewest.shape)
    if admitted < space.usable:
        selector = fewest.shape.rules.selector
        having = f" with {selector.says()}" if selector is not None else ""
        tolerated = " whose taints it tolerates" if any(n.taints for n in space.nodes) else ""
        return f"the {_count(admitted, 'node')} of {count}{having}{tolerated}"
    if space.usable == count:
        return _count(count, "node")
    return f"the {_count(space.usable, 'usable node')} of {count}"


def _need_and_fit(space: Space, search: Search, unit: Unit, place: Place) -> tuple[str, str]:
    """Describes what a unit needs and what fits in a place, for the shape that fits worst."""
    worst, missing = unit.loads[0], 0
    counts: dict[int, int] = {}
    for load in unit.loads:
        counts[load.shape.number] = counts.get(load.shape.number, 0) + len(load.pods)
    for load in unit.loads:
        slots = space.room(search.attempt.tree, load.shape).slots[place.number]
        if counts[load.shape.number] - slots > missing:
            worst, missing = load, counts[load.shape.number] - slots
    needs = worst.shape.says
    each = f" of {needs}" + (" each" if counts[worst.shape.number] > 1 else "") if needs else ""
    if missing:
        slots = space.room(search.attempt.tree, worst.shape).slots[place.number]
        noun = "more pod" if any(unit.bound) else "pod"
        need = f"it needs {_count(counts[worst.shape.number], noun)}"
        fits = f"{slots} {'fits' if slots == 1 else 'fit'}"
        return need + each, fits
    for resource, name in enumerate(space.resource_names):
        total = 0
        for load in unit.loads:
            total += len(load.pods) * dict(load.shape.needs).get(resource, 0)
        if total > place.total[resource]:
            free = max(0, place.total[resource])
            return f"it needs {amount(name, total)}", f"{amount(name, free)} free"
    return f"it needs {_count(unit.pods(), 'pod')}", "they do not fit"


def _packed(space: Space, search: Search, unit: Unit) -> tuple[Waiting, str] | None:
    """Explains that no domain of a unit's required level has room; None if one has."""
    if unit.pack is None or unit.pack.required is None or not unit.loads:
        return None
    key = _level(space, unit.pack.required)
    level = search.attempt.tree.level(unit.pack.required)
    tree = search.attempt.tree
    if not tree.has_level(level):
        label = "that label" if key == unit.pack.required else f"the label {unit.pack.required}"
        return Waiting.NO_LEVEL, f"{unit.name} must be in one {key}, and no node has {label}"
    pinned = _pinned(space, search, unit, level)
    if pinned is not None:
        if could_hold(space, tree, pinned, unit.loads):
            return None
        need, fit = _need_and_fit(space, search, unit, pinned)
        says = f"{need} in {key} {pinned.name}, where the others of {unit.name} are; {fit} there"
        return Waiting.PINNED, says + _elsewhere(space, tree, unit, pinned)
    room = space.room(tree, unit.loads[0].shape)
    ring = room.ring(tree.root, level)
    number = ring.tightest(len(unit.loads[0].pods))
    while number >= 0:
        if could_hold(space, tree, tree.places[number], unit.loads):
            return None
        number = ring.after(room.slots[number], number)
    widest = ring.widest()
    best = tree.places[widest] if widest >= 0 else tree.within(tree.root, level)[0]
    need, fit = _need_and_fit(space, search, unit, best)
    whose = "" if unit.parent is None else f" for {unit.name}"
    return (
        Waiting.NO_DOMAIN,
        f"{need} in one {key}{whose}; {fit} in {best.name}, which has most room",
    )


def _pinned(space: Space, search: Search, unit: Unit, level: int) -> Place | None:
    for name in [name for nodes in unit.bound for name in nodes]:
        node = space.by_name.get(name)
        if node is not None:
            return search.attempt.tree.domain_of(node, level)
    return None


def _elsewhere(space: Space, tree: Tree, unit: Unit, place: Place) -> str:
    """Says how many pods of a unit with a single shape would fit outside a place."""
    if len({load.shape.number for load in unit.loads}) > 1:
        return ""
    slots = space.room(tree, unit.loads[0].shape).slots
    return f", {slots[tree.root.number] - slots[place.number]} elsewhere"


def _level(space: Space, key: str) -> str:
    return space.called.get(key, key)


def _count(count: int, noun: str, nouns: str = "") -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {nouns or noun + 's'}"
