"""How an observer reaches a server: one request, and its answer as it comes in."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import TYPE_CHECKING, Any, Protocol, Self
from urllib.parse import urlsplit

import msgspec

from windtunnel.core.errors import InputError

if TYPE_CHECKING:
    import aiohttp

HIDDEN = "***"


class Reply(Protocol):
    """An answer whose head has arrived."""

    @property
    def status(self) -> int: ...

    @property
    def headers(self) -> Mapping[str, str]: ...

    def pieces(self) -> AsyncIterator[bytes]:
        """The body, as it arrives."""


class Broken(Exception):
    """The server could not be reached, or the connection ended before the answer did."""


class Transport(Protocol):
    """A way to one server."""

    def post(self, path: str, body: bytes) -> AbstractAsyncContextManager[Reply]: ...

    def get(self, path: str) -> AbstractAsyncContextManager[Reply]: ...

    def hide(self, text: str) -> str:
        """A text without what must not be told, such as a key that the server repeats."""


class Http:
    """A server at an address, over connections that are kept open. The key is told to nobody else.

    To be used as a context, on the loop that it is used on.
    """

    def __init__(self, address: str, key: str | None) -> None:
        self._address = address
        self._key = key
        self._session: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> Self:
        import aiohttp

        headers = {"content-type": "application/json"}
        if self._key:
            headers["authorization"] = f"Bearer {self._key}"
        self._session = aiohttp.ClientSession(
            headers=headers,
            connector=aiohttp.TCPConnector(limit=0),
            timeout=aiohttp.ClientTimeout(total=None),
            auto_decompress=True,
        )
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._session is not None
        await self._session.close()

    def post(self, path: str, body: bytes) -> AbstractAsyncContextManager[Reply]:
        return self._exchange("POST", path, body)

    def get(self, path: str) -> AbstractAsyncContextManager[Reply]:
        return self._exchange("GET", path, None)

    @asynccontextmanager
    async def _exchange(self, method: str, path: str, body: bytes | None) -> AsyncIterator[Reply]:
        import aiohttp

        assert self._session is not None
        try:
            async with self._session.request(method, self._address + path, data=body) as response:
                yield HttpReply(response)
        except aiohttp.ClientError as error:
            raise Broken(str(error) or type(error).__name__) from None
        except OSError as error:
            raise Broken(error.strerror or str(error)) from None

    def hide(self, text: str) -> str:
        return text.replace(self._key, HIDDEN) if self._key else text


class HttpReply:
    """An answer over HTTP."""

    def __init__(self, response: aiohttp.ClientResponse) -> None:
        self._response = response

    @property
    def status(self) -> int:
        return self._response.status

    @property
    def headers(self) -> Mapping[str, str]:
        return self._response.headers

    async def pieces(self) -> AsyncIterator[bytes]:
        async for piece in self._response.content.iter_any():
            yield piece


def address_of(endpoint: str) -> str:
    """The address that paths such as /v1/models are put behind, as a person may write it."""
    where = "--endpoint"
    try:
        parts = urlsplit(endpoint.strip())
        port = parts.port
    except ValueError:
        raise InputError(
            f"{endpoint[:200]!r} is no address", where=where, allowed=EXAMPLE
        ) from None
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise InputError(f"{endpoint[:200]!r} is no address", where=where, allowed=EXAMPLE)
    if parts.username or parts.password or parts.query or parts.fragment:
        what = "an address here has no user, no password, and nothing behind its path"
        raise InputError(what, where=where, allowed=EXAMPLE, hint="keys come from the environment")
    host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
    path = parts.path.rstrip("/").removesuffix("/v1")
    return f"{parts.scheme}://{host}{f':{port}' if port else ''}{path}"


EXAMPLE = "http://HOST:PORT or https://HOST, with or without /v1"


async def served_models(transport: Transport) -> list[str] | None:
    """The models that a server says it has; None when it does not say, `Broken` when it is gone."""
    async with transport.get("/v1/models") as reply:
        body = b"".join([piece async for piece in reply.pieces()])
        if reply.status != 200:
            return None
    try:
        data: Any = msgspec.json.decode(body)
        return [str(model["id"]) for model in data["data"]]
    except (msgspec.DecodeError, UnicodeDecodeError, KeyError, TypeError):
        return None
