"""A cluster whose read cache lags, whose creates show up late, and whose deletes take time.

Deletion is foreground: an owner stays until all that it owns is gone. Every pod and clique has a
finalizer besides, which somebody takes off some time after the deletion.
"""

from typing import Any

from tests.gangs.simulated import ApiServer, Watch
from tests.gangs.world import World
from windtunnel.gangs.controllers.controller import Controller
from windtunnel.gangs.objects import Pod, Thing
from windtunnel.gangs.view import View

FINALIZER = "test/hold"


class LaggingWorld(World):
    """`lag_s` until a write is seen by the controller, `hold_s` until a deletion may end."""

    def __init__(self, nodes: int, *manifests: dict[str, Any], lag_s: float, hold_s: float) -> None:
        self.lag_s, self.hold_s = lag_s, hold_s
        super().__init__(nodes, *manifests, server=ApiServer(foreground=True))
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
        for thing in [*self.view.pods.values(), *self.view.cliques.values()]:
            if not thing.terminating and not thing.finalizers:
                thing.finalizers = (FINALIZER,)
        for thing in self.held():
            if thing.deleted_s + self.hold_s <= self.now_s:
                self.server.take_off(thing, FINALIZER)
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
