"""A client of Kubernetes without an API server: lists and watches of what a test puts."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

import msgspec

from windtunnel.live.kubernetes.client import ObjectSelection, TakePage, WatchEvent
from windtunnel.live.kubernetes.errors import KubernetesError
from windtunnel.live.kubernetes.resources import Resource


class Change(NamedTuple):
    version: int
    resource: Resource
    before: dict[str, Any] | None
    after: dict[str, Any] | None

    def event_for(self, selection: ObjectSelection) -> WatchEvent | None:
        """As a watch shows it; None: it is not about what is selected."""
        had, has = matches(self.before, selection), matches(self.after, selection)
        shown = self.after or self.before
        if shown is None or not (had or has):
            return None
        kind = ("MODIFIED" if had else "ADDED") if has else "DELETED"
        meta = {**shown["metadata"], "resourceVersion": str(self.version)}
        return WatchEvent(kind, msgspec.Raw(msgspec.json.encode({**shown, "metadata": meta})))


class FakeApi:
    """Objects by kind and name, selected by labels and by name as an API server does."""

    def __init__(self) -> None:
        self.error: KubernetesError | None = None
        self.errors: dict[Resource, KubernetesError] = {}
        """Of one kind."""
        self._objects: dict[Resource, dict[str, dict[str, Any]]] = {}
        self._version = 1
        self._changes: list[Change] = []
        self._changed = asyncio.Event()

    def fail(self, error: KubernetesError) -> None:
        self.error = error
        self._wake()

    def put(self, resource: Resource, one: dict[str, Any]) -> None:
        made = {**one, "metadata": {**one["metadata"], "resourceVersion": str(self._version + 1)}}
        held = self._objects.setdefault(resource, {})
        name = made["metadata"]["name"]
        before, held[name] = held.get(name), made
        self._change(resource, before, made)

    def delete(self, resource: Resource, name: str) -> None:
        self._change(resource, self._objects[resource].pop(name), None)

    def _change(
        self, resource: Resource, before: dict[str, Any] | None, after: dict[str, Any] | None
    ) -> None:
        self._version += 1
        self._changes.append(Change(self._version, resource, before, after))
        self._wake()

    def _wake(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()

    async def newest_version(self, resource: Resource, *_: object) -> str:
        """An error where there is one: what reads or watches the kind fails."""
        error = self.error or self.errors.get(resource)
        if error is not None:
            raise error
        return str(self._version)

    async def list_pages(
        self,
        resource: Resource,
        selection: ObjectSelection,
        begin: Callable[[], None],
        take: TakePage,
    ) -> str:
        """In one page."""
        begin()
        version = await self.newest_version(resource)
        held = self._objects.get(resource, {}).values()
        take([msgspec.Raw(msgspec.json.encode(one)) for one in held if matches(one, selection)])
        return version

    @asynccontextmanager
    async def watch(
        self, resource: Resource, version: str, _: int, selection: ObjectSelection
    ) -> AsyncIterator[AsyncIterator[WatchEvent]]:
        await self.newest_version(resource)

        async def events() -> AsyncIterator[WatchEvent]:
            seen = int(version)
            while True:
                for one in [each for each in self._changes if each.version > seen]:
                    seen = one.version
                    event = one.event_for(selection) if one.resource == resource else None
                    if event is not None:
                        yield event
                await self._changed.wait()
                await self.newest_version(resource)

        yield events()


def matches(one: dict[str, Any] | None, selection: ObjectSelection) -> bool:
    if one is None:
        return False
    meta = one["metadata"]
    have = {f"{key}={value}" for key, value in meta.get("labels", {}).items()}
    wanted = set(selection.labels.split(",")) - {""}
    named = selection.fields in ("", f"metadata.name={meta['name']}")
    return wanted <= have and named and selection.namespace in ("", meta["namespace"])
