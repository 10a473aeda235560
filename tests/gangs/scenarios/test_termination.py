"""GT1 to GT6: who is torn down when a minimum is broken, and who is not."""

from typing import Any

import pytest

from tests.gangs.manifests import clique, group, pod_clique_set, workload
from tests.gangs.scenarios.live import Live

DELAY_S = 10.0


def delayed(number: int) -> dict[str, Any]:
    return workload(number, terminationDelay="10s")


def wl5_gt() -> dict[str, Any]:
    return pod_clique_set(
        [clique("pc-a", 2, 1), clique("pc-b", 1), clique("pc-c", 3)],
        [group("sg-x", ["pc-b", "pc-c"], 2, 1)],
        terminationDelay="10s",
    )


def test_gt1_a_lone_clique_below_its_minimum_recycles_the_set_replica() -> None:
    live = Live(delayed(1), nodes=10)
    before = live.uids()
    live.kill(live.pods("pc-a")[0], seconds=5.0)
    assert len(live.uids() & before) == 9, "nobody goes before the delay"
    live.run()
    assert not live.uids() & before
    assert (live.placed, live.pending) == (0, 10)
    live.add(1)
    assert live.ready() == 10


def test_gt2_a_group_below_its_minimum_recycles_the_set_replica() -> None:
    live = Live(delayed(1), nodes=10)
    before = live.uids()
    live.kill(live.pods("sg-x-0-pc-c")[0])
    assert not live.uids() & before
    live.add(1)
    assert live.ready() == 10


def test_gt3_above_the_minimum_nothing_is_torn_down() -> None:
    live = Live(delayed(2), nodes=10)
    kept = live.uids()
    lost = live.pods("pc-a")[0]
    live.kill(lost, seconds=300.0)
    assert live.uids() >= kept - {lost.uid}


@pytest.mark.parametrize("rule", ["Hold", "Terminate"])
def test_gt3_all_scheduled_pods_lost_is_no_breach_and_strands_the_others(rule: str) -> None:
    """The others hold machines, which a recycle gives back; the lost pods alone hold none."""
    manifest = delayed(2)
    manifest["spec"]["template"]["onStranded"] = rule
    live = Live(manifest, nodes=10)
    others = live.uids() - live.uids("pc-a")
    for pod in live.pods("pc-a"):
        live.kill(pod, seconds=0.0)
    live.run(9.0)
    assert live.uids() >= others
    breached = live.condition("MinAvailableBreached", "web-0-pc-a")
    assert (breached.status, breached.reason) == ("False", "InsufficientScheduledPods")
    assert live.told("AllScheduledReplicasLost") == ["web-0-pc-a"]
    stranded = live.view.cliques["web-0-pc-a"].conditions.get("GangStranded")
    assert (stranded is not None) == (rule == "Terminate")
    live.run(291.0)
    assert (live.uids() >= others) == (rule == "Hold")


def test_gt3_all_scheduled_pods_lost_recycles_where_that_is_asked_for() -> None:
    manifest = delayed(2)
    manifest["spec"]["template"]["onAllScheduledLost"] = "Terminate"
    live = Live(manifest, nodes=10)
    before = live.uids()
    for pod in live.pods("pc-a"):
        live.kill(pod, seconds=0.0)
    live.run(300.0)
    assert not live.uids() & before
    live.add(2)
    assert live.ready() == 10


def test_gt4a_a_group_member_above_its_minimum_is_only_replaced() -> None:
    live = Live(delayed(2), nodes=10)
    before = live.uids()
    lost = live.pods("sg-x-0-pc-c")[0]
    live.kill(lost, seconds=300.0)
    assert live.uids() >= before - {lost.uid}


def test_gt4b_a_broken_group_replica_is_recycled_alone() -> None:
    """Two of three pods of a clique whose minimum is two: the group has another replica left."""
    manifest = pod_clique_set(
        [clique("pc-a", 2, 1), clique("pc-b", 1), clique("pc-c", 3, 2)],
        [group("sg-x", ["pc-b", "pc-c"], 2, 1)],
        terminationDelay="10s",
    )
    live = Live(manifest, nodes=10)
    others = live.uids("pc-a") | live.uids("sg-x-1-pc-b") | live.uids("sg-x-1-pc-c")
    broken = live.uids("sg-x-0-pc-b") | live.uids("sg-x-0-pc-c")
    for pod in live.pods("sg-x-0-pc-c")[:2]:
        live.kill(pod, seconds=0.0)
    live.run(300.0)
    assert live.uids() >= others
    assert not live.uids() & broken
    live.add(2)
    assert live.ready() == 10


def test_gt4b_a_group_replica_that_lost_a_whole_role_is_recycled_where_that_is_asked_for() -> None:
    manifest = delayed(2)
    manifest["spec"]["template"]["onAllScheduledLost"] = "Terminate"
    live = Live(manifest, nodes=10)
    others = live.uids("pc-a") | live.uids("sg-x-1-pc-b") | live.uids("sg-x-1-pc-c")
    broken = live.uids("sg-x-0-pc-b") | live.uids("sg-x-0-pc-c")
    for pod in live.pods("sg-x-0-pc-c"):
        live.kill(pod, seconds=0.0)
    live.run(300.0)
    assert live.uids() >= others
    assert not live.uids() & broken


def test_gt5_a_clique_that_needs_all_its_pods_takes_its_group_replica_with_it() -> None:
    live = Live(wl5_gt(), nodes=10)
    others = live.uids("pc-a") | live.uids("sg-x-1-pc-b") | live.uids("sg-x-1-pc-c")
    broken = live.uids("sg-x-0-pc-b") | live.uids("sg-x-0-pc-c")
    live.kill(live.pods("sg-x-0-pc-c")[0], seconds=300.0)
    assert live.uids() >= others
    assert not live.uids() & broken
    live.add(1)
    assert live.ready() == 10


def test_gt6_a_pod_of_a_scaled_gang_is_only_replaced() -> None:
    live = Live(workload(2), nodes=10)
    before = live.uids()
    lost = live.pods("sg-x-1-pc-c")[0]
    live.kill(lost, cordon=False)
    assert live.uids() >= before - {lost.uid}
    assert live.ready() == 10


def test_a_breach_that_heals_in_time_is_forgotten() -> None:
    live = Live(workload(1, terminationDelay="100s"), nodes=11, usable=10)
    before = live.uids()
    live.kill(live.pods("pc-a")[0], seconds=90.0)
    live.add(1)
    live.run(300.0)
    assert len(live.uids() & before) == 9


def test_a_delay_of_four_hours_costs_nothing() -> None:
    live = Live(workload(1), nodes=10)
    before = live.uids()
    live.kill(live.pods("pc-a")[0], seconds=4 * 3600.0 - 60.0)
    assert len(live.uids() & before) == 9
    live.run(120.0)
    assert not live.uids() & before


def test_what_was_never_scheduled_is_never_terminated() -> None:
    live = Live(delayed(1), nodes=10, usable=9)
    before = live.uids()
    live.run(10_000.0)
    assert live.uids() == before


def test_a_dead_node_breaks_a_gang_which_then_finds_another_place() -> None:
    """Pods on a dead machine cannot end; the gang is rebuilt without it."""
    live = Live(workload(1, terminationDelay="10m"), nodes=11, usable=10)
    node = live.pods("pc-a")[0].node
    live.cluster.fail(node, live.now_s)
    live.run(200.0)
    assert live.ready() == 9
    live.run(200.0)
    assert (live.placed, live.pending) == (9, 1)
    live.add(1)
    assert live.ready() == 10
