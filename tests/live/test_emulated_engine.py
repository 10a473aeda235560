"""The engine behind an emulated server hands out each token when the step that makes it ends."""

import math
from collections import defaultdict

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.engine.limits import engine_limits
from tests.engine.reference.engine import ReferenceServer
from tests.engine.reference.step import PlannedStep
from tests.engine.test_equivalence import TICK, Shape, limits, models, requests_of, traffic
from windtunnel.core.signals import Signals
from windtunnel.engine.limits import EngineLimits
from windtunnel.engine.overheads import Overheads
from windtunnel.engine.server import Server
from windtunnel.live.emulate.engine import EmulatedAnswer, Engine
from windtunnel.models.step_time.linear import Linear
from windtunnel.models.step_time.model import StepTimeModel
from windtunnel.routing.load_balancing import RoundRobin
from windtunnel.workload.request import Request

Tokens = dict[int, list[float]]


class Talking(ReferenceServer):
    """The obvious stepper, which also writes down when each token of each request is out."""

    def __init__(self, limits: EngineLimits, model: StepTimeModel) -> None:
        super().__init__(0, limits, model)
        self.tokens: Tokens = defaultdict(list)

    def complete(self, step: PlannedStep, now: float) -> None:
        for request in step.produces:
            if not request.cancelled:
                self.tokens[request.id].append(step.end_s)
        super().complete(step, now)


class Counts:
    """A meter that only keeps score."""

    def __init__(self) -> None:
        self.first: list[int] = []
        self.whole: list[int] = []
        self.gone: list[int] = []

    def began(self, request: Request) -> None:
        self.first.append(request.id)

    def completed(self, request: Request) -> None:
        self.whole.append(request.id)

    def aborted(self, request: Request) -> None:
        self.gone.append(request.id)


class Audience:
    """Listens to every answer, and writes down when each token of it is heard."""

    def __init__(
        self,
        limits: EngineLimits,
        model: StepTimeModel,
        overhead: Overheads,
        replicas: int = 1,
    ) -> None:
        servers = [Server(number, limits, model) for number in range(replicas)]
        self.counts = Counts()
        self.engine = Engine(
            servers,
            [overhead] * replicas,
            RoundRobin(list(range(replicas))),
            Signals([int(limits.max_num_seqs)] * replicas, 0.0),
            self.counts,
        )
        self.tokens: Tokens = defaultdict(list)
        self.ended: dict[int, float] = {}
        self.now_s = 0.0

    def ask(self, request: Request, *, streams: bool = True) -> EmulatedAnswer:
        answer = self.engine.ask(request, streams=streams, now_s=self.now_s)

        def hear() -> None:
            heard = self.tokens[request.id]
            heard += [self.now_s] * (answer.tokens - len(heard))
            if answer.ended:
                self.ended[request.id] = self.now_s

        answer.hear = hear
        return answer

    def run(self, events: list[tuple[float, int, Request]]) -> None:
        """Arrivals (0) and departures (1) at their times; arrivals are before steps that end."""
        answers: dict[int, EmulatedAnswer] = {}
        events = sorted(events, key=lambda event: event[:2])
        while events or self.engine.next_s < math.inf:
            if events and events[0][0] <= self.engine.next_s:
                self.now_s, kind, request = events.pop(0)
                if kind == 0:
                    answers[request.id] = self.ask(request)
                else:
                    self.engine.leave(answers[request.id], self.now_s)
            else:
                self.now_s = self.engine.next_s
                self.engine.advance(self.now_s)


@given(
    limits(habits=False),
    models(),
    traffic(),
    st.lists(st.none() | st.integers(0, 3000), min_size=25),
)
def test_tokens_are_out_when_the_reference_says(
    limits: EngineLimits, model: StepTimeModel, shapes: list[Shape], stays: list[int | None]
) -> None:
    """Whatever is preempted, starved, cut short or given up on the way."""
    slow, fast = Talking(limits, model), Audience(limits, model, Overheads())
    events = []
    for one, other in zip(requests_of(shapes), requests_of(shapes), strict=True):
        if slow.limits.refusal(one.prompt_tokens, one.output_tokens):
            continue
        events.append((one.arrived_s, 0, one, other))
        stay = stays[one.id]
        if stay is not None:
            events.append((one.arrived_s + stay * TICK, 1, one, other))
    ours = [(at_s, kind, other) for at_s, kind, _, other in events]
    fast.run(ours)

    events.sort(key=lambda event: event[:2])
    while events or slow.wake_s < math.inf:
        if events and events[0][0] <= slow.wake_s:
            at_s, kind, one, _ = events.pop(0)
            if kind == 0:
                slow.submit(one, at_s)
            elif one not in slow.finished:
                slow.cancel(one, at_s)
        else:
            slow.advance(slow.wake_s)

    assert fast.tokens == slow.tokens
    assert fast.ended == {request.id: request.finished_s for request in slow.finished}
    assert sorted(fast.counts.whole) == sorted(fast.ended)
    assert sorted(fast.counts.first) == sorted(slow.tokens)
    for server in fast.engine.servers:
        assert server.load == 0
        assert server.pool.free == server.pool.blocks


ONE_SECOND = Linear(fixed_s=1.0, prefill_token_s=0.0, decode_s=0.0, context_token_s=0.0)
ROOMY = engine_limits(kv_blocks=100, async_scheduling=False)


def test_overheads_are_the_simulations() -> None:
    """Before the server, on every token, and at the end."""
    audience = Audience(ROOMY, ONE_SECOND, Overheads(0.5, 0.125, 0.25))
    audience.run([(0.0, 0, Request(0, 0.0, 10, 3))])
    assert audience.tokens == {0: [1.625, 2.625, 3.625]}
    assert audience.ended == {0: 3.875}
    peer = Audience(ROOMY, ONE_SECOND, Overheads(0.5, 0.0, 0.25, accumulating_s=0.125))
    peer.run([(0.0, 0, Request(0, 0.0, 10, 3))])
    assert peer.tokens == {0: [1.625, 2.75, 3.875]}
    assert peer.ended == {0: 4.125}


def test_who_leaves_on_the_way_in_or_out_is_told_nothing_more() -> None:
    audience = Audience(ROOMY, ONE_SECOND, Overheads(0.5, 0.0, 0.25))
    early, late = Request(0, 0.0, 10, 3), Request(1, 0.0, 10, 3)
    audience.run([(0.0, 0, early), (0.0, 0, late), (0.25, 1, early), (3.6, 1, late)])
    assert audience.tokens == {1: [1.5, 2.5, 3.5]}
    assert audience.ended == {}
    assert (audience.counts.gone, audience.counts.whole) == ([0], [1])


def test_without_a_stream_only_the_end_is_told() -> None:
    audience = Audience(ROOMY, ONE_SECOND, Overheads())
    heard = []
    answer = audience.ask(Request(0, 0.0, 10, 50), streams=False)
    answer.hear = lambda: heard.append((answer.tokens, audience.now_s))
    looks = 0
    while audience.engine.next_s < math.inf:
        audience.now_s = audience.engine.next_s
        audience.engine.advance(audience.now_s)
        looks += 1
    assert heard == [(50, 50.0)]
    assert looks < 5


def test_replicas_share_the_requests() -> None:
    audience = Audience(ROOMY, ONE_SECOND, Overheads(), replicas=2)
    audience.run([(0.0, 0, Request(number, 0.0, 10, 2)) for number in range(4)])
    assert [server.index for server in audience.engine.servers for _ in range(2)] == [0, 0, 1, 1]
    assert audience.ended == dict.fromkeys(range(4), 2.0)
    assert all(server.steps == 2 for server in audience.engine.servers)


@pytest.mark.parametrize("streams", [True, False])
def test_an_answer_that_ended_cannot_be_left(streams: bool) -> None:
    audience = Audience(ROOMY, ONE_SECOND, Overheads())
    answer = audience.ask(Request(0, 0.0, 10, 1), streams=streams)
    audience.engine.advance(1.0)
    assert answer.ended
    audience.engine.leave(answer, 2.0)
    assert not answer.left
    assert audience.counts.gone == []
