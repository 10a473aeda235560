"""A cluster whose read cache lags, whose creates show up late, and whose deletes take time.

Deletion is foreground: an owner stays until all that it owns is gone. Every pod and clique has a
finalizer besides, which somebody takes off some time after the deletion.
"""

from typing import Any

from tests.gangs.simulated import ApiServer, Watch
from tests.gangs.world import World
from windtunnel.gangs.controllers.controller import Controller
from windtunnel.gangs.objects import (
    Pod,
    PodCliqueSet,
    ScalingGroup,
    Thing,
)
from windtunnel.gangs.view import View

FINALIZER = "test/hold"


class ForegroundServer(ApiServer):
    """An owner that is deleted stays until all that it owns is gone, and so do finalizers."""

    def delete_pod(self, pod: Pod, now_s: float) -> None:
        if pod.finalizers and not pod.node and not pod.terminating:
            pod.deleted_s = now_s
            self.wrote(pod)
        else:
            super().delete_pod(pod, now_s)

    def remove_pod(self, pod: Pod) -> None:
        super().remove_pod(pod)
        self._finish(self.view.owner_of(pod))

    def delete(self, thing: Thing, now_s: float) -> None:
        if isinstance(thing, Pod):
            self.delete_pod(thing, now_s)
        elif not thing.terminating:
            leaving = thing.snapshot()
            leaving.deleted_s = now_s
            self.view.put(leaving)
            self.wrote(thing)
            for owned in thing.owned():
                self.delete(owned, now_s)
            self._finish(thing)

    def take_off(self, thing: Thing, finalizer: str) -> None:
        """Takes a finalizer off; what is being deleted and has none left is gone."""
        thing.finalizers = tuple(one for one in thing.finalizers if one != finalizer)
        if thing.terminating and not thing.finalizers:
            if isinstance(thing, Pod):
                if not thing.node:
                    self.remove_pod(thing)
                    return
            elif self._finish(thing):
                return
        self.wrote(thing)

    def _finish(self, thing: Thing | None) -> bool:
        """Removes an object that is being deleted, if nothing holds it; says whether it is gone."""
        if thing is None or not thing.terminating or thing.finalizers:
            return False
        if thing.owned() or self._owned_leaving(thing):
            return False
        if self.view.find(thing.kind, thing.name) is thing:
            self.view.remove(thing)
            self._finish(self.view.owner_of(thing))
        return True

    def _owned_leaving(self, thing: Thing) -> bool:
        """Whether something that it owns is being deleted."""
        if isinstance(thing, ScalingGroup):
            return any(one.owner_uid == thing.uid for one in self.view.cliques.values())
        if isinstance(thing, PodCliqueSet):
            kinds = (self.view.cliques, self.view.groups, self.view.gangs)
            return any(one.owner_uid == thing.uid for known in kinds for one in known.values())
        return False


class LaggingWorld(World):
    """`lag_s` until a write is seen by the controller, `hold_s` until a deletion may end."""

    def __init__(self, nodes: int, *manifests: dict[str, Any], lag_s: float, hold_s: float) -> None:
        self.lag_s, self.hold_s = lag_s, hold_s
        self.foreground = ForegroundServer()
        super().__init__(nodes, *manifests, server=self.foreground)
        self.controller.close()
        self._begin()

    def _begin(self) -> None:
        self.cache = View()
        self.watch = Watch(self.server, self.cache, self.lag_s)
        self.controller = Controller(self.cache)

    def crash(self) -> None:
        self.controller.close()
        self.watch.close()
        self._begin()

    def next_s(self) -> float:
        held = [thing.deleted_s + self.hold_s for thing in self.held()]
        return min([super().next_s(), self.watch.next_s(), *held])

    def held(self) -> list[Thing]:
        things: list[Thing] = [*self.view.pods.values(), *self.view.cliques.values()]
        return [one for one in things if one.terminating and one.finalizers]

    def round(self, most: int | None = None) -> int:
        things: list[Thing] = [*self.view.pods.values(), *self.view.cliques.values()]
        for thing in things:
            if not thing.terminating and not thing.finalizers:
                thing.finalizers = (FINALIZER,)
        for thing in self.held():
            if thing.deleted_s + self.hold_s <= self.now_s:
                self.foreground.take_off(thing, FINALIZER)
        self.watch.advance(self.now_s)
        return super().round(most)

    def kill(self, *pods: Pod, shut: bool = True) -> None:
        for pod in pods:
            if shut and pod.node:
                self.view.nodes[pod.node].cordoned = True
            self.server.delete_pod(pod, self.now_s)

    def _bury(self) -> int:
        ended = [pod for pod in self.view.pods.values() if pod.terminating and not pod.finalizers]
        for pod in ended:
            self.taken.pop(pod.node, None)
            self.server.remove_pod(pod)
        return len(ended)
