"""Pods and machines in virtual time, without a controller: each step at its second."""

from itertools import pairwise

import pytest

from tests.twin.kubernetes.by_hand import QUICK, World
from windtunnel.core.errors import InputError
from windtunnel.gangs.objects import RUNNING
from windtunnel.gangs.placement.constraints import selector_of
from windtunnel.gangs.templates import Pack
from windtunnel.twin.kubernetes.cluster import BACKOFF_S, LONGEST_BACKOFF_S
from windtunnel.twin.kubernetes.times import PodTimes, VaryingTime


def test_a_pod_pulls_starts_and_is_ready() -> None:
    world = World(1)
    world.gang("a", 1)
    world.run(0.0)
    (pod,) = world.pods("a")
    assert (pod.node, pod.scheduled_s, pod.started) == ("n0", 0.0, False)
    world.run(11.0)
    assert (pod.started, pod.phase, pod.ready) == (True, RUNNING, False)
    assert world.run() == 16.0
    assert (pod.ready, pod.ready_s) == (True, 16.0)
    assert world.cluster.next_s() == float("inf")


def test_an_image_is_pulled_once_on_a_node() -> None:
    world = World(1, gpus=2)
    world.gang("a", 1)
    world.run()
    world.gang("b", 1, 100.0)
    assert world.run() == 106.0


def test_containers_start_after_those_they_wait_for() -> None:
    world = World(3)
    world.gang("b", 1, after=(("a", 2),))
    world.gang("a", 2, minimum=1)
    world.run()
    assert [pod.ready_s for pod in world.pods("a")] == [16.0, 16.0]
    assert world.pods("b")[0].ready_s == 22.0


def test_a_gang_waits_whole_and_says_why() -> None:
    world = World(2)
    world.gang("a", 3)
    world.run()
    assert world.nodes("a") == ["", "", ""]
    says = "it needs 3 pods of 1 gpu each; 2 fit on 2 nodes"
    assert world.view.gangs["a"].why_pending == says
    assert world.told("Unschedulable") == [f"a: {says}"]
    world.cluster.cordon("n0", 50.0)
    world.cluster.uncordon("n0", 60.0)
    world.run()
    assert world.told("Unschedulable") == [f"a: {says}"], "what was said is not said again"


def test_a_gang_that_finds_its_place_has_its_status_written() -> None:
    world = World(4)
    world.view.levels["t"] = {"rack": "rack", "host": "kubernetes.io/hostname"}
    world.gang("a", 2, pack=Pack(required="rack"))
    world.run()
    gang = world.view.gangs["a"]
    assert world.nodes("a") == ["n0", "n1"]
    assert gang.placement_score == 0.5
    assert world.told("Scheduled") == ["a: the minimum of every group has nodes"]
    assert gang.why_pending == ""


def test_one_pod_at_a_time_both_halves_wait() -> None:
    whole, halves = World(4), World(4, one_by_one=True)
    for world in (whole, halves):
        world.gang("a", 3)
        world.gang("b", 3)
        world.run()
    assert [node != "" for node in whole.nodes("a")] == [True] * 3
    assert whole.nodes("b") == [""] * 3
    assert sum(node != "" for node in halves.nodes("a") + halves.nodes("b")) == 4
    assert "" in halves.nodes("a")
    assert "" in halves.nodes("b")


def test_a_cordoned_node_keeps_its_pods_and_gets_no_more() -> None:
    world = World(2)
    world.gang("a", 1)
    world.run()
    world.cluster.cordon("n0", 20.0)
    world.cluster.cordon("n0", 20.0)
    world.gang("b", 2, 20.0, minimum=1)
    world.run()
    assert world.nodes("a") == ["n0"]
    assert world.nodes("b") == ["", "n1"]
    assert world.pods("a")[0].ready
    world.cluster.uncordon("n0", 60.0)
    world.run()
    assert world.nodes("b") == ["", "n1"], "its pod holds the room"


def test_a_drained_node_ends_its_pods_and_the_room_is_free_when_they_are_gone() -> None:
    world = World(1, gpus=2)
    a = world.gang("a", 2)
    world.run()
    world.cluster.drain("n0", 20.0)
    assert all(pod.terminating for pod in world.pods("a"))
    world.run(21.0)
    assert len(world.pods("a")) == 2
    world.run()
    assert not a.pods
    world.fill(a, 30.0, minimum=2)
    world.run()
    assert world.nodes("a") == ["", ""]
    assert world.view.gangs["a"].why_pending.endswith("0 fit on the 0 usable nodes of 1")
    world.cluster.uncordon("n0", 40.0)
    world.run()
    assert world.nodes("a") == ["n0", "n0"]


def test_a_failed_node_is_noticed_late_and_its_pods_cannot_end_until_it_is_back() -> None:
    world = World(2)
    a = world.gang("a", 1)
    world.run()
    (lost,) = world.pods("a")
    world.cluster.fail("n0", 100.0)
    world.run(139.0)
    assert [pod.ready for pod in world.pods("a")] == [True]
    world.run(141.0)
    assert (lost.ready, lost.terminating) == (False, False)
    world.run(401.0)
    assert lost.deleted_s == 400.0
    world.fill(a, 401.0, minimum=1)
    world.run()
    assert lost.name in a.pods, "nobody can say that it has ended"
    assert world.nodes("a") == ["n0", "n1"]
    world.cluster.recover("n0", 10_000.0)
    world.run()
    assert lost.name not in a.pods


def test_what_was_not_evicted_starts_again_when_its_node_is_back() -> None:
    world = World(1)
    world.gang("a", 1)
    world.run()
    world.cluster.fail("n0", 100.0)
    world.run(150.0)
    world.cluster.recover("n0", 150.0)
    (pod,) = world.pods("a")
    assert not pod.ready
    world.run()
    assert (pod.ready, pod.ready_s) == (True, 166.0), "its image is pulled again"
    assert not pod.terminating, "the eviction at 400 s found the machine well"


def test_a_pod_that_cannot_end_is_forgotten_by_force_where_that_is_asked_for() -> None:
    times = PodTimes(scheduling=0.0, evict_after_s=300.0, force_after_s=60.0)
    world = World(1, times=times)
    a = world.gang("a", 1)
    world.run()
    world.cluster.fail("n0", 100.0)
    world.run(459.0)
    assert a.pods
    world.run(461.0)
    assert not a.pods


def test_a_stuck_pod_holds_its_room_until_it_is_let_go() -> None:
    world = World(1)
    a = world.gang("a", 1)
    world.run()
    (pod,) = world.pods("a")
    world.cluster.holds = lambda held: held is pod
    world.cluster.delete_pod(pod.name, 20.0)
    world.fill(a, 20.0, minimum=1)
    world.run(49.0)
    assert world.nodes("a") == ["", "n0"]
    assert world.view.gangs["a"].why_pending == "its room is held until 1 pod ends"
    world.run()
    assert world.view.gangs["a"].why_pending == "it needs 1 pod of 1 gpu; 0 fit on 1 node"
    world.cluster.unstick(pod.name, 90_000.0)
    world.run()
    assert world.nodes("a") == ["n0"]


def test_pods_that_start_later_are_not_looked_at_whenever_another_is_ready() -> None:
    """1,500 pods that start after 1,500 others: looking at all of them each time takes minutes."""
    times = QUICK.model_copy(update={"readiness": VaryingTime(mean_s=30.0)})
    world = World(375, gpus=8, times=times)
    world.gang("first", 1_500)
    world.gang("second", 1_500, after=(("first", 1_500),))
    world.run()
    last_s = max(pod.ready_s for pod in world.pods("first"))
    assert all(pod.ready_s > last_s for pod in world.pods("second"))


def test_a_gang_that_waits_is_not_tried_again_until_something_is_free() -> None:
    world = World(2)
    world.gang("large", 3)
    world.gang("small", 1)
    world.run()
    assert world.nodes("small") == ["n0"]
    scheduler = world.cluster.scheduler
    world.gang("other", 3, 20.0)
    planned = scheduler.plan(20.0)
    assert [ask.name for ask in planned.requests] == ["other"]
    scheduler.report(planned, 20.0)
    world.cluster.cordon("n1", 20.0)
    assert scheduler.plan(20.0).requests == []
    world.cluster.uncordon("n1", 20.0)
    planned = scheduler.plan(20.0)
    assert [ask.name for ask in planned.requests] == ["large"]
    assert [name for name, _ in planned.behind] == ["other"]  # it asks for the same


def test_room_is_not_held_for_ever_for_the_sake_of_a_pod_that_does_not_end() -> None:
    """A gang of two holds a free node while a pod ends on the other; after its grace, others go."""
    world = World(2)
    world.gang("a", 1)
    world.run()
    (pod,) = world.pods("a")
    world.cluster.holds = lambda held: held is pod
    world.cluster.delete_pod(pod.name, 20.0)
    world.gang("b", 2, 20.0)
    world.gang("c", 1, 20.0)
    world.run(49.0)
    assert world.nodes("c") == [""]
    world.run()
    assert world.nodes("c") == ["n1"]
    assert world.nodes("b") == ["", ""]


def test_containers_that_crash_are_restarted_later_and_later() -> None:
    world = World(1)
    world.gang("a", 1)
    world.run()
    (pod,) = world.pods("a")
    world.cluster.crash_loop("a", 20.0)
    assert (pod.ready, pod.started, pod.erroneous) == (False, False, True)
    starts, was = [], False
    while world.cluster.next_s() < 3000.0:
        now_s = world.cluster.next_s()
        world.cluster.advance(now_s)
        if pod.started and not was:
            starts.append(now_s)
        was = pod.started
    gaps = [after - before for before, after in pairwise(starts)]
    assert starts[0] == 20.0 + BACKOFF_S
    assert gaps[:4] == [25.0, 45.0, 85.0, 165.0]
    assert gaps[-1] == LONGEST_BACKOFF_S + 5.0
    world.cluster.mend("a")
    world.run()
    assert pod.ready
    assert not pod.erroneous


def test_one_crash_is_mended_by_a_restart() -> None:
    world = World(1)
    world.gang("a", 1)
    world.run()
    (pod,) = world.pods("a")
    world.cluster.crash(pod, 20.0)
    assert pod.erroneous
    assert world.run() == 35.0
    assert pod.ready


def test_a_lower_gang_makes_way_whole_and_is_told() -> None:
    world = World(3)
    world.view.priorities["high"] = 100
    low = world.gang("low", 2)
    world.run()
    world.gang("high", 2, 50.0, priority="high")
    world.run()
    assert not low.pods
    assert len(set(world.nodes("high"))) == 2
    condition = world.view.gangs["low"].conditions["DisruptionTarget"]
    assert condition.message == "makes way for high, which has a higher priority"
    assert world.told("Preempted") == [f"low: {condition.message}"]
    world.fill(low, 100.0, minimum=2)
    world.run()
    assert world.nodes("low") == ["", ""]


def test_pods_go_where_their_selector_and_affinity_let_them() -> None:
    world = World(4)
    world.gang("a", 1, nodeSelector={"rack": "r1"})
    expression = {"key": "kubernetes.io/hostname", "operator": "NotIn", "values": ["n0", "n2"]}
    terms = {"nodeSelectorTerms": [{"matchExpressions": [expression]}]}
    affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}
    world.gang("b", 2, affinity=affinity)
    world.gang("c", 1, nodeSelector={"rack": "r9"})
    world.run()
    assert world.nodes("a") == ["n2"]
    assert world.nodes("b") == ["n1", "n3"]
    assert world.view.gangs["c"].why_pending == "c: no node has rack In (r9)"


@pytest.mark.parametrize(
    ("expression", "says"),
    [
        ({"operator": "In", "values": ["x"]}, "has no key"),
        ({"key": "a", "operator": "Is"}, "'Is' is not an operator; allowed: In"),
        ({"key": "a", "operator": "In"}, "In of a has no values"),
        ({"key": "a", "operator": "Exists", "values": ["x"]}, "Exists of a takes no values"),
        ({"key": "a", "operator": "Gt", "values": ["x"]}, "Gt of a takes one whole number"),
        ({"key": "a", "operator": "In", "values": "x"}, "the values of a are not a list"),
    ],
)
def test_an_affinity_that_says_nothing_is_refused(expression: dict[str, object], says: str) -> None:
    terms = {"nodeSelectorTerms": [{"matchExpressions": [expression]}]}
    spec = {"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}}
    with pytest.raises(InputError, match=says):
        selector_of(spec)


def test_numbers_in_labels_are_compared() -> None:
    def matches(operator: str, value: str | None) -> bool:
        terms = [{"matchExpressions": [{"key": "k", "operator": operator, "values": ["8"]}]}]
        required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
        selector = selector_of({"affinity": {"nodeAffinity": required}})
        assert selector is not None
        return selector.matches({} if value is None else {"k": value})

    assert matches("Gt", "10")
    assert not matches("Gt", "8")
    assert matches("Lt", "7")
    assert not matches("Lt", "many")
    assert not matches("Gt", None)


def test_times_are_drawn_from_streams_and_repeat_by_seed() -> None:
    times = PodTimes(
        scheduling=VaryingTime(mean_s=0.5, distribution="uniform", half_width_s=0.5),
        image_pull=VaryingTime(mean_s=60.0, cv=1.0),
        readiness=VaryingTime(mean_s=90.0, distribution="exponential"),
    )

    def ready(seed: int) -> list[float]:
        world = World(4, times=times, seed=seed)
        world.gang("a", 4)
        world.run()
        return [pod.ready_s for pod in world.pods("a")]

    assert ready(1) == ready(1)
    assert ready(1) != ready(2)
    assert len(set(ready(1))) == 4


def test_a_cluster_at_rest_has_no_next_event_and_quick_times_are_what_they_say() -> None:
    assert World(3).cluster.next_s() == float("inf")
    assert QUICK.readiness == 5.0
