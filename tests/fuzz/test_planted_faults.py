"""The fuzzer can fail: a fault that is planted in a layer is found by the short campaign."""

from collections.abc import Callable
from typing import Any

import pytest

from windtunnel.admission.gateway.gateway import Gateway
from windtunnel.admission.gateway.tickets import Ticket
from windtunnel.core.signals import Signals
from windtunnel.engine.cache import BlockPool
from windtunnel.fleet.planner.entries import MachineEntry, NeedRow
from windtunnel.fleet.planner.inventory import Inventory
from windtunnel.fuzz.campaign import examine
from windtunnel.fuzz.draw import draw
from windtunnel.fuzz.trial import Breach, attempt
from windtunnel.gangs.placement.space import Space
from windtunnel.routing.router import Router
from windtunnel.twin.fleet.meter import MachineAccount
from windtunnel.twin.requests.lifecycle import RequestLifecycle
from windtunnel.twin.servers.lifecycle import Lifecycle
from windtunnel.twin.servers.replicas import Pool, Replica
from windtunnel.workload.request import Request

pytestmark = pytest.mark.once  # a compiled class cannot be given another method

SHORT_CAMPAIGN = 100
"""Seeds that `test_campaign.py` goes through."""

FIRST_WITH_TWO = 1
"""A seed whose scenario begins with two replicas of a pool."""

Plant = Callable[[type, str, Callable[..., Any]], None]


@pytest.fixture
def plant(monkeypatch: pytest.MonkeyPatch) -> Plant:
    """Puts a wrong method in the place of a right one, which it is given first."""

    def put(owner: type, name: str, wrong: Callable[..., Any]) -> None:
        right = getattr(owner, name)

        def method(self: Any, *args: Any, **named: Any) -> Any:
            return wrong(right, self, *args, **named)

        monkeypatch.setattr(owner, name, method)

    return put


def first_breach() -> Breach:
    for seed in range(SHORT_CAMPAIGN):
        breach = attempt(draw(seed))
        if breach is not None:
            return breach
    pytest.fail("the short campaign finds nothing")


def test_admission_a_lease_that_is_not_given_back(plant: Plant) -> None:
    def close(right: Any, gateway: Gateway, ticket: Ticket) -> None:
        right(gateway, ticket)
        gateway.in_flight += ticket.id % 7 == 6

    plant(Gateway, "_close", close)
    assert first_breach().cause == ("invariant", "gateway-agrees")


def test_routing_a_server_that_is_gone_is_still_chosen(plant: Plant) -> None:
    def keep(right: Any, router: Router, candidates: list[int]) -> None:
        right(router, [*candidates, *router.candidates[:1]][: max(1, len(candidates))])

    plant(Router, "set_candidates", keep)
    assert first_breach().what in {"invariant", "error"}


def test_routing_an_end_that_is_counted_twice(plant: Plant) -> None:
    def ended(right: Any, signals: Signals, server: int, tokens: int) -> None:
        if signals.in_flight[server] == 4:
            right(signals, server, tokens)
        right(signals, server, tokens)

    plant(Signals, "ended", ended)
    assert first_breach().cause == ("invariant", "in-flight-exact")


def test_engine_a_block_that_is_not_freed(plant: Plant) -> None:
    def release(right: Any, pool: BlockPool, request: Request, computed: int, **how: bool) -> None:
        lost = int(pool.block_size) if request.id % 5 == 4 else 0
        right(pool, request, max(0, computed - lost), **how)

    plant(BlockPool, "release", release)
    assert first_breach().cause == ("invariant", "blocks-conserved")


def test_scaling_a_replica_that_is_counted_twice(plant: Plant) -> None:
    def move(right: Any, pool: Pool, replica: Replica, state: int, now_s: float) -> None:
        right(pool, replica, state, now_s)
        if replica.number == 3:
            pool.counts[state] += 1

    plant(Pool, "move", move)
    assert first_breach().cause == ("invariant", "replicas-counted")


def test_scaling_a_drain_that_nobody_ends(plant: Plant) -> None:
    def forget(right: Any, lifecycle: Lifecycle, now_s: float) -> None:
        pass

    plant(Lifecycle, "retire", forget)
    assert first_breach().cause == ("invariant", "line-moves")


def test_gangs_room_that_a_pod_leaves_behind_is_not_free(plant: Plant) -> None:
    def give(right: Any, space: Space, *what: Any) -> None:
        pass

    plant(Space, "give", give)
    assert first_breach().cause == ("invariant", "gangs.room")


def test_fleet_a_machine_that_is_counted_twice(plant: Plant) -> None:
    def attach(right: Any, inventory: Inventory, entry: MachineEntry, row: NeedRow) -> None:
        right(inventory, entry, row)
        row.held.append(entry)

    plant(Inventory, "_attach", attach)
    breach = first_breach()
    assert breach.what == "error" or breach.name.startswith("fleet.")


def test_fleet_a_machine_that_nobody_pays_for(plant: Plant) -> None:
    def change(
        right: Any, account: MachineAccount, machines: int, price: float, now_s: float
    ) -> None:
        right(account, max(machines, 0), price, now_s)

    plant(MachineAccount, "change", change)
    assert first_breach().cause == ("invariant", "machines-paid")


def test_twin_a_request_that_a_drain_loses(plant: Plant) -> None:
    def lose(right: Any, requests: RequestLifecycle, request: Request, *_: Any) -> None:
        requests._withdraw(request)
        requests._leave(request)

    plant(RequestLifecycle, "_redirect", lose)
    assert first_breach().cause == ("invariant", "requests-conserved")


def test_what_is_found_is_small(plant: Plant) -> None:
    def move(right: Any, pool: Pool, replica: Replica, state: int, now_s: float) -> None:
        right(pool, replica, state, now_s)
        if replica.number == 1:
            pool.counts[state] += 1

    plant(Pool, "move", move)
    found = examine(FIRST_WITH_TWO)
    assert found is not None
    assert found.breach.cause == ("invariant", "replicas-counted")
    assert set(found.document) <= {"name", "seed", "duration", "workload", "serving"}
    (source,) = found.document["workload"]
    assert source["prompt_tokens"] == source["output_tokens"] == 1
