"""Several shards on one cluster: each its own machines, and more where it is short."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.fleet.kubernetes.world import World, fleet_file
from windtunnel.core.errors import InputError
from windtunnel.fleet.kubernetes.objects import CLAIM, POD
from windtunnel.fleet.kubernetes.sharding import FleetCoordinator

SHARDS = [
    {"name": "east", "zones": ["z1"], "namespaces": ["chat"]},
    {"name": "west", "zones": ["z2"], "namespaces": ["batch"]},
]


def two(places: int = 1) -> World:
    return World(fleet_file(places=places, shards=SHARDS), ["east", "west"])


def test_each_shard_gets_machines_of_its_zones_for_its_namespaces() -> None:
    world = two()
    world.add_pod("a", namespace="chat")
    world.add_pod("b", namespace="batch")
    world.add_pod("c", namespace="nobody")
    world.run(60)
    assert sorted(world.api.objects[CLAIM]) == ["main-h200-0", "main-h200-z2-0"]
    assert world.states("east") == world.states("west") == {"configured": 1}
    assert not world.node_of("c")


def test_a_shard_that_is_short_gets_a_place_of_another() -> None:
    world = two()
    world.add_pod("a", namespace="chat")
    world.add_pod("b", namespace="chat")
    world.run(400)
    assert world.node_of("a")
    assert world.node_of("b")
    assert world.states("east") == {"configured": 2}
    told = [one for one in world.controllers["west"].decisions if one.word == "given_up"]
    assert [one.machine for one in told] == ["main-h200-z2-0"]
    # What was moved is the receiver's after a restart of everything.
    for name in world.names:
        world.start(name)
    world.start_coordinator()
    world.run(60)
    assert world.states("east") == {"configured": 2}
    assert world.states("west") == {}


@given(st.lists(st.integers(0, 3), min_size=1, max_size=4), st.integers(0, 40), st.booleans())
def test_killed_anywhere_no_machine_has_two_owners_and_none_is_created_twice(
    story: list[int], kill_at: int, after: bool
) -> None:
    world = two(places=2)
    world.calls_left, world.kills_after = kill_at, after
    pods = 0
    for word in story:
        pods += 1
        world.add_pod(f"p{pods}", namespace=["chat", "batch"][word % 2])
        if word == 3:
            world.start_coordinator()
        elif word == 2:
            world.start("east")
        world.run(100)
        for record in world.controllers["east"].provider.records():
            owners = [name for name, one in world.controllers.items() if one.provider.owns(record)]
            assert len(owners) <= 1, (record.id, owners)
    world.run(400)
    claims = [name for name in world.api.created if "h200" in name]
    assert len(claims) == len(set(claims)) == len(world.api.objects[CLAIM]) <= 4
    assert sum(bool(world.node_of(name)) for name in world.api.objects[POD]) == min(pods, 4)


def test_a_zone_stays_with_its_shard() -> None:
    world = two()
    turned = [{**SHARDS[0], "zones": ["z2"]}, {**SHARDS[1], "zones": ["z1"]}]
    file = fleet_file(places=1, shards=turned)
    data = world.api.objects["ConfigMap"]["windtunnel-fleet-main-coordinator"]["data"]
    with pytest.raises(InputError, match="cannot be given to"):
        FleetCoordinator(data, file.live.fleet)


def test_a_shard_tells_of_its_own_machines_only() -> None:
    world = two()
    world.add_pod("a", namespace="chat")
    world.run(60)
    world.api.remove(POD, "a")
    world.run(60)
    told = {one.machine for one in world.controllers["west"].decisions if one.machine}
    assert told == set()
    assert "main-h200-0" in {one.machine for one in world.controllers["east"].decisions}
