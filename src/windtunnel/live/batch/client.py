"""One HTTP client for all endpoints: bounded in time and size, and careful with keys.

It follows no redirect, keeps no cookie, uses no proxy or password file of the environment, and
asks for replies uncompressed, so that a small reply cannot become a large one.
"""

from __future__ import annotations

import os
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Final

from windtunnel.admission.reasons import Outcome
from windtunnel.live.batch.keys import Keys
from windtunnel.live.batch.plan import Api, EndpointPlan
from windtunnel.live.batch.replies import Reply

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    import aiohttp
    from yarl import URL

LARGEST_REPLY = 16 << 20
CONNECT_S = 10.0
IDLE_CONNECTION_S = 30.0


class NoReply(Exception):
    """A call that ended without a reply: a code for it, what admission learns, a sentence."""

    def __init__(self, code: str, outcome: Outcome, what: str) -> None:
        super().__init__(what)
        self.code: Final = code
        self.outcome: Final = outcome
        self.what: Final = what


class Client:
    """Sends requests and reads whole replies."""

    def __init__(
        self, session: aiohttp.ClientSession, endpoints: tuple[EndpointPlan, ...], keys: Keys
    ) -> None:
        from yarl import URL

        self._session = session
        self.redact = keys.redact_text
        self._headers: dict[str, dict[str, str]] = {}
        self._urls: dict[tuple[str, str], URL] = {}
        for endpoint in endpoints:
            headers = {"Accept-Encoding": "identity", "Accept": "application/json"}
            authorization = keys.header(endpoint.key_env)
            if authorization:
                headers["Authorization"] = authorization
            self._headers[endpoint.name] = headers
            for end in ("models", *Api):
                self._urls[endpoint.name, end] = URL(f"{endpoint.url}/{end}", encoded=True)

    async def post(self, endpoint: str, api: Api, body: bytes) -> Reply:
        """The reply to a request, or NoReply."""
        headers = {**self._headers[endpoint], "Content-Type": "application/json"}
        return await self._send("POST", self._urls[endpoint, api], headers, body)

    async def models(self, endpoint: str) -> Reply:
        """What the server says it has, or NoReply."""
        return await self._send(
            "GET", self._urls[endpoint, "models"], self._headers[endpoint], None
        )

    async def _send(
        self, method: str, url: URL, headers: dict[str, str], body: bytes | None
    ) -> Reply:
        import aiohttp

        try:
            async with self._session.request(
                method, url, headers=headers, data=body, allow_redirects=False
            ) as response:
                content = await _bounded(response)
                return Reply(response.status, response.headers, content)
        except aiohttp.ClientConnectorError as error:
            number = error.os_error.errno
            reason = os.strerror(number) if number and number > 0 else "it is not to be found"
            what = f"no connection: {reason.lower()}"
            raise NoReply("cannot_connect", Outcome.PROVIDER_OVERLOADED, what) from None
        except TimeoutError:
            what = "no reply in the time that a call may take"
            raise NoReply("timeout", Outcome.PROVIDER_TIMEOUT, what) from None
        except (aiohttp.ClientError, OSError) as error:
            # Its own text may hold the request with its headers.
            what = f"the connection broke ({type(error).__name__})"
            raise NoReply("connection_broken", Outcome.PROVIDER_FAILURE, what) from None


async def _bounded(response: Any) -> bytes:
    """The body, unless it is larger than a reply may be."""
    parts: list[bytes] = []
    size = 0
    async for part in response.content.iter_any():
        size += len(part)
        if size > LARGEST_REPLY:
            response.close()
            what = f"the reply is larger than {LARGEST_REPLY >> 20} MiB"
            raise NoReply("reply_too_large", Outcome.PROVIDER_FAILURE, what)
        parts.append(part)
    return parts[0] if len(parts) == 1 else b"".join(parts)


@asynccontextmanager
async def open_client(
    endpoints: tuple[EndpointPlan, ...], keys: Keys, timeout_s: float
) -> AsyncIterator[Client]:
    """A client, closed with its connections at the end."""
    import aiohttp

    connector = aiohttp.TCPConnector(limit=0, keepalive_timeout=IDLE_CONNECTION_S)
    async with aiohttp.ClientSession(
        connector=connector,
        timeout=aiohttp.ClientTimeout(total=timeout_s, sock_connect=min(CONNECT_S, timeout_s)),
        cookie_jar=aiohttp.DummyCookieJar(),
        auto_decompress=False,
        trust_env=False,
        headers={"User-Agent": "windtunnel-batch"},
    ) as session:
        yield Client(session, endpoints, keys)
