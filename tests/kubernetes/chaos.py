"""A proxy between client and API server that cuts, delays, refuses, and swallows answers.

It terminates TLS on both sides, so that it sees requests. A test decides what happens to each by
setting `fate`, a function of method and path; without one, everything passes.
"""

import asyncio
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, Final, NamedTuple

from aiohttp import ClientError, ClientSession, ClientTimeout, TCPConnector, web

from tests.kubernetes.cluster import Cluster
from tests.kubernetes.control_plane import StageControlPlane
from windtunnel.live.kubernetes.client import Client
from windtunnel.live.rehearse.control_plane import free_port


class Refuse(NamedTuple):
    """Answers with a status; the API server never sees the request."""

    status: int
    retry_after: str = ""


class Delay(NamedTuple):
    """Forwards the request later."""

    seconds: float


class Swallow(NamedTuple):
    """Delivers the request, and cuts the connection instead of answering."""


class Cut(NamedTuple):
    """Cuts the connection before the API server sees the request, or after this many bytes."""

    after_bytes: int = 0


class Silence(NamedTuple):
    """Takes the request and never answers, like a half-open connection."""


Fate = Refuse | Delay | Swallow | Cut | Silence | None


class Chaos:
    """The proxy; `seen` has the method and path of every request that it received."""

    def __init__(self, plane: StageControlPlane, session: ClientSession) -> None:
        self.fate: Callable[[str, str], Fate] = lambda method, path: None
        self.seen: Final[list[tuple[str, str]]] = []
        self.connections: Final[set[Any]] = set()
        self._plane = plane
        self._session = session
        self.port: Final = free_port()
        self.url: Final = f"https://127.0.0.1:{self.port}"

    def cut_all(self) -> None:
        """Cuts every open connection, including watches."""
        for transport in list(self.connections):
            transport.abort()

    async def handle(self, request: web.Request) -> web.StreamResponse:
        self.seen.append((request.method, request.path_qs))
        transport = request.transport
        self.connections.add(transport)
        try:
            return await self._handle(request)
        finally:
            self.connections.discard(transport)

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        fate = self.fate(request.method, request.path_qs)
        body = await request.read()
        match fate:
            case Refuse(status, retry_after):
                headers = {"Retry-After": retry_after} if retry_after else {}
                return web.json_response({"message": "chaos"}, status=status, headers=headers)
            case Delay(seconds):
                await asyncio.sleep(seconds)
            case Silence():
                await asyncio.Event().wait()
            case Cut(0):
                return self._abort(request)
        kept = {
            name: value
            for name, value in request.headers.items()
            if name.lower() in ("content-type", "accept", "user-agent")
        }
        most = fate.after_bytes if isinstance(fate, Cut) else None
        try:
            async with self._session.request(
                request.method,
                self._plane.url + request.path_qs,
                headers=kept,
                data=body or None,
                allow_redirects=False,
            ) as answer:
                if isinstance(fate, Swallow):
                    if "watch" not in request.query:  # its answer does not end
                        await answer.read()
                    return self._abort(request)
                headers = {"Content-Type": answer.headers.get("Content-Type", "")}
                response = web.StreamResponse(status=answer.status, headers=headers)
                await response.prepare(request)
                passed = 0
                async for part in answer.content.iter_any():
                    await response.write(part)
                    passed += len(part)
                    if most is not None and passed >= most:
                        return self._abort(request)
                await response.write_eof()
                return response
        except ClientError:
            return self._abort(request)

    def _abort(self, request: web.Request) -> web.StreamResponse:
        transport: Any = request.transport
        if transport is not None:  # the client is still there
            transport.abort()
        raise web.HTTPBadGateway  # nobody is left to read it


@asynccontextmanager
async def chaos(plane: StageControlPlane) -> AsyncIterator[Chaos]:
    """A proxy in front of the API server, with administrator rights."""
    issued = plane.certificates
    upstream = ssl.create_default_context(cafile=str(issued.ca))
    admin = issued.folder / "admin"
    upstream.load_cert_chain(f"{admin}.crt", f"{admin}.key")
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(*issued.issue("chaos"))
    async with ClientSession(
        connector=TCPConnector(limit=0, ssl=upstream), timeout=ClientTimeout(None)
    ) as session:
        proxy = Chaos(plane, session)
        app = web.Application(client_max_size=8 << 20)
        app.router.add_route("*", "/{path:.*}", proxy.handle)
        runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
        await runner.setup()
        try:
            await web.TCPSite(runner, "127.0.0.1", proxy.port, ssl_context=server).start()
            yield proxy
        finally:
            proxy.cut_all()
            await runner.cleanup()


@asynccontextmanager
async def proxied(cluster: Cluster) -> AsyncIterator[tuple[Chaos, Client]]:
    """A proxy, and a client that connects through it."""
    async with (
        chaos(cluster.plane) as proxy,
        cluster.connect("proxied", "tests", proxy.url) as client,
    ):
        yield proxy, client
