"""One HTTP client for all commands: bounded in time and size, and careful with keys.

It follows no redirects, keeps no cookies, and ignores proxies and password files from the
environment. It requests uncompressed replies and decompresses none, so a small reply cannot expand
into a large one.
"""

from __future__ import annotations

import os
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Final, NamedTuple

from windtunnel.live.wire.addresses import MODELS, Api
from windtunnel.live.wire.keys import Keys

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping
    from contextlib import AbstractAsyncContextManager

    import aiohttp

LARGEST_REPLY = 16 << 20
CONNECT_S = 10.0
IDLE_CONNECTION_S = 30.0

CANNOT_CONNECT = "cannot_connect"
TIMEOUT = "timeout"
CONNECTION_BROKEN = "connection_broken"
TOO_LARGE = "reply_too_large"
PACKED = "reply_packed"


class NoReply(Exception):
    """An exchange without a complete reply: an error code and a sentence."""

    def __init__(self, code: str, what: str) -> None:
        super().__init__(what)
        self.code: Final = code
        self.what: Final = what


class Reply(NamedTuple):
    """A complete reply."""

    status: int
    headers: Mapping[str, str]
    body: bytes


class Incoming:
    """A reply whose headers have arrived. Reading the body may raise `NoReply`."""

    def __init__(self, response: aiohttp.ClientResponse) -> None:
        self.status: Final = response.status
        self.headers: Final[Mapping[str, str]] = response.headers
        self._response = response

    def pieces(self) -> AsyncIterator[bytes]:
        """The body, in pieces as they arrive."""
        return self._response.content.iter_any()

    async def whole(self) -> bytes:
        """The complete body; raises `NoReply` if it is larger than `LARGEST_REPLY`."""
        parts: list[bytes] = []
        size = 0
        async for part in self._response.content.iter_any():
            size += len(part)
            if size > LARGEST_REPLY:
                self._response.close()
                what = f"the reply is larger than {LARGEST_REPLY >> 20} MiB"
                raise NoReply(TOO_LARGE, what)
            parts.append(part)
        return parts[0] if len(parts) == 1 else b"".join(parts)


class Endpoint:
    """A server to send requests to. Its key goes into request headers and nowhere else."""

    def __init__(
        self, session: aiohttp.ClientSession, url: str, keys: Keys, key_env: str = ""
    ) -> None:
        from yarl import URL

        self.url: Final = url
        self.key_env: Final = key_env
        self.redact: Final = keys.redact_text
        self._session = session
        self._headers = {"Accept-Encoding": "identity", "Accept": "application/json"}
        authorization = keys.header(key_env)
        if authorization:
            self._headers["Authorization"] = authorization
        self._bodies = {**self._headers, "Content-Type": "application/json"}
        self._urls = {end: URL(f"{url}/{end}", encoded=True) for end in (MODELS, *Api)}

    def post(
        self, end: str, body: bytes, headers: Mapping[str, str] | None = None
    ) -> AbstractAsyncContextManager[Incoming]:
        """Sends a request; `end` is an `Api`, and `headers` are added to the endpoint's own."""
        return self._exchange("POST", end, {**self._bodies, **(headers or {})}, body)

    def get(self, end: str) -> AbstractAsyncContextManager[Incoming]:
        return self._exchange("GET", end, self._headers, None)

    @asynccontextmanager
    async def _exchange(
        self, method: str, end: str, headers: dict[str, str], body: bytes | None
    ) -> AsyncIterator[Incoming]:
        import aiohttp

        try:
            async with self._session.request(
                method, self._urls[end], headers=headers, data=body, allow_redirects=False
            ) as response:
                yield _incoming(response)
        except (aiohttp.ClientError, OSError) as error:
            raise _no_reply(error) from None


def _incoming(response: aiohttp.ClientResponse) -> Incoming:
    packing = response.headers.get("content-encoding", "identity")
    if packing.strip().lower() not in ("", "identity"):
        response.close()
        raise NoReply(PACKED, "the reply is compressed, which was not requested")
    return Incoming(response)


def _no_reply(error: aiohttp.ClientError | OSError) -> NoReply:
    import aiohttp

    if isinstance(error, aiohttp.ClientConnectorError):
        number = error.os_error.errno
        reason = os.strerror(number) if number and number > 0 else "the host was not found"
        return NoReply(CANNOT_CONNECT, f"no connection: {reason.lower()}")
    if isinstance(error, aiohttp.ConnectionTimeoutError):
        return NoReply(TIMEOUT, "connecting took too long")
    if isinstance(error, TimeoutError):
        return NoReply(TIMEOUT, "no reply within the timeout")
    # The error's own text may contain the request's headers.
    return NoReply(CONNECTION_BROKEN, f"the connection broke ({type(error).__name__})")


@asynccontextmanager
async def open_session(
    timeout_s: float | None = None, *, name: str
) -> AsyncIterator[aiohttp.ClientSession]:
    """A connection pool for any number of endpoints; `name` goes into the User-Agent."""
    import aiohttp

    connect_s = CONNECT_S if timeout_s is None else min(CONNECT_S, timeout_s)
    async with aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=IDLE_CONNECTION_S),
        timeout=aiohttp.ClientTimeout(total=timeout_s, sock_connect=connect_s),
        cookie_jar=aiohttp.DummyCookieJar(),
        auto_decompress=False,
        trust_env=False,
        headers={"User-Agent": f"windtunnel-{name}"},
    ) as session:
        yield session
