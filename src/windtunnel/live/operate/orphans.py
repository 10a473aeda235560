"""Objects whose owners are gone, and pods whose nodes are, if Kubernetes' garbage collector is slow
or absent. That something is missing in the cache proves nothing, so the API server is asked."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

from windtunnel.core.loop import INFINITY
from windtunnel.gangs.kubernetes.calls import ApiCall, deletes
from windtunnel.gangs.objects import CLIQUE, GROUP, NODE, SET, Owned
from windtunnel.live.kubernetes.client import Client
from windtunnel.live.kubernetes.errors import KubernetesError, NotLeader
from windtunnel.live.kubernetes.resources import Meta, Object
from windtunnel.live.operate.mirror import RESOURCES, Mirror

FIRST_S: Final = 1.0
"""By then the garbage collector has usually done it, or the cache has shown the object."""
AGAIN_S: Final = 5.0
LEFT_TO_KUBERNETES: Final = ("ServiceAccount", "Role", "RoleBinding", "Secret")
"""The operator may not delete these."""


class _Checks:
    """Objects that the view does not show, and when to ask the API server for each."""

    def __init__(self, mirror: Mirror, client: Client, now_s: Callable[[], float]) -> None:
        self._mirror: Final = mirror
        self._client: Final = client
        self._now_s: Final = now_s
        self._due: dict[str, float] = {}
        """By name or uid: when to ask for it."""

    def next_s(self) -> float:
        return min(self._due.values(), default=INFINITY)

    def _due_now(self, unseen: Iterable[str]) -> list[str]:
        now_s = self._now_s()
        self._due = {name: self._due.get(name, now_s + FIRST_S) for name in unseen}
        due = [name for name, due_s in self._due.items() if due_s <= now_s]
        self._due.update(dict.fromkeys(due, now_s + AGAIN_S))
        return due

    async def _is_gone(self, kind: str, namespace: str, name: str, uid: str = "") -> bool:
        """Whether the API server says that an object does not exist, or has another uid."""
        try:
            found = await self._client.find(RESOURCES[kind], namespace, name, Object)
        except NotLeader:
            raise
        except KubernetesError:
            return False
        return found is None or uid not in ("", found.metadata.uid)


class MissingNodes(_Checks):
    """Checks nodes that pods are bound to and that are not in the view."""

    async def check(self) -> None:
        """Lets the mirror know of nodes that do not exist: their pods are lost."""
        for name in self._due_now(self._mirror.unseen_nodes):
            pods = self._mirror.pods_on(name)
            if await self._is_gone(NODE, "", name):
                self._mirror.node_is_gone(name, pods)


class Orphans(_Checks):
    """Checks objects whose owner is not in the view."""

    async def calls(self) -> list[ApiCall]:
        """The deletes of objects whose owner is gone."""
        ownerless = self._mirror.view.ownerless
        owners = [
            uid
            for uid, things in ownerless.items()
            if uid and any(_is_to_go(one) for one in things.values())
        ]
        found: list[ApiCall] = []
        for uid in self._due_now(owners):
            things = list(ownerless.get(uid, {}).values())
            if things and await self._has_no_owner(things[0], uid):
                found += [call for one in things if _is_to_go(one) for call in deletes(one)]
        return found

    async def _has_no_owner(self, thing: Owned, uid: str) -> bool:
        meta = self._meta(thing)
        owner = None if meta is None else meta.controller
        if meta is None or owner is None or owner.uid != uid:
            return False
        if owner.kind not in (SET, GROUP, CLIQUE):
            return False
        return await self._is_gone(owner.kind, meta.namespace, owner.name, uid)

    def _meta(self, thing: Owned) -> Meta | None:
        cache = self._mirror.reflectors[thing.kind].cache
        namespace, _, short = thing.name.rpartition("/")
        found = cache.get(namespace or "default", short)
        return None if found is None else found.metadata


def _is_to_go(thing: Owned) -> bool:
    return not thing.terminating and thing.kind not in LEFT_TO_KUBERNETES
