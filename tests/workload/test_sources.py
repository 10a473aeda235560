"""What requests are made of: every part of every kind of source, none at the cost of another."""

import itertools
import math
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.workload.plans import (
    FIVE,
    Conversation,
    Extra,
    Prefix,
    World,
    any_source,
    instant,
    pause,
    source,
    users,
)
from windtunnel.workload.distributions import Lengths, Times
from windtunnel.workload.request import NEVER, Request
from windtunnel.workload.settings.sources import SourceSettings

SOME = Lengths("uniform", 50.0, 0.5, 20, 80)
TALK = Conversation(Lengths("constant", 3.0, 0.0, 3, 3), pause(2.0), accumulates=True)


def seen(requests: list[Request], *, times: bool = True) -> list[tuple[object, ...]]:
    """All that a source has drawn for its requests, whatever numbers stand for what."""
    groups: dict[int, int] = {}
    tenants: dict[int, int] = {}
    return [
        (
            request.arrived_s if times else None,
            request.prompt_tokens,
            request.output_tokens,
            request.media_tokens,
            [groups.setdefault(key, len(groups)) for key in request.prefix.keys]
            if request.prefix
            else None,
            request.prefix.ends if request.prefix else None,
            tenants.setdefault(request.tenant, len(tenants)),
            request.turn,
        )
        for request in requests
    ]


def one_second(_: Request) -> tuple[float, bool]:
    return 1.0, True


@given(st.data(), st.integers(0, 3))
@settings(max_examples=60)
def test_no_source_changes_what_another_draws(data: st.DataObject, seed: int) -> None:
    """Common random numbers: whatever stands beside a source, and in which order."""
    mine = data.draw(any_source("mine"))
    alone = World((mine,), one_second, seed=seed)
    others = tuple(data.draw(any_source(f"o{number}")) for number in range(2))
    for beside in ((*others, mine), (others[0], mine, others[1])):
        together = World(beside, one_second, seed=seed)
        assert seen(together.of("mine")) == seen(alone.of("mine"))


@given(st.data())
@settings(max_examples=40)
def test_a_change_of_one_part_leaves_the_draws_of_the_others(data: st.DataObject) -> None:
    """Lengths do not depend on arrivals, nor arrivals on lengths: each has its own stream."""
    plan = data.draw(any_source("mine"))
    if plan.session is not None or plan.arrivals.process == "closed":
        return
    prompt, output = plan.prompt_tokens.drawn(), plan.output_tokens.drawn()
    other = source(count=plan.count, prompt=prompt, output=output, name="mine")
    first, second = World((plan,)).requests, World((other,)).requests
    shorter = min(len(first), len(second))
    shared = plan.prefix.tokens if plan.prefix else 0
    prompts = [r.prompt_tokens - r.media_tokens - shared for r in first[:shorter]]
    assert prompts == [r.prompt_tokens for r in second[:shorter]]


@given(st.data())
@settings(max_examples=40)
def test_the_same_seed_is_the_same_traffic(data: st.DataObject) -> None:
    plans = tuple(data.draw(any_source(f"s{number}")) for number in range(2))
    first, second = World(plans, one_second, seed=5), World(plans, one_second, seed=5)
    assert seen(first.requests) == seen(second.requests)
    assert [r.id for r in first.requests] == list(range(len(first.requests)))
    times = [r.arrived_s for r in first.requests]
    assert times == sorted(times)


KINDS: dict[str, dict[str, object]] = {
    "open": {},
    "closed": {"arrivals": users(6, 1.0)},
    "conversations": {"conversation": TALK},
    "conversations in a closed loop": {"conversation": TALK, "arrivals": users(6, 1.0)},
}


def plan_of(kind: str, **parts: object) -> SourceSettings:
    return source(**{**KINDS[kind], **parts})  # type: ignore[arg-type]


@pytest.mark.parametrize("kind", KINDS)
def test_every_part_reaches_every_kind_of_source(kind: str) -> None:
    """Prefix, media, reasoning, deadline, tenants: nothing is lost in a cohort or a closed loop."""
    plan = plan_of(
        kind,
        count=200,
        prefix=Prefix(30, 1, per_member=True),
        population=4,
        tenant_per_member=True,
        media=Extra(Lengths("constant", 7.0, 0.0, 7, 7), 0.5),
        reasoning=Extra(Lengths("constant", 11.0, 0.0, 11, 11), 1.0),
        timeout_s=9.0,
    )
    world = World((plan,), one_second)
    requests = [request for request in world.requests if request.turn == 0]
    assert len(requests) == 200
    assert {request.output_tokens for request in requests} == {5 + 11}
    assert {request.prompt_tokens for request in requests} == {30 + 5, 30 + 5 + 7}
    shares = Counter(request.media_tokens for request in requests)
    assert shares[7] == pytest.approx(100, abs=40)
    assert all(r.prompt_tokens == 35 + r.media_tokens for r in requests)
    assert all(r.deadline_s == r.arrived_s + 9.0 for r in world.requests)
    prefixes = {(r.tenant, r.prefix.keys[0]) for r in world.requests if r.prefix}
    assert len(prefixes) == 4
    assert sorted(world.traffic.tenants) == ["t-0", "t-1", "t-2", "t-3"]


@pytest.mark.parametrize("kind", KINDS)
def test_groups_are_drawn_evenly(kind: str) -> None:
    world = World((plan_of(kind, count=400, prefix=Prefix(30, 4)),), one_second)
    firsts = [r.prefix.keys[0] for r in world.requests if r.prefix and r.turn == 0]
    counted = Counter(firsts)
    assert len(counted) == 4
    assert all(60 < times < 140 for times in counted.values())


@pytest.mark.parametrize("kind", KINDS)
def test_without_a_timeout_everybody_waits(kind: str) -> None:
    world = World((plan_of(kind, count=5),), one_second)
    assert {request.deadline_s for request in world.requests} == {NEVER}


def test_users_wait_for_their_answer_and_think() -> None:
    plan = source(count=None, arrivals=users(5, 4.0), prompt=SOME)
    world = World((plan,), lambda _: (6.0, True), end_s=1000.0)
    # Each user asks every ten seconds: five of them once every two.
    assert len(world.requests) == pytest.approx(500, abs=5)
    under_way = Counter[int]()
    for request in world.requests:
        at_once = sum(
            one.arrived_s <= request.arrived_s < world.ends.get(one.id, math.inf)
            for one in world.requests[max(request.id - 10, 0) : request.id + 1]
        )
        under_way[at_once] += 1
    assert max(under_way) <= 5


def test_users_start_evenly_over_the_time_that_they_think() -> None:
    plan = source(count=None, arrivals=users(4, 8.0))
    world = World((plan,), lambda _: (1e6, True), end_s=100.0)
    assert [request.arrived_s for request in world.requests] == [0.0, 2.0, 4.0, 6.0]


def test_who_is_refused_at_once_does_not_ask_without_end() -> None:
    plan = source(count=None, arrivals=users(3, 0.0))
    world = World((plan,), lambda _: (0.0, False), end_s=10.0)
    assert len(world.requests) == 3 * 10


@pytest.mark.parametrize("kind", ["closed", "conversations in a closed loop"])
def test_a_user_is_the_same_member_for_good(kind: str) -> None:
    """Each prefix is used by one user at a time, since a user is one at a time."""
    plan = plan_of(
        kind, count=300, arrivals=users(3, 1.0), population=3, prefix=Prefix(9, 1, per_member=True)
    )
    world = World((plan,), one_second)
    busy_until: dict[int, float] = {}
    for request in world.requests:
        assert request.prefix is not None
        key = request.prefix.keys[0]
        assert request.arrived_s >= busy_until.get(key, 0.0) + 1.0 or key not in busy_until
        busy_until[key] = request.arrived_s + 1.0
    assert len(busy_until) == 3


def test_the_count_is_that_of_the_source() -> None:
    for kind in KINDS:
        world = World((plan_of(kind, count=37),), instant)
        first_turns = [request for request in world.requests if request.turn == 0]
        assert len(first_turns) == 37


def test_traffic_stops_at_the_end_of_the_run() -> None:
    world = World((source(count=None), source("b", count=None, prompt=FIVE)), end_s=20.0)
    assert max(request.arrived_s for request in world.requests) < 20.0
    assert len(world.requests) == pytest.approx(400, abs=80)
    assert world.traffic.next_s == math.inf


def test_pauses_are_drawn() -> None:
    think = Times("exponential", 3.0, 1.0, 0.5, 9.0)
    arrivals = users(1, 0.0)
    plan = source(count=2000, arrivals=type(arrivals)("closed", 0.0, 0.0, 1, think))
    times = [request.arrived_s for request in World((plan,), one_second).requests]
    gaps = [later - earlier - 1.0 for earlier, later in itertools.pairwise(times)]
    assert min(gaps) == pytest.approx(0.5)
    assert max(gaps) == pytest.approx(9.0)
    assert 2.5 < sum(gaps) / len(gaps) < 3.2
