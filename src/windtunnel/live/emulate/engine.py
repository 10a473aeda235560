"""Servers of the engine model that answer token by token; the caller supplies the time.

The servers are those of a simulation, and so is every time: an answer's tokens are out when the
steps end that make them. A run of equal steps is one event to a server; for a streamed answer
it is followed step by step.
"""

import math
from collections.abc import Callable
from heapq import heappop, heappush
from typing import NamedTuple, Protocol

from windtunnel.core.signals import Signals
from windtunnel.engine.server import Server
from windtunnel.engine.views import probe
from windtunnel.routing.router import Routed, Router
from windtunnel.workload.request import UNSET, Request


class ServerOverheads(NamedTuple):
    """Time that passes around a server, which its clients see: a pool's `overheads`."""

    queueing_s: float = 0.0
    per_token_s: float = 0.0
    """Every token comes so much later."""
    completion_s: float = 0.0
    accumulating_s: float = 0.0
    """And so much later than the one before it: a habit of BLIS."""
    per_prompt_token_s: float = 0.0

    def before_s(self, prompt_tokens: int) -> float:
        """From the arrival of a request to its place in the queue."""
        return self.queueing_s + self.per_prompt_token_s * prompt_tokens

    def after_s(self, tokens: int) -> float:
        """How much later than at the server its first, second, ... token reaches a client."""
        return self.per_token_s + self.accumulating_s * tokens


class Meter(Protocol):
    """Counts what becomes of requests."""

    def began(self, request: Request) -> None:
        """The first token is out."""

    def completed(self, request: Request) -> None: ...

    def aborted(self, request: Request) -> None:
        """The client left before the end."""


class EmulatedAnswer:
    """What has come of a request so far. `hear` is called whenever that is more than before."""

    __slots__ = ("at_server", "begun", "decodes", "ended", "hear", "left", "request", "tokens")

    def __init__(self, request: Request) -> None:
        self.request = request
        self.tokens = 0
        self.ended = False
        self.left = False
        self.hear: Callable[[], None] = _nobody
        self.at_server = False
        self.begun = 0  # tokens after the first step that is computed now
        self.decodes = False  # whether each further step of the run brings one


def _nobody() -> None:
    """No listener yet."""


class EmulatedReplica:
    """One server, and the answers that wait for its tokens."""

    def __init__(self, server: Server, overhead: ServerOverheads) -> None:
        self.server = server
        self.overheads = overhead
        self.answers: dict[int, EmulatedAnswer] = {}  # of requests that are here, by id
        self.streams: dict[int, EmulatedAnswer] = {}  # those of them whose every token counts
        self.silent: dict[int, EmulatedAnswer] = {}  # those of them without a first token
        self.passed = 0  # steps of the current run whose tokens are out
        self.prompts = False  # whether the step that is computed now has prompts in it
        self.prefilled = 0
        self.wake_s = math.inf

    def settle(self) -> None:
        """Says when to look next: when the server wants it, or a step in its run ends before."""
        server = self.server
        self.wake_s = server.wake_s
        if self.streams and self.passed + 1 < server.steps_in_run:
            self.wake_s = min(self.wake_s, server.step_end_s(self.passed + 1))


_ENTER, _TOKENS, _END = range(3)


class Engine:
    """Replicas behind a router. Times are seconds of emulated time and never go back.

    `next_s` is when something happens next if no request arrives; call `advance` then.
    """

    def __init__(
        self,
        servers: list[Server],
        overheads: list[ServerOverheads],
        router: Router,
        signals: Signals,
        meter: Meter,
    ) -> None:
        self.servers = servers
        self.now_s = 0.0  # of what happened last
        self._replicas = [
            EmulatedReplica(server, overhead)
            for server, overhead in zip(servers, overheads, strict=True)
        ]
        self._router = router
        self._signals = signals
        self._meter = meter
        # What overheads put off.
        self._later: list[tuple[float, int, int, EmulatedAnswer, int]] = []
        self._put_off = 0

    @property
    def next_s(self) -> float:
        wake_s = min(replica.wake_s for replica in self._replicas)
        return min(wake_s, self._later[0][0]) if self._later else wake_s

    def refusal(self, request: Request) -> str:
        """Why a request can never be answered; empty when it can."""
        return self.servers[0].refusal(request)

    def ask(self, request: Request, *, streams: bool, now_s: float) -> EmulatedAnswer:
        """Sends a request to a server. Without `streams` only the end of the answer is reported."""
        # What arrives as a step ends is seen by the next step: arrivals go first.
        self._pass_until(now_s)
        self.now_s = now_s
        if self._router.reads_signals and self._signals.stale(now_s):
            probe(self.servers, self._signals, now_s)
        decision = self._router.choose(request, now_s)
        assert isinstance(decision, Routed), "an emulated fleet keeps its servers"
        number = decision.server
        self._signals.sent(number, request.prompt_tokens)
        request.server = number
        replica = self._replicas[number]
        answer = EmulatedAnswer(request)
        replica.answers[request.id] = answer
        replica.silent[request.id] = answer
        if streams:
            replica.streams[request.id] = answer
        before_s = replica.overheads.before_s(request.prompt_tokens)
        if before_s > 0.0:
            self._put(now_s + before_s, _ENTER, answer, 0)
        else:
            self._enter(answer, now_s)
        return answer

    def leave(self, answer: EmulatedAnswer, now_s: float) -> None:
        """The client has left. An answer that has ended is left alone."""
        if answer.ended or answer.left:
            return
        self._pass_until(now_s)
        self.now_s = now_s
        request = answer.request
        replica = self._replicas[request.server]
        answer.left = True
        if request.finished_s != UNSET:
            return  # only the way back was still to be made
        if answer.at_server:
            replica.server.cancel(request, now_s)
            replica.settle()
        self._forget(answer, replica)
        self._meter.aborted(request)

    def advance(self, now_s: float) -> None:
        """Does all that happens up to now."""
        self._pass_until(math.nextafter(now_s, math.inf))

    # What happens

    def _pass_until(self, end_s: float) -> None:
        """Does what happens before a time, in its order."""
        while True:
            replica = min(self._replicas, key=_wake_s)
            later_s = self._later[0][0] if self._later else math.inf
            next_s = min(later_s, replica.wake_s)
            if next_s >= end_s:
                return
            self.now_s = next_s
            if later_s <= replica.wake_s:
                self._happen(*heappop(self._later))
            elif replica.wake_s < replica.server.wake_s:
                self._pass_step(replica)
            else:
                self._wake(replica)

    def _put(self, at_s: float, kind: int, answer: EmulatedAnswer, tokens: int) -> None:
        heappush(self._later, (at_s, self._put_off, kind, answer, tokens))
        self._put_off += 1

    def _happen(self, at_s: float, _: int, kind: int, answer: EmulatedAnswer, tokens: int) -> None:
        if answer.left:
            return
        if kind == _ENTER:
            self._enter(answer, at_s)
            return
        answer.tokens = tokens
        answer.ended = kind == _END
        answer.hear()

    def _enter(self, answer: EmulatedAnswer, now_s: float) -> None:
        replica = self._replicas[answer.request.server]
        answer.at_server = True
        replica.server.submit(answer.request, now_s)
        assert not replica.server.finished, "requests that can never be served are refused before"
        replica.settle()

    def _pass_step(self, replica: EmulatedReplica) -> None:
        """A step in the middle of a run has ended: every stream that decodes has a token more."""
        at_s = replica.wake_s
        replica.passed += 1
        for answer in replica.streams.values():
            if answer.decodes:
                self._tell(answer, replica, answer.begun + replica.passed - 1, at_s)
        replica.settle()

    def _wake(self, replica: EmulatedReplica) -> None:
        """A run of steps has ended, or KV has come from a slower tier while it goes on."""
        server = replica.server
        at_s = server.wake_s
        steps, was_idle = server.steps, server.steps_in_run == 0
        server.advance(at_s)
        ended = server.steps - steps
        if ended or was_idle:
            self._end_run(replica, ended, at_s)
        replica.settle()

    def _end_run(self, replica: EmulatedReplica, steps: int, at_s: float) -> None:
        server = replica.server
        more = max(steps - 1, 0)
        replica.passed = 0
        if replica.prompts:
            self._look_for_first_tokens(replica)
        replica.prompts = server.prefilled_tokens != replica.prefilled
        replica.prefilled = server.prefilled_tokens
        for request in server.finished:
            self._end(replica.answers[request.id], replica)
        server.finished.clear()
        for answer in replica.streams.values():
            tokens = answer.begun + (more if answer.decodes else 0)
            self._tell(answer, replica, tokens, at_s)
            answer.begun = server.tokens_begun(answer.request)
            answer.decodes = answer.request.finish_clock >= 0

    def _look_for_first_tokens(self, replica: EmulatedReplica) -> None:
        silent = replica.silent.values()
        for answer in [a for a in silent if a.request.first_token_s != UNSET]:
            del replica.silent[answer.request.id]
            self._meter.began(answer.request)

    def _tell(
        self, answer: EmulatedAnswer, replica: EmulatedReplica, tokens: int, at_s: float
    ) -> None:
        if tokens <= answer.tokens:
            return
        after_s = replica.overheads.after_s(tokens)
        if after_s > 0.0:
            self._put(at_s + after_s, _TOKENS, answer, tokens)
            return
        answer.tokens = tokens
        answer.hear()

    def _end(self, answer: EmulatedAnswer, replica: EmulatedReplica) -> None:
        request = answer.request
        overhead = replica.overheads
        tokens: int = request.output_tokens
        if request.id in replica.streams and overhead.completion_s > 0.0:
            self._tell(answer, replica, tokens, request.finished_s)
        self._forget(answer, replica)
        if self._router.reads_signals:
            gaps = max(tokens - 1, 1)
            spent_s = request.finished_s - request.first_token_s
            ttft_s = request.first_token_s - request.arrived_s
            self._signals.observe_latency(request.server, ttft_s, spent_s / gaps)
        request.first_token_s += overhead.after_s(1)
        request.finished_s += overhead.after_s(tokens) + overhead.completion_s
        self._meter.completed(request)
        if overhead.after_s(tokens) > 0.0 or overhead.completion_s > 0.0:
            self._put(request.finished_s, _END, answer, tokens)
            return
        answer.tokens = tokens
        answer.ended = True
        answer.hear()

    def _forget(self, answer: EmulatedAnswer, replica: EmulatedReplica) -> None:
        number = answer.request.id
        del replica.answers[number]
        replica.streams.pop(number, None)
        replica.silent.pop(number, None)
        self._signals.ended(answer.request.server, answer.request.prompt_tokens)


def _wake_s(replica: EmulatedReplica) -> float:
    return replica.wake_s
