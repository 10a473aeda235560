"""Objects as the API server last showed them, by namespace and name, with change handlers.

A handler is called as `handler(before, after)`: `before` is None for a new object, `after` is None
for a deleted one. An object that was deleted and created again under its name is reported by two
calls, never as a change. The same version again causes no call. Handlers run at once and must not
fail; most of them only mark something to be checked.

`written(object)` puts the response to our own write into the cache, so that the next decision sees
it. Later results of a watch or list never revert it to an older state. This compares
resourceVersions as numbers, which Kubernetes guarantees within a kind; if versions are not numbers,
`written` does nothing.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import Generic, TypeVar

from windtunnel.live.kubernetes.resources import Key, Object

Held = TypeVar("Held", bound=Object)
Handler = Callable[[Held | None, Held | None], None]


def _number(version: str) -> int:
    """A resourceVersion as a number; -1 if it is not one."""
    return int(version) if version.isdecimal() else -1


class ObjectCache(Generic[Held]):
    """The objects of one kind."""

    def __init__(self) -> None:
        self._objects: dict[Key, Held] = {}
        self._handlers: list[Handler[Held]] = []
        self._written: dict[Key, int] = {}
        """Versions of our own writes since the last list began that a watch has not shown."""
        self.version = ""
        """The version up to which the API server has shown everything; empty before a list."""

    def __len__(self) -> int:
        return len(self._objects)

    def __iter__(self) -> Iterator[Held]:
        """All objects, in no particular order."""
        return iter(self._objects.values())

    def __contains__(self, key: object) -> bool:
        return key in self._objects

    def get(self, namespace: str, name: str) -> Held | None:
        return self._objects.get((namespace, name))

    def subscribe(self, handler: Handler[Held]) -> None:
        """Calls the handler for every object held now, and for every change from now on."""
        for held in list(self._objects.values()):
            handler(None, held)
        self._handlers.append(handler)

    # -- From the API server

    def begin_list(self) -> None:
        """Starts a list, which will show everything written before now."""
        self._written.clear()

    def replace(self, objects: Iterable[Held], version: str) -> None:
        """Takes over a complete list. Other objects are gone, unless written since it began."""
        listed = {one.metadata.key: one for one in objects}
        kept = {key for key, written in self._written.items() if written > _number(version)}
        self.version = version
        for key, held in list(self._objects.items()):
            if key not in listed and key not in kept:
                self._change(key, held, None)
        for key, one in listed.items():
            if key not in kept:
                self._set(key, one)

    def show(self, shown: Held) -> None:
        """Takes over an object that was added or modified."""
        key = shown.metadata.key
        held = self._objects.get(key)
        self._shown_up_to(shown.metadata.resource_version, key)
        if held is not None and self._is_newer(held, shown):
            return
        self._set(key, shown)

    def remove(self, shown: Held) -> None:
        """Removes an object that was deleted; `shown` is its last state."""
        key = shown.metadata.key
        held = self._objects.get(key)
        self._shown_up_to(shown.metadata.resource_version, key)
        if held is None or (
            held.metadata.uid != shown.metadata.uid and self._is_newer(held, shown)
        ):
            return
        self._change(key, held, None)

    def advance(self, version: str) -> None:
        """Takes over the version of a bookmark."""
        self._shown_up_to(version)

    def _shown_up_to(self, version: str, key: Key | None = None) -> None:
        """Forgets our own writes that the watch has shown or, up to a bookmark, passed."""
        self.version = version
        now = _number(version)
        passed = list(self._written) if key is None else [key]
        for one in passed:
            if self._written.get(one, now + 1) <= now:
                del self._written[one]

    def written(self, answer: Held) -> None:
        """Takes over the response to our own create, replace or patch of this kind."""
        version = _number(answer.metadata.resource_version)
        if version <= _number(self.version) or not self.version:
            return  # the watch has shown it, or a later state; or the first list will
        self._written[answer.metadata.key] = version
        held = self._objects.get(answer.metadata.key)
        if held is None or not self._is_newer(held, answer):
            self._set(answer.metadata.key, answer)

    def _is_newer(self, held: Held, than: Held) -> bool:
        return _number(held.metadata.resource_version) > _number(than.metadata.resource_version)

    def _set(self, key: Key, new: Held) -> None:
        held = self._objects.get(key)
        if held is not None:
            if held.metadata.uid != new.metadata.uid:
                self._change(key, held, None)
                held = None
            elif held.metadata.resource_version == new.metadata.resource_version:
                return
        self._change(key, held, new)

    def _change(self, key: Key, before: Held | None, after: Held | None) -> None:
        if after is None:
            assert before is not None
            del self._objects[key]
        else:
            self._objects[key] = after
        for handler in self._handlers:
            handler(before, after)

    def check(self) -> None:
        """Asserts the invariants."""
        for key, held in self._objects.items():
            assert held.metadata.key == key
