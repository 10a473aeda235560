"""What a client may cost an emulated server: heads, bodies and connections have limits."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from itertools import repeat
from typing import Any

import pytest

from tests.live.emulated import FALLS_SILENT_S, plan
from windtunnel.cli.live.emulate import EmulateOptions, build_intake
from windtunnel.live.emulate import app, connections
from windtunnel.live.emulate.app import build_app
from windtunnel.live.serving import MOST_CONNECTIONS, listen, serve

POST = b"POST /v1/completions HTTP/1.1\r\nhost: x\r\n"
CHUNKED = POST + b"transfer-encoding: chunked\r\n\r\n"
ENDLESS = 64 << 20
"""Bytes that nobody would read; what a kernel buffers on the way is far less."""

Use = Callable[[int], Awaitable[None]]


def with_port(use: Use, most: int = MOST_CONNECTIONS) -> None:
    """Runs `use` with the port of a server."""

    def build(loop: asyncio.AbstractEventLoop) -> Any:
        return build_app(build_intake(plan(), EmulateOptions(speedup=1000.0), loop))

    async def main() -> None:
        stop = asyncio.Event()
        address: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        with listen("127.0.0.1", 0) as bound:
            async with asyncio.timeout(FALLS_SILENT_S), asyncio.TaskGroup() as tasks:
                tasks.create_task(serve(build, bound, address.set_result, stop, most))
                try:
                    await use(int((await address).rpartition(":")[2]))
                finally:
                    stop.set()

    asyncio.run(main())


async def answer(port: int, first: bytes, more: Iterable[bytes] = ()) -> tuple[bytes, int]:
    """The status line that comes back, and how many bytes were taken before."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    sent = 0
    try:
        writer.write(first)
        for piece in more:
            writer.write(piece)
            await writer.drain()
            sent += len(piece)
            if sent > ENDLESS:
                break
    except OSError:
        pass  # it hung up
    try:
        line = (await reader.read()).partition(b"\r\n")[0]
    except OSError:
        line = b""
    writer.close()
    return line, sent


@pytest.mark.parametrize(
    ("first", "piece"),
    [
        (POST, b"x-a: b\r\n" * 4096),
        (POST + b"x-a: ", b"b" * 32768),
        (b"GET /", b"a" * 32768),
        (CHUNKED + b"1\r\nx\r\n0\r\n", b"x-a: b\r\n" * 4096),
    ],
    ids=["many-headers", "a-long-header", "a-long-address", "trailers"],
)
def test_a_head_without_an_end_costs_nothing(first: bytes, piece: bytes) -> None:
    async def use(port: int) -> None:
        line, sent = await answer(port, first, repeat(piece))
        assert line == b"" or line.split()[1] in (b"431", b"400")
        assert sent < ENDLESS
        assert (await answer(port, b"GET /health HTTP/1.0\r\n\r\n"))[0] == b"HTTP/1.1 200 OK"

    with_port(use)


def test_small_chunks_are_no_head() -> None:
    body = b'{"model": "steady", "prompt": "' + b"a" * 30_000 + b'", "max_tokens": 3}'
    chunks = b"".join(b"1\r\n%c\r\n" % byte for byte in body) + b"0\r\n\r\n"

    async def use(port: int) -> None:
        head = CHUNKED.replace(b"host: x", b"connection: close")
        assert (await answer(port, head + chunks))[0] == b"HTTP/1.1 400 Bad Request"
        assert 30_000 // 4 > 4096, "its prompt is too long for the model, and was read"

    with_port(use)


def test_a_head_has_its_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "LONGEST_HEAD_S", 0.01)

    async def use(port: int) -> None:
        assert (await answer(port, POST))[0] == b"HTTP/1.1 408 Request Timeout"
        assert (await answer(port, b""))[0] == b"HTTP/1.1 408 Request Timeout"

    with_port(use)


def test_a_body_has_its_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(app, "LONGEST_BODY_S", 0.01)

    async def use(port: int) -> None:
        line, _ = await answer(port, POST + b"content-length: 10\r\n\r\nabc")
        assert line == b"HTTP/1.1 408 Request Timeout"

    with_port(use)


def test_bodies_together_have_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(app, "MOST_BODIES_BYTES", 1000)

    async def use(port: int) -> None:
        line, _ = await answer(port, POST + b"content-length: 2000\r\n\r\n" + b"a" * 1500)
        assert line == b"HTTP/1.1 503 Service Unavailable"
        # What was refused is not counted any more.
        line, _ = await answer(port, POST + b"connection: close\r\ncontent-length: 2\r\n\r\n{}")
        assert line == b"HTTP/1.1 400 Bad Request"

    with_port(use)


def test_connections_have_a_limit() -> None:
    async def use(port: int) -> None:
        held = [await asyncio.open_connection("127.0.0.1", port) for _ in range(2)]
        assert (await answer(port, b""))[0] == b"HTTP/1.1 503 Service Unavailable"
        for _, writer in held:
            writer.write(b"GET /health HTTP/1.0\r\n\r\n")
        for reader, writer in held:
            assert (await reader.read()).startswith(b"HTTP/1.1 200 OK")
            writer.close()

    with_port(use, most=2)


def test_a_request_to_upgrade_is_answered_as_plain_http() -> None:
    async def use(port: int) -> None:
        body = b'{"model": "steady", "prompt": "x", "max_tokens": 2}'
        upgrade = b"connection: close, upgrade, http2-settings\r\nupgrade: h2c\r\n"
        head = POST + upgrade + b"content-length: %d\r\n\r\n" % len(body)
        tunnel = b"CONNECT a:1 HTTP/1.1\r\nhost: a\r\n\r\n"
        for parts, status in (([head + body], 200), ([head, body], 200), ([tunnel], 400)):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            for part in parts:
                writer.write(part)
                await asyncio.sleep(0)
            answer = await reader.read()
            writer.close()
            assert answer.startswith(b"HTTP/1.1 %d " % status)
            assert answer.count(b'"finish_reason":"length"') == (status == 200)

    with_port(use)
