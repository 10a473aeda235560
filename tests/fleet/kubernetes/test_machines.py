"""Pods that find no place get machines, and machines that nobody needs go, one call at a time."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.fleet.kubernetes.world import FakeApi, World, fleet_file
from windtunnel.fleet.kubernetes.books import read_books
from windtunnel.fleet.kubernetes.objects import (
    APPLY,
    CLAIM,
    CONFIG_MAP,
    CREATE,
    IDLE_TAINT,
    NODE,
    NOTE,
    POD,
    Note,
    ProviderOutcome,
)
from windtunnel.fleet.planner.actions import SPECULATIVE_REASON


def test_pods_that_find_no_place_get_node_claims() -> None:
    world = World(fleet_file())
    for name in "ab":
        world.add_pod(name)
    world.run(60)
    assert sorted(world.api.objects[CLAIM]) == ["main-h200-0", "main-h200-1"]
    assert {world.node_of("a"), world.node_of("b")} == {"ip-main-h200-0", "ip-main-h200-1"}
    claim = world.api.objects[CLAIM]["main-h200-0"]
    assert claim["spec"] == {
        "requirements": [
            {"key": "node.kubernetes.io/instance-type", "operator": "In",
             "values": ["p5en.48xlarge"]},
            {"key": "topology.kubernetes.io/zone", "operator": "In", "values": ["z1"]},
            {"key": "karpenter.sh/capacity-type", "operator": "In", "values": ["on-demand"]},
        ],
        "resources": {"requests": {"nvidia.com/gpu": "8"}},
        "nodeClassRef": {"group": "test.dev", "kind": "TestNodeClass", "name": "default"},
        "taints": [{"key": IDLE_TAINT, "effect": "NoSchedule"}],
        "expireAfter": "Never",
    }  # fmt: skip
    assert claim["metadata"]["labels"]["windtunnel.dev/accelerator"] == "h200"
    decided = [one for one in world.controller.decisions if one.word == "provision"]
    assert [(one.pod, one.reason) for one in decided] == [
        ("a", SPECULATIVE_REASON),
        ("b", SPECULATIVE_REASON),
    ]


def test_rows_are_stored_before_machines_are_ordered_for_them() -> None:
    world = World(fleet_file())
    world.names.clear()  # the test makes its calls
    world.add_pod("a")
    world.run(5)
    controller = world.controller
    (first,) = controller.step(5.0)
    assert (first.kind, first.verb) == (CONFIG_MAP, APPLY)
    controller.answered(first, ProviderOutcome.FAILED, "no answer", 5.0)
    assert controller.step(5.1) == [], "nothing is ordered meanwhile"
    (again,) = controller.step(30.0)
    assert again == first
    controller.answered(again, ProviderOutcome.DONE, "", 30.0)
    (create,) = controller.step(30.1)
    assert (create.kind, create.verb) == (CLAIM, CREATE)


def test_two_small_pods_share_a_machine() -> None:
    world = World(fleet_file())
    for name in "ab":
        world.add_pod(name, 4)
    world.run(60)
    assert world.api.created.count("main-h200-0") == 1
    assert len(world.api.objects[CLAIM]) == 1


def test_a_machine_that_is_not_needed_is_drained_held_and_given_back() -> None:
    world = World(fleet_file())
    world.add_pod("a")
    world.run(60)
    world.api.remove(POD, "a")
    world.run(60)
    assert world.states() == {"idle": 1}
    node = world.api.objects[NODE]["ip-main-h200-0"]
    assert [one["key"] for one in node["spec"]["taints"]] == [IDLE_TAINT]
    assert not node["spec"].get("unschedulable")
    world.run(600)
    assert world.api.objects[CLAIM] == {}
    assert world.states() == {}


def test_an_idle_machine_is_used_again_before_another_is_created() -> None:
    world = World(fleet_file())
    world.add_pod("a")
    world.run(60)
    world.api.remove(POD, "a")
    world.run(60)
    world.add_pod("b")
    world.run(60)
    assert world.node_of("b") == "ip-main-h200-0"
    assert world.api.created.count("main-h200-0") == 1


def test_a_drain_waits_for_disruption_budgets_and_for_pods_that_must_not_be_disrupted() -> None:
    world = World(fleet_file(), None)
    for name in "ab":
        world.add_pod(name)
    world.run(60)
    first = world.node_of("a")
    # A pod of others lands on the machine while its own pod goes.
    world.add_pod("late", 0, annotations={"karpenter.sh/do-not-disrupt": "true"})
    world.api.change(POD, "late", spec={"nodeName": first}, status={"phase": "Running"})
    world.api.remove(POD, "a")
    world.run(60)
    assert world.states() == {"configured": 2}, "a machine with a pod is in use"
    # Drained for a need of higher priority, say.
    controller = world.controller
    shard = controller.shard
    machine = first.removeprefix("ip-")
    entry = shard.planner.inventory.entries[machine]
    assert entry.row is not None
    controller.demand.forget("late")
    world.run(60)
    assert world.states() == {"configured": 1, "draining": 1}
    assert world.api.objects[NODE][first]["spec"]["unschedulable"]
    assert world.api.evicted == []
    world.api.protected.add("late")
    world.api.change(POD, "late", metadata={"annotations": {"karpenter.sh/do-not-disrupt": None}})
    world.run(30)
    assert world.api.evicted == [], "the budget says no"
    world.api.protected.clear()
    world.run(30)
    assert world.api.evicted == ["late"]
    assert world.states() == {"configured": 1, "idle": 1}
    assert not world.api.objects[NODE][first]["spec"]["unschedulable"]


def test_a_claim_that_karpenter_gives_up_is_tried_again_after_a_back_off() -> None:
    world = World(fleet_file())
    world.no_capacity = True
    world.add_pod("a")
    world.run(60)
    tries = len(world.api.created)
    assert 2 <= tries <= 4, "once, and again after 30 s"
    short = [one for one in world.controller.decisions if one.word == "short"]
    assert "tried again later" in short[-1].reason
    world.no_capacity = False
    world.run(120)
    assert world.node_of("a")


@pytest.mark.parametrize(
    "taint", ["karpenter.sh/disrupted", "aws-node-termination-handler/spot-itn"]
)
def test_after_a_spot_notice_the_replacement_comes_and_the_machine_is_emptied(taint: str) -> None:
    world = World(fleet_file(spot=True))
    world.add_pod("a")
    world.run(60)
    old = world.node_of("a")
    world.api.protected.add("a")
    taints = [{"key": taint, "effect": "NoSchedule"}]
    world.api.change(NODE, old, spec={"taints": taints})
    world.run(60)
    assert sorted(world.api.objects[CLAIM]) == ["main-h200-0", "main-h200-1"], "replacement first"
    assert world.states() == {"configured": 1, "failed": 1} or world.states() == {
        "idle": 1,
        "failed": 1,
    }
    failed = [one for one in world.controller.decisions if one.word == "failed"]
    assert taint in failed[0].reason
    world.api.protected.clear()
    world.run(60)
    assert world.api.evicted == ["a"]
    assert sorted(world.api.objects[CLAIM]) == ["main-h200-1"], "the old one is given back"


def test_a_machine_whose_node_is_gone_is_replaced() -> None:
    world = World(fleet_file())
    world.add_pod("a")
    world.run(60)
    world.api.remove(NODE, "ip-main-h200-0")
    world.api.remove(POD, "a")
    world.add_pod("b")
    world.run(120)
    assert world.node_of("b")
    assert len(world.api.objects[CLAIM]) == 1


@pytest.mark.parametrize("state", ["configured", "idle"])
def test_a_machine_that_vanishes_between_two_cycles_can_be_had_again(state: str) -> None:
    world = World(fleet_file(places=1))
    world.add_pod("a")
    world.run(60)
    if state == "idle":
        world.api.remove(POD, "a")
        world.run(60)
    assert world.states() == {state: 1}
    world.api.remove(CLAIM, "main-h200-0")
    world.api.remove(NODE, "ip-main-h200-0")
    if state == "configured":
        world.api.remove(POD, "a")
    world.add_pod("b")
    world.run(60)
    assert world.node_of("b")
    assert world.controller.shard.reconciler.rejected == {}


@pytest.mark.parametrize("restarted", [False, True])
def test_a_node_that_loses_its_label_is_released_and_left_alone(restarted: bool) -> None:
    world = World(fleet_file(places=0, metal=1))
    world.add_node("m0", {"pool": "metal"})
    world.run(60)
    assert world.states() == {"idle": 1}
    world.api.change(NODE, "m0", status={"allocatable": {"nvidia.com/gpu": "0"}})
    world.run(30)
    assert world.states() == {"idle": 1}, "its device plugin starts again"
    world.api.change(NODE, "m0", metadata={"labels": {"pool": None}})
    if restarted:
        world.start()
    world.run(60)
    assert world.states() == {}
    node = world.api.objects[NODE]["m0"]
    assert node["spec"]["taints"] == [], "pods may come again"
    assert NOTE not in node["metadata"]["annotations"]
    before = world.api.version
    world.run(60)
    assert world.api.version == before, "and then it is left alone"
    back = {"allocatable": {"nvidia.com/gpu": "8"}}
    world.api.change(NODE, "m0", metadata={"labels": {"pool": "metal"}}, status=back)
    world.run(60)
    assert world.states() == {"idle": 1}


def test_a_node_that_leaves_while_it_is_drained_is_uncordoned() -> None:
    world = World(fleet_file(places=0, metal=1))
    world.add_node("m0", {"pool": "metal"})
    world.add_pod("a")
    world.api.change(POD, "a", spec={"nodeName": "m0"}, status={"phase": "Running"})
    world.api.protected.add("a")
    world.run(30)
    world.api.change(NODE, "m0", spec={"taints": [{"key": "karpenter.sh/disrupted"}]})
    world.run(30)
    assert world.api.objects[NODE]["m0"]["spec"]["unschedulable"]
    world.api.change(NODE, "m0", metadata={"labels": {"pool": None}})
    world.run(30)
    node = world.api.objects[NODE]["m0"]
    assert not node["spec"]["unschedulable"]
    assert [one["key"] for one in node["spec"]["taints"]] == ["karpenter.sh/disrupted"]


def test_nodes_that_belong_to_another_fleet_keep_their_marks() -> None:
    world = World(fleet_file(places=1))
    world.add_node("m0", {"pool": "metal"}, [{"key": IDLE_TAINT, "effect": "NoSchedule"}])
    note = Note("idle", "main", fleet="other").text()
    world.api.change(NODE, "m0", metadata={"annotations": {NOTE: note}})
    before = world.api.objects[NODE]["m0"]
    world.run(60)
    assert world.api.objects[NODE]["m0"] == before


def add_gang_pod(world: World, name: str, node: str, **spec: object) -> None:
    """One that the view of the gang controllers does not have: it cannot be read."""
    owner = {"kind": "PodClique", "name": "c", "uid": "c", "controller": True}
    world.add_pod(name, ownerReferences=[owner])
    world.api.change(POD, name, spec={"nodeName": node, **spec}, status={"phase": "Running"})


def test_gang_pods_that_cannot_be_read_keep_their_machines() -> None:
    world = World(fleet_file(places=1))
    world.add_pod("a")
    world.run(60)
    world.api.remove(POD, "a")
    add_gang_pod(world, "g", "ip-main-h200-0")
    world.run(120)
    assert world.states() == {"configured": 1}
    world.api.remove(POD, "g")
    world.run(60)
    assert world.states() == {"idle": 1}


def test_beside_a_pod_whose_requests_cannot_be_read_nothing_fits() -> None:
    world = World(fleet_file(places=2))
    world.add_pod("a")
    world.run(60)
    world.api.remove(POD, "a")
    add_gang_pod(world, "g", "ip-main-h200-0", initContainers=["not a mapping"])
    world.add_pod("b")
    world.run(40)
    assert world.node_of("b") == "ip-main-h200-1", "a machine is asked for at once"


def test_nodes_that_are_not_ready_are_lost_one_by_one_and_not_all_together() -> None:
    world = World(fleet_file(places=4))
    for name in "abc":
        world.add_pod(name)
    world.run(60)
    down = {"conditions": [{"type": "Ready", "status": "Unknown"}]}
    for name in list(world.api.objects[NODE]):
        world.api.change(NODE, name, status=down)
    world.run(900)
    assert world.states() == {"configured": 3}, "all at once: it is not the nodes"
    up = {"conditions": [{"type": "Ready", "status": "True"}]}
    first, *others = list(world.api.objects[NODE])
    for name in others:
        world.api.change(NODE, name, status=up)
    world.run(60)
    assert first.removeprefix("ip-") not in world.api.objects[CLAIM]


def test_existing_nodes_are_taken_over_with_their_pods_and_parked_when_empty() -> None:
    world = World(fleet_file(places=0, metal=2))
    for number in range(2):
        world.add_node(f"m{number}", {"pool": "metal"})
    world.add_pod("a")
    world.api.change(POD, "a", spec={"nodeName": "m0"}, status={"phase": "Running"})
    world.run(60)
    assert world.states() == {"configured": 1, "idle": 1}
    assert world.api.evicted == []
    assert [one["key"] for one in world.api.objects[NODE]["m1"]["spec"]["taints"]] == [IDLE_TAINT]
    world.add_pod("b")
    world.run(60)
    assert world.node_of("b") == "m1"
    world.api.remove(POD, "b")
    world.run(60)
    assert world.states() == {"configured": 1, "idle": 1}
    world.run(3600)
    assert sorted(world.api.objects[NODE]) == ["m0", "m1"], "metal is never given back"


def test_a_name_that_something_else_has_is_not_taken_over() -> None:
    world = World(fleet_file(places=1))
    stranger = {"metadata": {"name": "main-h200-0", "labels": {}}, "spec": {}, "status": {}}
    world.api.objects[CLAIM]["main-h200-0"] = stranger
    world.karpenter = False
    world.add_pod("a")
    world.run(60)
    assert "annotations" not in stranger["metadata"]
    assert [call.verb for call in world.log if call.kind == CLAIM] == [CREATE]
    assert list(world.controller.verdicts.values()) != [], "it is short, and says so"


def test_a_lease_that_was_deleted_stops_nothing() -> None:
    """Epochs count from the start again; what is noted beside machines is newer than that."""
    world = World(fleet_file())
    world.epoch = 1000
    world.start()
    world.add_pod("a")
    world.run(60)
    world.epoch = 0
    world.start()
    world.api.remove(POD, "a")
    world.run(60)
    assert world.states() == {"idle": 1}
    assert world.controller.provider.fenced == 0


WORDS = ["pod", "pod", "small", "gone", "notice", "vanish", "unready"]
STORY = st.lists(st.sampled_from(WORDS), max_size=8)
HARM = {
    "notice": {"spec": {"taints": [{"key": "karpenter.sh/disrupted", "effect": "NoSchedule"}]}},
    "unready": {"status": {"conditions": [{"type": "Ready", "status": "Unknown"}]}},
}


def play(world: World, story: list[str]) -> None:
    made = 0
    for word in story:
        if word in ("pod", "small"):
            made += 1
            world.add_pod(f"p{made}", 8 if word == "pod" else 4)
        elif word == "gone":
            for name in list(world.api.objects[POD])[:1]:
                world.api.remove(POD, name)
        elif word in HARM:
            for name in list(world.api.objects[NODE])[:1]:
                world.api.change(NODE, name, **HARM[word])
        elif word == "vanish":
            for name in list(world.api.objects[CLAIM])[:1]:
                world.api.remove(CLAIM, name)
                world.api.remove(NODE, f"ip-{name}")
                for pod, body in list(world.api.objects[POD].items()):
                    if body["spec"].get("nodeName") == f"ip-{name}":
                        world.api.remove(POD, pod)
        world.run(40)
    world.run(200)


def end_of(world: World) -> tuple[object, ...]:
    pods = sorted(world.api.objects[POD])
    return (
        pods,
        [bool(world.node_of(name)) for name in pods],
        len(world.api.objects[CLAIM]),
        world.states(),
    )


def creates(api: FakeApi) -> dict[str, int]:
    return {name: api.created.count(name) for name in sorted(set(api.created))}


def books(world: World) -> list[object]:
    """The rows that are stored, without when they were first asked for."""
    stored = read_books({"rows": world.books()} if world.books() else {}, "test")
    return [msgspec.structs.replace(row, since_s=0.0) for row in stored.rows]


@given(STORY, st.integers(0, 60), st.booleans())
def test_killed_between_any_two_calls_nothing_is_created_twice(
    story: list[str], kill_at: int, after: bool
) -> None:
    """The same end as without the kill, the same books, and no more machines ever created."""
    calm = World(fleet_file(places=12))
    play(calm, story)
    killed = World(fleet_file(places=12))
    killed.calls_left, killed.kills_after = kill_at, after
    play(killed, story)
    for world in (calm, killed):
        provider = world.controller.provider
        hosts, not_ready = provider._of_node, provider._not_ready_s
        assert set(provider._bad_hosts) == {one for one in not_ready if one in hosts}
    assert end_of(killed) == end_of(calm)
    assert sum(creates(killed.api).values()) == sum(creates(calm.api).values())
    assert books(killed) == books(calm)


def test_machines_beyond_a_lowered_maximum_are_given_back() -> None:
    world = World(fleet_file(places=3))
    for name in "abc":
        world.add_pod(name)
    world.run(60)
    assert len(world.api.objects[CLAIM]) == 3
    world.file = fleet_file(places=1)
    world.start()
    world.run(60)
    assert len(world.api.objects[CLAIM]) == 3, "they are in use"
    for name in "abc":
        world.api.remove(POD, name)
    world.run(900)
    assert world.api.objects[CLAIM] == {}
    claims = [name for name in world.api.created if "h200" in name]
    assert sorted(claims) == ["main-h200-0", "main-h200-1", "main-h200-2"], "each once"


def test_a_fleet_whose_books_were_lost_gives_no_row_the_name_of_another() -> None:
    world = World(fleet_file())
    world.add_pod("a")
    world.run(60)
    world.api.remove(CONFIG_MAP, "windtunnel-fleet-main-main")
    world.start()
    world.add_pod("b")
    world.run(60)
    assert world.node_of("a")
    assert world.node_of("b")
    assert len(world.api.objects[CLAIM]) == 2


def test_after_a_restart_decisions_name_the_pod_that_a_row_was_asked_for() -> None:
    world = World(fleet_file())
    world.karpenter = False
    world.add_pod("a")
    world.run(20)
    world.start()
    stored = world.books()
    world.run(20)
    assert world.books() == stored, "nothing was stored anew"
    world.no_capacity = True
    world.run(20)
    world.no_capacity, world.karpenter = False, True
    world.run(120)
    told = {one.pod for one in world.controller.decisions if one.need}
    assert told == {"a"}


def test_a_pod_that_was_bound_as_its_machine_was_parked_is_evicted() -> None:
    world = World(fleet_file(places=0, metal=1))
    world.add_node("m0", {"pool": "metal"})
    world.run(60)
    assert world.states() == {"idle": 1}
    world.add_pod("late")
    world.api.change(POD, "late", spec={"nodeName": "m0"}, status={"phase": "Running"})
    world.add_pod("fixed", gpus=0, annotations={"karpenter.sh/do-not-disrupt": "true"})
    world.api.change(POD, "fixed", spec={"nodeName": "m0"}, status={"phase": "Running"})
    world.add_pod("tolerant", gpus=0)
    anything = {"nodeName": "m0", "tolerations": [{"operator": "Exists"}]}
    world.api.change(POD, "tolerant", spec=anything, status={"phase": "Running"})
    world.api.protected.add("late")
    world.run(10)
    assert world.api.evicted == []
    world.api.protected.clear()
    world.run(10)
    assert world.api.evicted == ["late"]
    assert world.states() == {"idle": 1}
