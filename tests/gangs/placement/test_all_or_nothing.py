"""A gang is placed if and only if it can be; what fails leaves no trace."""

from itertools import combinations

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.gangs.placement.clusters import GPU, cluster, free_gpus
from tests.gangs.placement.reference import (
    can_be_placed,
    can_follow,
    in_the_way,
    keeps_the_rules,
)
from windtunnel.core.taints import Toleration
from windtunnel.gangs.placement.placer import FULL, GangPlacer
from windtunnel.gangs.placement.requests import (
    GangRequest,
    GroupRequest,
    PackConstraint,
    PartRequest,
    PodRules,
    PodShape,
    Preference,
    Requirement,
    Selector,
    SpreadLimit,
    UnboundPod,
)
from windtunnel.gangs.placement.space import CHILDREN, NODES, NodeRoom, Space, free_slots
from windtunnel.gangs.placement.units import keys_of

LEVELS = [None, "block", "rack", "host"]
spaces = st.builds(
    lambda racks, split, taints: cluster(
        *racks, block_of=[number % split for number in range(len(racks))], taints=taints
    ),
    st.lists(st.lists(st.integers(0, 3), min_size=1, max_size=2), min_size=1, max_size=3),
    st.integers(1, 2),
    st.dictionaries(
        st.sampled_from(["n00", "n10"]),
        st.sampled_from([("a", "", "NoSchedule"), ("a", "b", "PreferNoSchedule")]),
    ),
)
packs = st.one_of(
    st.none(),
    st.builds(PackConstraint, st.sampled_from(LEVELS), st.sampled_from(LEVELS)),
)
spreads = st.one_of(
    st.none(),
    st.none(),
    st.builds(
        lambda key, most, required: SpreadLimit(key, most, required=required),
        st.sampled_from(["rack", "host"]),
        st.integers(1, 2),
        st.booleans(),
    ),
)


KEYS = ["block", "rack", "host", "kubernetes.io/hostname"]
tolerations = st.sampled_from([(), (Toleration("", "Exists", "", ""),)])
preferences = st.lists(
    st.builds(
        Preference,
        st.integers(1, 2),
        st.sampled_from(["r0", "r1"]).map(lambda r: Selector([[Requirement("rack", "In", [r])]])),
    ),
    max_size=2,
).map(tuple)


@st.composite
def gangs(draw: st.DrawFn, space: Space) -> GangRequest:
    """Up to three groups of up to three pods, packed and spread at every level."""
    groups = []
    names = [node.name for node in space.nodes]
    terms = [space.term(key) for key in draw(st.lists(st.sampled_from(KEYS), max_size=2))]
    some = st.lists(st.sampled_from(terms), unique=True).map(tuple) if terms else st.just(())
    # Who has to be near others comes after them: with pods that keep away from each other besides,
    # or with parts, some other order might do.
    near = [space.term(key, near=True) for key in draw(st.lists(st.sampled_from(KEYS), max_size=1))]
    near = [] if terms else near
    close = st.sampled_from([(), (), tuple(near)])
    for number in range(draw(st.integers(1, 3))):
        selector = None
        if draw(st.integers(0, 4)) == 0:
            selector = Selector([[Requirement("host", "NotIn", [draw(st.sampled_from(names))])]])
        rules = PodRules(
            selector, draw(tolerations), draw(preferences), None, draw(some), draw(some),
            (*draw(some), *draw(close)), draw(close), draw(close),
        )  # fmt: skip
        shape = space.shape({GPU: draw(st.integers(0, 2))}, rules)
        minimum = draw(st.integers(1, 3 if number == 0 else 2))
        bound = draw(st.lists(st.sampled_from(names), max_size=1))
        pods = [UnboundPod(f"{number}-{pod}", shape) for pod in range(minimum - len(bound))]
        groups.append(GroupRequest(f"g{number}", minimum, pods, bound, draw(packs), draw(spreads)))
    parts = []
    if len(groups) > 1 and not near and draw(st.booleans()):
        pack = PackConstraint(draw(st.sampled_from(LEVELS)), draw(st.sampled_from(LEVELS)))
        parts.append(PartRequest("p", [group.name for group in groups[:2]], pack))
    return GangRequest("g", groups, parts=parts, pack=draw(packs), topology="t")


@given(st.data())
@settings(max_examples=3 * settings().max_examples)
def test_a_gang_is_placed_exactly_when_a_placement_exists(data: st.DataObject) -> None:
    """Without gangs that mix pod affinity with anti-affinity or with parts: those are not drawn,
    since the search places pods in one order, and another order might do."""
    space = data.draw(spaces)
    gang = data.draw(gangs(space))
    # Pods that are bound in two domains of one level cannot be packed, whatever is done: the rest
    # joins the larger part, while the reference finds every rule broken already.
    tree = space.tree("t", keys_of(gang))
    bound = [(group, node) for group in gang.groups for node in group.bound]
    if not keeps_the_rules(space, tree, gang, bound):
        return
    possible = can_be_placed(space, gang)
    before = free_gpus(space)
    done = GangPlacer(space).plan([gang])
    assigned = [*bound]
    by_name = {group.name: group for group in gang.groups}
    assigned += [(by_name[binding.group], binding.node) for binding in done.bindings]
    if possible:
        assert len(done.bindings) == gang.missing()
        assert keeps_the_rules(space, tree, gang, assigned)
        shapes = {pod.name: pod.shape for group in gang.groups for pod in group.pods}
        placed = [(shapes[one.pod].rules, space.by_name[one.node]) for one in done.bindings]
        for (rules, node), (other, there) in combinations(placed, 2):
            assert not in_the_way(rules, node, other, there)
        assert all(rules.admits(node.labels, node.taints) for rules, node in placed)
        assert can_follow([], placed)
        assert all(amount >= 0 for amount in free_gpus(space))
    else:
        assert not done.bindings
        assert len(done.verdicts) == 1
        assert free_gpus(space) == before
    check_counts(space)


def slots_on(node: NodeRoom, shape: PodShape) -> int:
    return free_slots(node, shape) if shape.rules.admits(node.labels, node.taints) else 0


def check_counts(space: Space) -> None:
    """Whatever the space has counted up and down is what counting afresh gives."""
    for tree in space._trees.values():
        for room in tree.rooms:
            if room is None:
                continue
            for place in tree.places.values():
                inside = [place, *tree.within(place, NODES)]
                nodes = [leaf.node for leaf in inside if leaf.node is not None]
                assert room.slots[place.number] == sum(slots_on(node, room.shape) for node in nodes)
                for level in (CHILDREN, 0, 1, 2, NODES):
                    ring = room.ring(place, level)
                    counted = {
                        number: count for count, row in ring.members.items() for number in row
                    }
                    fresh = {
                        other.number: room.slots[other.number]
                        for other in tree.within(place, level)
                        if room.slots[other.number]
                    }
                    assert counted == fresh
                    assert ring.counts == sorted(ring.members)
        for place in tree.places.values():
            nodes = [
                leaf.node for leaf in [place, *tree.within(place, NODES)] if leaf.node is not None
            ]
            usable = [node for node in nodes if node.usable]
            for resource in range(len(space.resource_names)):
                assert place.total[resource] == sum(node.free[resource] for node in usable)


@given(st.data())
def test_several_gangs_never_overfill_and_are_never_split(data: st.DataObject) -> None:
    """Minima whole or not at all, whatever comes before; pods above them only after all minima."""
    space = data.draw(spaces)
    shape = space.shape({GPU: 1})
    requests = []
    for number in range(data.draw(st.integers(1, 4))):
        minimum = data.draw(st.integers(1, 3))
        extra = data.draw(st.integers(0, 2))
        pods = [UnboundPod(f"g{number}-{pod}", shape) for pod in range(minimum + extra)]
        priority = data.draw(st.integers(0, 1))
        pack = data.draw(packs)
        group = GroupRequest(f"g{number}", minimum, pods)
        requests.append(
            GangRequest(f"g{number}", [group], priority=priority, order=number, pack=pack)
        )
    done = GangPlacer(space).plan(requests)
    assert all(amount >= 0 for amount in free_gpus(space))
    for request in requests:
        placed = [binding for binding in done.bindings if binding.gang == request.name]
        assert len(placed) == 0 or len(placed) >= request.groups[0].minimum
    waits = {verdict.gang for verdict in done.verdicts}
    for request in requests:
        placed = [binding for binding in done.bindings if binding.gang == request.name]
        assert (request.name in waits) == (len(placed) < len(request.groups[0].pods))
    check_counts(space)
    placed_some = {binding.gang for binding in done.bindings}
    again = GangPlacer(space).plan(
        [one for one in requests if one.name in waits and one.name not in placed_some]
    )
    assert not again.bindings, "what could be placed now could have been placed before"


@given(
    st.lists(st.lists(st.integers(0, 3), min_size=1, max_size=2), min_size=1, max_size=3),
    st.lists(st.tuples(st.integers(1, 3), st.integers(1, 2), packs, packs), min_size=1, max_size=3),
    st.lists(st.integers(0, 2), min_size=1, max_size=12),
)
def test_a_pass_over_gangs_of_a_few_kinds_is_one_look_at_each(
    racks: list[list[int]],
    kinds: list[tuple[int, int, PackConstraint | None, PackConstraint | None]],
    turns: list[int],
) -> None:
    def requests(space: Space) -> list[GangRequest]:
        found = []
        for number, turn in enumerate(turns):
            count, gpus, pack, inner = kinds[turn % len(kinds)]
            name = f"gang-{number}"
            shape = space.shape({GPU: gpus})
            pods = [UnboundPod(f"{name}-{index}", shape) for index in range(count)]
            group = GroupRequest(f"{name}-group", count, pods, pack=inner)
            found.append(GangRequest(name, [group], order=number, pack=pack, topology="t"))
        return found

    space, alone = cluster(*racks), cluster(*racks)
    done = GangPlacer(space).plan(requests(space))
    one_by_one = [GangPlacer(alone).plan([request]) for request in requests(alone)]
    assert done.bindings == [binding for one in one_by_one for binding in one.bindings]
    # A kind that had no room keeps its reason when others of the pass take more of it.
    full = dict.fromkeys(FULL, "full")
    told = [(one.gang, full.get(one.waiting, one.waiting)) for one in done.verdicts]
    each = [one for alone_done in one_by_one for one in alone_done.verdicts]
    assert told == [(one.gang, full.get(one.waiting, one.waiting)) for one in each]
