"""A gateway and fake servers on loopback, in one event loop, for tests of the data path."""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from pathlib import Path
from typing import Any, NamedTuple

from windtunnel.live.gateway.program import GatewayProgram
from windtunnel.live.gateway.settings import read_settings
from windtunnel.live.serving import listen
from windtunnel.live.system import new_loop

MODEL = "m"
QUICK = (
    "live.health.interval=50ms",
    "live.scrape.interval=50ms",
    "live.health.ramp=0s",
    "live.admin=127.0.0.1:0",
    "live.listen=127.0.0.1:0",
    "live.trace=null",
)


class Received(NamedTuple):
    """A request as a fake server got it."""

    line: str
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


Script = Callable[[Received, asyncio.StreamWriter, "FakeServer"], Awaitable[None]]


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


def event(text: str, **more: Any) -> bytes:
    data = {"id": "1", "choices": [{"index": 0, "delta": {"content": text}}], **more}
    return b"data: " + json.dumps(data, separators=(",", ":")).encode() + b"\n\n"


USAGE = {"prompt_tokens": 7, "completion_tokens": 3, "total_tokens": 10}
USAGE_EVENT = (
    b"data: "
    + json.dumps({"choices": [], "usage": USAGE}, separators=(",", ":")).encode()
    + b"\n\n"
)
DONE = b"data: [DONE]\n\n"
STREAM_HEAD = (
    b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
)


def whole(body: bytes, status: str = "200 OK", more: bytes = b"") -> bytes:
    head = f"HTTP/1.1 {status}\r\ncontent-type: application/json\r\ncontent-length: {len(body)}\r\n"
    return head.encode() + more + b"\r\n" + body


def answer(text: str = "hello") -> bytes:
    message = {"role": "assistant", "content": text}
    return json.dumps({"choices": [{"index": 0, "message": message}], "usage": USAGE}).encode()


async def friendly(received: Received, writer: asyncio.StreamWriter, _: "FakeServer") -> None:
    """Streams three words, or answers at once."""
    asked = received.json
    if not asked.get("stream"):
        writer.write(whole(answer()))
        return
    writer.write(STREAM_HEAD)
    for word in ("one", "two", "three"):
        writer.write(chunk(event(word)))
        await writer.drain()
        await asyncio.sleep(0)
    if (asked.get("stream_options") or {}).get("include_usage"):
        writer.write(chunk(USAGE_EVENT))
    writer.write(chunk(DONE) + b"0\r\n\r\n")


class FakeServer:
    """Speaks HTTP as it is told to; counts requests, and clients that left early."""

    def __init__(self, script: Script = friendly) -> None:
        self.script = script
        self.requests: list[Received] = []
        self.left = 0
        self.open = 0
        self.healthy = True
        self.models: list[dict[str, Any]] = [{"id": MODEL, "parent": None}]
        self.page = "vllm:num_requests_waiting 0\nvllm:num_requests_running 0\n"
        self.url = ""
        self._server: asyncio.Server | None = None
        self._writers: set[asyncio.StreamWriter] = set()

    async def start(self, port: int = 0) -> "FakeServer":
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", port, limit=1 << 22)
        self.port = self._server.sockets[0].getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"
        return self

    async def stop(self) -> None:
        assert self._server is not None
        self._server.close()
        for writer in list(self._writers):
            writer.transport.abort()
        await asyncio.sleep(0)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.add(writer)
        self.open += 1
        try:
            while received := await _read(reader):
                await self._answer(received, reader, writer)
                if writer.is_closing():
                    break
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            self.open -= 1
            self._writers.discard(writer)
            writer.close()

    async def _answer(
        self, received: Received, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        path = received.line.split()[1]
        if path == "/health":
            writer.write(whole(b"", "200 OK" if self.healthy else "503 Not Ready"))
        elif path == "/v1/models":
            writer.write(whole(json.dumps({"data": self.models}).encode()))
        elif path == "/metrics":
            writer.write(whole(self.page.encode()))
        else:
            self.requests.append(received)
            work = asyncio.ensure_future(self.script(received, writer, self))
            gone = asyncio.ensure_future(reader.read(1))
            await asyncio.wait((work, gone), return_when=asyncio.FIRST_COMPLETED)
            if work.done():
                gone.cancel()
                try:
                    work.result()
                except ConnectionError:
                    self.left += 1
                    raise
            else:
                self.left += 1
                work.cancel()
                writer.transport.abort()
                return
            with contextlib.suppress(asyncio.CancelledError):
                await gone
        await writer.drain()


async def _read(reader: asyncio.StreamReader) -> Received | None:
    try:
        head = await reader.readuntil(b"\r\n\r\n")
    except asyncio.IncompleteReadError:
        return None
    line, *rest = head.decode("latin-1").rstrip("\r\n").split("\r\n")
    headers = {}
    for one in rest:
        name, _, value = one.partition(": ")
        headers[name.lower()] = value
    if headers.get("transfer-encoding") == "chunked":
        return Received(line, headers, await _read_chunks(reader))
    body = await reader.readexactly(int(headers.get("content-length", "0")))
    return Received(line, headers, body)


async def _read_chunks(reader: asyncio.StreamReader) -> bytes:
    body = b""
    while size := int((await reader.readuntil(b"\r\n")).strip(), 16):
        body += (await reader.readexactly(size + 2))[:-2]
    await reader.readexactly(2)
    return body


class Answer(NamedTuple):
    """What a client got."""

    status: int
    headers: dict[str, str]
    body: bytes
    whole: bool
    """Whether the message was complete."""

    @property
    def json(self) -> Any:
        return json.loads(self.body)


class Bed:
    """A running gateway in front of fake servers."""

    def __init__(self, program: GatewayProgram, port: int, servers: list[FakeServer]) -> None:
        self.program = program
        self.port = port
        self.servers = servers

    @property
    def core(self) -> Any:
        return self.program.proxy.core

    async def until(self, holds: Callable[[], bool], seconds: float = 10.0) -> None:
        """Waits until something holds; a bed that never gets there fails."""
        loop = asyncio.get_running_loop()
        until_s = loop.time() + seconds
        while not holds():
            assert loop.time() < until_s, "it never came to hold"
            await asyncio.sleep(0.005)

    async def raw(self, data: bytes, *, wait_s: float = 10.0) -> bytes:
        """Sends bytes on a new connection; everything that comes back until it is closed."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        writer.write(data)
        try:
            async with asyncio.timeout(wait_s):
                return await reader.read()
        except ConnectionError:
            return b""
        finally:
            writer.close()

    async def ask(
        self,
        body: Any = None,
        *,
        path: str = "/v1/chat/completions",
        headers: dict[str, str] | None = None,
        method: str = "POST",
    ) -> Answer:
        """One request on a connection of its own."""
        reader, writer = await self.open(body, path=path, headers=headers, method=method)
        try:
            return await read_answer(reader)
        finally:
            writer.close()

    async def open(
        self,
        body: Any = None,
        *,
        path: str = "/v1/chat/completions",
        headers: dict[str, str] | None = None,
        method: str = "POST",
    ) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """Sends a request, and leaves its answer to the caller."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port, limit=1 << 24)
        writer.write(request(body, path=path, headers=headers, method=method))
        return reader, writer

    def settled(self) -> None:
        """Nothing is under way, and every book says so."""
        assert not self.core.requests
        assert self.core.check() is None
        assert [one.in_flight for one in self.core.servers] == [0] * len(self.core.servers)
        assert self.program.proxy.under_way == 0
        assert self.program.proxy.metrics.bugs == 0


def chat(**more: Any) -> dict[str, Any]:
    return {"model": MODEL, "messages": [{"role": "user", "content": "hi"}], **more}


def request(
    body: Any = None,
    *,
    path: str = "/v1/chat/completions",
    headers: dict[str, str] | None = None,
    method: str = "POST",
) -> bytes:
    data = (
        body if isinstance(body, bytes) else json.dumps(chat() if body is None else body).encode()
    )
    if method == "GET":
        data = b""
    lines = [f"{method} {path} HTTP/1.1", "Host: gateway", "Content-Type: application/json"]
    lines += [f"{name}: {value}" for name, value in (headers or {}).items()]
    lines.append(f"Content-Length: {len(data)}")
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + data


async def read_answer(reader: asyncio.StreamReader) -> Answer:
    head = await reader.readuntil(b"\r\n\r\n")
    line, *rest = head.decode("latin-1").rstrip("\r\n").split("\r\n")
    headers = {name.lower(): value for name, _, value in (one.partition(": ") for one in rest)}
    status = int(line.split()[1])
    if "content-length" in headers:
        try:
            body = await reader.readexactly(int(headers["content-length"]))
        except asyncio.IncompleteReadError as error:
            return Answer(status, headers, error.partial, whole=False)
        return Answer(status, headers, body, whole=True)
    body = b""
    try:
        while True:
            size = int((await reader.readuntil(b"\r\n")).strip(), 16)
            piece = await reader.readexactly(size + 2)
            if size == 0:
                return Answer(status, headers, body, whole=True)
            body += piece[:-2]
    except (asyncio.IncompleteReadError, ConnectionError):
        return Answer(status, headers, body, whole=False)


@contextlib.asynccontextmanager
async def bed(
    *scripts: Script,
    sets: tuple[str, ...] = (),
    config: Path | None = None,
    environment: dict[str, str] | None = None,
    ready: bool = True,
) -> AsyncIterator[Bed]:
    """A gateway in front of a fake server for each script, ready or not."""
    servers = [await FakeServer(script).start() for script in scripts or (friendly,)]

    def read() -> Any:
        return read_settings(config, (*QUICK, *sets), [one.url for one in servers])

    program = GatewayProgram(read(), environment or {}, read)
    bound = listen("127.0.0.1", 0)
    stop = asyncio.Event()
    running = asyncio.ensure_future(program.run(bound, lambda _: None, stop))
    found = Bed(program, bound.getsockname()[1], servers)
    try:
        if ready:
            await found.until(
                lambda: (
                    len(found.core.servers) == len(servers)
                    and all(one.availability.healthy for one in found.core.servers)
                )
            )
        yield found
    finally:
        stop.set()
        try:
            await asyncio.wait_for(running, 40)
        finally:
            for server in servers:
                await server.stop()


def run(test: Coroutine[Any, Any, None]) -> None:
    with asyncio.Runner(loop_factory=new_loop) as runner:
        runner.run(asyncio.wait_for(test, 50))
