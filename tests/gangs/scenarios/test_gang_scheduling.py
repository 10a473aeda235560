"""GS1 to GS11: what fits is placed in units of minima, and the rest waits."""

from tests.gangs.manifests import workload
from tests.gangs.scenarios.live import Live


def test_gs1_one_node_short_places_nothing_and_one_more_places_all() -> None:
    live = Live(workload(1), nodes=10, usable=9)
    assert (live.placed, live.pending) == (0, 10)
    assert live.why("web-0") == (
        "it needs 10 pods of 80 MiB memory each; 9 fit on the 9 usable nodes of 10"
    )
    live.add(1)
    assert (live.placed, live.ready()) == (10, 10)
    assert len({pod.node for pod in live.pods()}) == 10


def test_gs2_a_scaling_group_that_grows_waits_as_a_gang_of_its_own() -> None:
    live = Live(workload(1), nodes=14, usable=9)
    assert live.pending == 10
    live.add(1)
    assert live.ready() == 10
    live.scale("web-0-sg-x", 3)
    assert (live.placed, live.pending) == (10, 4)
    live.add(3)
    assert (live.placed, live.pending) == (10, 4), "three of four are not the gang"
    live.add(1)
    assert live.ready() == 14


def test_gs3_another_set_replica_is_another_gang() -> None:
    live = Live(workload(1), nodes=20, usable=9)
    live.add(1)
    assert live.ready() == 10
    live.scale("web", 2)
    assert (live.placed, live.pending) == (10, 10)
    live.add(10)
    assert live.ready() == 20


def test_gs4_both_ways_of_growing_together() -> None:
    live = Live(workload(1), nodes=28, usable=9)
    assert live.pending == 10
    live.add(1)
    assert live.ready() == 10
    live.scale("web-0-sg-x", 3)
    assert live.pending == 4
    live.add(4)
    assert live.ready() == 14
    live.scale("web", 2)
    assert live.pending == 10
    live.scale("web-1-sg-x", 3)
    assert (live.placed, live.pending) == (14, 14)
    live.add(14)
    assert live.ready() == 28


def test_gs5_the_minimum_of_the_base_gang_is_placed_exactly() -> None:
    live = Live(workload(2), nodes=10, usable=2)
    assert (live.placed, live.pending) == (0, 10)
    live.add(1)
    assert live.placed == 3
    cliques = sorted(pod.clique for pod in live.pods() if pod.scheduled)
    assert cliques == ["web-0-pc-a", "web-0-sg-x-0-pc-b", "web-0-sg-x-0-pc-c"]
    live.add(7)
    assert live.ready() == 10


def test_gs6_a_scaled_gang_gets_its_minimum_then_the_rest() -> None:
    live = Live(workload(2), nodes=14, usable=2)
    live.add(1)
    assert live.placed == 3
    live.add(7)
    assert live.placed == 10
    live.scale("web-0-sg-x", 3)
    assert live.pending == 4
    live.add(2)
    assert live.placed == 12
    assert sorted(p.clique for p in live.pods("sg-x-2-pc-b") + live.pods("sg-x-2-pc-c")
                  if p.scheduled) == ["web-0-sg-x-2-pc-b", "web-0-sg-x-2-pc-c"]  # fmt: skip
    live.add(2)
    assert live.ready() == 14


def test_gs7_minima_of_scaled_gangs_come_before_pods_above_a_minimum() -> None:
    live = Live(workload(2), nodes=14, usable=2)
    live.add(1)
    assert live.placed == 3
    live.add(2)
    assert live.placed == 5
    assert [pod.scheduled for pod in live.pods("sg-x-1-pc-b")] == [True]
    live.add(5)
    assert live.placed == 10
    live.scale("web-0-sg-x", 3)
    assert live.pending == 4
    live.add(2)
    assert live.placed == 12
    live.add(2)
    assert live.ready() == 14


def test_gs8_growing_while_everything_waits() -> None:
    live = Live(workload(2), nodes=14, usable=2)
    live.scale("web-0-sg-x", 3)
    assert (live.placed, live.pending) == (0, 14)
    live.add(1)
    assert live.placed == 3
    live.add(4)
    assert live.placed == 7
    assert all(pod.scheduled for part in (1, 2) for pod in live.pods(f"sg-x-{part}-pc-b"))
    live.add(7)
    assert live.ready() == 14


def test_gs10_two_set_replicas_get_both_minima_first() -> None:
    live = Live(workload(2), nodes=20, usable=2)
    live.scale("web", 2)
    assert (live.placed, live.pending) == (0, 20)
    live.add(4)
    assert live.placed == 6
    live.add(4)
    assert live.placed == 10
    assert sum(pod.scheduled for pod in live.pods("sg-x-1-pc-b")) == 2
    live.add(10)
    assert live.ready() == 20


def test_gs11_every_stage_lands_minimum_first() -> None:
    live = Live(workload(2), nodes=28, usable=2)
    live.add(1)
    assert live.placed == 3
    live.add(7)
    assert live.placed == 10
    live.scale("web-0-sg-x", 3)
    live.add(2)
    assert live.placed == 12
    live.add(2)
    assert live.placed == 14
    live.scale("web", 2)
    live.add(3)
    assert live.placed == 17
    live.add(7)
    assert live.placed == 24
    live.scale("web-1-sg-x", 3)
    live.add(2)
    assert live.placed == 26
    live.add(2)
    assert live.ready() == 28


def test_without_gang_admission_halves_are_placed_and_the_delay_absorbs_the_flicker() -> None:
    """The pods of a plain scheduler come one by one: a breach that heals, and nothing is killed."""
    live = Live(workload(1), nodes=10, one_by_one=True)
    before = live.uids()
    assert live.ready() == 10
    assert live.uids() == before
    short = Live(workload(1), nodes=10, usable=9, one_by_one=True)
    assert (short.placed, short.pending) == (9, 1)
