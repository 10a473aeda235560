"""Gateways that answer at once, and tenant budgets around them."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.admission.gateway.fleet import Desk, signals
from windtunnel.admission.gateway.budgets import TenantBudgets
from windtunnel.admission.gateway.policies import Always, SaturationShed, TierShed, TokenBucket
from windtunnel.admission.gateway.tickets import ADMIT, Ticket
from windtunnel.admission.reasons import Reason
from windtunnel.core.signals import Signals


def test_always_admits_and_counts() -> None:
    desk = Desk(Always())
    assert desk.arrive() == "admit 0 always"
    assert desk.arrive() == "admit 1 always"
    assert desk.gateway.in_flight == 2
    assert desk.end(0) == ""
    assert desk.gateway.in_flight == 1
    assert desk.gateway.queued == 0
    assert desk.gateway.next_s == math.inf
    assert desk.tick(1.0) == ""


def test_a_request_ends_once() -> None:
    desk = Desk(Always())
    desk.arrive()
    desk.end(0)
    with pytest.raises(AssertionError, match="ends once"):
        desk.end(0)


def test_nobody_who_does_not_wait_can_leave() -> None:
    desk = Desk(Always())
    desk.arrive()
    with pytest.raises(AssertionError, match="nothing is queued"):
        desk.leave(0)


def test_a_bucket_starts_full_and_fills_steadily() -> None:
    desk = Desk(TokenBucket(100.0, 10.0))
    assert desk.arrive(0.0, tokens=60) == "admit 0 bucket-holds"
    assert desk.arrive(0.0, tokens=60) == "reject 1 bucket-short"
    assert desk.arrive(1.9, tokens=60) == "reject 2 bucket-short"
    assert desk.arrive(2.0, tokens=60) == "admit 3 bucket-holds"
    assert desk.arrive(1000.0, tokens=100) == "admit 4 bucket-holds"
    assert desk.arrive(1000.0, tokens=1) == "reject 5 bucket-short"


def test_what_no_full_bucket_could_pay_for_is_told_apart() -> None:
    desk = Desk(TokenBucket(100.0, 10.0))
    assert desk.arrive(tokens=101) == "reject 0 bucket-too-small"
    assert desk.arrive(tokens=100) == "admit 1 bucket-holds"


def test_a_rejection_carries_the_numbers_that_tipped_it() -> None:
    gateway = TokenBucket(100.0, 10.0)
    ticket = Ticket(0, 0, 0, 80, math.inf)
    gateway.arrive(ticket, signals(0), 0.0)
    decision = gateway.arrive(Ticket(1, 0, 0, 80, math.inf), signals(0), 1.0)[0]
    assert (decision.reason, decision.seen, decision.limit) == (Reason.BUCKET_SHORT, 80.0, 30.0)
    assert repr(decision) == "reject 1: bucket-short (80, 30)"


@given(st.lists(st.tuples(st.floats(0, 3), st.integers(1, 150)), max_size=60))
def test_a_bucket_never_gives_more_than_it_got(asked: list[tuple[float, int]]) -> None:
    gateway = TokenBucket(100.0, 10.0)
    now_s, given_out = 0.0, 0
    for number, (gap_s, tokens) in enumerate(asked):
        now_s += gap_s
        ticket = Ticket(number, 0, 0, tokens, math.inf)
        if gateway.arrive(ticket, signals(0), now_s)[0].kind == ADMIT:
            given_out += tokens
        assert gateway.check() is None
        assert given_out <= 100.0 + 10.0 * now_s + 1e-6


def test_tiers_are_shed_above_the_threshold_on_any_server() -> None:
    desk = Desk(TierShed(4, 3), signals(0, 5))
    assert desk.arrive(priority=3) == "admit 0 protected"
    assert desk.arrive(priority=2) == "reject 1 heavy-load"
    desk.signals.in_flight[1] = 4
    assert desk.arrive(priority=2) == "admit 2 light-load"


def test_while_no_server_answers_the_line_for_the_first_is_the_load() -> None:
    desk = Desk(TierShed(4, 3), signals())
    assert desk.arrive(priority=2) == "admit 0 light-load"
    desk.signals.unplaced = 5
    assert desk.arrive(priority=2) == "reject 1 heavy-load"
    assert desk.arrive(priority=3) == "admit 2 protected"


@pytest.mark.parametrize(
    ("waiting", "kv_used", "told"),
    [
        (4, 0.0, "admit 0 room"),
        (5, 0.0, "reject 0 saturated"),
        (0, 0.79, "admit 0 room"),
        (0, 0.8, "reject 0 saturated"),
    ],
)
def test_saturation_sheds_by_queue_or_cache(waiting: int, kv_used: float, told: str) -> None:
    seen = signals(8, 8, waiting=waiting, kv_used=kv_used)
    assert Desk(SaturationShed(5.0, 0.8), seen).arrive(priority=-1) == told
    assert Desk(SaturationShed(5.0, 0.8), seen).arrive(priority=0) == "admit 0 protected"


def test_saturation_is_a_mean_over_servers_of_the_worse_of_two() -> None:
    seen = signals(9, 9)
    seen.waiting[0], seen.kv_used[1] = 6, 0.4  # 1.2 and 0.5
    assert Desk(SaturationShed(5.0, 0.8), seen).arrive(priority=-1) == "admit 0 room"
    seen.kv_used[1] = 0.72  # 0.9
    assert Desk(SaturationShed(5.0, 0.8), seen).arrive(priority=-1) == "reject 0 saturated"


def test_saturation_is_seen_anew_with_every_look() -> None:
    seen = signals(9)
    desk = Desk(SaturationShed(5.0, 0.8), seen)
    assert desk.arrive(priority=-1) == "admit 0 room"
    seen.waiting[0] = 9
    seen.refreshed(1.0)
    assert desk.arrive(priority=-1) == "reject 1 saturated"
    desk.signals = signals(0, 0)
    desk.signals.probes = seen.probes
    assert desk.arrive(priority=-1) == "admit 2 room"


def test_while_no_server_answers_a_full_line_for_the_first_is_saturation() -> None:
    desk = Desk(SaturationShed(5.0, 0.8), signals())
    desk.signals.unplaced = 5
    assert desk.arrive(priority=-1) == "reject 0 saturated"
    assert desk.arrive(priority=1) == "admit 1 protected"


def budgets(*, reject_all: bool = False, **shares: float) -> TenantBudgets:
    return TenantBudgets(Always(), shares, ["a", "b", "c"], reject_all=reject_all)


def test_a_tenant_over_its_budget_loses_what_may_be_shed() -> None:
    desk = Desk(budgets(a=0.1), signals(0, 0))  # a fifth of 20 slots
    assert desk.arrive(tenant=0, priority=-1) == "admit 0 always"
    assert desk.arrive(tenant=0, priority=-1) == "admit 1 always"
    assert desk.arrive(tenant=0, priority=-1) == "reject 2 over-budget"
    assert desk.arrive(tenant=0, priority=3) == "admit 3 always"
    assert desk.arrive(tenant=1, priority=-1) == "admit 4 always"
    desk.end(0)
    assert desk.arrive(tenant=0, priority=-1) == "reject 5 over-budget"
    desk.end(1)
    assert desk.arrive(tenant=0, priority=-1) == "admit 6 always"


def test_a_strict_budget_holds_for_every_class() -> None:
    desk = Desk(budgets(a=0.1, reject_all=True), signals(0))
    assert desk.arrive(tenant=0, priority=4) == "admit 0 always"
    assert desk.arrive(tenant=0, priority=4) == "reject 1 over-budget"


def test_a_small_share_is_good_for_one_and_none_is_for_none() -> None:
    desk = Desk(budgets(a=0.001, b=0.0), signals(0))
    assert desk.arrive(tenant=0, priority=-1) == "admit 0 always"
    assert desk.arrive(tenant=0, priority=-1) == "reject 1 over-budget"
    assert desk.arrive(tenant=1, priority=-1) == "reject 2 over-budget"


def test_what_the_inner_gateway_rejects_is_not_held() -> None:
    gateway = TenantBudgets(TokenBucket(10.0, 1.0), {"a": 0.5}, ["a"], reject_all=True)
    desk = Desk(gateway, signals(0))
    assert desk.arrive(tokens=11) == "reject 0 bucket-too-small"
    assert gateway.held(0) == 0
    desk.arrive(tokens=1)
    assert gateway.held(0) == gateway.in_flight == 1


def test_a_fleet_that_is_asleep_has_the_budget_of_one_server() -> None:
    desk = Desk(budgets(a=0.2), Signals([], 0.0))
    desk.signals.least_slots = 10
    assert desk.arrive(tenant=0, priority=-1) == "admit 0 always"
    assert desk.arrive(tenant=0, priority=-1) == "admit 1 always"
    assert desk.arrive(tenant=0, priority=-1) == "reject 2 over-budget"


def test_a_budget_is_a_share_of_the_slots_where_requests_are_answered() -> None:
    desk = Desk(budgets(a=0.1), Signals([10, 10, 10], 0.0, answering=[1]))
    assert desk.arrive(tenant=0, priority=-1) == "admit 0 always"
    assert desk.arrive(tenant=0, priority=-1) == "reject 1 over-budget"
