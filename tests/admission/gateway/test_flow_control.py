"""Flow control by hand: who goes, who waits, who is shed or stopped, and why."""

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.admission.gateway.fleet import Desk, flow_settings, signals
from windtunnel.admission.gateway.bands import Weights
from windtunnel.admission.gateway.budgets import TenantBudgets
from windtunnel.admission.gateway.detectors import Concurrency, Detector, Utilization
from windtunnel.admission.gateway.flow_control import ORDERS, FlowControl
from windtunnel.admission.gateway.settings import FlowControlSettings

NAMES = [f"tenant-{number}" for number in range(100)]


def flow(
    order: str = "priority",
    detector: Detector | None = None,
    *,
    room: int = 1,
    most: int = 1000,
    most_per_band: int = 1000,
    ttl_s: float = math.inf,
    limit: float = 1.0,
    shedding: bool = False,
    eviction: bool = False,
    weights: dict[str, float] | None = None,
    priorities: list[int] | None = None,
) -> FlowControl:
    settings = flow_settings(
        order, most, most_per_band, ttl_s, limit, shedding=shedding, eviction=eviction
    )
    detector = detector or Concurrency(room)
    return FlowControl(detector, settings, Weights(weights or {}, NAMES), priorities or [])


def served(desk: Desk, done: int = 0) -> list[int]:
    """Ends all but the first `done`, one after the other, until nobody waits: their order."""
    while done < len(desk.sent):
        desk.end(desk.sent[done])
        done += 1
    return desk.sent


def test_who_fits_goes_at_once_and_the_rest_wait() -> None:
    desk = Desk(flow(room=2))
    assert desk.arrive() == "admit 0 room"
    assert desk.arrive() == "admit 1 room"
    assert desk.arrive() == "queue 2 saturated"
    assert (desk.gateway.queued, desk.gateway.in_flight) == (1, 2)
    assert desk.gateway.next_s == math.inf
    assert desk.end(0) == "admit 2 room"


def test_as_many_go_as_fit_and_no_more() -> None:
    """One trigger is enough for all of them; every one that goes counts for the next."""
    desk = Desk(flow(detector=Utilization(1.0, 1.0, 0.05)), signals(2, 2, waiting=2))
    desk.signals.taken_s = 0.0
    assert desk.arrive() == "admit 0 idle-fleet"
    assert [desk.arrive() for _ in range(3)] == [f"queue {n} saturated" for n in (1, 2, 3)]
    for server in (0, 1):
        desk.signals.in_flight[server] = desk.signals.running[server] = 1
        desk.signals.waiting[server] = 0
    desk.signals.taken_s = 0.05
    assert desk.gateway.next_s == 0.05
    assert desk.tick(0.05) == "admit 1 room, admit 2 room"


def test_the_next_look_is_counted_from_the_last() -> None:
    desk = Desk(flow(detector=Utilization(1.0, 1.0, 0.5)), signals(2, waiting=2))
    desk.arrive(10.0)
    desk.arrive(10.0)
    assert desk.gateway.next_s == 10.5
    assert desk.tick(10.5) == ""
    assert desk.gateway.next_s == 11.0
    desk.signals = signals()
    desk.tick(11.0)
    assert desk.gateway.next_s == math.inf, "the first server that comes is a reason to look"


@pytest.mark.parametrize(
    ("order", "expected"),
    [
        ("fifo", [0, 1, 2, 3, 4, 5, 6]),
        ("priority", [0, 5, 1, 3, 4, 2, 6]),
        ("slo-deadline", [0, 6, 3, 5, 1, 2, 4]),
        ("round-robin", [0, 3, 5, 4, 1, 6, 2]),
    ],
)
def test_orders_really_differ(order: str, expected: list[int]) -> None:
    desk = Desk(flow(order))
    desk.arrive(tenant=0)
    desk.arrive(tenant=0, priority=3, tokens=10, target_s=5.0)
    desk.arrive(tenant=0, priority=0, tokens=10, target_s=5.0)
    desk.arrive(tenant=1, priority=3, tokens=30, target_s=3.0)
    desk.arrive(tenant=1, priority=3, tokens=10)
    desk.arrive(tenant=0, priority=4, tokens=10, target_s=4.0)
    desk.arrive(tenant=1, priority=-1, tokens=10, target_s=1.0)
    assert served(desk) == expected


def test_a_heavy_tenant_does_not_hold_up_a_light_one() -> None:
    desk = Desk(flow())
    for _ in range(50):
        desk.arrive(tenant=0, tokens=100)
    desk.arrive(tenant=1, tokens=100)
    assert served(desk).index(50) <= 2


def test_tokens_are_shared_by_weight() -> None:
    desk = Desk(flow(weights={"tenant-1": 3.0}))
    for number in range(40):
        desk.arrive(tenant=number % 2, tokens=100)
    first = served(desk)[1:25]
    assert sum(number % 2 for number in first) == 18  # three quarters


def test_long_prompts_count_for_more_than_short_ones() -> None:
    """What is shared is tokens: a tenant of prompts ten times as long gets a tenth of the turns."""
    desk = Desk(flow())
    for _ in range(11):
        desk.arrive(tenant=0, tokens=1000)
    for _ in range(100):
        desk.arrive(tenant=1, tokens=100)
    first = served(desk)[1:56]
    assert sum(number < 11 for number in first) == 5


def test_whoever_was_idle_has_saved_nothing_up() -> None:
    desk = Desk(flow())
    for _ in range(10):
        desk.arrive(tenant=0, tokens=100)
    for number in range(5):
        desk.end(number)
    for _ in range(4):
        desk.arrive(tenant=1, tokens=100)
    assert served(desk, 5)[6:12] == [10, 6, 11, 7, 12, 8]


def test_ceilings_are_spread_evenly_between_one_and_the_limit() -> None:
    gateway = flow(limit=0.6, priorities=[4, 3, -1, -2, -3])
    found = [gateway.ceiling(priority) for priority in (4, 3, -1, -2, -3)]
    assert found == pytest.approx([1.0, 0.9, 0.8, 0.7, 0.6])
    assert flow(limit=0.2, priorities=[7]).ceiling(7) == 1.0


def test_a_new_band_spreads_the_ceilings_anew() -> None:
    gateway = flow(limit=0.5, priorities=[4, -1])
    assert gateway.ceiling(-1) == 0.5
    Desk(gateway).arrive(priority=-2)
    assert (gateway.ceiling(-1), gateway.ceiling(-2)) == (0.75, 0.5)


@pytest.mark.parametrize("order", ORDERS)
def test_a_band_stops_at_its_ceiling_and_those_above_go_on(order: str) -> None:
    desk = Desk(flow(order, room=4, limit=0.5, priorities=[4, -1]))
    assert desk.arrive(priority=-1) == "admit 0 room"
    assert desk.arrive(priority=-1) == "admit 1 room"
    assert desk.arrive(priority=-1) == "queue 2 saturated"
    assert desk.arrive(priority=4) == "admit 3 room"
    assert desk.arrive(priority=4) == "admit 4 room"
    assert desk.arrive(priority=4) == "queue 5 saturated"
    assert desk.end(0) == "admit 5 room"
    assert [desk.end(1), desk.end(3), desk.end(4)] == ["", "", "admit 2 room"]


def test_a_ceiling_of_zero_still_lets_one_go_when_nothing_is_in_flight() -> None:
    desk = Desk(flow(limit=0.0, priorities=[4, -1]))
    assert desk.arrive(priority=-1) == "admit 0 idle-fleet"
    assert desk.arrive(priority=-1) == "queue 1 saturated"
    assert desk.end(0) == "admit 1 idle-fleet"


def test_without_servers_all_wait_until_there_is_one() -> None:
    desk = Desk(flow(detector=Detector()), signals())
    assert desk.arrive() == "queue 0 no-servers"
    assert desk.tick(1.0) == ""
    desk.signals = signals(0)
    assert desk.tick(2.0) == "admit 0 room"


def test_a_full_band_turns_away_its_own() -> None:
    desk = Desk(flow(most_per_band=1, shedding=True))
    desk.arrive()
    assert desk.arrive(priority=3) == "queue 1 saturated"
    assert desk.arrive(priority=3) == "reject 2 band-full"
    assert desk.arrive(priority=4) == "queue 3 saturated"


def test_a_full_queue_turns_newcomers_away() -> None:
    desk = Desk(flow(most=1))
    desk.arrive()
    assert desk.arrive(priority=-1) == "queue 1 saturated"
    assert desk.arrive(priority=4) == "reject 2 queue-full"


def test_with_shedding_the_newest_of_the_lowest_gives_its_place_up() -> None:
    desk = Desk(flow(most=3, shedding=True))
    desk.arrive()
    for priority in (-2, -2, -1):
        desk.arrive(priority=priority)
    assert desk.arrive(priority=-2) == "reject 4 queue-full"
    assert desk.arrive(priority=4) == "reject 2 outranked, queue 5 saturated"
    assert desk.arrive(priority=4) == "reject 1 outranked, queue 6 saturated"
    assert desk.arrive(priority=-1) == "reject 7 queue-full"
    assert desk.arrive(priority=0) == "reject 3 outranked, queue 8 saturated"
    assert desk.arrive(priority=4) == "reject 9 queue-full", "0 may not be shed"


def test_no_place_to_wait_is_needed_where_there_is_room_to_go() -> None:
    desk = Desk(flow(most=0))
    assert desk.arrive() == "admit 0 room"
    assert desk.arrive() == "reject 1 queue-full"
    desk.end(0)
    assert desk.arrive() == "admit 2 room"


def test_nobody_waits_longer_than_the_time_to_live() -> None:
    desk = Desk(flow(ttl_s=2.0))
    desk.arrive(0.0)
    desk.arrive(1.0, priority=-1)
    desk.arrive(1.5, priority=4)
    assert desk.gateway.next_s == 3.0
    assert desk.tick(2.9) == ""
    assert desk.tick(3.0) == "reject 1 expired"
    assert desk.gateway.next_s == 3.5
    assert desk.end(0, 3.5) == "reject 2 expired", "its time was up just then"
    assert desk.gateway.next_s == math.inf


def test_whoever_leaves_is_gone_and_the_others_move_up() -> None:
    desk = Desk(flow())
    for _ in range(4):
        desk.arrive()
    desk.leave(1)
    desk.leave(3)
    assert served(desk) == [0, 2]


def test_a_protected_request_has_the_last_of_the_lowest_stopped_for_it() -> None:
    desk = Desk(flow(room=4, eviction=True))
    for priority in (-1, -2, -2, 3):
        desk.arrive(priority=priority)
    assert desk.arrive(priority=-1) == "queue 4 saturated"
    assert desk.arrive(priority=3) == "queue 5 saturated, evict 2 made-way"
    assert desk.arrive(priority=3) == "queue 6 saturated, evict 1 made-way"
    assert desk.end(2) == "admit 5 room"
    assert desk.end(1) == "admit 6 room"
    assert desk.end(3) == "admit 4 room"


def test_one_is_stopped_for_each_that_waits_however_often_it_is_looked_at() -> None:
    """Signals that lag behind would otherwise empty the fleet."""
    seen = signals(9, 9, waiting=9, staleness_s=1.0)
    desk = Desk(flow(detector=Utilization(1.0, 1.0, 0.05), eviction=True), seen)
    desk.arrive(priority=-1)
    desk.signals = signals(0, 0, staleness_s=1.0)
    desk.signals.taken_s = 1.0
    desk.arrive(1.0, priority=-1)
    desk.signals = seen
    seen.taken_s = 2.0
    assert desk.arrive(2.0, priority=3) == "queue 2 saturated, evict 1 made-way"
    assert [desk.tick(2.05), desk.tick(2.1), desk.end(1, 2.2)] == ["", "", ""]
    desk.leave(2)
    assert desk.arrive(2.3, priority=3) == "queue 3 saturated, evict 0 made-way"


def test_nobody_is_stopped_for_a_request_that_may_itself_be_shed() -> None:
    desk = Desk(flow(eviction=True))
    desk.arrive(priority=-2)
    assert desk.arrive(priority=-1) == "queue 1 saturated"
    assert desk.tick(1.0) == ""


def test_one_that_is_being_stopped_may_end_by_itself() -> None:
    desk = Desk(flow(eviction=True))
    desk.arrive(priority=-2)
    assert desk.arrive(priority=3) == "queue 1 saturated, evict 0 made-way"
    assert desk.tick(1.0) == ""
    assert desk.end(0, 2.0) == "admit 1 room"


def test_budgets_count_those_who_wait_and_forget_who_is_shed() -> None:
    inner = flow(most=1, shedding=True)
    gateway = TenantBudgets(inner, {"tenant-0": 0.2}, NAMES, reject_all=True)
    desk = Desk(gateway, signals(0))  # ten slots
    assert desk.arrive(tenant=0, priority=-1) == "admit 0 room"
    assert desk.arrive(tenant=0, priority=-1) == "queue 1 saturated"
    assert desk.arrive(tenant=0, priority=4) == "reject 2 over-budget"
    assert desk.arrive(tenant=1, priority=4) == "reject 1 outranked, queue 3 saturated"
    assert gateway.held(0) == 1


@given(
    order=st.sampled_from(ORDERS),
    asks=st.lists(st.tuples(st.integers(0, 9), st.sampled_from([4, 3, -1])), min_size=1),
)
def test_everybody_is_served_once_in_every_order(order: str, asks: list[Any]) -> None:
    desk = Desk(flow(order, room=3))
    for tenant, priority in asks:
        desk.arrive(tenant=tenant, priority=priority)
    assert sorted(served(desk)) == list(range(len(asks)))


@given(asks=st.lists(st.integers(0, 3), min_size=8, max_size=60))
def test_turns_of_tenants_who_ask_differ_by_at_most_one(asks: list[int]) -> None:
    desk = Desk(flow("round-robin"))
    for tenant in asks:
        desk.arrive(tenant=tenant)
    left = {tenant: asks.count(tenant) for tenant in asks}
    left[asks[0]] -= 1
    turns = dict.fromkeys(left, 0)
    for number in served(desk)[1:]:
        tenant = asks[number]
        turns[tenant] += 1
        left[tenant] -= 1
        still = [turns[one] for one in left if left[one] or one == tenant]
        assert max(still) - min(still) <= 1


def test_an_aged_band_gets_its_share_and_no_more() -> None:
    """From 10 s on every fourth request is of the lower band, as long as one waits for long."""
    settings = FlowControlSettings.read(
        {"policy": "flow-control", "aging": {"after": "10s", "share": 0.25}}
    )
    desk = Desk(FlowControl(Concurrency(1), settings, Weights({}, NAMES), []))
    for _ in range(12):
        desk.arrive(0.0, priority=1)
    low = [len(desk.tickets)]
    desk.arrive(0.0, priority=0)
    low.append(len(desk.tickets))
    desk.arrive(0.0, priority=0)
    for number in range(5):
        desk.end(desk.sent[number], 5.0)
    assert not set(low) & set(desk.sent), "strict until then"
    done = 5
    while done < len(desk.sent):
        desk.end(desk.sent[done], 20.0)
        done += 1
    places = [desk.sent.index(number) for number in low]
    assert places == [9, 13]
    assert len(desk.sent) == 14
