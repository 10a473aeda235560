"""Defects of other simulators' routers that must not be here, each by its name."""

from collections import Counter

import pytest

from tests.routing.fleet import Fleet, chosen, prompt
from tests.twin.runs import BUSY
from windtunnel.routing.build import POLICIES
from windtunnel.twin.compose import compose
from windtunnel.twin.run import breathe
from windtunnel.twin.scenario.load import load_text
from windtunnel.twin.simulation import Simulation


def ran(*router: str) -> Simulation:
    simulation = compose(load_text(BUSY, sets=[f"serving.router.{set_}" for set_ in router]))
    simulation.run(breathe)
    return simulation


@pytest.mark.parametrize("policy", sorted(set(POLICIES) - {"weighted"}))
def test_a_router_that_looks_at_nothing_never_pays_for_snapshots(policy: str) -> None:
    """The peer copies every server's map of blocks every 50 ms, even for round-robin."""
    simulation = ran(f"policy={policy}")
    assert simulation.recorder.arrived > 100
    assert simulation.cluster.rosters[0].signals.probes == 0
    assert all(server.pool.journal is None for server in simulation.servers)


def test_servers_are_asked_no_more_often_than_signals_grow_old() -> None:
    simulation = ran("policy=weighted", "staleness=100ms")
    assert 10 < simulation.cluster.rosters[0].signals.probes <= 21  # two seconds of traffic


def test_what_is_copied_of_a_cache_is_what_changed() -> None:
    """A journal grows with what is cached and evicted, not with what is there."""
    fleet = Fleet(1, kv_blocks=500)
    index = fleet.index()
    for number in range(20):
        fleet.servers[0].submit(prompt(number, tokens=64, keys=[number], ends=[48]), 0.0)
    while fleet.servers[0].wake_s < 1e9:
        fleet.servers[0].advance(fleet.servers[0].wake_s)
    assert len(fleet.journal.entries) == 20 * 3
    index.catch_up(0.0)
    assert fleet.journal.entries == []
    fleet.servers[0].submit(prompt(30, tokens=64, keys=[3], ends=[48]), 1.0)
    while fleet.servers[0].wake_s < 1e9:
        fleet.servers[0].advance(fleet.servers[0].wake_s)
    assert fleet.journal.entries == []  # a hit changes nothing


def test_regret_is_not_zero_by_construction() -> None:
    """Held against its own scores, a router that takes the highest never regrets."""
    simulation = ran("policy=weighted", "staleness=1s", "counterfactual=1")
    assert simulation.services[0].counterfactual is not None
    assert simulation.services[0].counterfactual.summary()["regret_max"] != 0.0


@pytest.mark.parametrize("policy", ["least-loaded", "weighted"])
def test_equals_do_not_all_go_to_the_lowest_number(policy: str) -> None:
    router = Fleet(4).router(policy)
    assert Counter(chosen(router, prompt()) for _ in range(40)) == Counter(
        {0: 10, 1: 10, 2: 10, 3: 10}
    )
