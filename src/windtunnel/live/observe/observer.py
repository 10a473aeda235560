"""Sends a scenario's traffic to a server on schedule, and measures the responses.

An open loop stays open: a request is sent when it is due, regardless of earlier requests. If it is
sent late nevertheless, because too many are in flight or this machine is too slow, the trace has
both the time it was sent and the time it was due.
"""

import asyncio
import math
from collections import deque
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, suppress
from itertools import pairwise
from typing import Any, NamedTuple, Protocol

import msgspec

from windtunnel.core.errors import one_line
from windtunnel.live.observe.prompts import PromptWriter
from windtunnel.live.observe.stream import Answered, BadStream, ErrorInStream
from windtunnel.live.system import unwrapped
from windtunnel.live.wire.client import NoReply
from windtunnel.live.wire.refusals import error_line, refusal_line
from windtunnel.workload.request import NEVER, Request
from windtunnel.workload.traces.measured import (
    COMPLETED,
    CUT_OFF,
    FAILED,
    REJECTED,
    TIMED_OUT,
    UNFINISHED,
    Measured,
)
from windtunnel.workload.traces.record import TraceRequest
from windtunnel.workload.traffic import Traffic

TOO_MANY = (429, 503)
"""Statuses with which a server refuses a request that it might answer at another time."""
LONGEST_ERROR = 200
"""Characters of a server's error message that are kept."""
LONGEST_GOODBYE_S = 1.0
"""Time limit for a server that has sent the end of its response but does not close it."""


class ReplyStream(Protocol):
    """A reply whose headers have arrived. Reading the body may raise `NoReply`."""

    @property
    def status(self) -> int: ...

    @property
    def headers(self) -> Mapping[str, str]: ...

    def pieces(self) -> AsyncIterator[bytes]:
        """The body, in pieces as they arrive."""

    async def whole(self) -> bytes:
        """The complete body."""


class ObservedServer(Protocol):
    """The observed server."""

    @property
    def redact(self) -> Callable[[str], str]:
        """Removes secrets from a text, such as a key that the server echoes."""

    def post(
        self, end: str, body: bytes, headers: Mapping[str, str] | None = None
    ) -> AbstractAsyncContextManager[ReplyStream]: ...


class SendOptions(NamedTuple):
    """How requests are sent."""

    model: str
    """The server's name for the model."""
    speedup: float = 1.0
    """Seconds of the scenario that pass in one second."""
    most_in_flight: int = 1024
    longest_s: float = 600.0
    """In the scenario's time, for requests without their own time limit."""
    pins_length: bool = True
    """Whether the server is asked to ignore end-of-sequence, so that lengths are as planned."""
    names_class: bool = False
    """Whether requests name their class of service to a gateway, by `x-slo-class`."""
    models: Sequence[str] = ()
    """The names of several models, by number in the traffic."""

    def model_of(self, request: Request) -> str:
        return self.models[request.model] if self.models else self.model


class Observer:
    """One observation; `run` runs it from the first request to the end of the last."""

    def __init__(
        self,
        traffic: Traffic,
        server: ObservedServer,
        writer: PromptWriter,
        options: SendOptions,
        record: Callable[[Measured], None],
    ) -> None:
        self.sent = 0
        self.in_flight = 0
        self.now_s = 0.0
        self._traffic = traffic
        self._server = server
        self._writer = writer
        self._options = options
        self._record = record
        self._start_s = 0.0
        self._woken_s = 0.0
        self._ended: deque[tuple[Request, Measured, str]] = deque()
        self._news = asyncio.Event()
        self._stopping = False

    def stop(self) -> None:
        """Ends it early: requests in flight are cancelled and recorded as unfinished."""
        self._stopping = True
        self._news.set()

    async def run(self, look: Callable[["Observer"], None] | None = None) -> None:
        """Sends all requests. `look` is called whenever something has happened."""
        self._start_s = asyncio.get_running_loop().time()
        with unwrapped():
            await self._send_all(look)
        self._settle()
        self._traffic.stop(self._clock_s())

    async def _send_all(self, look: Callable[["Observer"], None] | None) -> None:
        tasks: set[asyncio.Task[None]] = set()
        async with asyncio.TaskGroup() as group:
            while not self._stopping:
                self._settle()
                if look is not None:
                    look(self)
                next_s = self._traffic.next_s
                if next_s == math.inf and not self.in_flight:
                    break
                if self.in_flight >= self._options.most_in_flight:
                    next_s = math.inf
                if max(self._clock_s(), self._woken_s) < next_s:
                    await self._wait(next_s)
                    continue
                task = group.create_task(self._ask(self._traffic.take()))
                tasks.add(task)
                task.add_done_callback(tasks.discard)
                self.sent += 1
                self.in_flight += 1
                # Lets the request be sent before the next one is considered.
                await asyncio.sleep(0)
            for task in list(tasks):
                task.cancel()

    def _clock_s(self) -> float:
        """The scenario's time."""
        elapsed_s = asyncio.get_running_loop().time() - self._start_s
        self.now_s = elapsed_s * self._options.speedup
        return self.now_s

    async def _wait(self, until_s: float) -> None:
        """Waits until a time, or until a request has ended."""
        self._news.clear()
        if self._ended or self._stopping:
            return
        when_s = self._start_s + until_s / self._options.speedup
        try:
            async with asyncio.timeout_at(when_s if until_s < math.inf else None):
                await self._news.wait()
        except TimeoutError:
            self._woken_s = until_s  # even if the clock is slightly behind

    def _settle(self) -> None:
        """Records ended requests and reports them, so that conversations and users continue."""
        while self._ended:
            request, measured, text = self._ended.popleft()
            self.in_flight -= 1
            completed = measured.outcome == COMPLETED
            if completed:
                self._writer.answered(request, text)
            if not completed or request.answer_key < 0:
                self._writer.over(request)
            if request.followed and not self._stopping:
                self._traffic.ended(request, completed, request.finished_s)
            self._record(measured)

    # One request

    async def _ask(self, request: Request) -> None:
        answered = Answered()
        outcome, status, error = UNFINISHED, 0, None
        body = self._body(request)
        headers = None
        if self._options.names_class:
            headers = {"x-slo-class": self._traffic.classes[request.slo]}
        sent_s = self._clock_s()
        try:
            async with (
                asyncio.timeout(self._patience_s(request, sent_s)),
                self._server.post(self._writer.api, body, headers) as reply,
            ):
                status = reply.status
                if status == 200:
                    await self._hear(reply, answered)
                    outcome, error = _verdict_of_part(answered, reply)
                else:
                    outcome = REJECTED if status in TOO_MANY else FAILED
                    redact = self._server.redact
                    error = refusal_line(status, reply.headers, await reply.whole(), redact)
        except TimeoutError:
            outcome = TIMED_OUT
        except ErrorInStream as failed:
            outcome, error = FAILED, error_line(failed.said, self._server.redact)
        except BadStream as bad:
            outcome, error = FAILED, str(bad)
        except NoReply as broken:
            outcome, error = CUT_OFF if answered.times_s else FAILED, broken.what
        except asyncio.CancelledError:
            if not self._stopping:
                raise
        request.finished_s = self._clock_s()
        if answered.ended_s is not None:
            request.finished_s = answered.ended_s
            # A response with its end mark is complete, whatever happened to the connection then.
            outcome, error = _verdict_of_whole(answered)
        if error is not None:
            error = self._server.redact(error)[:LONGEST_ERROR]
        measured = self._measured(request, sent_s, answered, outcome, status, error)
        if outcome == COMPLETED:
            request.output_tokens = measured.request.output_tokens
        self._ended.append((request, measured, answered.text))
        self._news.set()

    async def _hear(self, reply: ReplyStream, answered: Answered) -> None:
        """Reads the pieces of a response up to its end."""
        pieces = reply.pieces()
        async for piece in pieces:
            answered.feed(piece, self._clock_s())
            if answered.whole:
                break
        # A connection can be reused once the response is read to its end.
        with suppress(TimeoutError, NoReply):
            async with asyncio.timeout(LONGEST_GOODBYE_S):
                async for _ in pieces:
                    pass

    def _body(self, request: Request) -> bytes:
        options = self._options
        adapter: int = request.adapter
        fields: dict[str, Any] = {
            "model": self._traffic.adapters[adapter] if adapter >= 0 else options.model_of(request),
            **self._writer.fields(request),
            "max_tokens": int(request.output_tokens),
            "stream": True,
            "stream_options": {"include_usage": True},
        }
        if options.pins_length:
            fields["ignore_eos"] = True
        return msgspec.json.encode(fields)

    def _patience_s(self, request: Request, sent_s: float) -> float:
        """How long its client waits, in wall-clock seconds."""
        longest_s = self._options.longest_s
        if request.deadline_s != NEVER:
            longest_s = max(0.0, request.deadline_s - sent_s)
        return longest_s / self._options.speedup

    def _measured(
        self,
        request: Request,
        sent_s: float,
        answered: Answered,
        outcome: str,
        status: int,
        error: str | None,
    ) -> Measured:
        traffic, times_s = self._traffic, answered.times_s
        planned = int(request.prompt_tokens)
        prompt = answered.prompt_tokens or planned
        keys, ends = _shared(request, prompt / planned)
        row = TraceRequest(
            arrived_s=sent_s,
            prompt_tokens=prompt,
            output_tokens=answered.tokens,
            id=str(request.id),
            source=traffic.sources[request.source],
            tenant=traffic.tenants[request.tenant],
            slo=traffic.classes[request.slo],
            session=str(request.session) if request.session >= 0 else None,
            turn=int(request.turn) if request.session >= 0 else None,
            model=self._options.model_of(request),
            adapter=traffic.adapters[request.adapter] if request.adapter >= 0 else None,
            deadline_s=request.deadline_s - sent_s if request.deadline_s != NEVER else None,
            ttft_s=times_s[0] - sent_s if times_s else None,
            e2e_s=times_s[-1] - sent_s if times_s and outcome == COMPLETED else None,
            answer_key=int(request.answer_key) if request.answer_key >= 0 else None,
            prefix_keys=keys,
            prefix_ends=ends,
        )
        gaps_s = [after - before for before, after in pairwise(times_s)]
        due_s = min(request.arrived_s, sent_s)
        return Measured(row, due_s, outcome, status, error, answered.cached_tokens, gaps_s)


def _verdict_of_whole(answered: Answered) -> tuple[str, str | None]:
    if answered.times_s:
        return COMPLETED, None
    return FAILED, "the answer has no tokens"


def _verdict_of_part(answered: Answered, reply: ReplyStream) -> tuple[str, str]:
    """The outcome of a response that ended without its end mark."""
    if answered.times_s:
        return CUT_OFF, "the stream ended without [DONE]"
    kind = one_line(reply.headers.get("content-type", "something of no type"))
    return FAILED, f"the server sent no stream of tokens, but {kind}"


def _shared(request: Request, factor: float) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The shared prefix of a prompt that the server counts as `factor` times as many tokens."""
    if request.prefix is None:
        return (), ()
    keys, ends = [], []
    before = 0
    for key, end in zip(request.prefix.keys, request.prefix.ends, strict=True):
        scaled = round(end * factor)
        if scaled > before:
            keys.append(int(key))
            ends.append(scaled)
            before = scaled
    return tuple(keys), tuple(ends)
