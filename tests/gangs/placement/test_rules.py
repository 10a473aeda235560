"""What placement promises, rule by rule: order, packing, spreading, making way, reuse."""

from tests.gangs.placement.clusters import (
    cluster,
    free_gpus,
    group,
    nodes_of,
    one,
    rack_of,
    running,
    says,
    waiting,
)
from windtunnel.gangs.placement.one_by_one import OneByOnePlacer
from windtunnel.gangs.placement.placer import GangPlacer, Victim
from windtunnel.gangs.placement.requests import (
    GangRequest,
    GroupRequest,
    PackConstraint,
    PartRequest,
    PodRules,
    Requirement,
    Selector,
    SpreadLimit,
    UnboundPod,
)
from windtunnel.gangs.placement.space import Space


def gang(space: Space, name: str, count: int, gpus: int = 1, **options: object) -> GangRequest:
    return GangRequest(name, [group(space, name, count, gpus)], topology="t", **options)  # type: ignore[arg-type]


def test_minima_of_all_gangs_come_before_pods_above_any_minimum() -> None:
    space = cluster([4])
    requests = [GangRequest(name, [group(space, name, 2, pods=4)]) for name in ("a", "b")]
    done = GangPlacer(space).plan(requests)
    assert [binding.pod for binding in done.bindings] == ["a-0", "a-1", "b-0", "b-1"]
    assert says(done)["a"] == (
        "2 pods above the minimum wait (a-2, a-3): "
        "it needs 2 more pods of 1 nvidia.com/gpu each; 0 fit on 1 node"
    )


def test_higher_priority_goes_first_then_the_earlier_then_the_name() -> None:
    space = cluster([3])
    requests = [
        gang(space, "d", 1, order=5),
        gang(space, "c", 1, order=5),
        gang(space, "b", 1, order=1),
        gang(space, "a", 1, order=9, priority=1),
    ]
    done = GangPlacer(space).plan(requests)
    assert [binding.gang for binding in done.bindings] == ["a", "b", "c"]


def test_the_tightest_rack_that_holds_a_gang_is_taken() -> None:
    """Five free here and six there, and three are needed: five is enough."""
    space = cluster([3, 3], [5])
    done = GangPlacer(space).plan([gang(space, "g", 3, pack=PackConstraint("rack"))])
    assert nodes_of(done) == ["n10", "n10", "n10"]


def test_a_minimum_goes_where_the_whole_gang_has_room() -> None:
    """Two free in rack 0 and eight in rack 1: six with a minimum of two go to rack 1."""
    for pack in (PackConstraint("rack"), PackConstraint(preferred="rack")):
        space = cluster([2], [4, 4])
        request = GangRequest("g", [group(space, "g", 2, pods=6)], topology="t", pack=pack)
        assert {rack_of(node) for node in nodes_of(GangPlacer(space).plan([request]))} == {"1"}


def test_room_in_a_required_domain_counts_more_than_a_preferred_one() -> None:
    """Pods above the minimum may be in no other rack, but on other hosts than the minimum."""
    both, of_group = PackConstraint("rack", "host"), PackConstraint(preferred="host")
    for pack, own in ((both, None), (PackConstraint("rack"), of_group)):
        space = cluster([2], [1, 2, 2, 1])
        request = GangRequest(
            "g", [group(space, "g", 2, pods=6, pack=own)], topology="t", pack=pack
        )
        done = GangPlacer(space).plan([request])
        assert nodes_of(done) == ["n10", "n11", "n11", "n12", "n12", "n13"]
        assert len({binding.node for binding in done.bindings[:2]}) == 1
    space = cluster([2], [1, 1, 1])  # where all of it fits nowhere, most of it
    request = GangRequest("g", [group(space, "g", 2, pods=6)], topology="t", pack=both)
    done = GangPlacer(space).plan([request])
    assert nodes_of(done) == ["n10", "n11", "n12"]
    space = cluster([2], [1, 3, 2])  # a preferred level alone keeps the minimum together
    request = GangRequest("g", [group(space, "g", 2, pods=6)], topology="t", pack=of_group)
    done = GangPlacer(space).plan([request])
    assert len({binding.node for binding in done.bindings[:2]}) == 1


def test_a_minimum_goes_where_most_of_its_gang_has_room() -> None:
    space = cluster([2], [5], [3])
    request = GangRequest(
        "g", [group(space, "g", 2, pods=6)], topology="t", pack=PackConstraint("rack")
    )
    done = GangPlacer(space).plan([request])
    assert nodes_of(done) == ["n10"] * 5
    assert says(done)["g"] == (
        "1 pod above the minimum waits (g-5): it needs 1 more pod of 1 nvidia.com/gpu in rack r1, "
        "where the others of g are; 0 fit there, 5 elsewhere"
    )


def test_a_preferred_level_keeps_the_minimum_together_where_the_whole_would_be_split() -> None:
    space = cluster([2], [3], [3])
    pack = PackConstraint(preferred="rack")
    request = GangRequest("g", [group(space, "g", 2, pods=7)], topology="t", pack=pack)
    done = GangPlacer(space).plan([request])
    assert {rack_of(one.node) for one in done.bindings[:3]} == {"1"}
    assert len(done.bindings) == 7


def test_the_rest_of_a_gang_takes_no_room_from_a_minimum() -> None:
    space = cluster([2], [6])
    first = GangRequest(
        "a", [group(space, "a", 2, pods=6)], topology="t", pack=PackConstraint("rack"), order=0.0
    )
    second = GangRequest(
        "b", [group(space, "b", 4)], topology="t", pack=PackConstraint("rack"), order=1.0
    )
    done = GangPlacer(space).plan([first, second])
    assert nodes_of(done, "a") == ["n10"] * 2
    assert nodes_of(done, "b") == ["n10"] * 4


def test_pods_above_the_minimum_have_reasons_of_their_own() -> None:
    space = cluster([8], [8])
    selector = Selector([[Requirement("gpu", "In", ["b200"])]])
    impossible = space.shape({"nvidia.com/gpu": 1}, PodRules(selector))
    large = space.shape({"nvidia.com/gpu": 16})
    small = group(space, "g", 1, pods=1).pods
    for pods, why in (
        (
            [UnboundPod("p", impossible)],
            "1 pod above the minimum waits (p): g: no node has gpu In (b200)",
        ),
        (
            [UnboundPod("p", large), UnboundPod("q", large)],
            "2 pods above the minimum wait (p, q): a pod of g needs 16 nvidia.com/gpu; "
            "no node has more than 8 nvidia.com/gpu",
        ),
    ):
        request = GangRequest("g", [GroupRequest("g", 1, [*small, *pods])], topology="t")
        done = GangPlacer(space).plan([request])
        assert says(done)["g"] == why
    mixed = [*small, UnboundPod("p", impossible), UnboundPod("q", large)]
    done = GangPlacer(space).plan([GangRequest("g", [GroupRequest("g", 1, mixed)], topology="t")])
    assert says(done)["g"].count("1 pod above the minimum waits") == 2


def test_a_required_level_is_kept_where_a_preferred_one_is_given_up() -> None:
    space = cluster([1, 1], [1, 1])
    required = gang(space, "r", 3, pack=PackConstraint(required="rack"))
    preferred = gang(space, "p", 3, pack=PackConstraint(preferred="rack"))
    placer = GangPlacer(space)
    done = placer.plan([required])
    assert not done.bindings
    expected = (
        "it needs 3 pods of 1 nvidia.com/gpu each in one rack; 2 fit in r0, which has most room"
    )
    assert says(done) == {"r": expected}
    assert len(placer.plan([preferred]).bindings) == 3


def test_a_preferred_level_narrower_than_the_required_is_tried_first() -> None:
    space = cluster([1, 1, 1], [3])
    done = GangPlacer(space).plan([gang(space, "g", 3, pack=PackConstraint("block", "host"))])
    assert nodes_of(done) == ["n10"] * 3


def test_parts_and_groups_are_packed_within_what_their_gang_is_packed_into() -> None:
    """The gang in a block, each part in a rack, one group on a host."""
    space = cluster([2, 2], [2, 2], [4, 4], block_of=[0, 0, 1])
    groups = [
        group(space, "g-0-a", 2, pack=PackConstraint("host")),
        group(space, "g-0-b", 1),
        group(space, "g-1-a", 2, pack=PackConstraint("host")),
        group(space, "g-1-b", 1),
    ]
    parts = [
        PartRequest(f"g-{n}", [f"g-{n}-a", f"g-{n}-b"], PackConstraint("rack")) for n in range(2)
    ]
    request = GangRequest("g", groups, parts=parts, pack=PackConstraint("block"), topology="t")
    done = GangPlacer(space).plan([request])
    assert len(done.bindings) == 6
    for number in range(2):
        part = nodes_of(done, f"g-{number}-")
        assert len({rack_of(node) for node in part}) == 1
        assert len(set(nodes_of(done, f"g-{number}-a"))) == 1


def test_a_replacement_joins_the_domain_where_the_others_are_or_waits() -> None:
    space = cluster([0, 1], [4])
    shape = one(space, 1)
    request = GangRequest(
        "g",
        [GroupRequest("g", 3, waiting(space, "g", 1), ["n00", "n00"])],
        pack=PackConstraint("rack"),
    )
    placer = GangPlacer(space)
    assert nodes_of(placer.plan([request])) == ["n01"]
    done = placer.plan([request])
    assert not done.bindings
    assert says(done)["g"] == (
        "it needs 1 more pod of 1 nvidia.com/gpu in rack r0, where the others of g are; "
        "0 fit there, 4 elsewhere"
    )
    space.give(space.by_name["n01"], shape)
    assert nodes_of(placer.plan([request])) == ["n01"]


def test_pods_of_a_group_are_spread_over_racks() -> None:
    space = cluster([4], [2], [1])
    spread = GroupRequest("g", 4, waiting(space, "g", 4), spread=SpreadLimit("rack", 2))
    done = GangPlacer(space).plan([GangRequest("g", [spread], topology="t")])
    assert nodes_of(done) == ["n00", "n00", "n10", "n20"]
    apart = GroupRequest("h", 3, waiting(space, "h", 3), spread=SpreadLimit("rack", 1))
    done = GangPlacer(space).plan([GangRequest("h", [apart], topology="t")])
    assert says(done)["h"] == "h may have 1 pod in one rack, and too few have room"
    wish = GroupRequest(
        "h", 3, waiting(space, "h", 3), spread=SpreadLimit("rack", 1, required=False)
    )
    assert len(GangPlacer(space).plan([GangRequest("h", [wish], topology="t")]).bindings) == 3


def test_gangs_of_a_family_keep_apart() -> None:
    space = cluster([4], [4])
    placer = GangPlacer(space)
    requests = [gang(space, f"g{n}", 1, spread=SpreadLimit("rack"), family="f") for n in range(3)]
    done = placer.plan(requests)
    assert sorted(rack_of(node) for node in nodes_of(done)) == ["0", "1"]
    assert says(done) == {"g2": "every rack with room has 1 gang of f already"}
    space.give(space.by_name[nodes_of(done, "g0")[0]], one(space, 1))
    placer.gone("g0", "f")
    assert len(placer.plan(requests[2:]).bindings) == 1


def test_a_lower_gang_is_evicted_whole_and_the_room_is_held_until_it_is_free() -> None:
    space = cluster([2, 2])
    placer = GangPlacer(space)
    low = gang(space, "low", 3)
    victim = running(space, low, placer.plan([low]))
    high = gang(space, "high", 2, gpus=2, priority=1)
    other = gang(space, "other", 1, order=1)
    done = placer.plan([high, other], lambda below: [victim] if below > 0 else [])
    assert [eviction.pod for eviction in done.evictions] == ["low-0", "low-1", "low-2"]
    assert {eviction.in_favour_of for eviction in done.evictions} == {"high"}
    assert not done.bindings, "the free GPU is kept for the gang that waits"
    assert says(done)["high"] == "3 pods of lower priority are evicted for it, of low"
    for member in victim.members:
        space.releasing(space.by_name[member.node], member.shape)
    done = placer.plan([high, other])
    assert not done.evictions
    assert not done.bindings
    assert says(done)["high"] == "its room is held until 3 pods end"
    for member in victim.members:
        space.releasing(space.by_name[member.node], member.shape, -1)
        space.give(space.by_name[member.node], member.shape)
    assert nodes_of(placer.plan([high, other])) == ["n00", "n01"]


def test_as_few_make_way_as_can_be() -> None:
    """Pods above minima before gangs, the newest of the lowest first; nobody who does not help."""
    space = cluster([2], [2], [2])
    placer = GangPlacer(space)
    requests = [
        GangRequest("old", [group(space, "old", 1, pods=2)], order=0, pack=PackConstraint("rack")),
        GangRequest(
            "mid", [group(space, "mid", 2)], order=1, priority=1, pack=PackConstraint("rack")
        ),
        GangRequest("new", [group(space, "new", 2)], order=2, pack=PackConstraint("rack")),
    ]
    done = placer.plan(requests)
    victims = [running(space, request, done) for request in requests]

    def lower(below: int) -> list[Victim]:
        return [victim for victim in victims if victim.priority < below]

    small = GangPlacer(space).plan([gang(space, "s", 1, priority=2)], lower)
    assert [eviction.pod for eviction in small.evictions] == ["old-1"]
    large = GangPlacer(space).plan([gang(space, "l", 1, gpus=2, priority=2)], lower)
    assert [eviction.gang for eviction in large.evictions] == ["new", "new"]
    equal = GangPlacer(space).plan([gang(space, "e", 1)], lower)
    assert not equal.evictions
    never = GangPlacer(space).plan([gang(space, "n", 1, priority=2, preempts=False)], lower)
    assert not never.evictions


def test_nobody_is_evicted_for_a_gang_that_would_not_fit_even_then() -> None:
    space = cluster([2])
    placer = GangPlacer(space)
    low = gang(space, "low", 2)
    victim = running(space, low, placer.plan([low]))
    before = free_gpus(space)
    done = placer.plan([gang(space, "high", 3, priority=1)], lambda _: [victim])
    assert not done.evictions
    assert free_gpus(space) == before


def test_an_earlier_placement_is_used_again_as_far_as_it_is_free() -> None:
    space = cluster([1, 1, 1], [1, 1, 1])
    placer = GangPlacer(space)
    first = gang(space, "g", 2, pack=PackConstraint("rack"))
    taken = GangPlacer(space).plan([gang(space, "x", 1, pack=PackConstraint("rack"))])
    assert nodes_of(taken) == ["n00"]
    assert nodes_of(placer.plan([first])) == ["n01", "n02"]
    for node in ("n00", "n01", "n02"):
        space.give(space.by_name[node], one(space, 1))
    placer.gone("g")
    again = GangRequest(
        "h", [group(space, "h", 2)], pack=PackConstraint("rack"), topology="t", reuse="g"
    )
    assert nodes_of(placer.plan([again])) == ["n01", "n02"], "not the tightest, but those it had"
    space.give(space.by_name["n01"], one(space, 1))
    space.give(space.by_name["n02"], one(space, 1))
    space.set_usable(space.by_name["n02"], usable=False)
    third = GangRequest(
        "i", [group(space, "i", 2)], pack=PackConstraint("rack"), topology="t", reuse="h"
    )
    assert nodes_of(placer.plan([third])) == ["n00", "n01"], "the rack, and what is left of it"


def test_why_a_gang_waits() -> None:
    space = cluster([2, 2], [1])
    placer = GangPlacer(space)
    space.set_usable(space.by_name["n10"], usable=False)
    done = placer.plan([
        gang(space, "count", 5),
        gang(space, "large", 1, gpus=3),
        gang(space, "level", 1, pack=PackConstraint("zone")),
        GangRequest("missing", [GroupRequest("missing", 2, waiting(space, "missing", 1))]),
        GangRequest(
            "mixed",
            [group(space, "mixed-a", 1, gpus=2), group(space, "mixed-b", 3, gpus=1)],
        ),
    ])  # fmt: skip
    assert not done.bindings
    assert says(done) == {
        "count": "it needs 5 pods of 1 nvidia.com/gpu each; 4 fit on the 2 usable nodes of 3",
        "large": "a pod of large needs 3 nvidia.com/gpu; no node has more than 2 nvidia.com/gpu",
        "level": "level must be in one zone, and no node has that label",
        "missing": "1 of at least 2 pods of missing may be scheduled",
        "mixed": "it needs 5 nvidia.com/gpu; 4 nvidia.com/gpu free on the 2 usable nodes of 3",
    }


def test_enough_by_count_is_not_an_arrangement() -> None:
    """7.5 cores are asked for and 8 are there, but a node of 3 holds one pod of 2 and no other."""
    space = Space()
    for name, cores in (("a", 3.0), ("b", 3.0), ("c", 2.0)):
        space.add_node(name, {"cpu": cores}, {})
    wide, narrow = space.shape({"cpu": 2}), space.shape({"cpu": 1.75})
    requests = [("x", wide), ("y", wide), ("z", narrow), ("w", narrow)]
    groups = [GroupRequest(name, 1, [UnboundPod(name, shape)]) for name, shape in requests]
    done = GangPlacer(space).plan([GangRequest("g", groups)])
    assert says(done)["g"] == "there is room enough by count, but no arrangement of its pods fits"
    assert len(GangPlacer(space).plan([GangRequest("g", groups[:3])]).bindings) == 3


def test_one_pod_at_a_time_two_gangs_wait_for_each_other() -> None:
    """Four nodes, two gangs of three: whole gangs fit one after the other, halves never."""
    requests = [("a", 0), ("b", 1)]
    space = cluster([1, 1, 1, 1])
    done = OneByOnePlacer(space).plan_in_order(
        [gang(space, name, 3, order=at) for name, at in requests]
    )
    assert sorted(binding.gang for binding in done.bindings) == ["a", "a", "b", "b"]
    assert sorted(says(done)) == ["a", "b"]
    space = cluster([1, 1, 1, 1])
    done = GangPlacer(space).plan([gang(space, name, 3, order=at) for name, at in requests])
    assert [binding.gang for binding in done.bindings] == ["a", "a", "a"]


def test_a_verdict_stands_unless_room_is_held_for_others() -> None:
    space = cluster([1, 1])
    placer = GangPlacer(space)
    large = gang(space, "g", 3)
    assert placer.plan([large]).verdicts[0].stands
    space.shift(space.nodes[0], large.groups[0].pods[0].shape, -1)
    space.releasing(space.nodes[0], large.groups[0].pods[0].shape)
    done = placer.plan([gang(space, "first", 2, order=0.0), gang(space, "late", 1, order=1.0)])
    assert [verdict.stands for verdict in done.verdicts] == [False, False]


def test_racks_of_one_name_in_two_blocks_are_two_racks() -> None:
    space = Space()
    space.add_topology("t", ["block", "rack"])
    for block in ("a", "b"):
        space.add_node(block, {"nvidia.com/gpu": 1}, {"block": block, "rack": "r"})
    done = GangPlacer(space).plan([gang(space, "g", 2, pack=PackConstraint("rack"))])
    assert not done.bindings


def test_who_wants_to_be_near_is_placed_as_close_as_can_be() -> None:
    space = cluster([1], [2], [2], [1], block_of=[0, 0, 1, 1])
    placer = GangPlacer(space)
    for expected in ("n20", "n20", "n30", "n00"):
        assert nodes_of(placer.plan([gang(space, "g", 1, near=["n20"])])) == [expected]
    assert nodes_of(placer.plan([gang(space, "h", 2, near=["n20", "n00"])])) == ["n10", "n10"]
    done = placer.plan([gang(space, "i", 1, near=["n20"])])
    assert says(done)["i"] == "it needs 1 pod of 1 nvidia.com/gpu; 0 fit on 4 nodes"


def test_gangs_of_one_kind_are_told_alike_and_no_other_kind_is_held_up() -> None:
    """No rack has room for four; a gang of two, which comes last, has a place."""
    space = cluster([3], [3])
    requests = [
        gang(space, f"large-{n}", 4, order=n, pack=PackConstraint("rack")) for n in range(3)
    ]
    requests += [gang(space, f"wide-{n}", 4, order=n) for n in range(2)]
    requests += [gang(space, "last", 2, order=9, pack=PackConstraint("rack"))]
    done = GangPlacer(space).plan(requests)
    assert {one.gang for one in done.bindings} == {"wide-0", "last"}
    told = says(done)
    assert told["large-0"] == told["large-1"] == told["large-2"]
    assert "in one rack; 3 fit in r0" in told["large-0"]
    assert told["wide-1"].endswith("; 2 fit on 2 nodes")
