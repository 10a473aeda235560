"""Keeps a cache in step with the API server: list, watch with bookmarks, list again when in doubt.

`ListWatch` decides the next step, without I/O; `Reflector` carries it out. The cases:

- 410, as a status or as an ERROR event: list. Objects missing from the list are gone, and handlers
  are called for them.
- "Too large resource version" (the server lags): retry after a second; list after the third time.
- A lost connection, or one that stays silent beyond the watch's own timeout: ask for the newest
  version before watching again. If it is lower than ours, etcd was restored to an older state:
  list, since a watch would show nothing until the versions have caught up.
- A watch that ends: watch again from the last version. One that ends at once, or breaks: after a
  backoff.
- No response at all: retry every few seconds without end, since that burdens no server.
- Two watches in a row without even a bookmark: list.
- An object that cannot be decoded as its type: its last readable state stays, and `unreadable` says
  why.
"""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Final, Generic, NamedTuple, TypeVar, assert_never

import msgspec

from windtunnel.core.clock import monotonic_s
from windtunnel.core.random import Stream, Streams, fresh_seed
from windtunnel.live.kubernetes.cache import ObjectCache
from windtunnel.live.kubernetes.client import ALL, Client, ObjectSelection, WatchEvent
from windtunnel.live.kubernetes.errors import ApiError, Gone, KubernetesError, NoAnswer
from windtunnel.live.kubernetes.pacing import Backoff
from windtunnel.live.kubernetes.resources import Key, Meta, Object, Resource

SHORTEST_WATCH_S: Final = 240
LONGEST_WATCH_S: Final = 300
"""A watch ends by itself after a random time in this range, so that not all end together."""
SHORT_WATCH_S: Final = 1.0
"""A watch without events that ends sooner than this counts as a failure."""
FUTURE_TRIES: Final = 3
FUTURE_WAIT_S: Final = 1.0
SILENT_WATCHES: Final = 2
AWAY_S: Final = 5.0
"""Longest wait between attempts without a response: the cache may be stale as long afterwards."""

Held = TypeVar("Held", bound=Object)


class ListNow(NamedTuple):
    """List all objects, after a delay."""

    delay_s: float


class WatchFrom(NamedTuple):
    """Watch for changes since a version, after a delay."""

    version: str
    timeout_s: int
    delay_s: float
    verify: bool
    """Whether to check first that the server still has this version."""


class ListWatch:
    """Decides a reflector's next step from how the last list or watch ended."""

    def __init__(self, stream: Stream) -> None:
        self._stream = stream
        self._backoff = Backoff(stream)
        self._version = ""
        self._delay_s = 0.0
        self._future = 0
        self._silent = 0
        self._verify = False
        self._began_s = 0.0
        self._has_received = False
        self.lists = 0
        self.watches = 0

    def next(self) -> ListNow | WatchFrom:
        delay_s, self._delay_s = self._delay_s, 0.0
        if not self._version:
            self.lists += 1
            return ListNow(delay_s)
        self.watches += 1
        timeout_s = self._stream.integer(SHORTEST_WATCH_S, LONGEST_WATCH_S)
        return WatchFrom(self._version, timeout_s, delay_s, self._verify)

    def verified(self, newest: str) -> bool:
        """Whether to watch, given the server's newest version; otherwise list."""
        self._verify = False
        if newest.isdecimal() and self._version.isdecimal() and int(newest) < int(self._version):
            self._version = ""
        return bool(self._version)

    def listed(self, version: str) -> None:
        self._version = version
        self._silent = 0
        self._future = 0
        self._verify = False

    def began(self, now_s: float) -> None:
        """Records the start of a watch's response."""
        self._began_s = now_s
        self._has_received = False

    def received(self, version: str) -> None:
        """Records an event or a bookmark."""
        self._version = version
        self._has_received = True
        self._silent = 0
        self._future = 0

    def ended(self, now_s: float) -> None:
        """Records the regular end of a watch."""
        if self._has_received:
            return
        if now_s - self._began_s < SHORT_WATCH_S:
            self._delay_s = self._backoff.failed(now_s)
            return
        self._silent += 1
        if self._silent >= SILENT_WATCHES:
            self._version = ""

    def failed(self, error: KubernetesError, now_s: float) -> None:
        """Records a failed list or watch."""
        if isinstance(error, ApiError) and error.version_too_large and self._version:
            self._future += 1
            if self._future >= FUTURE_TRIES:
                self._version = ""
            self._delay_s = max(FUTURE_WAIT_S, error.retry_after_s)
            return
        if isinstance(error, Gone):
            self._version = ""
        self._verify = self._verify or not isinstance(error, ApiError)  # until it was verified
        asked_s = error.retry_after_s if isinstance(error, ApiError) else 0.0
        self._delay_s = max(self._backoff.failed(now_s), min(asked_s, 60.0))
        if isinstance(error, NoAnswer):
            self._delay_s = min(self._delay_s, AWAY_S)


@contextmanager
def no_collection() -> Iterator[None]:
    """Disables garbage collection while thousands of objects are created that all stay alive."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


class Reflector(Generic[Held]):
    """Keeps a cache current until cancelled; `synced` is set after the first list."""

    def __init__(
        self,
        client: Client,
        resource: Resource,
        kind: type[Held],
        selection: ObjectSelection = ALL,
    ) -> None:
        self.resource: Final = resource
        self.cache: Final[ObjectCache[Held]] = ObjectCache()
        self.synced: Final = asyncio.Event()
        self.unreadable: Final[dict[Key, str]] = {}
        self.steps: Final = ListWatch(Streams(fresh_seed())["kubernetes.reflector"])
        self.last_error: KubernetesError | None = None
        """The error of the last list or watch; None while it succeeds."""
        self._received_s = -float("inf")
        self._client = client
        self._decoder = msgspec.json.Decoder(kind)
        self._selection = selection

    def age_s(self, now_s: float) -> float:
        """Seconds since the API server last sent anything; it sends a bookmark each minute."""
        return now_s - self._received_s

    async def run(self) -> None:
        while True:
            step = self.steps.next()
            await asyncio.sleep(step.delay_s)
            try:
                match step:
                    case ListNow():
                        await self.fill()
                    case WatchFrom(version, timeout_s, _, verify):
                        if not verify or self.steps.verified(await self._newest()):
                            await self._watch(version, timeout_s)
                    case _:
                        assert_never(step)
            except KubernetesError as error:
                self.last_error = error
                self.steps.failed(error, monotonic_s())

    async def _newest(self) -> str:
        return await self._client.newest_version(self.resource, self._selection)

    async def fill(self) -> None:
        """Lists all objects once."""
        objects: list[Held] = []

        def begin() -> None:
            self.cache.begin_list()
            self.unreadable.clear()
            objects.clear()

        def take(page: Sequence[msgspec.Raw]) -> None:
            with no_collection():
                objects.extend(self._readable(page))

        version = await self._client.list_pages(self.resource, self._selection, begin, take)
        with no_collection():
            self.cache.replace(objects, version)
            if not self.synced.is_set():
                gc.freeze()  # its objects are exempt from garbage collection from now on
        self.steps.listed(version)
        self.last_error = None
        self._received_s = monotonic_s()
        self.synced.set()

    def _readable(self, page: Sequence[msgspec.Raw]) -> Iterator[Held]:
        for raw in page:
            try:
                yield self._decoder.decode(raw)
            except msgspec.ValidationError as error:
                held = self._not_readable(raw, error)[1]
                if held is not None:
                    yield held

    async def _watch(self, version: str, timeout_s: int) -> None:
        async with self._client.watch(self.resource, version, timeout_s, self._selection) as events:
            self.steps.began(monotonic_s())
            self.last_error = None
            async for event in events:
                self._take(event)
                self._received_s = monotonic_s()
        self.steps.ended(monotonic_s())

    def _take(self, event: WatchEvent) -> None:
        if event.type == "BOOKMARK":
            version = msgspec.json.decode(event.object, type=Object).metadata.resource_version
            self.cache.advance(version)
            self.steps.received(version)
            return
        try:
            shown = self._decoder.decode(event.object)
        except msgspec.ValidationError as error:
            meta, held = self._not_readable(event.object, error)
            if event.type == "DELETED":
                del self.unreadable[meta.key]
                if held is not None:
                    self.cache.remove(held)
            self.cache.advance(meta.resource_version)
            self.steps.received(meta.resource_version)
            return
        self.unreadable.pop(shown.metadata.key, None)  # before handlers, which may add it again
        if event.type == "DELETED":
            self.cache.remove(shown)
        else:
            self.cache.show(shown)
        self.steps.received(shown.metadata.resource_version)

    def _not_readable(
        self, raw: msgspec.Raw, error: msgspec.ValidationError
    ) -> tuple[Meta, Held | None]:
        """Notes why an object is unreadable; returns its metadata and its cached state, if any."""
        meta = msgspec.json.decode(raw, type=Object).metadata
        self.unreadable[meta.key] = str(error)
        held = self.cache.get(*meta.key)
        return meta, held if held is not None and held.metadata.uid == meta.uid else None
