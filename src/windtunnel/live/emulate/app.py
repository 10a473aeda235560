"""The web application of an emulated server: OpenAI's endpoints, `/health` and `/metrics`."""

import asyncio
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any, NamedTuple, Protocol

import msgspec

from windtunnel.core.random import Stream
from windtunnel.live.emulate.connections import PIECES, PieceWriter
from windtunnel.live.emulate.engine import EmulatedAnswer
from windtunnel.live.emulate.faults import NO_FAULT, FaultDraw, RequestRateLimit, ResponseFault
from windtunnel.live.emulate.metrics import LENGTH, STOP, Metrics
from windtunnel.live.emulate.prompts import PrefixSharing, token_count
from windtunnel.live.emulate.protocol import (
    DONE,
    INVALID,
    AnswerFormat,
    BodyReader,
    ChatBody,
    ChunkFrame,
    CompletionBody,
    Head,
    HttpRefusal,
    Job,
    Usage,
)
from windtunnel.live.filler import filler
from windtunnel.workload.lengths import LengthDraw
from windtunnel.workload.request import Request

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]

MOST_BODY_BYTES = 32 << 20
MOST_BODIES_BYTES = 1 << 30
"""Limit for all request bodies being read; a further one is refused with 503."""
LONGEST_BODY_S = 120.0
MOST_REQUESTS = 65_536
"""Limit of requests in flight; more are refused with 503."""

STOPPING = "the server is stopping"

_JSON = (b"content-type", b"application/json")
_EVENTS = (b"content-type", b"text/event-stream; charset=utf-8")


class Backend(Protocol):
    """Answers requests: an engine paced by the clock, or instantly without an engine."""

    def refusal(self, request: Request) -> str: ...

    def ask(self, request: Request, *, streams: bool, came_s: float) -> EmulatedAnswer: ...

    def leave(self, answer: EmulatedAnswer) -> None: ...

    def look(self) -> tuple[float, float]:
        """Emulated time, and its worst lag since the last call."""


class Served(NamedTuple):
    """What an emulated server serves, and the faults it injects."""

    model: str
    adapters: dict[str, int]
    """Numbers of the LoRA adapters, by the name that clients use."""
    max_model_len: int
    sharing: PrefixSharing | None
    """None if prompts share nothing."""
    lengths: LengthDraw
    """The lengths of answers to requests without max_tokens."""
    draws: Stream
    faults: FaultDraw
    rate_limit: RequestRateLimit | None


class RequestIntake:
    """Takes requests from all endpoints: checks, numbers and passes them to the backend."""

    def __init__(
        self,
        served: Served,
        backend: Backend,
        metrics: Metrics,
        clock: Callable[[], float],
        unix_s: Callable[[], float],
    ) -> None:
        self.served = served
        self.backend = backend
        self.metrics = metrics
        self.unix_s = unix_s
        self.in_flight = 0
        self.bodies_bytes = 0
        self.clock = clock
        self._numbers = 0

    def admit(self, job: Job) -> tuple[ResponseFault, list[tuple[bytes, bytes]]]:
        """The fault to inject and headers for the response; raises `HttpRefusal` to refuse it."""
        served = self.served
        if job.model != served.model and job.model not in served.adapters:
            raise _unknown_model(job.model, served)
        headers: list[tuple[bytes, bytes]] = []
        if served.rate_limit is not None:
            wait_s = served.rate_limit.take(self.clock())
            headers = served.rate_limit.headers(wait_s)
            if wait_s > 0.0:
                what = f"Rate limit reached. Try again in {wait_s:.3f}s."
                raise HttpRefusal(
                    429, what, kind="requests", code="rate_limit_exceeded", headers=headers
                )
        if self.in_flight >= MOST_REQUESTS:
            what = f"{MOST_REQUESTS} requests are in flight, which is the limit."
            raise HttpRefusal(503, what, kind="server_error", headers=headers)
        fault = served.faults.draw()
        if fault.status:
            kind = "requests" if fault.status == 429 else "server_error"
            what = f"This is an injected fault with the status {fault.status}."
            raise HttpRefusal(fault.status, what, kind=kind, code="fault", headers=headers)
        return fault, headers

    def request(self, job: Job) -> tuple[Request, str]:
        """The engine's request for a job, and the finish reason of its answer."""
        served = self.served
        prompt_tokens = token_count(job.prompt)
        room = served.max_model_len - prompt_tokens
        if room < 1 or (job.max_tokens or 1) > room:
            asked = f" and max_tokens is {job.max_tokens}" if job.max_tokens else ""
            what = (
                f"This model's maximum context length is {served.max_model_len} tokens, "
                f"but the prompt has {prompt_tokens}{asked}."
            )
            raise HttpRefusal(400, what, param="messages", code="context_length_exceeded")
        output = job.max_tokens
        finish = LENGTH
        if output is None:
            output = min(served.lengths.draw(served.draws), room)
            finish = STOP
        request = Request(self._numbers, 0.0, prompt_tokens, output)
        request.adapter = adapter = served.adapters.get(job.model, -1)
        if served.sharing is not None:
            answer = filler(output, self._numbers).encode()
            request.prefix, request.answer_key = served.sharing.chain(job.prompt, answer, adapter)
        refusal = self.backend.refusal(request)
        if refusal:
            raise HttpRefusal(400, f"This server can never answer it: {refusal}.")
        self._numbers += 1
        if finish == STOP:
            self.metrics.ends_by_itself(request)
        return request, finish


def _unknown_model(name: str, served: Served) -> HttpRefusal:
    models = ", ".join(f"`{one}`" for one in (served.model, *served.adapters))[:500]
    what = f"The model `{name[:200]}` does not exist; this server has {models}."
    return HttpRefusal(404, what, param="model", code="model_not_found")


class Answering:
    """An endpoint that answers prompts: chat or plain completions."""

    def __init__(
        self,
        intake: RequestIntake,
        reader: BodyReader[ChatBody] | BodyReader[CompletionBody],
        shape: AnswerFormat,
    ) -> None:
        self._intake = intake
        self._reader = reader
        self._shape = shape

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """The ASGI entry point; a stopping server cancels it."""
        try:
            await self._serve(scope, receive, send)
        except asyncio.CancelledError:
            refused = _hang_up(503, STOPPING)
            await _reply(send, refused.status, refused.body, [_JSON, *refused.headers])

    async def _serve(self, scope: Scope, receive: Receive, send: Send) -> None:
        came_s = self._intake.clock()
        try:
            job = self._reader.read(await self._body(scope, receive))
            fault, headers = self._intake.admit(job)
            request, finish = self._intake.request(job)
        except HttpRefusal as refused:
            await _reply(send, refused.status, refused.body, [_JSON, *refused.headers])
            return
        except ClientGone:
            return
        if fault.delay_s:
            await asyncio.sleep(fault.delay_s)
            came_s = self._intake.clock()
        self._intake.in_flight += 1
        try:
            answer = self._intake.backend.ask(request, streams=job.streams, came_s=came_s)
            head = Head(request.id, int(self._intake.unix_s()), job.model)
            response = _Response(self._intake.backend, self._shape, head, answer, finish)
            if job.streams:
                if not fault.breaks:
                    response.write_to(scope.get(PIECES))
                await response.stream(receive, send, headers, fault, tells_usage=job.tells_usage)
            else:
                await response.answer(receive, send, headers, fault)
        finally:
            self._intake.in_flight -= 1

    async def _body(self, scope: Scope, receive: Receive) -> bytes:
        """Reads a request body within limits on its size, on all bodies together, and on time."""
        intake = self._intake
        for name, value in scope["headers"]:
            if name == b"content-length" and int(value) > MOST_BODY_BYTES:
                raise _hang_up(413, f"the body is larger than {MOST_BODY_BYTES >> 20} MiB")
        parts: list[bytes] = []
        size = 0
        try:
            async with asyncio.timeout(LONGEST_BODY_S):
                more = True
                while more:
                    message = await receive()
                    if message["type"] == "http.disconnect":
                        raise ClientGone
                    part: bytes = message.get("body", b"")
                    more = message.get("more_body", False)
                    size += len(part)
                    intake.bodies_bytes += len(part)
                    if size > MOST_BODY_BYTES:
                        raise _hang_up(413, f"the body is larger than {MOST_BODY_BYTES >> 20} MiB")
                    if intake.bodies_bytes > MOST_BODIES_BYTES:
                        raise _hang_up(503, "too many bodies are being read")
                    parts.append(part)
        except TimeoutError:
            raise _hang_up(408, f"the body took longer than {LONGEST_BODY_S:g} s") from None
        finally:
            intake.bodies_bytes -= size
        return parts[0] if len(parts) == 1 else b"".join(parts)


def _hang_up(status: int, what: str) -> HttpRefusal:
    """A refusal after which nothing more is read from the client."""
    kind = INVALID if status < 500 else "server_error"
    return HttpRefusal(status, what, kind=kind, headers=[(b"connection", b"close")])


class _Response:
    """The response to one request."""

    def __init__(
        self, backend: Backend, shape: AnswerFormat, head: Head, answer: EmulatedAnswer, finish: str
    ) -> None:
        self._backend = backend
        self._shape = shape
        self._head = head
        self._answer = answer
        self._finish = finish
        self._news = asyncio.Event()
        answer.hear = self._news.set
        self._sent = 0  # tokens
        self._is_waiting = False  # for more of them: nothing is being written
        self._pieces: PieceWriter | None = None
        self._frame: ChunkFrame | None = None

    def write_to(self, pieces: PieceWriter | None) -> None:
        """Writes tokens directly while no other write is pending, without waking a task for
        each."""
        if pieces is not None:
            self._pieces = pieces
            self._frame = self._shape.frame(self._head)
            self._answer.hear = self._write

    def _write(self) -> None:
        answer, sent = self._answer, self._sent
        tokens = answer.tokens
        if self._is_waiting and 0 < sent < tokens and not (answer.ended or answer.left):
            assert self._pieces is not None
            assert self._frame is not None
            if self._pieces.write(self._frame.chunk(sent, tokens)):
                self._sent = tokens
                return
        self._news.set()

    async def answer(
        self, receive: Receive, send: Send, headers: list[tuple[bytes, bytes]], fault: ResponseFault
    ) -> None:
        """Sends the complete answer once it is finished."""
        answer = self._answer
        if not answer.ended:
            with _DisconnectWatch(self, receive):
                while not answer.ended and not answer.left:
                    await self._news.wait()
                    self._news.clear()
        if answer.left:
            return
        text = filler(answer.tokens, self._head.number)
        body = self._shape.whole(self._head, text, self._finish, self._usage())
        await _reply(send, 200, body, [_JSON, *headers], breaks=fault.breaks)

    async def stream(
        self,
        receive: Receive,
        send: Send,
        headers: list[tuple[bytes, bytes]],
        fault: ResponseFault = NO_FAULT,
        *,
        tells_usage: bool,
    ) -> None:
        """Sends each token when produced; several at once if the client or this loop is slow."""
        answer = self._answer
        head = [_EVENTS, (b"cache-control", b"no-cache"), *headers]
        await send({"type": "http.response.start", "status": 200, "headers": head})
        stops_at = answer.request.output_tokens // 2 if fault.breaks else -1
        end = b""
        try:
            with _DisconnectWatch(self, receive):
                while not answer.left:
                    # Tokens that arrive while a chunk is sent are left to the next iteration.
                    tokens, ended = answer.tokens, answer.ended
                    if 0 <= stops_at <= tokens:
                        self._backend.leave(answer)
                        return
                    if tokens > self._sent:
                        await _piece(send, self._piece(self._sent, tokens, last=ended))
                        self._sent = tokens
                    if ended:
                        break
                    self._is_waiting = True
                    try:
                        await self._news.wait()
                    finally:
                        self._is_waiting = False
                    self._news.clear()
        except asyncio.CancelledError:
            end = b"data: %b\n\n" % _hang_up(503, STOPPING).body
        if answer.left:
            return
        if not end:
            usage = self._shape.usage(self._head, self._usage()) if tells_usage else b""
            end = usage + DONE
        await send({"type": "http.response.body", "body": end, "more_body": False})

    def left(self) -> None:
        """Called when the client has disconnected."""
        self._backend.leave(self._answer)
        self._news.set()

    def _piece(self, sent: int, tokens: int, *, last: bool) -> bytes:
        text = filler(tokens - sent, self._head.number + sent)
        finish = self._finish if last else None
        return self._shape.piece(self._head, text, finish, first=sent == 0)

    def _usage(self) -> Usage:
        request = self._answer.request
        return Usage(request.prompt_tokens, request.output_tokens, request.prefix_hit_tokens)


class _DisconnectWatch:
    """Watches for the client's disconnect while open."""

    def __init__(self, response: _Response, receive: Receive) -> None:
        self._response = response
        self._receive = receive
        self._task: asyncio.Task[None] | None = None

    def __enter__(self) -> None:
        self._task = asyncio.get_running_loop().create_task(self._watch())

    def __exit__(self, *_: object) -> None:
        assert self._task is not None
        self._task.cancel()

    async def _watch(self) -> None:
        while (await self._receive())["type"] != "http.disconnect":
            pass
        self._response.left()


class ClientGone(Exception):
    """The client disconnected before it had sent its whole request."""


async def _reply(
    send: Send,
    status: int,
    body: bytes,
    headers: list[tuple[bytes, bytes]],
    *,
    breaks: bool = False,
) -> None:
    """Sends a complete response; if it breaks, it is shorter than its content-length."""
    size = (b"content-length", str(len(body)).encode())
    await send({"type": "http.response.start", "status": status, "headers": [*headers, size]})
    if breaks:
        await _piece(send, body[: len(body) // 2])
        return
    await send({"type": "http.response.body", "body": body, "more_body": False})


async def _piece(send: Send, body: bytes) -> None:
    await send({"type": "http.response.body", "body": body, "more_body": True})


def model_data(name: str, served: Served, created: int) -> dict[str, Any]:
    """The entry of a model in `/v1/models`; an adapter has a parent."""
    return {
        "id": name,
        "object": "model",
        "created": created,
        "owned_by": "windtunnel",
        "parent": served.model if name in served.adapters else None,
        "max_model_len": served.max_model_len,
    }


def build_app(intake: RequestIntake) -> Any:
    """The ASGI application."""
    from starlette.applications import Starlette
    from starlette.exceptions import HTTPException
    from starlette.requests import Request as WebRequest
    from starlette.responses import Response
    from starlette.routing import Route

    served = intake.served
    created = int(intake.unix_s())
    known = {name: model_data(name, served, created) for name in (served.model, *served.adapters)}

    def data(value: Any, status: int = 200) -> Response:
        return Response(msgspec.json.encode(value), status, media_type="application/json")

    def refused(fault: HttpRefusal) -> Response:
        return Response(fault.body, fault.status, media_type="application/json")

    async def models(_: WebRequest) -> Response:
        return data({"object": "list", "data": list(known.values())})

    async def one_model(request: WebRequest) -> Response:
        name = request.path_params["name"]
        if name not in known:
            return refused(_unknown_model(name, served))
        return data(known[name])

    async def health(_: WebRequest) -> Response:
        return Response()

    async def metrics(_: WebRequest) -> Response:
        page = intake.metrics.page(*intake.backend.look())
        return Response(page, media_type="text/plain; version=1.0.0")

    async def fault(_: WebRequest, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        return refused(HttpRefusal(error.status_code, f"{error.detail}."))

    async def bug(_: WebRequest, __: Exception) -> Response:
        return refused(HttpRefusal(500, "This server has an internal error.", kind="server_error"))

    chat = Answering(intake, BodyReader(ChatBody), AnswerFormat(chat=True))
    plain = Answering(intake, BodyReader(CompletionBody), AnswerFormat(chat=False))
    return Starlette(
        routes=[
            Route("/v1/chat/completions", chat, methods=["POST"]),
            Route("/v1/completions", plain, methods=["POST"]),
            Route("/v1/models", models),
            Route("/v1/models/{name:path}", one_model),
            Route("/health", health),
            Route("/metrics", metrics),
        ],
        exception_handlers={HTTPException: fault, Exception: bug},
    )
