"""Servers of the engine model that answer token by token; the caller supplies the time.

The servers and all times are those of a simulation: a token is available when the step that
produces it ends. A run of equal steps is one event to a server; for a streamed answer it is
followed step by step.
"""

import math
from collections.abc import Callable
from heapq import heappop, heappush
from typing import Protocol

from windtunnel.core.signals import Signals
from windtunnel.engine.overheads import Overheads
from windtunnel.engine.server import Server
from windtunnel.engine.views import probe
from windtunnel.routing.router import Routed, Router
from windtunnel.workload.request import UNSET, Request


class Meter(Protocol):
    """Counts requests by how they progress and end."""

    def began(self, request: Request) -> None:
        """Called when the first token is available."""

    def completed(self, request: Request) -> None: ...

    def aborted(self, request: Request) -> None:
        """Called when the client left before the end."""


class EmulatedAnswer:
    """The progress of a request's answer. `hear` is called whenever there is more, once for all
    events that the engine processed together."""

    __slots__ = (
        *("at_server", "begun", "decodes", "ended", "hear", "is_news", "left", "request"),
        "tokens",
    )

    def __init__(self, request: Request) -> None:
        self.request = request
        self.tokens = 0
        self.ended = False
        self.left = False
        self.hear: Callable[[], None] = _nobody
        self.is_news = False  # whether `hear` is about to be called
        self.at_server = False
        self.begun = 0  # tokens once the first step now being computed has ended
        self.decodes = False  # whether each further step of the run adds one


def _nobody() -> None:
    """No listener yet."""


class EmulatedReplica:
    """One server, and the answers that wait for its tokens."""

    def __init__(self, server: Server, overhead: Overheads) -> None:
        self.server = server
        self.overheads = overhead
        self.answers: dict[int, EmulatedAnswer] = {}  # of this server's requests, by id
        self.streams: dict[int, EmulatedAnswer] = {}  # those reported token by token
        self.silent: dict[int, EmulatedAnswer] = {}  # those without a first token
        self.passed = 0  # steps of the current run whose tokens are reported
        self.prompts = False  # whether the step being computed includes prefill
        self.prefilled = 0
        self.wake_s = math.inf

    def settle(self) -> None:
        """Sets the next wake-up: when the server needs it, or a step of its run ends before."""
        server = self.server
        self.wake_s = server.wake_s
        if self.streams and self.passed + 1 < server.steps_in_run:
            self.wake_s = min(self.wake_s, server.step_end_s(self.passed + 1))


_ENTER, _TOKENS, _END = range(3)


class Engine:
    """Replicas behind a router. Times are in seconds of emulated time and never decrease.

    `next_s` is the time of the next event if no request arrives; call `advance` then.
    """

    def __init__(
        self,
        servers: list[Server],
        overheads: list[Overheads],
        router: Router,
        signals: Signals,
        meter: Meter,
    ) -> None:
        self.servers = servers
        self.now_s = 0.0  # time of the last event
        self._replicas = [
            EmulatedReplica(server, overhead)
            for server, overhead in zip(servers, overheads, strict=True)
        ]
        self._router = router
        self._signals = signals
        self._meter = meter
        # Events delayed by overheads.
        self._later: list[tuple[float, int, int, EmulatedAnswer, int]] = []
        self._put_off = 0
        self._news: list[EmulatedAnswer] = []  # those with more than their listeners were told

    @property
    def next_s(self) -> float:
        wake_s = min(replica.wake_s for replica in self._replicas)
        return min(wake_s, self._later[0][0]) if self._later else wake_s

    def refusal(self, request: Request) -> str:
        """Why a request can never be answered; empty if it can."""
        return self.servers[0].refusal(request)

    def ask(self, request: Request, *, streams: bool, now_s: float) -> EmulatedAnswer:
        """Sends a request to a server. Without `streams`, only the answer's end is reported."""
        # A request that arrives as a step ends is seen by the next step: arrivals go first.
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
        self._report()
        return answer

    def leave(self, answer: EmulatedAnswer, now_s: float) -> None:
        """Ends a request whose client has left. An answer that has ended is not changed."""
        if answer.ended or answer.left:
            return
        self._pass_until(now_s)
        self.now_s = now_s
        request = answer.request
        replica = self._replicas[request.server]
        answer.left = True
        if request.finished_s == UNSET:  # otherwise only the overheads on the way back remained
            if answer.at_server:
                replica.server.cancel(request, now_s)
                replica.settle()
            self._forget(answer, replica)
            self._meter.aborted(request)
        self._report()

    def advance(self, now_s: float) -> None:
        """Processes all events up to and including `now_s`."""
        self._pass_until(math.nextafter(now_s, math.inf))
        self._report()

    def _report(self) -> None:
        news = self._news
        if news:
            self._news = []
            for answer in news:
                answer.is_news = False
                answer.hear()

    # Events

    def _pass_until(self, end_s: float) -> None:
        """Processes all events before a time, in order."""
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
        answer.ended = kind == _END
        self._have(answer, tokens)

    def _enter(self, answer: EmulatedAnswer, now_s: float) -> None:
        replica = self._replicas[answer.request.server]
        answer.at_server = True
        replica.server.submit(answer.request, now_s)
        assert not replica.server.finished, "requests that can never be served are refused before"
        replica.settle()

    def _pass_step(self, replica: EmulatedReplica) -> None:
        """Ends a step in the middle of a run: every decoding stream has one more token."""
        at_s = replica.wake_s
        more = replica.passed
        replica.passed += 1
        delayed = replica.overheads.after_s(1) > 0.0
        news = self._news
        for answer in replica.streams.values():
            if answer.decodes:
                tokens = answer.begun + more
                if delayed:
                    self._tell(answer, replica, tokens, at_s)
                elif tokens > answer.tokens:  # `_have`, without a call for each token
                    answer.tokens = tokens
                    if not answer.is_news:
                        answer.is_news = True
                        news.append(answer)
        replica.settle()

    def _wake(self, replica: EmulatedReplica) -> None:
        """Wakes a server at the end of a run, or when KV from a slower tier arrives during one."""
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
        self._have(answer, tokens)

    def _have(self, answer: EmulatedAnswer, tokens: int) -> None:
        """The client has this many tokens now."""
        answer.tokens = tokens
        if not answer.is_news:
            answer.is_news = True
            self._news.append(answer)

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
        answer.ended = True
        self._have(answer, tokens)

    def _forget(self, answer: EmulatedAnswer, replica: EmulatedReplica) -> None:
        number = answer.request.id
        del replica.answers[number]
        replica.streams.pop(number, None)
        replica.silent.pop(number, None)
        self._signals.ended(answer.request.server, answer.request.prompt_tokens)


def _wake_s(replica: EmulatedReplica) -> float:
    return replica.wake_s
