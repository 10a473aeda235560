"""Request admission: who goes, who waits, who is refused, and what is handed on."""

import pytest

from tests.admission.requests.desk import Desk
from windtunnel.admission.leases import Lease
from windtunnel.admission.reasons import Domain, Outcome, ReleaseResult, RequestDenial
from windtunnel.admission.requests.budgets import Budget, ObservedLimit, ObservedLimits
from windtunnel.admission.requests.endpoint import (
    RequestAsk,
    RequestDenied,
    RequestLease,
    TokenEstimate,
)
from windtunnel.admission.requests.limiter import NEVER
from windtunnel.core.errors import InputError


def test_the_cap_is_shared_by_all_domains() -> None:
    desk = Desk(cap=3)
    leases = [desk.take(desk.ask(domain=domain)) for domain in list(Domain)[:3]]
    assert desk.refusal() is RequestDenial.NO_CAPACITY
    desk.end(leases[0])
    desk.take(desk.ask(domain=Domain.IMAGE))


def test_the_least_cap_of_all_aliases_holds() -> None:
    desk = Desk(cap=5)
    desk.admission.register("p", "m", "smaller", 2, 0.0)
    desk.take()
    desk.take()
    assert desk.refusal() is RequestDenial.NO_CAPACITY
    desk.admission.register("p", "m", "smaller", 4, 0.0)
    desk.take()


def test_freed_capacity_is_handed_to_the_next_waiter_by_the_releaser() -> None:
    desk = Desk(cap=1)
    lease = desk.take()
    first, second = desk.wait(), desk.wait()
    assert desk.end(lease) == [first]
    assert first.lease is not None
    assert second.is_waiting
    assert desk.refusal() is RequestDenial.QUEUED_WAITERS_AHEAD


def test_a_raised_cap_serves_waiters_at_once() -> None:
    desk = Desk(cap=1)
    desk.take()
    tickets = [desk.wait() for _ in range(3)]
    desk.admission.register("p", "m", "alias", 3, 0.0)
    assert desk.admission.take_resolved() == tickets[:2]


def test_a_lowered_cap_holds_for_those_who_come() -> None:
    desk = Desk(cap=4)
    leases = [desk.take() for _ in range(4)]
    desk.admission.register("p", "m", "alias", 2, 0.0)
    ticket = desk.wait()
    assert [desk.end(lease) for lease in leases[:2]] == [[], []]
    assert desk.end(leases[2]) == [ticket]


def test_groups_share_by_weight_and_priorities_go_first() -> None:
    desk = Desk(cap=1)
    lease = desk.take()
    for _ in range(8):
        desk.wait(desk.ask(group="heavy", weight=3))
        desk.wait(desk.ask(group="light"))
    desk.wait(desk.ask(group="people", priority=5))
    served = []
    for _ in range(9):
        (ticket,) = desk.end(lease)
        assert ticket.lease is not None
        lease = ticket.lease
        served.append(ticket.ask.group)
    assert served[0] == "people"
    assert served.count("heavy") == 6


def test_a_deadline_passes_by_itself() -> None:
    desk = Desk(cap=1)
    desk.take()
    ticket = desk.wait(deadline_s=2.0)
    assert desk.admission.next_wake_s() == 2.0
    assert desk.sleep_until(1.9) == []
    assert desk.sleep_until(2.0) == [ticket]
    assert ticket.denied is not None
    assert ticket.denied.reason is RequestDenial.QUEUE_TIMEOUT
    assert desk.admission.next_wake_s() == NEVER
    assert desk.admission.waiting == 0


def test_a_timeout_of_zero_is_immediate() -> None:
    desk = Desk(cap=1)
    assert isinstance(desk.admission.acquire(desk.ask(), 0.0, 0.0), RequestLease)
    answer = desk.admission.acquire(desk.ask(), 0.0, 0.0)
    assert isinstance(answer, RequestDenied)
    assert answer.reason is RequestDenial.NO_CAPACITY


def test_waiter_granted_after_its_deadline() -> None:
    """A release that comes late gives the lease to the next, not to whoever ran out."""
    desk = Desk(cap=1)
    lease = desk.take()
    late, patient = desk.wait(deadline_s=2.0), desk.wait()
    desk.now = 2.0
    assert desk.end(lease) == [late, patient]
    assert late.lease is None
    assert patient.lease is not None


def test_cancelling_gives_up_a_place_or_a_lease() -> None:
    desk = Desk(cap=1)
    lease = desk.take()
    first, second, third = desk.wait(), desk.wait(), desk.wait()
    desk.admission.cancel(first, 0.0)
    assert desk.end(lease) == [second]
    desk.admission.cancel(second, 0.0)
    assert desk.admission.take_resolved() == [third]
    assert len(desk.admission.ledger.active) == 1
    desk.admission.cancel(second, 0.0)
    assert len(desk.admission.ledger.active) == 1


def test_refusals_block_their_domain_and_say_until_when() -> None:
    desk = Desk(cap=4)
    desk.press(10.0)
    answer = desk.admission.acquire(desk.ask(), 1.0, 1.0)
    assert isinstance(answer, RequestDenied)
    assert (answer.reason, answer.retry_at_s) == (RequestDenial.COOLDOWN, 10.0)
    desk.take(desk.ask(domain=Domain.EMBEDDING))
    ticket = desk.wait()
    assert desk.sleep_until(9.9) == []
    assert desk.sleep_until(10.0) == [ticket]


def test_a_waiter_blocked_elsewhere_does_not_stop_another_domain() -> None:
    desk = Desk(cap=4)
    desk.press(10.0)
    desk.wait()
    desk.take(desk.ask(domain=Domain.EMBEDDING))
    desk.take(desk.ask(domain=Domain.EMBEDDING))


def test_waiters_follow_the_startup_ramp() -> None:
    desk = Desk(cap=5, ramp_s=4.0)
    desk.take()
    tickets = [desk.wait() for _ in range(6)]
    assert desk.sleep_until(0.99) == []
    assert desk.sleep_until(1.0) == tickets[:1]
    assert desk.sleep_until(10.0) == tickets[1:4]


def test_a_full_queue_refuses() -> None:
    desk = Desk(cap=1, waiters_max=2)
    desk.take()
    desk.wait()
    desk.wait()
    answer = desk.admission.acquire(desk.ask(), 0.0)
    assert isinstance(answer, RequestDenied)
    assert answer.reason is RequestDenial.QUEUE_FULL


def test_shutting_down_refuses_all_that_waits_and_comes() -> None:
    desk = Desk(cap=1)
    lease = desk.take()
    ticket = desk.wait(deadline_s=9.0)
    desk.admission.shut_down(1.0)
    assert desk.admission.take_resolved() == [ticket]
    assert ticket.denied is not None
    assert ticket.denied.reason is RequestDenial.SHUTDOWN
    assert desk.refusal() is RequestDenial.SHUTDOWN
    assert desk.admission.release(lease, Outcome.SUCCESS, 2.0) is ReleaseResult.RELEASED
    assert desk.admission.next_wake_s() == NEVER


def test_releases_are_told_apart_and_only_one_counts() -> None:
    desk = Desk(cap=2)
    lease, other = desk.take(), desk.take()
    state = lease.domain
    release = desk.admission.release
    stale = Lease(lease.id, "run-1", "other", "", 0.0)
    foreign = Lease(lease.id, "run-0", lease.work_id, "", 0.0)
    assert release(stale, Outcome.RATE_LIMITED, 1.0) is ReleaseResult.STALE
    assert release(foreign, Outcome.RATE_LIMITED, 1.0) is ReleaseResult.WRONG_GENERATION
    unknown = Lease(77, "run-1", "x", "", 0.0)
    assert release(unknown, Outcome.SUCCESS, 1.0) is ReleaseResult.UNKNOWN
    assert (state.in_flight, state.limiter.limit) == (2, 2)
    assert release(other, Outcome.SUCCESS, 1.0) is ReleaseResult.RELEASED
    assert release(other, Outcome.RATE_LIMITED, 1.0) is ReleaseResult.DUPLICATE
    assert (state.in_flight, state.limiter.limit) == (1, 2)


def test_requests_per_minute_hold_in_every_minute() -> None:
    desk = Desk(cap=100, requests_per_minute=3)
    for _ in range(3):
        desk.end(desk.take())
        desk.now += 10.0
    assert desk.refusal() is RequestDenial.REQUEST_BUDGET
    tickets = [desk.wait() for _ in range(3)]
    assert desk.admission.next_wake_s() == 60.0
    assert desk.sleep_until(69.0) == tickets[:1]
    assert desk.sleep_until(80.0) == tickets[1:]


def test_a_token_estimate_is_settled_after_the_reply() -> None:
    desk = Desk(cap=100, tokens_per_minute=1000)
    lease = desk.take(desk.ask(tokens=900))
    assert desk.refusal(desk.ask(tokens=200)) is RequestDenial.TOKEN_BUDGET
    waiting = desk.wait(desk.ask(tokens=200))
    assert desk.end(lease, tokens_used=300) == [waiting]
    desk.take(desk.ask(tokens=500))
    assert desk.refusal(desk.ask(tokens=1)) is RequestDenial.TOKEN_BUDGET


def test_a_reply_larger_than_its_estimate_is_charged_in_full() -> None:
    desk = Desk(cap=100, tokens_per_minute=1000)
    desk.end(desk.take(desk.ask(tokens=10)), tokens_used=1500)
    assert desk.refusal(desk.ask(tokens=1)) is RequestDenial.TOKEN_BUDGET
    assert desk.admission.endpoints()[0].tokens.left(0.0) == -500


def test_a_large_request_is_not_overtaken_for_ever_by_small_ones() -> None:
    desk = Desk(cap=100, tokens_per_minute=1000)
    desk.take(desk.ask(tokens=600))
    large = desk.wait(desk.ask(tokens=900))
    small = desk.wait(desk.ask(tokens=10))
    assert desk.refusal(desk.ask(tokens=10)) is RequestDenial.QUEUED_WAITERS_AHEAD
    assert desk.sleep_until(60.0) == [large, small]


def test_what_never_fits_is_refused_at_once() -> None:
    desk = Desk(tokens_per_minute=1000)
    assert desk.refusal(desk.ask(tokens=1001)) is RequestDenial.TOO_LARGE


def test_a_refused_call_consumes_nothing() -> None:
    desk = Desk(cap=1, requests_per_minute=10, tokens_per_minute=100)
    desk.take(desk.ask(tokens=10))
    endpoint = desk.admission.endpoints()[0]
    for _ in range(20):
        assert desk.refusal(desk.ask(tokens=10)) is RequestDenial.NO_CAPACITY
    assert (endpoint.requests.left(0.0), endpoint.tokens.left(0.0)) == (9, 90)
    assert desk.admission.ledger.issued == 1


def test_a_call_that_the_provider_refused_gives_its_tokens_back() -> None:
    desk = Desk(cap=4, tokens_per_minute=100)
    desk.end(desk.take(desk.ask(tokens=80)), Outcome.RATE_LIMITED, tokens_used=80)
    assert desk.admission.endpoints()[0].tokens.left(0.0) == 100


def test_limits_are_learned_from_replies() -> None:
    desk = Desk(cap=100)
    said = ObservedLimits(requests=ObservedLimit(limit=5, left=2, reset_s=30.0))
    desk.end(desk.take(), observed=said)
    budget = desk.admission.endpoints()[0].requests
    assert (budget.limit, budget.source) == (5, "headers")
    desk.take()
    desk.take()
    assert desk.refusal() is RequestDenial.REQUEST_BUDGET
    ticket = desk.wait()
    assert desk.sleep_until(29.0) == []
    assert desk.sleep_until(30.0) == [ticket]


def test_a_waiter_that_a_learned_limit_makes_impossible_is_refused() -> None:
    desk = Desk(cap=1)
    lease = desk.take()
    large, small = desk.wait(desk.ask(tokens=800)), desk.wait(desk.ask(tokens=10))
    served = desk.end(lease, observed=ObservedLimits(tokens=ObservedLimit(limit=500, left=500)))
    assert served == [large, small]
    assert large.denied is not None
    assert large.denied.reason is RequestDenial.TOO_LARGE
    assert small.lease is not None


def test_a_waiting_estimate_fits_whatever_budget_is_learned() -> None:
    """It waits until the whole budget is free, and takes no more than that of it."""
    desk = Desk(cap=1)
    lease = desk.take()
    large, small = desk.wait(estimate(800)), desk.wait(desk.ask(tokens=10))
    served = desk.end(lease, observed=ObservedLimits(tokens=ObservedLimit(limit=500, left=500)))
    assert served == [large]
    tokens = desk.admission.endpoints()[0].tokens
    assert tokens.left(0.0) == 0
    assert large.lease is not None
    assert desk.end(large.lease, tokens_used=700) == []
    assert tokens.left(0.0) == -200
    assert desk.sleep_until(59.0) == []
    assert desk.sleep_until(60.0) == [small]


def test_an_estimate_beyond_a_configured_budget_is_not_refused_either() -> None:
    desk = Desk(cap=9, tokens_per_minute=100)
    desk.take(estimate(5000))
    assert desk.refusal(estimate(5000)) is RequestDenial.TOKEN_BUDGET


def estimate(tokens: int) -> RequestAsk:
    return RequestAsk("p", "m", tokens=TokenEstimate(tokens))


def guess(*, most: int = 0) -> RequestAsk:
    """A prompt of 10 tokens, and an answer that nothing is known of but its limit."""
    tokens = TokenEstimate(10 + (most or 512), prompt=10, is_bounded=most > 0)
    return RequestAsk("p", "m", tokens=tokens)


def test_the_guess_at_an_answer_is_learned_from_answers() -> None:
    """Six short calls fit a budget of 100; the first guess, 522, would take one a minute."""
    desk = Desk(cap=1)
    lease = desk.take(guess())
    waiting = [desk.wait(guess()) for _ in range(5)]
    limit = ObservedLimits(tokens=ObservedLimit(limit=100, left=100))
    for ticket in waiting:
        assert desk.end(lease, tokens_used=12, observed=limit) == [ticket]
        assert ticket.lease is not None
        lease = ticket.lease


def test_a_learned_answer_is_never_longer_than_its_request_allows() -> None:
    desk = Desk(cap=9)
    endpoint = desk.admission.endpoints()[0]
    for _ in range(40):
        desk.end(desk.take(guess()), tokens_used=2010)
    assert 2010 <= endpoint.tokens_of(guess()) <= 2020
    assert endpoint.tokens_of(guess(most=50)) == 60
    assert endpoint.tokens_of(guess(most=4000)) == endpoint.tokens_of(guess())
    assert endpoint.tokens_of(estimate(77)) == 77


def test_answers_that_scatter_are_taken_for_longer_than_their_mean() -> None:
    desk = Desk(cap=9)
    endpoint = desk.admission.endpoints()[0]
    for turn in range(200):
        desk.end(desk.take(guess()), tokens_used=10 + (100, 300)[turn % 2])
    assert 300 <= endpoint.tokens_of(guess()) - 10 <= 450


def test_a_configured_budget_is_not_overruled_by_a_reply() -> None:
    budget = Budget(10, "configured")
    assert not budget.learn(ObservedLimit(500, -1, -1.0), 0.0)
    assert budget.limit == 10


@pytest.mark.parametrize("cap", [0, -3])
def test_a_bad_cap_gets_a_sentence(cap: int) -> None:
    with pytest.raises(InputError, match=r"p/m as x: .* is not a cap; allowed: 1 or more"):
        Desk().admission.register("p", "m", "x", cap, 0.0)


def test_tenants_share_a_token_budget_by_tokens() -> None:
    """Two equal tenants, one with prompts a hundred times as long, had turns by number of calls."""
    desk = Desk(cap=8, tokens_per_minute=10_000, waiters_max=10_000)
    sizes, served = {"long": 900, "short": 9}, {"long": 0, "short": 0}
    running: list[RequestLease] = []
    for group, size in sizes.items():
        for _ in range(2000):
            answer = desk.admission.acquire(desk.ask(group=group, tokens=size), 0.0)
            if isinstance(answer, RequestLease):
                running.append(answer)
    while desk.now < 600.0:
        ended, running = running, []
        for lease in ended:
            served[lease.ask.group] += sizes[lease.ask.group]
            running += [one.lease for one in desk.end(lease) if one.lease is not None]
        if not running:
            running += [one.lease for one in desk.sleep_until(desk.now + 1.0) if one.lease]
    short = 2000 * sizes["short"]
    assert served["short"] >= min(short, 0.8 * served["long"])
