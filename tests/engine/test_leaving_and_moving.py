"""Requests that leave early, and KV that is moved in and out: both engines agree, and on what."""

import heapq
import itertools
import math
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.engine.reference.engine import ReferenceServer
from tests.engine.test_equivalence import (
    TICK,
    Shape,
    adapters_of,
    limits,
    models,
    outcome,
    tiers_of,
    traffic,
)
from tests.engine.test_schedule import ONE_SECOND, Engine, Make, asks, shared
from tests.engine.test_schedule import limits as settings
from windtunnel.engine.limits import EngineLimits
from windtunnel.engine.server import Server
from windtunnel.models.step_time.model import StepTimeModel
from windtunnel.workload.request import UNSET, Request

PLAIN, KEPT, MOVED = range(3)


class Fate:
    """How a request is served: as a whole, its prompt for others, or with KV from elsewhere."""

    def __init__(self, kind: int, takes: int, leaves: int | None, tokens: int, comes: bool) -> None:
        self.kind = kind
        self.takes = takes  # ticks that a transfer takes
        self.leaves = leaves  # ticks after its arrival at which it is cancelled
        self.tokens = tokens
        self.comes = comes

    def __repr__(self) -> str:
        return f"Fate({self.kind}, {self.takes}, {self.leaves}, {self.tokens}, {self.comes})"


TIMES = st.integers(0, 30) | st.integers(0, 3000)
FATES = st.builds(
    Fate,
    kind=st.sampled_from([PLAIN, PLAIN, KEPT, MOVED]),
    takes=TIMES,
    leaves=st.none() | TIMES,
    tokens=st.integers(0, 70),
    comes=st.sampled_from([True, True, True, False]),
)


class Driver:
    """Feeds one server: what happens at the time at which a step ends comes before that end."""

    def __init__(self, server: Engine, shapes: list[Shape], fates: list[Fate]) -> None:
        self.server = server
        self.requests: list[Request] = []
        self.here: set[int] = set()
        self.story: list[tuple[object, ...]] = []
        self._events: list[tuple[float, int, Callable[[float], None]]] = []
        self._numbers = itertools.count()
        self._kept: dict[int, Fate] = {}
        self._awaiting: dict[int, Fate] = {}  # who has asked for blocks in vain so far
        for number, shape in enumerate(shapes):
            fate = fates[number % len(fates)]
            request = shape.request(number)
            self.requests.append(request)
            self.at(request.arrived_s, self.beginning(request, fate))
            if fate.leaves is not None:
                self.at(request.arrived_s + fate.leaves * TICK, self.leaving(request))

    def at(self, time_s: float, event: Callable[[float], None]) -> None:
        heapq.heappush(self._events, (time_s, next(self._numbers), event))

    def beginning(self, request: Request, fate: Fate) -> Callable[[float], None]:
        if fate.kind == MOVED:
            return self.reserving(request, fate)

        def begin(now: float) -> None:
            if fate.kind == KEPT:
                request.output_tokens = 1
                request.keeps_blocks = True
                self._kept[request.id] = fate
            self.here.add(request.id)
            self.server.submit(request, now)

        return begin

    def reserving(self, request: Request, fate: Fate) -> Callable[[float], None]:
        def reserve(now: float) -> None:
            tokens = min(fate.tokens, request.prompt_tokens)
            missing = self.server.reserve(request, tokens, now)
            if request.dropped:
                return
            self.story.append((now, request.id, missing, free_blocks(self.server)))
            if missing < 0:
                self._awaiting[request.id] = fate
                self.server.await_room(request, tokens)
            else:
                self.move(request, fate, now)

        return reserve

    def move(self, request: Request, fate: Fate, now: float) -> None:
        """Blocks are reserved: what is not cached there is moved."""

        def arrive(now: float) -> None:
            if fate.comes:
                self.here.add(request.id)
                self.server.submit_arrived(request, now)
            else:
                self.server.let_go(request, now)
            self.story.append((now, request.id, free_blocks(self.server)))

        tokens = min(fate.tokens, request.prompt_tokens)
        missing = max(0, tokens - int(request.prefix_hit_tokens))
        self.at(now + int(fate.takes + missing) * TICK, arrive)

    def granted(self, now: float) -> None:
        for request in self.server.granted:
            self.story.append((now, request.id, "granted", free_blocks(self.server)))
            self.move(request, self._awaiting.pop(request.id), now)
        self.server.granted.clear()

    def leaving(self, request: Request) -> Callable[[float], None]:
        def leave(now: float) -> None:
            if request.id in self.here and request.finished_s == UNSET:
                self.here.remove(request.id)
                self.server.cancel(request, now)
                self.story.append((now, request.id, free_blocks(self.server)))
            elif request.id in self._awaiting:
                del self._awaiting[request.id]
                self.server.forgo(request, now)
                self.story.append((now, request.id, free_blocks(self.server)))

        return leave

    def run(self) -> None:
        server = self.server
        told = 0
        for _ in range(200_000):
            event_s = self._events[0][0] if self._events else math.inf
            if event_s == math.inf == server.wake_s:
                assert not self._awaiting, "blocks are free, and somebody waits for them"
                return
            gone = [request for request in self.requests if request.cancelled]
            before = [record(request) for request in gone]
            if event_s <= server.wake_s:
                _, _, event = heapq.heappop(self._events)
                event(event_s)
                self.granted(event_s)
            else:
                wake_s = server.wake_s
                server.advance(wake_s)
                self.granted(wake_s)
            assert before == [record(request) for request in gone]
            for request in server.finished[told:]:
                self.here.discard(request.id)
                if request.id in self._kept and not request.dropped:
                    fate = self._kept[request.id]
                    ends_s = request.finished_s + fate.takes * TICK
                    self.at(ends_s, lambda now, r=request: server.let_go(r, now))  # type: ignore[misc]
            told = len(server.finished)
            self.check()
        raise AssertionError("the run does not end")

    def check(self) -> None:
        server = self.server
        if isinstance(server, Server):
            assert server.load == len(self.here) == len(server.unfinished())
            free, _ = server.pool.recount()
            assert free == server.pool.free
            assert free + server.blocks_held() == server.pool.blocks
            if server.load and server.wake_s == math.inf:
                assert server.holds_apart


def free_blocks(server: Engine) -> int:
    return int(server.pool.free) if isinstance(server, Server) else len(server.blocks.free)


def record(request: Request) -> tuple[object, ...]:
    return (*outcome(request), request.output_tokens)


def driven(server: Engine, shapes: list[Shape], fates: list[Fate]) -> Driver:
    driver = Driver(server, shapes, fates)
    driver.run()
    return driver


@given(limits(), models(), traffic(), st.lists(FATES, min_size=1, max_size=8))
def test_the_engines_agree_on_who_leaves_and_what_is_moved(
    limits: EngineLimits, model: StepTimeModel, shapes: list[Shape], fates: list[Fate]
) -> None:
    slow = driven(ReferenceServer(0, limits, model), shapes, fates)
    fast = driven(Server(0, limits, model), shapes, fates)

    assert fast.story == slow.story
    assert [record(r) for r in fast.server.finished] == [record(r) for r in slow.server.finished]
    assert [record(r) for r in fast.requests] == [record(r) for r in slow.requests]
    assert [r.cancelled for r in fast.requests] == [r.cancelled for r in slow.requests]
    assert not any(r.cancelled for r in fast.server.finished)
    one, other = fast.server, slow.server
    assert isinstance(one, Server)
    assert isinstance(other, ReferenceServer)
    assert (one.steps, one.preemptions, one.prefilled_tokens) == (
        other.steps,
        other.preemptions,
        other.prefilled_tokens,
    )
    assert math.isclose(one.busy_s, other.busy_s, rel_tol=1e-9)
    assert adapters_of(one) == adapters_of(other)
    assert tiers_of(one) == tiers_of(other)
    assert one.pool.lowest_free == other.blocks.lowest_free
    assert one.pool.free == one.pool.blocks
    assert one.token_gaps.buckets == other.token_gaps.buckets
    assert (one.token_gaps.count, one.token_gaps.low, one.token_gaps.high) == (
        other.token_gaps.count,
        other.token_gaps.low,
        other.token_gaps.high,
    )


@pytest.fixture(params=[Server, ReferenceServer], ids=["fast", "reference"])
def engine(request: pytest.FixtureRequest) -> Make:
    make: Make = request.param
    return make


def until(server: Engine, now: float) -> None:
    """Lets steps pass that end before `now`."""
    while server.wake_s < now:
        server.advance(server.wake_s)


def test_a_cancelled_request_that_waits_is_gone_at_once(engine: Make) -> None:
    server = engine(0, settings(max_num_seqs=1), ONE_SECOND)
    first, second, third = (asks(number, 16, 4) for number in range(3))
    for request in (first, second, third):
        server.submit(request, 0.0)
    until(server, 1.5)
    server.cancel(second, 1.5)
    until(server, math.inf)
    assert [request.id for request in server.finished] == [0, 2]
    assert (second.scheduled_s, third.scheduled_s) == (UNSET, 4.0)


@pytest.mark.parametrize("lagging", [False, True])
def test_a_cancelled_request_that_runs_leaves_when_the_schedule_looks(
    engine: Make, lagging: bool
) -> None:
    """Cancelled during step 3, of which it is a part. In async mode step 4 is planned already."""
    server = engine(0, settings(async_scheduling=lagging), ONE_SECOND)
    first, second = asks(0, 16, 20), asks(1, 16, 20)
    server.submit(first, 0.0)
    server.submit(second, 0.0)
    until(server, 2.5)
    server.cancel(second, 2.5)
    assert free_blocks(server) == 1000 - 4
    server.submit(asks(2, 16, 1), 2.75)
    until(server, math.inf)
    assert [request.id for request in server.finished] == [2, 0]
    assert server.finished[0].scheduled_s == (4.0 if lagging else 3.0)
    assert (first.finished_s, second.finished_s) == (20.0, UNSET)
    # Tokens of the cancelled one up to step 3 or 4, its first not being a gap.
    assert server.token_gaps.count == 19 + (3 if lagging else 2)
    assert free_blocks(server) == 1000


def test_a_request_that_would_end_with_the_step_in_which_it_is_cancelled_never_finishes(
    engine: Make,
) -> None:
    server = engine(0, settings(), ONE_SECOND)
    request = asks(0, 16, 1)
    server.submit(request, 0.0)
    until(server, 0.5)
    server.cancel(request, 0.5)
    until(server, math.inf)
    assert not server.finished
    assert request.first_token_s == UNSET
    assert free_blocks(server) == 1000


def test_a_kept_prompt_that_was_cached_as_a_whole_holds_no_blocks(engine: Make) -> None:
    server = engine(0, settings(compute_whole_hits=False), ONE_SECOND)
    for number, at_s in enumerate([0.0, 8.0]):
        leg = asks(number, 32, 1, at_s, prefix=shared(32))
        leg.keeps_blocks = number == 1
        until(server, at_s)
        server.submit(leg, at_s)
    until(server, math.inf)
    assert leg.prefix_hit_tokens == 32
    assert free_blocks(server) == 1000
    if isinstance(server, Server):
        assert server.blocks_held() == 0
    server.let_go(leg, 20.0)
    assert free_blocks(server) == 1000


def test_a_kept_prompt_holds_its_blocks_until_it_is_let_go(engine: Make) -> None:
    """The next in line needs them: the server sleeps until then."""
    server = engine(0, settings(kv_blocks=11), ONE_SECOND)
    leg, other = asks(0, 96, 1), asks(1, 80, 1)
    leg.keeps_blocks = True
    server.submit(leg, 0.0)
    server.submit(other, 0.0)
    until(server, math.inf)
    assert [request.id for request in server.finished] == [0]
    assert (free_blocks(server), server.wake_s) == (4, math.inf)
    server.let_go(leg, 5.25)
    until(server, math.inf)
    assert other.scheduled_s == 5.25
    assert free_blocks(server) == 10


def test_blocks_for_moved_kv_are_all_or_none(engine: Make) -> None:
    server = engine(0, settings(kv_blocks=11), ONE_SECOND)
    assert server.reserve(asks(0, 96, 4), 96, 0.0) == 96
    assert server.reserve(asks(1, 80, 4), 80, 0.0) == -1
    assert free_blocks(server) == 4
    assert server.reserve(asks(2, 64, 4), 64, 0.0) == 64


def test_only_what_is_not_cached_here_is_moved(engine: Make) -> None:
    server = engine(0, settings(), ONE_SECOND)
    server.submit(asks(0, 70, 1, prefix=shared(64)), 0.0)
    until(server, math.inf)
    assert server.reserve(asks(1, 100, 4, prefix=shared(64)), 100, 3.0) == 36


def test_a_moved_prompt_computes_its_last_token_only(engine: Make) -> None:
    """And whoever comes next finds its blocks."""
    server = engine(0, settings(), ONE_SECOND)
    moved = asks(0, 96, 3, prefix=shared(96))
    assert server.reserve(moved, 96, 0.0) == 96
    server.submit_arrived(moved, 2.5)
    until(server, math.inf)
    assert (moved.scheduled_s, moved.first_token_s, moved.finished_s) == (2.5, 3.5, 5.5)
    assert server.prefilled_tokens == 1
    after = asks(1, 100, 1, prefix=shared(96))
    server.submit(after, 6.0)
    until(server, math.inf)
    assert after.prefix_hit_tokens == 96


def test_blocks_of_a_reservation_that_was_let_go_are_free_and_unknown(engine: Make) -> None:
    server = engine(0, settings(), ONE_SECOND)
    moved = asks(0, 96, 3, prefix=shared(96))
    server.reserve(moved, 96, 0.0)
    server.let_go(moved, 1.0)
    assert free_blocks(server) == 1000
    after = asks(1, 100, 1, prefix=shared(96))
    server.submit(after, 2.0)
    until(server, math.inf)
    assert after.prefix_hit_tokens == 0


def test_a_request_with_its_kv_goes_before_those_without(engine: Make) -> None:
    server = engine(0, settings(max_num_seqs=1), ONE_SECOND)
    moved = asks(1, 96, 1)
    server.reserve(moved, 96, 0.0)
    server.submit(asks(0, 16, 4), 0.0)
    until(server, 0.5)
    server.submit(asks(2, 16, 1), 0.5)
    server.submit_arrived(moved, 0.75)
    until(server, math.inf)
    assert [request.id for request in server.finished] == [0, 1, 2]


@pytest.mark.parametrize("scheduling", ["fcfs", "priority"])
def test_a_preempted_request_gets_blocks_before_kv_from_elsewhere(
    engine: Make, scheduling: str
) -> None:
    """Also where the KV is of a more urgent request, which would go first otherwise."""
    server = engine(0, settings(kv_blocks=7, scheduling=scheduling), ONE_SECOND)
    older, newer = asks(0, 32, 40, priority=2), asks(1, 32, 40, priority=0)
    server.submit(older, 0.0)
    server.submit(newer, 0.0)
    until(server, 25.0)
    assert newer.preemptions == 1
    assert free_blocks(server) >= 1
    assert server.reserve(asks(2, 16, 4, priority=1), 16, 25.0) == -1
    until(server, math.inf)
    assert [request.id for request in server.finished] == [0, 1]
    assert server.reserve(asks(2, 16, 4), 16, 100.0) == 16


def test_blocks_that_are_freed_within_a_run_of_steps_are_granted_then(engine: Make) -> None:
    """Cancelled in its fourth step, the first is planned into a fifth; its blocks are free then."""
    server = engine(0, settings(kv_blocks=3, async_scheduling=True), ONE_SECOND)
    first, second = asks(0, 16, 6), asks(1, 20, 1, 0.5)
    server.submit(first, 0.0)
    until(server, 0.5)
    assert server.reserve(second, 20, 0.5) == -1
    server.await_room(second, 20)
    until(server, 3.5)
    server.cancel(first, 3.5)
    assert not server.granted
    server.advance(server.wake_s)
    assert server.granted == [second]
    assert server.wake_s == 5.0


def test_what_can_never_run_is_dropped_when_its_blocks_are_asked_for(engine: Make) -> None:
    server = engine(0, settings(kv_blocks=5), ONE_SECOND)
    moved = asks(0, 80, 1)
    assert server.reserve(moved, 80, 1.0) == -1
    assert moved.dropped
    assert server.finished == [moved]


def test_one_cannot_cancel_what_is_not_here() -> None:
    server = Server(0, settings(), ONE_SECOND)
    request = asks(0, 16, 1)
    with pytest.raises(AssertionError):
        server.cancel(request, 0.0)
    server.submit(request, 0.0)
    until(server, math.inf)
    with pytest.raises(AssertionError):
        server.cancel(request, 2.0)
