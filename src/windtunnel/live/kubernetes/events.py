"""Events about objects (events.k8s.io/v1), with repeated ones counted in a series.

`EventSeries` decides what to write, without I/O: the first event of a kind about an object is
created, the second within six minutes makes it a series, and further ones are counted and written
when the series has been quiet for that long, or every half hour. `EventRecorder` writes them in the
background: an event never delays or fails a decision; events that cannot be written are dropped and
counted.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Final, NamedTuple

from windtunnel.core.clock import monotonic_s, unix_s
from windtunnel.core.random import Streams, fresh_seed
from windtunnel.live.kubernetes.client import Client
from windtunnel.live.kubernetes.errors import (
    AlreadyExists,
    ApiError,
    KubernetesError,
    ServerError,
    TooManyRequests,
)
from windtunnel.live.kubernetes.pacing import Backoff
from windtunnel.live.kubernetes.resources import EVENTS, Meta, Plain, Resource, micro_time

NORMAL: Final = "Normal"
WARNING: Final = "Warning"

QUIET_S: Final = 360.0
"""A series ends when no event was added for this long."""
REFRESH_S: Final = 1800.0
"""How often a continuing series is written."""
MOST_SERIES: Final = 4096
MOST_QUEUED: Final = 1000
MOST_TRIES: Final = 12
LONGEST_NOTE: Final = 1024
"""In bytes; the API server refuses longer notes."""
LONGEST_NAME: Final = 200


class Subject(NamedTuple):
    """The object that an event is about."""

    api_version: str
    kind: str
    namespace: str
    name: str
    uid: str

    @classmethod
    def of(cls, resource: Resource, meta: Meta) -> Subject:
        return cls(resource.api_version, resource.kind, meta.namespace, meta.name, meta.uid)

    def reference(self) -> dict[str, str]:
        reference = {"apiVersion": self.api_version, "kind": self.kind, "name": self.name}
        reference |= {"namespace": self.namespace} if self.namespace else {}
        return {**reference, "uid": self.uid} if self.uid else reference


class Happened(NamedTuple):
    """One event: what a controller did (`action`) to an object, why, and a sentence."""

    about: Subject
    type: str
    reason: str
    action: str
    note: str


class CreateEvent(NamedTuple):
    namespace: str
    name: str
    body: Plain


class PatchEvent(NamedTuple):
    namespace: str
    name: str
    body: Plain


class _RepeatedEvent:
    def __init__(self, create: CreateEvent, now_s: float) -> None:
        self.create = create
        self.count = 1
        self.written = 1
        self.last_s = now_s
        self.last_unix_s = 0.0
        self.written_s = now_s

    def patch(self, now_s: float) -> PatchEvent:
        self.written = self.count
        self.written_s = now_s
        observed = micro_time(self.last_unix_s)
        series = {"count": self.count, "lastObservedTime": observed}
        return PatchEvent(self.create.namespace, self.create.name, {"series": series})


class EventSeries:
    """Decides which events are created and which are counted, by (object, type, reason, action)."""

    def __init__(self, controller: str, instance: str) -> None:
        self._controller = controller
        self._instance = instance[:128]
        self._series: dict[tuple[Subject, str, str, str], _RepeatedEvent] = {}
        """In order of each series' last event."""
        self._issued = 0

    def __len__(self) -> int:
        return len(self._series)

    def add(self, event: Happened, now_s: float, unix_s: float) -> list[CreateEvent | PatchEvent]:
        """Adds an event; returns what to write now."""
        key = (event.about, event.type, event.reason, event.action)
        writes: list[CreateEvent | PatchEvent] = []
        series = self._series.pop(key, None)
        if series is not None and now_s < series.last_s + QUIET_S:
            series.count += 1
            series.last_s = now_s
            series.last_unix_s = unix_s
            if series.written == 1 or now_s >= series.written_s + REFRESH_S:
                writes.append(series.patch(now_s))
        else:
            if series is not None and series.count > series.written:
                writes.append(series.patch(now_s))
            series = _RepeatedEvent(self._create(event, unix_s), now_s)
            writes.append(series.create)
        self._series[key] = series
        if len(self._series) > MOST_SERIES:
            oldest = self._series.pop(next(iter(self._series)))
            if oldest.count > oldest.written:
                writes.append(oldest.patch(now_s))
        return writes

    def ended(self, now_s: float) -> list[PatchEvent]:
        """Forgets series that have been quiet; returns what remains to be written of them."""
        writes = []
        for key, series in list(self._series.items()):
            if now_s < series.last_s + QUIET_S:
                break
            del self._series[key]
            if series.count > series.written:
                writes.append(series.patch(now_s))
        return writes

    def _create(self, event: Happened, unix_s: float) -> CreateEvent:
        self._issued += 1
        about = event.about
        namespace = about.namespace or "default"
        number = f"{int(unix_s * 1e6):x}{self._issued % 0x1000:03x}"
        name = f"{about.name[:LONGEST_NAME].rstrip('.-')}.{number}"
        body: Plain = {
            "metadata": {"namespace": namespace, "name": name},
            "eventTime": micro_time(unix_s),
            "reportingController": self._controller,
            "reportingInstance": self._instance,
            "action": event.action[:128],
            "reason": event.reason[:128],
            "type": event.type,
            "regarding": about.reference(),
            "note": _cut(event.note, LONGEST_NOTE),
        }
        return CreateEvent(namespace, name, body)


def _cut(text: str, most_bytes: int) -> str:
    encoded = text.encode()
    if len(encoded) <= most_bytes:
        return text
    return encoded[: most_bytes - 3].decode(errors="ignore") + "..."


class EventRecorder:
    """Accepts events at once and writes them in `run`, which ends when cancelled."""

    def __init__(self, client: Client, controller: str, instance: str) -> None:
        self._client = client
        self._series = EventSeries(controller, instance)
        self._queue: deque[CreateEvent | PatchEvent] = deque()
        self._some = asyncio.Event()
        self._stream = Streams(fresh_seed())["kubernetes.events"]
        self.written = 0
        self.dropped = 0

    def record(self, about: Subject, event_type: str, reason: str, action: str, note: str) -> None:
        """Records an event of type `NORMAL` or `WARNING`."""
        happened = Happened(about, event_type, reason, action, note)
        self._put(self._series.add(happened, monotonic_s(), unix_s()))

    def _put(self, writes: list[CreateEvent | PatchEvent]) -> None:
        self._queue.extend(writes)
        while len(self._queue) > MOST_QUEUED:
            self._queue.popleft()
            self.dropped += 1
        self._some.set()

    async def run(self) -> None:
        while True:
            try:
                async with asyncio.timeout(QUIET_S / 10):
                    await self._some.wait()
            except TimeoutError:
                pass
            self._put([*self._series.ended(monotonic_s())])
            self._some.clear()
            while self._queue:
                await self._write(self._queue.popleft())

    async def _write(self, write: CreateEvent | PatchEvent) -> None:
        """Writes an event, with a limited number of retries for errors that may pass."""
        backoff = Backoff(self._stream)
        for _ in range(MOST_TRIES):
            try:
                if isinstance(write, CreateEvent):
                    await self._client.create(EVENTS, write.body, Plain)
                else:
                    await self._client.patch(EVENTS, write.namespace, write.name, write.body, Plain)
            except AlreadyExists:
                break  # an earlier attempt had succeeded
            except KubernetesError as error:
                if isinstance(error, ApiError) and not isinstance(
                    error, ServerError | TooManyRequests
                ):
                    self.dropped += 1  # its namespace is gone, or access is denied
                    return
                await asyncio.sleep(backoff.failed(monotonic_s()))
            else:
                break
        else:
            self.dropped += 1
            return
        self.written += 1
