"""Requests with whole replies, as many as a batch makes, over the connections of the gateway.

A third of the cost of the general client, whose rules it follows: it is bounded in time and size,
follows no redirect, uses no proxy, and takes no compressed reply.
"""

import asyncio
import os
import re
import ssl
from collections.abc import Iterable
from typing import Final
from urllib.parse import urlsplit

from windtunnel.core.clock import lap_s
from windtunnel.live.wire.client import (
    CANNOT_CONNECT,
    CONNECT_S,
    CONNECTION_BROKEN,
    LARGEST_REPLY,
    PACKED,
    TIMEOUT,
    TOO_LARGE,
    NoReply,
    Reply,
)
from windtunnel.live.wire.connections import AnswerReceiver, ServerAddress, ServerPool

SWEEP_S: Final = 1.0
"""How often connections are closed that a server is about to close."""


class _Call(AnswerReceiver):
    """A request that was sent, and its reply on its way."""

    __slots__ = ("_body", "_head", "_headers", "_parts", "_pool", "_size", "_status", "reply")

    def __init__(
        self, reply: "asyncio.Future[Reply]", pool: ServerPool, head: bytes, body: bytes
    ) -> None:
        super().__init__()
        self.reply = reply
        self._pool = pool
        self._head = head
        self._body = body
        self._status = 0
        self._headers: dict[str, str] = {}
        self._parts: list[bytes] = []
        self._size = 0

    def head(self, status: int, headers: list[tuple[bytes, bytes]]) -> None:
        self._status = status
        self._headers = {name.decode("latin-1"): text.decode("latin-1") for name, text in headers}
        packing = self._headers.get("content-encoding", "identity").strip().lower()
        if packing not in ("", "identity"):
            self.fail(PACKED, "the reply is compressed, which was not requested")

    def data(self, data: bytes, chunks: bytes) -> None:  # noqa: ARG002 - what was sent is not passed on
        self._parts.append(data)
        self._size += len(data)
        if self._size > LARGEST_REPLY:
            self.fail(TOO_LARGE, f"the reply is larger than {LARGEST_REPLY >> 20} MiB")

    def complete(self, data: bytes, chunks: bytes) -> None:
        self.data(data, chunks)
        self.connection = None
        self.over = True
        if not self.reply.done():
            parts = self._parts
            body = parts[0] if len(parts) == 1 else b"".join(parts)
            self.reply.set_result(Reply(self._status, self._headers, body))

    def send(self, *, fresh: bool = False) -> None:
        self._pool.send(self, self._head, self._body, fresh=fresh)

    def broken(self, what: str) -> None:
        connection = self.connection
        if connection is not None and connection.uses > 1 and not connection.answering:
            # The server closed an idle connection just as it was used. A new one cannot be idle,
            # so a request is sent again once at most.
            self.connection = None
            self.send(fresh=True)
            return
        self.fail(CONNECTION_BROKEN, f"the connection broke ({what})")

    def unreachable(self, error: Exception) -> None:
        if isinstance(error, TimeoutError):
            self.fail(TIMEOUT, "connecting took too long")
        else:
            self.fail(CANNOT_CONNECT, f"no connection: {_reason(error)}")

    def late(self) -> None:
        self.fail(TIMEOUT, "no reply within the timeout")

    def fail(self, code: str, what: str) -> None:
        self.leave()
        if not self.reply.done():
            self.reply.set_exception(NoReply(code, what))

    def leave(self) -> None:
        """The reply is not wanted any more."""
        self.over = True
        self.drop_connection()


def _reason(error: Exception) -> str:
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"its certificate is not valid: {error.verify_message}"
    if isinstance(error, ssl.SSLError):
        return f"TLS failed ({error.reason or type(error).__name__}); is it an https server?"
    number = error.errno if isinstance(error, OSError) else None
    if number is None:  # several addresses were tried
        numbers = re.findall(r"\[Errno (\d+)\]", str(error))
        number = int(numbers[-1]) if numbers else None
    if number is None or number <= 0:
        return "the host was not found"
    return os.strerror(number).lower()


class Caller:
    """Calls one server, with as many connections as there are calls at once."""

    def __init__(
        self, url: str, ends: Iterable[str], authorization: str, name: str, timeout_s: float
    ) -> None:
        """`ends` are what its requests go to below `url`, `name` is for the User-Agent."""
        parts = urlsplit(url)
        is_tls = parts.scheme == "https"
        port = parts.port or (443 if is_tls else 80)
        tls = ssl.create_default_context() if is_tls else None
        address = ServerAddress(url, parts.hostname or "", port, "", tls)
        connect_s = min(CONNECT_S, timeout_s)
        self._pool: Final = ServerPool(address, connect_s, _nothing)
        self._timeout_s: Final = timeout_s
        self._swept_s = 0.0
        lines = [
            f"Host: {parts.netloc.rpartition('@')[2]}",
            "Accept: application/json",
            "Accept-Encoding: identity",
            f"User-Agent: windtunnel-{name}",
            "Content-Type: application/json",
        ]
        if authorization:
            lines.append(f"Authorization: {authorization}")
        rest = "\r\n".join(lines)
        self._heads: Final = {
            end: f"POST {parts.path}/{end} HTTP/1.1\r\n{rest}\r\nContent-Length: ".encode()
            for end in ends
        }

    async def ask(self, end: str, body: bytes) -> Reply:
        """The whole reply to a request, or NoReply."""
        loop = asyncio.get_running_loop()
        now_s = lap_s()
        if now_s - self._swept_s > SWEEP_S:
            self._swept_s = now_s
            self._pool.sweep(now_s)
        head = b"%b%d\r\n\r\n" % (self._heads[end], len(body))
        call = _Call(loop.create_future(), self._pool, head, body)
        timer = loop.call_later(self._timeout_s, call.late)
        try:
            call.send()
            return await call.reply
        finally:
            timer.cancel()
            if not call.over:
                call.leave()  # its caller was cancelled

    def close(self) -> None:
        self._pool.close()


def _nothing() -> None:
    """Data beyond a reply ends its connection, and is not counted."""
