"""Speaks to an ASGI application without a socket, so that a virtual clock can drive both sides."""

import asyncio
from collections.abc import AsyncIterator, Mapping, MutableMapping
from contextlib import asynccontextmanager
from typing import Any

import msgspec

from windtunnel.live.wire.client import CONNECTION_BROKEN, NoReply


class InsideReply:
    """An answer of an application, as it comes."""

    def __init__(self, status: int, headers: Mapping[str, str]) -> None:
        self.status = status
        self.headers = headers
        self.body: asyncio.Queue[bytes | None] = asyncio.Queue()
        self.ended = False

    async def pieces(self) -> AsyncIterator[bytes]:
        while (piece := await self.body.get()) is not None:
            yield piece
        if not self.ended:
            raise NoReply(CONNECTION_BROKEN, "the connection ended before the answer did")

    async def whole(self) -> bytes:
        return b"".join([piece async for piece in self.pieces()])


class Inside:
    """A client of one application; leaving the context is hanging up."""

    def __init__(self, app: Any, root: str = "") -> None:
        """`root` comes before every path."""
        self._app = app
        self._root = root

    @asynccontextmanager
    async def post(
        self,
        path: str,
        body: bytes,
        headers: Mapping[str, str] | None = None,
    ) -> AsyncIterator[InsideReply]:
        async with self._request("POST", path, [body]) as reply:
            yield reply

    @asynccontextmanager
    async def get(self, path: str) -> AsyncIterator[InsideReply]:
        async with self._request("GET", path, [b""]) as reply:
            yield reply

    @asynccontextmanager
    async def parts(self, path: str, *parts: bytes) -> AsyncIterator[InsideReply]:
        """A body that comes piece by piece, without saying how long it will be."""
        async with self._request("POST", path, list(parts)) as reply:
            yield reply

    @asynccontextmanager
    async def _request(self, method: str, path: str, parts: list[bytes]) -> AsyncIterator[Any]:
        head: asyncio.Future[InsideReply] = asyncio.get_running_loop().create_future()
        gone = asyncio.Event()

        async def receive() -> MutableMapping[str, Any]:
            if parts:
                part = parts.pop(0)
                return {"type": "http.request", "body": part, "more_body": bool(parts)}
            await gone.wait()
            return {"type": "http.disconnect"}

        async def send(message: MutableMapping[str, Any]) -> None:
            if head.cancelled():
                return  # whoever asked has left
            if message["type"] == "http.response.start":
                headers = {name.decode(): value.decode() for name, value in message["headers"]}
                head.set_result(InsideReply(message["status"], headers))
                return
            reply = head.result()
            reply.body.put_nowait(message.get("body", b""))
            reply.ended = not message.get("more_body", False)

        scope = {
            "type": "http",
            "method": method,
            "path": self._root + path,
            "raw_path": (self._root + path).encode(),
            "query_string": b"",
            "root_path": "",
            "headers": [(b"content-length", str(len(parts[0])).encode())]
            if len(parts) == 1
            else [],
        }
        task = asyncio.ensure_future(self._app(scope, receive, send))

        def over(_: object) -> None:
            if not head.cancelled():
                head.result().body.put_nowait(None)

        task.add_done_callback(over)
        try:
            yield await head
        finally:
            gone.set()
            await task

    def redact(self, text: str) -> str:
        return text

    async def json(self, path: str, body: Any) -> tuple[int, Any]:
        """A whole exchange."""
        data = body if isinstance(body, bytes) else msgspec.json.encode(body)
        async with self.post(path, data) as reply:
            text = await reply.whole()
        return reply.status, msgspec.json.decode(text)
