"""Objects whose owners are gone, and pods whose nodes are, if Kubernetes' garbage collector is slow
or absent. That something is missing in the cache proves nothing, so the API server is asked."""

from __future__ import annotations

from collections.abc import Callable
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


class MissingNodes:
    """Checks nodes that pods are bound to and that are not in the view."""

    def __init__(self, mirror: Mirror, client: Client, now_s: Callable[[], float]) -> None:
        self._mirror: Final = mirror
        self._client: Final = client
        self._now_s: Final = now_s
        self._due: dict[str, float] = {}
        """By node: when to ask for it."""

    def next_s(self) -> float:
        return min(self._due.values(), default=INFINITY)

    async def check(self) -> None:
        """Lets the mirror know of nodes that do not exist: their pods are lost."""
        now_s = self._now_s()
        unseen = self._mirror.unseen_nodes
        self._due = {name: self._due.get(name, now_s + FIRST_S) for name in unseen}
        for name in [name for name, due_s in self._due.items() if due_s <= now_s]:
            self._due[name] = now_s + AGAIN_S
            pods = self._mirror.pods_on(name)
            try:
                found = await self._client.find(RESOURCES[NODE], "", name, Object)
            except NotLeader:
                raise
            except KubernetesError:
                continue
            if found is None:
                self._mirror.node_is_gone(name, pods)


class Orphans:
    """Checks objects whose owner is not in the view."""

    def __init__(self, mirror: Mirror, client: Client, now_s: Callable[[], float]) -> None:
        self._mirror: Final = mirror
        self._client: Final = client
        self._now_s: Final = now_s
        self._due: dict[str, float] = {}
        """By uid of the owner: when to ask for it."""

    def next_s(self) -> float:
        return min(self._due.values(), default=INFINITY)

    async def calls(self) -> list[ApiCall]:
        """The deletes of objects whose owner is gone."""
        now_s = self._now_s()
        ownerless = self._mirror.view.ownerless
        self._due = {
            uid: self._due.get(uid, now_s + FIRST_S)
            for uid, things in ownerless.items()
            if uid and any(_is_to_go(one) for one in things.values())
        }
        found: list[ApiCall] = []
        for uid in [uid for uid, due_s in self._due.items() if due_s <= now_s]:
            things = list(ownerless.get(uid, {}).values())
            self._due[uid] = now_s + AGAIN_S
            if things and await self._is_gone(things[0], uid):
                found += [call for one in things if _is_to_go(one) for call in deletes(one)]
        return found

    async def _is_gone(self, thing: Owned, uid: str) -> bool:
        meta = self._meta(thing)
        owner = None if meta is None else meta.controller
        if meta is None or owner is None or owner.uid != uid:
            return False
        if owner.kind not in (SET, GROUP, CLIQUE):
            return False
        try:
            found = await self._client.find(
                RESOURCES[owner.kind], meta.namespace, owner.name, Object
            )
        except NotLeader:
            raise
        except KubernetesError:
            return False
        return found is None or found.metadata.uid != uid

    def _meta(self, thing: Owned) -> Meta | None:
        cache = self._mirror.reflectors[thing.kind].cache
        namespace, _, short = thing.name.rpartition("/")
        found = cache.get(namespace or "default", short)
        return None if found is None else found.metadata


def _is_to_go(thing: Owned) -> bool:
    return not thing.terminating and thing.kind not in LEFT_TO_KUBERNETES
