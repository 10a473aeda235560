"""Emulated time paced by an event loop: a timer wakes the engine at each of its events.

The loop may be late, but the engine is not: each event happens at the time it was due and is only
reported late. So lateness does not accumulate.
"""

import asyncio
import math

from windtunnel.live.emulate.engine import EmulatedAnswer, Engine, Meter
from windtunnel.workload.request import Request


class PacedBackend:
    """Runs an engine `speedup` times as fast as the event loop's clock."""

    def __init__(self, engine: Engine, speedup: float, loop: asyncio.AbstractEventLoop) -> None:
        assert 0.0 < speedup < math.inf
        self._engine = engine
        self._speedup = speedup
        self._loop = loop
        self._start_s = loop.time()
        self._timer: asyncio.TimerHandle | None = None
        self._due_s = math.inf  # when the timer is due, in emulated time
        self._worst_lag_s = 0.0

    def now_s(self) -> float:
        """Emulated time; it may be slightly ahead of the clock if a timer fired early."""
        now_s = (self._loop.time() - self._start_s) * self._speedup
        return max(now_s, self._engine.now_s)

    def refusal(self, request: Request) -> str:
        return self._engine.refusal(request)

    def ask(self, request: Request, *, streams: bool, came_s: float) -> EmulatedAnswer:
        """Sends a request to a server; `came_s` is its arrival time on the loop's clock.

        That is its arrival time for the engine too, although reading it took a while, so that
        requests sent together arrive together. Steps that the engine has taken since are not
        undone.
        """
        came_s = (came_s - self._start_s) * self._speedup
        request.arrived_s = max(came_s, self._engine.now_s)
        answer = self._engine.ask(request, streams=streams, now_s=request.arrived_s)
        self._arm()
        return answer

    def leave(self, answer: EmulatedAnswer) -> None:
        self._engine.leave(answer, self.now_s())
        self._arm()

    def look(self) -> tuple[float, float]:
        """Advances the engine to now; returns emulated time and the worst lag since last called."""
        now_s, lag_s = self.now_s(), self._worst_lag_s
        self._engine.advance(now_s)
        self._arm()
        self._worst_lag_s = 0.0
        return now_s, lag_s

    def _arm(self) -> None:
        next_s = self._engine.next_s
        if next_s == self._due_s:
            return
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._due_s = next_s
        if next_s < math.inf:
            when_s = self._start_s + next_s / self._speedup
            self._timer = self._loop.call_at(when_s, self._ring)

    def _ring(self) -> None:
        now_s = (self._loop.time() - self._start_s) * self._speedup
        self._worst_lag_s = max(self._worst_lag_s, (now_s - self._due_s) / self._speedup)
        # A timer may be early by the resolution of the loop's clock.
        now_s = max(now_s, self._due_s, self._engine.now_s)
        self._timer = None
        self._due_s = math.inf
        self._engine.advance(now_s)
        self._arm()


class InstantBackend:
    """Answers every request completely at once, without any servers."""

    def __init__(self, meter: Meter, loop: asyncio.AbstractEventLoop) -> None:
        self._meter = meter
        self._loop = loop
        self._start_s = loop.time()

    def refusal(self, request: Request) -> str:  # noqa: ARG002 - nothing is too large
        return ""

    def ask(self, request: Request, *, streams: bool, came_s: float) -> EmulatedAnswer:  # noqa: ARG002
        """As in PacedBackend."""
        now_s = self._loop.time() - self._start_s
        request.server = 0
        request.arrived_s = request.scheduled_s = now_s
        request.first_token_s = request.finished_s = now_s
        answer = EmulatedAnswer(request)
        answer.tokens = request.output_tokens
        answer.ended = True
        self._meter.began(request)
        self._meter.completed(request)
        return answer

    def leave(self, answer: EmulatedAnswer) -> None:
        assert answer.ended

    def look(self) -> tuple[float, float]:
        return self._loop.time() - self._start_s, 0.0
