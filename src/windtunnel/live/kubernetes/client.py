"""Requests to the API server: paced, bounded in time and size, with errors as exceptions.

`open_client(config)` opens a `Client`. Objects are sent as plain JSON values; responses are decoded
to the requested type, or to plain values with `Plain`. Callers can rely on this:

- 429 means that nothing happened: the request is repeated after Retry-After, and all but urgent
  requests of the client wait as long. A disruption budget's 429 on an eviction is not repeated.
- A read without a response, or with a 5xx, is repeated twice. A write never is: after `NoAnswer`
  and `ServerError` the outcome is unknown. Read the object and decide again; creates with a fixed
  name, and deletes and bindings with a uid, are safe to repeat.
- Requests marked `urgent` (leases) wait neither for the rate limit nor for a pause.
- Writes of `client.fenced(guard)` raise `NotLeader` instead of being sent once the guard's time is
  over, and may take no longer than the guard allows.
"""

from __future__ import annotations

import asyncio
import gc
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol, TypeVar
from urllib.parse import urlencode

import msgspec

from windtunnel.core.clock import monotonic_s
from windtunnel.core.errors import InputError
from windtunnel.core.random import Streams, fresh_seed
from windtunnel.live.kubernetes.errors import (
    ApiError,
    Gone,
    NoAnswer,
    NoCredentials,
    NotFound,
    NotLeader,
    ServerError,
    TooLarge,
    TooManyRequests,
    Unauthorized,
    UnreadableAnswer,
    error_of,
)
from windtunnel.live.kubernetes.pacing import Backoff, RequestPacer
from windtunnel.live.kubernetes.resources import NODES, PODS, Meta, Plain, Resource, ServedKind

if TYPE_CHECKING:
    import aiohttp

    from windtunnel.live.kubernetes.config import ClusterConfig

T = TypeVar("T")
Body = Mapping[str, Any]

LARGEST_ANSWER: Final = 256 << 20
"""For one page of a list: 500 objects of half a MiB each."""
LARGEST_ERROR: Final = 1 << 20
"""Bytes that are read from an error response."""
PAGE: Final = 5000
"""The API server has the first page in its cache; it reads and decodes all further pages, which
costs it six times as much for objects of custom kinds."""
SMALL_PAGE: Final = 500
"""The page size to use if a page of `PAGE` objects is too large."""
REQUEST_S: Final = 30.0
CONNECT_S: Final = 5.0
SILENT_S: Final = 30.0
"""A watch that is silent for this long after its own `timeoutSeconds` has lost its connection."""
READ_TRIES: Final = 3
PAUSED_TRIES: Final = 10
"""Attempts of a request that the server sheds (429)."""
MOST_PAUSE_S: Final = 60.0
LONGEST_EVENT: Final = 8 << 20
MOST_BROKEN: Final = 32
COLLECT_S: Final = 10.0
"""After this many broken connections, and this long, their remains are garbage-collected."""

JSON: Final = "application/json"
MERGE_PATCH: Final = "application/merge-patch+json"
STRATEGIC_PATCH: Final = "application/strategic-merge-patch+json"
APPLY_PATCH: Final = "application/apply-patch+yaml"


class WriteGuard(Protocol):
    """Decides whether writes may be sent; a `LeaderElector`, for example."""

    def write_time_s(self, now_s: float) -> float:
        """How many seconds a write that starts now may take; 0 or less if it must not start."""
        ...


class Limits(NamedTuple):
    """A client's limits on its load on the API server, and its timeouts."""

    requests_per_s: float = 400.0
    burst: int = 800
    connections: int = 64
    """In use at once, besides watches."""
    request_s: float = REQUEST_S


LIMITS: Final = Limits()


class ObjectSelection(NamedTuple):
    """Selects objects of a kind: of one or all namespaces, by labels, by fields."""

    namespace: str = ""
    labels: str = ""
    fields: str = ""

    def query(self) -> dict[str, str]:
        query = {"labelSelector": self.labels} if self.labels else {}
        return {**query, "fieldSelector": self.fields} if self.fields else query


ALL: Final = ObjectSelection()


class ObjectList(NamedTuple):
    """All objects of a kind at one version, each as JSON text."""

    items: Sequence[msgspec.Raw]
    version: str


TakePage = Callable[[Sequence[msgspec.Raw]], None]


class WatchEvent(msgspec.Struct, frozen=True):
    """One event of a watch: ADDED, MODIFIED, DELETED or BOOKMARK, and the object as JSON text."""

    type: str
    object: msgspec.Raw


class _Page(msgspec.Struct):
    metadata: _PageMeta
    items: list[msgspec.Raw] | None = None


class _PageMeta(msgspec.Struct, rename="camel"):
    resource_version: str = ""
    # "continue" is a keyword
    next_page: str = msgspec.field(default="", name="continue")


class _ServedKinds(msgspec.Struct):
    resources: list[ServedKind] | None = None


_EVENTS: Final = msgspec.json.Decoder(WatchEvent)


class _Guarded:
    """A body that is withheld if the guard's time is over when the body is due to be written.

    Connecting takes time, and the process may be suspended meanwhile. The API server does not
    execute a request without its body.
    """

    def __init__(self, guard: WriteGuard, body: bytes) -> None:
        self._guard = guard
        self._body = body
        self.withheld = False

    def time_s(self) -> float:
        return self._guard.write_time_s(monotonic_s())

    async def pieces(self) -> AsyncIterator[bytes]:
        if self.time_s() <= 0:
            self.withheld = True
            raise ConnectionAbortedError
        yield self._body


class _Wire:
    """The state shared by all clients of one connection pool."""

    def __init__(
        self, session: aiohttp.ClientSession, config: ClusterConfig, limits: Limits, seed: int
    ) -> None:
        self.session = session
        self.config = config
        self.limits = limits
        self.rate = RequestPacer(limits.requests_per_s, limits.burst)
        self.free = asyncio.Semaphore(limits.connections)
        self.stream = Streams(seed)["kubernetes.client"]
        self.requests = 0
        self.shed = 0
        self._broken = 0
        self._collected_s = monotonic_s()

    def broke(self) -> None:
        """Notes that a connection broke or its request was abandoned. Its remains are kept alive by
        reference cycles and are large: a 256 KiB read buffer, and OpenSSL's memory, which Python's
        collector does not count."""
        self._broken += 1
        now_s = monotonic_s()
        if self._broken >= MOST_BROKEN and now_s >= self._collected_s + COLLECT_S:
            self._broken, self._collected_s = 0, now_s
            gc.collect()


class Client:
    """A client of one API server. Closed by the context that opened it."""

    def __init__(self, wire: _Wire, guard: WriteGuard | None = None) -> None:
        self._wire = wire
        self._guard = guard
        self.namespace: Final = wire.config.namespace

    def fenced(self, guard: WriteGuard) -> Client:
        """The same client, with writes sent only while the guard has time for them."""
        return Client(self._wire, guard)

    @property
    def requests_sent(self) -> int:
        return self._wire.requests

    @property
    def requests_shed(self) -> int:
        """Responses with status 429."""
        return self._wire.shed

    # -- Reading

    async def get(
        self,
        resource: Resource,
        namespace: str,
        name: str,
        kind: type[T],
        *,
        urgent: bool = False,
    ) -> T:
        """Returns one object; raises `NotFound` if it does not exist."""
        path = resource.path(namespace, name)
        return _decoded(await self._read(path, urgent=urgent), kind)

    async def find(self, resource: Resource, namespace: str, name: str, kind: type[T]) -> T | None:
        """Returns one object or None, by a list: programs that may watch a kind may lack `get`."""
        found = await self.list_all(
            resource, ObjectSelection(namespace, fields=f"metadata.name={name}")
        )
        return _decoded(found.items[0], kind) if found.items else None

    async def get_scale(self, resource: Resource, namespace: str, name: str) -> dict[str, Any]:
        """The `autoscaling/v1 Scale` of an object."""
        answer = await self._read(resource.path(namespace, name, "scale"))
        return _decoded(answer, Plain)

    async def served(self, api_version: str) -> list[ServedKind]:
        """The resources of a group and version; none if the API server does not serve it."""
        root = "/apis" if "/" in api_version else "/api"
        try:
            answer = await self._read(f"{root}/{api_version}")
        except NotFound:
            return []
        return _decoded(answer, _ServedKinds).resources or []

    async def list_all(
        self, resource: Resource, selection: ObjectSelection = ALL, *, page: int = PAGE
    ) -> ObjectList:
        """All objects at one version, read page by page; starts over if a page token expires."""
        items: list[msgspec.Raw] = []
        version = await self.list_pages(resource, selection, items.clear, items.extend, page=page)
        return ObjectList(items, version)

    async def list_pages(
        self,
        resource: Resource,
        selection: ObjectSelection,
        begin: Callable[[], None],
        take: TakePage,
        *,
        page: int = PAGE,
    ) -> str:
        """The same, with each page processed while the next is requested; returns the version.

        `begin` is called first, and again whenever it starts over.
        """
        query = {"limit": str(page), **selection.query()}
        path = resource.collection(selection.namespace)
        for last_try in (False, False, True):
            begin()
            try:
                return await self._pages(path, query, take)
            except Gone:
                if last_try:
                    raise
            except TooLarge:
                if last_try or page <= SMALL_PAGE:
                    raise
                query["limit"] = str(SMALL_PAGE)
        raise AssertionError

    async def newest_version(self, resource: Resource, selection: ObjectSelection = ALL) -> str:
        """The version that a list would have now."""
        query = {"limit": "1", **selection.query()}
        path = f"{resource.collection(selection.namespace)}?{urlencode(query)}"
        return _decoded(await self._read(path), _Page).metadata.resource_version

    async def _pages(self, path: str, query: Mapping[str, str], take: TakePage) -> str:
        answer = _decoded(await self._read(f"{path}?{urlencode(query)}"), _Page)
        while answer.metadata.next_page:
            asked = {**query, "continue": answer.metadata.next_page}
            following = asyncio.create_task(self._read(f"{path}?{urlencode(asked)}"))
            try:
                await asyncio.sleep(0)  # lets it be sent
                take(answer.items or ())
                answer = _decoded(await following, _Page)
            finally:
                following.cancel()
        take(answer.items or ())
        return answer.metadata.resource_version

    @asynccontextmanager
    async def watch(
        self, resource: Resource, version: str, timeout_s: int, selection: ObjectSelection = ALL
    ) -> AsyncIterator[AsyncIterator[WatchEvent]]:
        """Events since a version, for this long; raises `Gone` if the history is shorter."""
        query = {"watch": "1", "allowWatchBookmarks": "true", "resourceVersion": version}
        query |= {"timeoutSeconds": str(timeout_s), **selection.query()}
        collection = resource.collection(selection.namespace)
        path = f"{collection}?{urlencode(query)}"
        await self._turn()
        request = f"GET {collection} (watch)"
        async with self._exchange("GET", path, {}, None, None, timeout_s + SILENT_S) as response:
            if response.status != 200:
                raise await _error(request, response)
            yield _events(request, response)

    # -- Writing

    async def create(
        self,
        resource: Resource,
        body: Body,
        kind: type[T],
        *,
        dry_run: bool = False,
        urgent: bool = False,
    ) -> T:
        """Creates an object in its metadata's namespace; raises `AlreadyExists` if it exists."""
        full = {"apiVersion": resource.api_version, "kind": resource.kind, **body}
        path = resource.collection(str(body["metadata"].get("namespace", "")))
        path += "?dryRun=All" if dry_run else ""
        return _decoded(await self._write("POST", path, full, urgent=urgent), kind)

    async def replace(
        self,
        resource: Resource,
        body: Body,
        kind: type[T],
        *,
        subresource: str = "",
        urgent: bool = False,
    ) -> T:
        """Replaces an object; raises `Conflict` if its `metadata.resourceVersion` is stale."""
        full = {"apiVersion": resource.api_version, "kind": resource.kind, **body}
        meta = body["metadata"]
        path = resource.path(str(meta.get("namespace", "")), str(meta["name"]), subresource)
        return _decoded(await self._write("PUT", path, full, urgent=urgent), kind)

    async def apply(
        self,
        resource: Resource,
        body: Body,
        kind: type[T],
        *,
        manager: str,
        force: bool = False,
    ) -> T:
        """Server-side apply: these fields become ours (`manager`); those left out no longer are.

        Without `force`, a field that another manager owns with a different value raises `Conflict`,
        whose `causes` name the field and the manager.
        """
        full = {"apiVersion": resource.api_version, "kind": resource.kind, **body}
        meta = body["metadata"]
        path = resource.path(str(meta.get("namespace", "")), str(meta["name"]))
        query = {"fieldManager": manager, "force": "true" if force else "false"}
        path = f"{path}?{urlencode(query)}"
        answer = await self._write("PATCH", path, full, content=APPLY_PATCH)
        return _decoded(answer, kind)

    async def patch(
        self,
        resource: Resource,
        namespace: str,
        name: str,
        change: Body | Sequence[Body],
        kind: type[T],
        *,
        subresource: str = "",
        content: str = MERGE_PATCH,
    ) -> T:
        """Applies a merge patch, or another `content`; a uid or version in it is a precondition."""
        path = resource.path(namespace, name, subresource)
        return _decoded(await self._write("PATCH", path, change, content=content), kind)

    async def delete(
        self,
        resource: Resource,
        namespace: str,
        name: str,
        *,
        uid: str = "",
        version: str = "",
        grace_s: int | None = None,
    ) -> None:
        """Deletes an object; raises `Conflict` for another uid or version, `NotFound` if gone."""
        guards = {"uid": uid} if uid else {}
        guards |= {"resourceVersion": version} if version else {}
        options: dict[str, Any] = {"apiVersion": "v1", "kind": "DeleteOptions"}
        options |= {"preconditions": guards} if guards else {}
        options |= {} if grace_s is None else {"gracePeriodSeconds": grace_s}
        await self._write("DELETE", resource.path(namespace, name), options)

    async def bind(self, pod: Meta, node: str) -> None:
        """Binds the pod of this uid to a node; raises `Conflict` if bound already or replaced."""
        body = {
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": {"name": pod.name, "namespace": pod.namespace, "uid": pod.uid},
            "target": {"apiVersion": NODES.api_version, "kind": NODES.kind, "name": node},
        }
        await self._write("POST", PODS.path(pod.namespace, pod.name, "binding"), body)

    async def evict(self, pod: Meta, *, grace_s: int | None = None, dry_run: bool = False) -> None:
        """Deletes the pod of this uid if disruption budgets allow it, else `TooManyRequests`."""
        options: dict[str, Any] = {"preconditions": {"uid": pod.uid}}
        options |= {} if grace_s is None else {"gracePeriodSeconds": grace_s}
        body = {
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": {"name": pod.name, "namespace": pod.namespace},
            "deleteOptions": options,
        }
        path = PODS.path(pod.namespace, pod.name, "eviction")
        path += "?dryRun=All" if dry_run else ""
        await self._write("POST", path, body, repeat_shed=False)

    # -- Exchanges

    async def request(
        self, method: str, path: str, body: Any = None, kind: type[Any] = object
    ) -> Any:
        """Sends any other request, by path: `/version`, or a subresource without a method here."""
        if method == "GET":
            return _decoded(await self._read(path), kind)
        return _decoded(await self._write(method, path, body), kind)

    async def _read(self, path: str, *, urgent: bool = False) -> bytes:
        backoff = Backoff(self._wire.stream)
        for left in reversed(range(READ_TRIES)):
            try:
                return await self._answer("GET", path, None, JSON, urgent=urgent)
            except (NoAnswer, ServerError) as error:
                if not left or urgent:
                    raise
                pause_s = error.retry_after_s if isinstance(error, ServerError) else 0.0
                pause_s = max(backoff.failed(monotonic_s()), min(pause_s, MOST_PAUSE_S))
            await asyncio.sleep(pause_s)
        raise AssertionError

    async def _write(
        self,
        method: str,
        path: str,
        body: Any,
        *,
        content: str = JSON,
        urgent: bool = False,
        repeat_shed: bool = True,
    ) -> bytes:
        sent = msgspec.json.encode(body)
        return await self._answer(
            method, path, sent, content, urgent=urgent, repeat_shed=repeat_shed
        )

    async def _answer(
        self,
        method: str,
        path: str,
        body: bytes | None,
        content: str,
        *,
        urgent: bool,
        repeat_shed: bool = True,
    ) -> bytes:
        """The body of a successful response. Repeats if shed and, once, if the token expired."""
        backoff = Backoff(self._wire.stream)
        shed = 0
        renewed = False
        while True:
            if not urgent:
                await self._turn()
            try:
                return await self._once(method, path, body, content, urgent=urgent)
            except TooManyRequests as error:
                self._wire.shed += 1
                shed += 1
                if urgent or not repeat_shed or shed >= PAUSED_TRIES:
                    raise
                now_s = monotonic_s()
                pause_s = max(min(error.retry_after_s, MOST_PAUSE_S), backoff.failed(now_s))
                self._wire.rate.pause(now_s, pause_s)
            except Unauthorized:
                if renewed:
                    raise
                renewed = True

    async def _turn(self) -> None:
        """Waits for the rate limit, and for any pause that the server asked for."""
        rate = self._wire.rate
        wait_s = rate.take(monotonic_s())
        while wait_s > 0:
            await asyncio.sleep(wait_s)
            wait_s = rate.paused_s(monotonic_s())

    async def _once(
        self, method: str, path: str, body: bytes | None, content: str, *, urgent: bool
    ) -> bytes:
        if urgent:
            return await self._send(method, path, body, content)
        async with self._wire.free:
            return await self._send(method, path, body, content)

    async def _send(self, method: str, path: str, body: bytes | None, content: str) -> bytes:
        request = f"{method} {path.split('?', maxsplit=1)[0]}"
        total_s = self._wire.limits.request_s
        headers = {} if body is None else {"Content-Type": content}
        sent: bytes | AsyncIterator[bytes] | None = body
        guarded = None
        if self._guard is not None and body is not None:
            guarded = _Guarded(self._guard, body)
            total_s = min(total_s, guarded.time_s())
            headers["Content-Length"] = str(len(body))
            sent = guarded.pieces()
        if total_s > 0:
            try:
                async with self._exchange(method, path, headers, sent, total_s, None) as response:
                    if not 200 <= response.status < 300:
                        raise await _error(request, response)
                    return await _whole(request, response)
            except NoAnswer:
                if guarded is None or not guarded.withheld:
                    raise
        raise NotLeader("not sent, since the leader's lease may be over", where=request)

    @asynccontextmanager
    async def _exchange(
        self,
        method: str,
        path: str,
        headers: dict[str, str],
        body: bytes | AsyncIterator[bytes] | None,
        total_s: float | None,
        silent_s: float | None,
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        """Sends a request and yields the head of its response; raises `NoAnswer` on a failure.

        Without `total_s` the response may last, but its head must arrive within `REQUEST_S`.
        """
        import aiohttp
        from yarl import URL

        credentials = self._wire.config.credentials
        try:
            token = await credentials.token()
        except InputError as error:
            raise NoCredentials(error.what, where=error.where, allowed=error.allowed) from None
        if token:
            headers["Authorization"] = f"Bearer {token}"
        request = f"{method} {path.split('?', maxsplit=1)[0]}"
        timeout = aiohttp.ClientTimeout(total_s, sock_connect=CONNECT_S, sock_read=silent_s)
        url = URL(self._wire.config.server + path, encoded=True)
        self._wire.requests += 1
        try:
            async with (
                asyncio.timeout(REQUEST_S if total_s is None else None) as head,
                self._wire.session.request(
                    method,
                    url,
                    headers=headers,
                    data=body,
                    timeout=timeout,
                    allow_redirects=False,
                    server_hostname=self._wire.config.server_name,
                ) as response,
            ):
                head.reschedule(None)
                if response.status == 401:
                    credentials.refused(token)
                try:
                    yield response
                finally:
                    _abort_unread(response)
        except asyncio.CancelledError:
            self._wire.broke()
            raise
        except TimeoutError:
            self._wire.broke()
            raise NoAnswer("no answer in time", where=request) from None
        except (aiohttp.ClientError, OSError) as error:
            self._wire.broke()
            # The error's own text may contain the request's headers.
            what = f"no answer: the connection failed ({type(error).__name__})"
            raise NoAnswer(what, where=request) from None


def _decoded(answer: bytes, kind: type[T]) -> T:
    try:
        return msgspec.json.decode(answer, type=kind)
    except msgspec.DecodeError as error:
        raise UnreadableAnswer(f"the API server's answer cannot be read: {error}") from None


def _abort_unread(response: aiohttp.ClientResponse) -> None:
    """Closes the connection of a response that was not read to its end, without the shutdown of
    TLS, for which the server may let it wait: an event loop that ends before that fails."""
    connection = response.connection
    if connection is not None and connection.transport is not None:
        connection.transport.abort()


async def _whole(request: str, response: aiohttp.ClientResponse) -> bytes:
    parts: list[bytes] = []
    size = 0
    async for part in response.content.iter_any():
        size += len(part)
        if size > LARGEST_ANSWER:
            raise TooLarge(f"the answer is larger than {LARGEST_ANSWER >> 20} MiB", where=request)
        parts.append(part)
    return parts[0] if len(parts) == 1 else b"".join(parts)


async def _error(request: str, response: aiohttp.ClientResponse) -> ApiError:
    body = b""
    async for part in response.content.iter_any():  # one read returns only what has arrived
        body += part
        if len(body) > LARGEST_ERROR:
            break
    return error_of(request, response.status, body, response.headers.get("Retry-After", ""))


async def _events(request: str, response: aiohttp.ClientResponse) -> AsyncIterator[WatchEvent]:
    """The events of a watch; an ERROR event is raised as its exception."""
    rest = b""
    async for part in response.content.iter_any():
        *lines, rest = (rest + part).split(b"\n")
        for line in lines:
            if not line:
                continue
            try:
                event = _EVENTS.decode(line)
            except msgspec.DecodeError:
                raise NoAnswer("the watch sent an invalid event", where=request) from None
            if event.type == "ERROR":
                raise error_of(request, 0, bytes(event.object))
            yield event
        if len(rest) > LONGEST_EVENT:
            raise NoAnswer(f"an event is larger than {LONGEST_EVENT >> 20} MiB", where=request)


@asynccontextmanager
async def open_client(
    config: ClusterConfig,
    limits: Limits = LIMITS,
    *,
    name: str = "operator",
) -> AsyncIterator[Client]:
    """A client with its connections, closed at the end; `name` goes into the User-Agent."""
    import aiohttp

    async with aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=30.0, ssl=config.tls or True),
        cookie_jar=aiohttp.DummyCookieJar(),
        trust_env=False,
        headers={"User-Agent": f"windtunnel-{name}", "Accept": JSON, "Accept-Encoding": "identity"},
        auto_decompress=False,
        read_bufsize=1 << 20,
    ) as session:
        yield Client(_Wire(session, config, limits, fresh_seed()))
    # A connection that was cancelled in its TLS handshake is closed when it is collected; an event
    # loop that ends before that fails.
    gc.collect()
    await asyncio.sleep(0)
