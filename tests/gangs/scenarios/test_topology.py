"""TAS2 to TAS23, as far as pods are placed: packing at each level, and what cannot be packed."""

from typing import Any

from tests.gangs.manifests import binding, clique, constraint, group, load, pod_clique_set
from tests.gangs.scenarios.live import Live

LEVELS = {"zone": "zone-key", "block": "block-key", "rack": "rack-key", "host": "host-key"}
TOPOLOGY = binding("topo", **LEVELS)


def labels(number: int) -> dict[str, str]:
    """Two zones of two blocks of two racks of four hosts, going round."""
    return {
        "zone-key": f"z{number // 16}",
        "block-key": f"b{number // 8}",
        "rack-key": f"r{number // 4}",
        "host-key": f"h{number}",
    }


def packed(manifest: dict[str, Any], required: str, preferred: str = "") -> dict[str, Any]:
    """The same clique, group or template with a constraint."""
    return {**manifest, "topologyConstraint": constraint(required, preferred, "topo")}


def live_on(manifest: dict[str, Any], **options: Any) -> Live:
    options = {"nodes": 32, "labels": labels, "pods_per_node": 1, **options}
    return Live(manifest, TOPOLOGY, **options)


def whole(manifest: dict[str, Any], required: str, preferred: str = "") -> dict[str, Any]:
    template = manifest["spec"]["template"]
    template["topologyConstraint"] = constraint(required, preferred, "topo")
    return manifest


def test_tas2_each_clique_is_packed_by_itself() -> None:
    a, b = packed(clique("a", 3), "rack"), packed(clique("b", 4), "block")
    live = live_on(pod_clique_set([a, b]))
    assert live.ready() == 7
    assert len(live.domains("rack-key", "-a")) == 1
    assert len(live.domains("block-key", "-b")) == 1


def test_tas3_a_set_replica_in_one_rack() -> None:
    live = live_on(whole(pod_clique_set([clique("a", 2), clique("b", 2)]), "rack"))
    assert live.ready() == 4
    assert len(live.domains("rack-key")) == 1
    assert not live.view.gangs["web-0"].pack_groups
    assert live.view.gangs["web-0"].placement_score == 0.75


def test_tas4_only_the_scaling_group_is_packed() -> None:
    workers = packed(group("sg", ["b", "c"], 1), "rack")
    manifest = pod_clique_set([clique("a", 4), clique("b", 1), clique("c", 3)], [workers])
    live = live_on(manifest)
    assert live.ready() == 8
    assert len(live.domains("rack-key", "sg-0-b") | live.domains("rack-key", "sg-0-c")) == 1


def test_tas5_both_pods_on_one_host() -> None:
    live = live_on(pod_clique_set([packed(clique("a", 2), "host")]), pods_per_node=2)
    assert live.ready() == 2
    assert len(live.domains("host-key")) == 1


def test_tas6_a_zone_for_a_single_clique() -> None:
    live = live_on(whole(pod_clique_set([clique("a", 10)]), "zone"))
    assert live.ready() == 10
    assert len(live.domains("zone-key")) == 1


def test_tas7_without_constraints_pods_go_anywhere() -> None:
    live = live_on(pod_clique_set([clique("a", 20)]))
    gang = live.view.gangs["web-0"]
    assert live.ready() == 20
    assert gang.pack is None
    assert all(one.pack is None for one in gang.groups)


def test_tas8_block_rack_and_host_at_once() -> None:
    b = packed(clique("b", 2), "host")
    workers = packed(group("sg", ["b"], 2, 2), "rack")
    manifest = whole(pod_clique_set([clique("a", 2), b], [workers]), "block")
    live = live_on(manifest, pods_per_node=2)
    assert live.ready() == 6
    assert len(live.domains("block-key")) == 1
    for part in (0, 1):
        assert len(live.domains("host-key", f"sg-{part}-b")) == 1


def test_tas9_a_block_for_all_and_a_host_for_a_clique() -> None:
    b = packed(clique("b", 2), "host")
    live = live_on(whole(pod_clique_set([clique("a", 2), b]), "block"), pods_per_node=2)
    assert live.ready() == 4
    assert len(live.domains("block-key")) == 1
    assert len(live.domains("host-key", "-b")) == 1


def test_tas10_base_and_scaled_gangs_each_in_a_rack() -> None:
    workers = packed(group("sg", ["b"], 3), "rack")
    live = live_on(pod_clique_set([clique("a", 1), clique("b", 3)], [workers]))
    assert live.ready() == 10
    assert sorted(live.view.gangs) == ["web-0", "web-0-sg-0", "web-0-sg-1"]
    for part in range(3):
        assert len(live.domains("rack-key", f"sg-{part}-b")) == 1


def test_tas11_a_group_and_a_clique_without_the_set() -> None:
    workers = packed(group("sg", ["b", "c"], 1), "rack")
    manifest = pod_clique_set([packed(clique("b", 2), "host"), clique("c", 2)], [workers])
    live = live_on(manifest, pods_per_node=2)
    assert live.ready() == 4
    assert live.view.gangs["web-0"].pack is None
    assert len(live.domains("rack-key")) == 1
    assert len(live.domains("host-key", "sg-0-b")) == 1


def test_tas13_too_large_for_any_rack_waits_and_says_so() -> None:
    live = live_on(whole(pod_clique_set([clique("a", 10)]), "rack"))
    assert (live.placed, live.pending) == (0, 10)
    assert live.why("web-0") == (
        "it needs 10 pods of 80 MiB memory each in one rack; 4 fit in r0, which has most room"
    )
    assert live.told("Unschedulable") == ["web-0"]


def test_tas14_each_set_replica_in_a_rack_of_its_own() -> None:
    live = live_on(whole(pod_clique_set([clique("a", 3)], replicas=2), "rack"))
    assert live.ready() == 6
    assert [len(live.domains("rack-key", f"web-{n}-a")) for n in (0, 1)] == [1, 1]


def disaggregated(replicas: int) -> dict[str, Any]:
    roles = [clique("router", 2), clique("dw", 2), clique("pw", 2)]
    groups = [
        packed(group("decoder", ["dw"], 2), "rack"),
        packed(group("prefill", ["pw"], 2), "rack"),
    ]
    return whole(pod_clique_set(roles, groups, replicas), "block")


def test_tas15_two_groups_and_a_router() -> None:
    live = live_on(disaggregated(1))
    assert live.ready() == 10
    assert sorted(live.view.gangs) == ["web-0", "web-0-decoder-0", "web-0-prefill-0"]
    for name in ("decoder-0-dw", "decoder-1-dw", "prefill-0-pw", "prefill-1-pw"):
        assert len(live.domains("rack-key", name)) == 1


def test_tas16_the_same_twice() -> None:
    live = live_on(disaggregated(2))
    assert live.ready() == 20
    for replica in (0, 1):
        base = [f"web-{replica}-router", f"web-{replica}-decoder-0-dw"]
        assert len(set().union(*(live.domains("block-key", name) for name in base))) == 1


def test_tas17_two_topologies_with_levels_of_one_name() -> None:
    h100, gb200 = binding("h100", rack="h-rack"), binding("gb200", rack="g-rack")

    def halves(number: int) -> dict[str, str]:
        return {"h-rack" if number < 8 else "g-rack": f"r{number // 4}"}

    def on(name: str, topology: str) -> dict[str, Any]:
        manifest = pod_clique_set([clique("a", 4)], name=name)
        manifest["spec"]["template"]["topologyConstraint"] = constraint("rack", "", topology)
        return manifest

    live = Live(on("left", "h100"), on("right", "gb200"), h100, gb200, nodes=16, labels=halves)
    assert live.ready() == 8
    assert len(live.domains("h-rack", "left-0-a")) == 1
    assert len(live.domains("g-rack", "right-0-a")) == 1


def test_tas23_a_preferred_rack_is_taken_where_it_can_be_had() -> None:
    live = live_on(whole(pod_clique_set([clique("a", 4)]), "", "rack"))
    assert live.ready() == 4
    assert len(live.domains("rack-key")) == 1
    large = live_on(whole(pod_clique_set([clique("a", 6)]), "", "rack"))
    assert large.ready() == 6
    assert len(large.domains("block-key")) == 1, "the next level up"


def test_a_lost_pod_comes_back_to_the_rack_of_the_others() -> None:
    live = live_on(whole(pod_clique_set([clique("a", 3)]), "rack"))
    rack = live.domains("rack-key")
    lost = live.pods()[0]
    live.kill(lost)
    assert live.domains("rack-key") == rack
    live.kill(live.pods()[0])
    assert live.pending == 1
    assert "where the others of web-0 are" in live.why("web-0")


def test_replicas_of_a_set_are_kept_apart_where_that_is_asked_for() -> None:
    manifest = whole(pod_clique_set([clique("a", 2)], replicas=3), "rack")
    manifest["metadata"]["annotations"] = {"windtunnel.dev/spread": "block"}
    live = live_on(manifest)
    assert live.ready() == 6
    assert len(live.domains("block-key")) == 3


def test_pods_of_a_clique_are_kept_apart_where_that_is_asked_for() -> None:
    a = clique("a", 4)
    a["annotations"] = {"windtunnel.dev/spread": "block"}
    live = live_on(pod_clique_set([a]))
    assert live.ready() == 4
    assert len(live.domains("block-key")) == 4


def test_a_scaled_gang_is_placed_in_the_block_of_its_base_gang_if_that_can_be() -> None:
    """The tightest rack would be in another block."""
    workers = packed(group("sg", ["b"], 1), "rack")
    manifest = whole(pod_clique_set([clique("a", 2), clique("b", 2)], [workers]), "block")
    live = live_on(manifest)
    block = live.domains("block-key")
    other = [n for n in live.view.nodes.values() if n.labels["block-key"] not in block]
    for node in other[:2]:
        live.cluster.cordon(node.name, live.now_s)
    live.scale("web-0-sg", 2)
    assert live.domains("block-key") == block
    live.scale("web-0-sg", 4)
    assert live.ready() == 10, "further away, where there is no more room"


def test_a_gang_whose_rack_is_one_node_short_for_ever_is_rebuilt_elsewhere() -> None:
    """A dead machine: its pod never ends, and the replacement belongs into the same full rack."""
    manifest = whole(pod_clique_set([clique("a", 4)], terminationDelay="20m"), "rack")
    live = live_on(manifest, nodes=8)
    rack = live.domains("rack-key")
    live.cluster.fail(live.pods()[0].node, live.now_s)
    live.run(600.0)
    assert live.pending == 1
    assert "0 fit there" in live.why("web-0")
    live.run(1200.0)
    assert live.ready() == 4
    assert not live.domains("rack-key") & rack


def test_nobody_makes_way_for_pods_that_never_preempt() -> None:
    for policy, ready in (("Never", 0), ("PreemptLowerPriority", 2)):
        low = pod_clique_set([clique("a", 2)], name="low")
        high = pod_clique_set([clique("a", 2)], name="high", priorityClassName="high")
        high["spec"]["template"]["cliques"][0]["spec"]["podSpec"]["preemptionPolicy"] = policy
        live = Live(low, nodes=3, priorities={"high": 1})
        assert live.ready("low-0-a") == 2
        named = load(high).sets[0]
        live.server.add_set("high", named.spec, live.now_s)
        live.run()
        assert live.ready("high-0-a") == ready
