"""Taints and tolerations, preferred nodes, and pods that keep away from others."""

from typing import Any

import pytest

from tests.gangs.manifests import clique, pod_clique_set
from tests.gangs.scenarios.live import Live
from tests.twin.kubernetes.by_hand import QUICK, World
from windtunnel.core.errors import InputError
from windtunnel.core.taints import taint_of
from windtunnel.gangs.placement.constraints import check_pod_spec
from windtunnel.gangs.placement.why import Waiting
from windtunnel.twin.kubernetes.checks import CLUSTER_INVARIANTS
from windtunnel.twin.kubernetes.settings import load_cluster_text

HOST = "kubernetes.io/hostname"
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"


def checked(world: World) -> World:
    world.run()
    for invariant in CLUSTER_INVARIANTS:
        assert invariant.check(world.cluster) is None, invariant.name
    return world


def prefers(**weights: int) -> dict[str, Any]:
    """By rack: how much its nodes are preferred."""
    terms = [
        {
            "weight": weight,
            "preference": {
                "matchExpressions": [{"key": "rack", "operator": "In", "values": [rack]}]
            },
        }
        for rack, weight in weights.items()
    ]
    return {"nodeAffinity": {PREFERRED: terms}}


def apart(key: str, *cliques: str, required: bool = True, **more: Any) -> dict[str, Any]:
    """Keeps away from the pods of some cliques."""
    chosen = [{"key": "grove.io/podclique", "operator": "In", "values": list(cliques)}]
    term = {"topologyKey": key, "labelSelector": {"matchExpressions": chosen}, **more}
    if required:
        return {"podAntiAffinity": {REQUIRED: [term]}}
    return {"podAntiAffinity": {PREFERRED: [{"weight": 10, "podAffinityTerm": term}]}}


# Taints.


def test_a_tainted_node_takes_only_pods_that_tolerate_it() -> None:
    world = World(3, taints={0: "team=a:NoSchedule", 1: "team=b:NoExecute"})
    world.gang("anybody", 2)
    team = {"key": "team", "operator": "Equal", "value": "a", "effect": "NoSchedule"}
    world.gang("a", 1, tolerations=[team])
    checked(world)
    assert world.nodes("a") == ["n0"]
    assert world.nodes("anybody") == ["", ""]
    assert (
        world.view.gangs["anybody"].why_pending
        == "it needs 2 pods of 1 gpu each; 1 fits on the 1 node of 3 whose taints it tolerates"
    )
    world.gang("all", 1, 50.0, tolerations=[{"operator": "Exists"}], nodeSelector={HOST: "n1"})
    checked(world)
    assert world.nodes("all") == ["n1"]


def test_nodes_that_a_selector_leaves_are_named() -> None:
    world = World(6)
    world.gang("a", 3, nodeSelector={"rack": "r1"})
    checked(world)
    assert world.view.gangs["a"].why_pending == (
        "it needs 3 pods of 1 gpu each; 2 fit on the 2 nodes of 6 with rack In (r1)"
    )


def test_a_gang_that_tolerates_no_taint_of_its_nodes_is_told() -> None:
    world = World(2, taints={0: "gpu=h100:NoSchedule", 1: "spot:NoSchedule"})
    world.gang("a", 1)
    checked(world)
    assert world.cluster.scheduler.verdicts["a"] == (
        Waiting.NOT_TOLERATED,
        "a: 2 nodes that match have taints that it does not tolerate: gpu=h100:NoSchedule, "
        "spot:NoSchedule",
    )


def test_a_node_with_prefer_no_schedule_is_taken_last() -> None:
    world = World(3, taints={0: "spot:PreferNoSchedule"})
    world.gang("a", 2)
    world.gang("b", 1)
    checked(world)
    assert world.nodes("a") == ["n1", "n2"]
    assert world.nodes("b") == ["n0"]


@pytest.mark.parametrize(
    ("tolerations", "gone_s"),
    [
        ([], 300.0),
        ([{"key": "node.kubernetes.io/unreachable", "operator": "Exists", "effect": "NoExecute",
           "tolerationSeconds": 30}], 70.0),
        ([{"operator": "Exists"}], None),
    ],
)  # fmt: skip
def test_how_long_pods_stay_on_a_failed_machine_is_theirs_to_say(
    tolerations: list[dict[str, Any]], gone_s: float | None
) -> None:
    times = QUICK.model_copy(update={"node_lost_after_s": 40.0, "evict_after_s": 300.0})
    world = World(1, times=times)
    world.gang("a", 1, tolerations=tolerations)
    world.run()
    (pod,) = world.pods("a")
    world.cluster.fail("n0", 1_000.0)
    world.run(10_000.0)
    assert pod.deleted_s == (-1.0 if gone_s is None else 1_000.0 + gone_s)


# Preferred nodes.


def test_pods_go_to_the_nodes_that_they_prefer_while_there_is_room() -> None:
    world = World(6)
    world.gang("a", 1, affinity=prefers(r2=10, r1=5))
    world.gang("b", 4, affinity=prefers(r2=10, r1=5))
    checked(world)
    assert world.nodes("a") == ["n4"]
    assert world.nodes("b") == ["n0", "n2", "n3", "n5"]


def test_a_node_can_be_named_by_its_field() -> None:
    world = World(3)
    field = {"key": "metadata.name", "operator": "In", "values": ["n2"]}
    terms = {"nodeSelectorTerms": [{"matchFields": [field]}]}
    world.gang("a", 1, affinity={"nodeAffinity": {REQUIRED: terms}})
    checked(world)
    assert world.nodes("a") == ["n2"]


# Pods that keep away from others.


def test_pods_of_a_clique_keep_away_from_each_other() -> None:
    world = World(4, gpus=8)
    world.gang("by-host", 4, affinity=apart(HOST, "by-host"))
    world.gang("by-rack", 2, affinity=apart("rack", "by-rack"))
    world.gang("too-many", 3, affinity=apart("rack", "too-many"))
    checked(world)
    assert world.nodes("by-host") == ["n0", "n1", "n2", "n3"]
    racks = [world.view.nodes[node].labels["rack"] for node in world.nodes("by-rack")]
    assert sorted(racks) == ["r0", "r1"]
    assert world.nodes("too-many") == [""] * 3
    assert world.cluster.scheduler.verdicts["too-many"] == (
        Waiting.SPREAD,
        "too-many keeps its pods apart by rack: it needs 3 domains, and 2 have room",
    )


def test_both_sides_of_an_anti_affinity_keep_away() -> None:
    world = World(4, gpus=2)
    world.gang("quiet", 1)
    world.run()
    world.gang("loud", 1, 20.0, affinity=apart("rack", "quiet"))
    checked(world)
    assert world.nodes("quiet") == ["n0"]
    assert world.nodes("loud") == ["n2"]
    quiet = world.view.cliques["quiet"]
    quiet.replicas = 3
    world.fill(quiet, 40.0, minimum=1)
    checked(world)
    assert world.nodes("quiet") == ["n0", "n0", "n1"]
    loud = world.pods("loud")[0]
    world.cluster.delete_pod(loud.name, 60.0)
    checked(world)
    other = world.gang("other", 4, 80.0)
    checked(world)
    assert len(other.pods) == 4
    assert "n2" in world.nodes("other"), "nobody there keeps pods away any more"


def test_a_preferred_anti_affinity_gives_way() -> None:
    world = World(2, gpus=2)
    world.gang("a", 3, affinity=apart(HOST, "a", required=False))
    checked(world)
    assert world.nodes("a") == ["n0", "n0", "n1"]
    world = World(2, gpus=2)
    world.gang("a", 2, affinity=apart(HOST, "a", required=False))
    checked(world)
    assert world.nodes("a") == ["n0", "n1"]


def test_an_anti_affinity_may_be_about_the_gang_of_a_pod() -> None:
    """With matchLabelKeys: pods keep away from pods of their own gang, not from those of others."""
    world = World(2, gpus=2)
    of_set = {"matchLabels": {"app.kubernetes.io/part-of": "s"}}
    term = {"topologyKey": HOST, "labelSelector": of_set, "matchLabelKeys": ["grove.io/podgang"]}
    affinity = {"podAntiAffinity": {REQUIRED: [term]}}
    world.gang("a", 2, affinity=affinity)
    world.gang("b", 2, affinity=affinity)
    checked(world)
    assert world.nodes("a") == world.nodes("b") == ["n0", "n1"]


def test_a_term_without_a_selector_is_about_no_pod() -> None:
    world = World(1, gpus=2)
    world.gang("a", 2, affinity={"podAntiAffinity": {REQUIRED: [{"topologyKey": HOST}]}})
    checked(world)
    assert world.nodes("a") == ["n0", "n0"]


# Pods that have to be near others.


def together(key: str, *cliques: str, required: bool = True, **more: Any) -> dict[str, Any]:
    """Has to be, or would rather be, near the pods of some cliques."""
    return {"podAffinity": apart(key, *cliques, required=required, **more)["podAntiAffinity"]}


def racks(world: World, clique: str) -> list[str]:
    return sorted(world.view.nodes[node].labels["rack"] for node in world.nodes(clique) if node)


def test_pods_that_have_to_be_near_each_other_are_in_one_domain_that_holds_them() -> None:
    world = World(6)  # two nodes of one GPU in each rack
    world.gang("one", 1)
    checked(world)
    assert racks(world, "one") == ["r0"]
    world.gang("a", 2, 20.0, affinity=together("rack", "a"))
    world.gang("large", 3, 20.0, affinity=together("rack", "large"))
    world.gang("host", 2, 20.0, affinity=together(HOST, "host"))
    checked(world)
    assert racks(world, "a") == ["r1", "r1"]
    assert world.nodes("large") == [""] * 3
    assert world.cluster.scheduler.verdicts["large"] == (
        Waiting.NEAR,
        "large keeps its pods together: no rack has room for 3 of them",
    )
    assert world.nodes("host") == [""] * 2


def test_a_pod_waits_for_those_that_it_has_to_be_near() -> None:
    world = World(6, gpus=2)
    world.gang("worker", 3, affinity=together("rack", "leader"))
    checked(world)
    assert world.cluster.scheduler.verdicts["worker"] == (
        Waiting.NEAR,
        "worker has to be near pods that its affinity selects, and none has a node",
    )
    world.gang("leader", 1, 20.0, nodeSelector={"rack": "r1"})
    checked(world)
    assert racks(world, "worker") == ["r1"] * 3
    world.gang("other", 1, 40.0, affinity=together("rack", "leader"))
    checked(world)
    assert world.cluster.scheduler.verdicts["other"] == (
        Waiting.NEAR,
        "it needs 1 pod in a rack with pods that the affinity of other selects; 0 fit there",
    )


@pytest.mark.parametrize("leader", ["zebra", "alpha"])
def test_an_affinity_is_met_within_a_gang(leader: str) -> None:
    """The leader goes first, to a rack that has room for its workers as well."""
    worker = clique("worker", 3)
    affinity = together("rack", f"web-0-{leader}")
    worker["spec"]["podSpec"]["affinity"] = affinity
    manifest = pod_clique_set([worker, clique(leader, 1)])
    sizes = [2, 3, 5, 4]  # nodes by rack; each has room for one pod
    homes = [f"r{rack}" for rack, size in enumerate(sizes) for _ in range(size)]
    live = Live(manifest, nodes=14, labels=lambda number: {"rack": homes[number]})
    assert live.ready() == 4
    assert len(live.domains("rack")) == 1
    assert live.domains("rack") <= {"r2", "r3"}
    live = Live(manifest, nodes=5, labels=lambda number: {"rack": homes[number]})
    assert live.placed == 0
    assert live.why("web-0") == (
        "web-0-worker has to be in one rack with other pods of its gang, and none has room for all "
        "of them"
    )


def test_a_preferred_affinity_gives_way() -> None:
    world = World(6)
    world.gang("leader", 1, nodeSelector={"rack": "r2"})
    checked(world)
    world.gang("worker", 2, 20.0, affinity=together("rack", "leader", required=False))
    checked(world)
    assert racks(world, "worker") == ["r0", "r2"]
    world.gang("alone", 1, 40.0, affinity=together("rack", "nobody", required=False))
    checked(world)
    assert racks(world, "alone") == ["r0"]


def test_several_terms_are_about_pods_that_all_of_them_select() -> None:
    world = World(4, gpus=4)
    world.gang("a", 1, nodeSelector={"rack": "r0"})
    world.gang("b", 1, nodeSelector={"rack": "r1"})
    checked(world)
    terms = [
        *together("rack", "a", "b")["podAffinity"][REQUIRED],
        *together(HOST, "b")["podAffinity"][REQUIRED],
    ]
    world.gang("near", 1, 20.0, affinity={"podAffinity": {REQUIRED: terms}})
    checked(world)
    assert world.nodes("near") == world.nodes("b")


def test_a_gang_that_makes_way_takes_its_anti_affinity_along() -> None:
    world = World(2)
    world.view.priorities["high"] = 100
    world.gang("low", 1, affinity=apart("rack", "high"))
    world.run()
    world.gang("high", 2, 50.0, priority="high")
    checked(world)
    assert world.nodes("high") == ["n0", "n1"]


@pytest.mark.parametrize(
    ("spec", "says"),
    [
        ({"tolerations": [{"operator": "Like", "key": "a"}]}, "'Like' is not an operator"),
        ({"tolerations": [{"value": "a"}]}, "a toleration without a key"),
        ({"tolerations": [{"key": "a", "operator": "Exists", "value": "b"}]}, "takes no value"),
        ({"tolerations": [{"key": "a", "effect": "Never"}]}, "'Never' is not an effect"),
        (
            {"tolerations": [{"key": "a", "tolerationSeconds": 1}]},
            "whole seconds of a NoExecute toleration",
        ),
        ({"affinity": prefers(r0=101)}, "101 is not a weight; allowed: 1 to 100"),
        ({"affinity": apart("", "a")}, "podAntiAffinity: a term has no topologyKey"),
        ({"affinity": together("", "a")}, "podAffinity: a term has no topologyKey"),
        ({"affinity": {"podAffinity": [1]}}, "affinity: podAffinity is not a mapping"),
        ({"affinity": {"podAffinity": {REQUIRED: {}}}}, f"affinity: {REQUIRED} is not a list"),
        ({"affinity": {"podAffinity": {REQUIRED: ["x"]}}}, "has an item that is not a mapping"),
        ({"tolerations": {"key": "a"}}, "tolerations: tolerations is not a list"),
        (
            {
                "affinity": {
                    "podAffinity": {
                        REQUIRED: [
                            {
                                "topologyKey": "k",
                                "labelSelector": {
                                    "matchExpressions": [
                                        {"key": "a", "operator": "Gt", "values": ["1"]}
                                    ]
                                },
                            }
                        ]
                    }
                }
            },
            "podAffinity: 'Gt' is not an operator; allowed: In, NotIn, Exists, DoesNotExist$",
        ),
    ],
)
def test_a_constraint_that_says_nothing_is_refused(spec: dict[str, Any], says: str) -> None:
    with pytest.raises(InputError, match=says):
        check_pod_spec(spec)


def test_taints_are_read_as_kubectl_writes_them() -> None:
    assert taint_of("a=b:NoSchedule") == ("a", "b", "NoSchedule")
    assert taint_of("example.com/a:NoExecute") == ("example.com/a", "", "NoExecute")
    text = "nodes: [{name: n, count: 1, capacity: {pods: 1}, taints: ['a=b']}]"
    with pytest.raises(InputError, match="'a=b' is not a taint; allowed: key=value:effect"):
        load_cluster_text(text)
