"""Conversations: turns follow each other, context accumulates, each ends in exactly one state."""

import itertools
import math
from collections import defaultdict

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.workload.plans import (
    Conversation,
    Extra,
    Prefix,
    Service,
    World,
    any_counts,
    pause,
    source,
    users,
)
from windtunnel.workload.distributions import Arrivals, Lengths, Times
from windtunnel.workload.request import Request

TURNS = Lengths("uniform", 3.5, 0.4, 1, 6)
THINK = Times("exponential", 2.0, 1.0, 0.0, 30.0)
LOOPS = st.sampled_from([Arrivals("poisson", 1.0, 1.0), users(3, 1.0)])


def by_session(world: World) -> dict[int, list[Request]]:
    found: dict[int, list[Request]] = defaultdict(list)
    for request in world.requests:
        assert request.session >= 0
        found[request.session].append(request)
    return found


def conversation(*, accumulates: bool = True, turns: Lengths = TURNS) -> Conversation:
    return Conversation(turns, THINK, accumulates)


@st.composite
def any_service(draw: st.DrawFn) -> Service:
    """Times and outcomes that depend on the request's number alone."""
    times = draw(st.lists(st.floats(0.0, 20.0), min_size=1, max_size=7))
    failing = draw(st.integers(0, 9))

    def service(request: Request) -> tuple[float, bool]:
        return times[request.id % len(times)], failing == 0 or request.id % 10 >= failing

    return service


@given(arrivals=LOOPS, service=any_service(), end_s=st.sampled_from([5.0, 60.0, math.inf]))
@settings(max_examples=80)
def test_each_conversation_ends_in_exactly_one_state(
    arrivals: Arrivals, service: Service, end_s: float
) -> None:
    plan = source(count=15, arrivals=arrivals, conversation=conversation())
    world = World((plan,), service, end_s=end_s)
    sessions, talks = world.traffic.sessions, by_session(world)
    assert sessions.fault() is None
    assert sessions.live == 0
    assert sessions.started == len(talks)
    states = {"completed": 0, "cancelled": 0, "interrupted": 0}
    for turns in talks.values():
        assert [request.turn for request in turns] == list(range(len(turns)))
        last = turns[-1]
        if last.id not in world.ends:
            states["interrupted"] += 1
        elif not service(last)[1]:
            states["cancelled"] += 1
        else:
            # Its last turn is over: either that was all, or it was still thinking at the end.
            states["completed" if world.ends[last.id] < end_s else "interrupted"] += 1
    thinking = states["completed"] - sessions.completed
    assert thinking >= 0
    assert thinking == sessions.interrupted - states["interrupted"]
    assert sessions.cancelled == states["cancelled"]
    if end_s == math.inf:
        assert (sessions.interrupted, thinking) == (0, 0)
        assert sessions.started == 15


@given(arrivals=LOOPS, service=any_service(), think_s=st.floats(0.0, 9.0))
@settings(max_examples=40)
def test_a_turn_follows_the_end_of_the_last_and_its_reader_s_thought(
    arrivals: Arrivals, service: Service, think_s: float
) -> None:
    talk = Conversation(TURNS, pause(think_s), accumulates=True)
    plan = source(count=10, arrivals=arrivals, conversation=talk)
    world = World((plan,), service)
    for turns in by_session(world).values():
        for before, after in itertools.pairwise(turns):
            assert after.arrived_s == world.ends[before.id] + think_s


@given(
    prompt=any_counts(), output=any_counts(), prefix=st.none() | st.just(Prefix(40, 3)),
    media=st.none() | st.builds(Extra, any_counts(), st.floats(0.1, 1.0)),
)  # fmt: skip
@settings(max_examples=40)
def test_context_accumulates_and_each_turn_starts_with_all_that_was_said(
    prompt: Lengths, output: Lengths, prefix: Prefix | None, media: Extra | None
) -> None:
    plan = source(
        count=10, prompt=prompt, output=output, prefix=prefix, media=media, reasoning=media,
        conversation=conversation(),
    )  # fmt: skip
    shared = prefix.tokens if prefix else 0
    keys_of_others: dict[int, int] = {}
    for number, turns in by_session(World((plan,), lambda _: (1.0, True))).items():
        first = turns[0]
        assert first.prompt_tokens - first.media_tokens >= shared + prompt.low
        for before, after in itertools.pairwise(turns):
            said = before.prompt_tokens + before.output_tokens
            fresh = after.prompt_tokens - after.media_tokens - said
            assert prompt.low <= fresh <= prompt.high
            assert before.prefix is not None
            assert after.prefix is not None
            # All of the last prompt, then its answer, as segments of one chain.
            length = len(before.prefix.keys)
            assert after.prefix.keys[:length] == before.prefix.keys
            assert before.prefix.ends[-1] == before.prompt_tokens
            assert after.prefix.keys[length] == before.answer_key
            assert after.prefix.ends[length] == said
        last = turns[-1].prefix
        own = last.keys[1 if prefix else 0 :] if last else []
        for key in own:
            assert keys_of_others.setdefault(key, number) == number


def test_fresh_turns_start_with_the_shared_prefix_alone() -> None:
    plan = source(count=20, prefix=Prefix(40, 2), conversation=conversation(accumulates=False))
    world = World((plan,), lambda _: (1.0, True))
    assert len(world.requests) > 30
    for turns in by_session(world).values():
        chains = {tuple(request.prefix.keys) for request in turns if request.prefix}
        assert len(chains) == 1
    assert {request.prompt_tokens for request in world.requests} == {45}
    assert {request.answer_key for request in world.requests} == {-1}


@given(service=any_service(), other=any_service())
@settings(max_examples=40)
def test_what_is_said_does_not_depend_on_how_fast_it_is_served(
    service: Service, other: Service
) -> None:
    """Two policies face the same conversations: as far as both come, turn by turn."""
    lengths = Lengths("lognormal", 60.0, 1.0, 1, 5000)
    plan = source(count=12, prompt=lengths, output=lengths, conversation=conversation())
    worlds = [World((plan,), one) for one in (service, other)]
    first, second = map(by_session, worlds)
    assert first.keys() == second.keys()
    for number in first:
        for one, two in zip(first[number], second[number], strict=False):
            assert (one.prompt_tokens, one.output_tokens) == (two.prompt_tokens, two.output_tokens)


def test_users_hold_one_conversation_after_the_other() -> None:
    plan = source(count=None, arrivals=users(4, 5.0), conversation=conversation())
    world = World((plan,), lambda _: (1.0, True), end_s=500.0)
    talks = sorted(by_session(world).values(), key=lambda turns: turns[0].arrived_s)
    for talk in talks:
        start_s = talk[0].arrived_s
        open_then = [
            one
            for one in talks
            if one[0].arrived_s <= start_s <= world.ends.get(one[-1].id, math.inf)
        ]
        assert len(open_then) <= 4
    assert len(talks) > 100


def test_turns_are_drawn_as_they_were_asked_for() -> None:
    plan = source(count=2000, conversation=conversation())
    world = World((plan,), lambda _: (0.1, True))
    assert world.traffic.sessions.completed == 2000
    assert len(world.requests) / 2000 == pytest.approx(3.5, rel=0.05)
    assert world.traffic.sessions.turns.quantile(1.0) == 6
