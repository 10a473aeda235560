"""`Caller`: whole replies over kept connections, each failure by its code, nothing sent twice."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from typing import Any

import pytest

from windtunnel.live.wire import calls, connections
from windtunnel.live.wire.calls import Caller
from windtunnel.live.wire.client import NoReply

OK = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\nX-Name: v\r\n\r\nhi"
CLOSE = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\nconnection: close\r\n\r\nhi"
CHUNKED = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\nhi\r\n4\r\n you\r\n0\r\n\r\n"
UNFRAMED = b"HTTP/1.1 200 OK\r\n\r\nhi"
REDIRECT = b"HTTP/1.1 307 Go\r\nlocation: http://127.0.0.1:9/\r\ncontent-length: 0\r\n\r\n"
PACKED = b"HTTP/1.1 200 OK\r\ncontent-encoding: gzip\r\ncontent-length: 2\r\n\r\nhi"
HALF = b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nhi"
LATER = b"HTTP/1.1 100 Continue\r\n\r\n"
HANG, ABORT = b"hang", b"abort"


class Script:
    """A server that answers the requests of each connection from a list, and then closes it.

    `HANG` answers nothing and keeps the connection, `ABORT` resets it.
    """

    def __init__(self, *connections: list[bytes]) -> None:
        self._connections = list(connections)
        self.heads: list[bytes] = []
        self.bodies: list[bytes] = []
        self.opened = 0
        self.url = ""
        self._tasks: list[asyncio.Task[None]] = []
        self._writers: list[asyncio.StreamWriter] = []

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator["Script"]:
        server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1"
        try:
            yield self
        finally:
            server.close()
            for writer in self._writers:
                writer.transport.abort()
            await asyncio.gather(*self._tasks)
            await asyncio.sleep(0.01)  # transports close in the next turns of the loop

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.append(task)
        self._writers.append(writer)
        replies = self._connections[min(self.opened, len(self._connections) - 1)]
        self.opened += 1
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
            for reply in replies:
                head = await reader.readuntil(b"\r\n\r\n")
                size = int(head.lower().split(b"content-length: ")[1].split(b"\r\n")[0])
                self.heads.append(head)
                self.bodies.append(await reader.readexactly(size))
                if reply == HANG:
                    await reader.read()
                elif reply == ABORT:
                    writer.transport.abort()
                else:
                    writer.write(reply)
                    await writer.drain()
        writer.close()


def called(
    script: Script, body: Callable[[Caller], Awaitable[Any]], timeout_s: float = 30.0
) -> Any:
    async def run() -> Any:
        async with script.running():
            caller = Caller(script.url, ["chat", "embed"], "Bearer k", "test", timeout_s)
            try:
                return await body(caller)
            finally:
                caller.close()

    return asyncio.run(run())


def failed(script: Script, timeout_s: float = 30.0, before: int = 0) -> str:
    """The code of the failure of a call, after so many that do not fail."""

    async def ask(caller: Caller) -> str:
        for _ in range(before):
            assert (await caller.ask("chat", b"{}")).body == b"hi"
        with pytest.raises(NoReply) as found:
            await caller.ask("chat", b"{}")
        return found.value.code

    return str(called(script, ask, timeout_s))


@pytest.mark.parametrize(
    ("reply", "body"), [(OK, b"hi"), (CLOSE, b"hi"), (CHUNKED, b"hi you"), (UNFRAMED, b"hi")]
)
def test_a_reply_is_whole(reply: bytes, body: bytes) -> None:
    script = Script([reply])
    found = called(script, lambda caller: caller.ask("chat", b'{"x": 1}'))
    assert (found.status, found.body) == (200, body)
    assert script.bodies == [b'{"x": 1}']
    head = script.heads[0].decode()
    assert head.startswith("POST /v1/chat HTTP/1.1\r\nHost: 127.0.0.1:")
    for line in ("Authorization: Bearer k", "Content-Length: 8", "User-Agent: windtunnel-test"):
        assert f"\r\n{line}\r\n" in head


def test_header_names_are_lower_case_and_no_redirect_is_followed() -> None:
    assert called(Script([OK]), lambda one: one.ask("chat", b"")).headers["x-name"] == "v"
    script = Script([REDIRECT])
    found = called(script, lambda caller: caller.ask("embed", b""))
    assert (found.status, len(script.heads)) == (307, 1)


def test_a_connection_is_kept_and_as_many_are_opened_as_calls_run_at_once() -> None:
    script = Script([OK] * 9)

    async def ask(caller: Caller) -> None:
        for _ in range(3):
            await caller.ask("chat", b"{}")
        assert script.opened == 1
        await asyncio.gather(*(caller.ask("chat", b"{}") for _ in range(3)))
        assert script.opened == 3

    called(script, ask)


def test_a_kept_connection_that_the_server_closed_is_no_failure() -> None:
    """The close and the request cross: the client writes to a connection that is already gone."""
    script = Script([OK], [OK] * 2)

    async def ask(caller: Caller) -> list[bytes]:
        first = await caller.ask("chat", b"1")
        # No turn of the loop in between: the client has not read the close yet.
        second = await caller.ask("chat", b"2")
        return [first.body, second.body, (await caller.ask("chat", b"3")).body]

    assert called(script, ask) == [b"hi"] * 3
    assert (script.bodies, script.opened) == ([b"1", b"2", b"3"], 2)


@pytest.mark.parametrize("end", [[], [ABORT]], ids=["closed", "reset"])
def test_a_request_is_sent_again_once_at_most(end: list[bytes]) -> None:
    """A server that takes one request for each connection, and then none at all."""
    script = Script([OK, *end], end)
    assert failed(script, before=1) == "connection_broken"
    assert script.opened == 2
    assert len(script.bodies) == 1 + 2 * len(end)


@pytest.mark.parametrize("begun", [HALF, LATER, b"H", b"HTTP/1.1 2"])
def test_a_request_is_not_sent_again_once_its_reply_has_begun(begun: bytes) -> None:
    script = Script([OK, begun], [OK])
    assert failed(script, before=1) == "connection_broken"
    assert (len(script.bodies), script.opened) == (2, 1)


@pytest.mark.parametrize("reply", [ABORT, HALF, b"no HTTP at all\r\n\r\n"])
def test_a_request_on_a_new_connection_is_not_sent_again(reply: bytes) -> None:
    script = Script([reply], [OK])
    assert failed(script) == "connection_broken"
    assert len(script.bodies) == 1


def test_failures_have_their_codes() -> None:
    assert failed(Script([HANG]), timeout_s=0.05) == "timeout"
    assert failed(Script([PACKED])) == "reply_packed"


@pytest.mark.once  # compiled code has its constants inlined
def test_a_reply_that_is_too_large_is_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(calls, "LARGEST_REPLY", 1)
    assert failed(Script([OK])) == "reply_too_large"


def test_a_server_that_is_not_there_cannot_be_reached() -> None:
    async def ask() -> None:
        caller = Caller("http://127.0.0.1:9/v1", ["chat"], "", "test", 5.0)
        with pytest.raises(NoReply, match="no connection: connection refused") as found:
            await caller.ask("chat", b"")
        assert found.value.code == "cannot_connect"

    asyncio.run(ask())


def test_a_call_that_was_sent_again_is_still_bounded_in_time() -> None:
    script = Script([OK], [HANG])
    assert failed(script, timeout_s=0.2, before=1) == "timeout"
    assert script.opened == 2


def test_a_cancelled_call_closes_its_connection() -> None:
    script = Script([HANG], [OK])

    async def ask(caller: Caller) -> bytes:
        task = asyncio.ensure_future(_as_coroutine(caller.ask("chat", b"1")))
        while not script.bodies:
            await asyncio.sleep(0.001)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        return (await caller.ask("chat", b"2")).body

    assert called(script, ask) == b"hi"
    assert script.opened == 2


async def _as_coroutine(awaited: Coroutine[Any, Any, Any]) -> Any:
    return await awaited


@pytest.mark.once  # compiled code has its constants inlined
def test_connections_that_a_server_is_about_to_close_are_not_used(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(connections, "IDLE_S", 0.01)
    monkeypatch.setattr(calls, "SWEEP_S", 0.0)
    script = Script([OK, OK], [OK, OK])

    async def ask(caller: Caller) -> None:
        await caller.ask("chat", b"1")
        await asyncio.sleep(0.05)
        await caller.ask("chat", b"2")

    called(script, ask)
    assert script.opened == 2
