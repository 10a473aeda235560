"""A cluster in a few lines: every node takes one pod, and all that can happen happens at once.

It is what the controllers are held to before there is anything finer: nodes are free or not, gangs
are admitted whole, pods start in their order and are ready as soon as they may.
"""

from collections.abc import Callable, Iterable
from typing import Any, Self

from tests.gangs.manifests import load
from tests.gangs.simulated import ApiServer
from windtunnel.gangs.commands import Command, Emit, PatchSpec, Scale
from windtunnel.gangs.controllers.controller import Controller
from windtunnel.gangs.controllers.startup import waits_for
from windtunnel.gangs.objects import CLIQUE, GROUP, RUNNING, SET, Node, Pod, PodGang
from windtunnel.gangs.statuses import ObjectEvent
from windtunnel.gangs.templates import PodGroup

MOST_ROUNDS = 1000


class World:
    """A view, its controller, and nodes."""

    def __init__(
        self,
        nodes: int,
        *manifests: dict[str, Any],
        gangs: bool = True,
        server: ApiServer | None = None,
    ) -> None:
        self.now_s = 0.0
        self.gangs = gangs
        """Whether the scheduler admits gangs whole, or takes one pod after the other."""
        self.server = ApiServer() if server is None else server
        self.view = self.server.view
        self.controller = Controller(self.view)
        self.commands: list[Command] = []
        self.ready_order: list[Pod] = []
        self.startable: Callable[[Pod], bool] = lambda _: True
        self.watching: list[Callable[[], None]] = []
        for number in range(nodes):
            self.server.add_node(Node(f"n{number}", {"pods": 1.0}, {}), 0.0)
        self.taken: dict[str, str] = {}
        found = load(*manifests) if manifests else None
        if found is not None:
            self.view.levels.update(found.levels)
            for one in found.sets:
                self.server.add_set(one.name, one.spec, 0.0)

    # What people do.

    def cordon(self, *names: str) -> None:
        for name in names:
            self.view.nodes[name].cordoned = True

    def cordon_all_but(self, count: int) -> None:
        """Leaves so many nodes open; the others take no new pod."""
        for number, node in enumerate(self.view.nodes.values()):
            node.cordoned = number >= count

    def open(self, more: int | None = None) -> None:
        """Opens some cordoned nodes, or all."""
        shut = [node for node in self.view.nodes.values() if node.cordoned]
        for node in shut[: len(shut) if more is None else more]:
            node.cordoned = False

    def close_free(self) -> None:
        """Cordons every node that has no pod."""
        for node in self.view.nodes.values():
            node.cordoned = node.cordoned or node.name not in self.taken

    def apply(self, manifest: dict[str, Any]) -> None:
        one = load(manifest).sets[0]
        self.server.apply(PatchSpec(one.name, one.spec), self.now_s)

    def scalable(self) -> list[tuple[str, str, int]]:
        """All that can be scaled of the set `web`: kind, name, and the fewest above zero."""
        parts = [part for _, part in sorted(self.view.sets["web"].parts.items())]
        found = [(SET, "web", 0)]
        for part in parts:
            found += [(GROUP, one.name, one.min_available) for one in part.groups.values()]
            found += [(CLIQUE, one.name, one.min_available) for one in part.cliques.values()]
        return found

    def scale(self, name: str, replicas: int) -> None:
        kind = SET if name in self.view.sets else GROUP if name in self.view.groups else CLIQUE
        self.server.apply(Scale(kind, name, replicas), self.now_s)

    def kill(self, *pods: Pod, shut: bool = True) -> None:
        """Deletes pods; `shut` cordons their nodes, so that nothing comes back there."""
        for pod in pods:
            if shut and pod.node:
                self.view.nodes[pod.node].cordoned = True
            self.server.delete_pod(pod, self.now_s)
            if pod.name in self.view.pods:
                self.taken.pop(pod.node, None)
                self.server.remove_pod(pod)

    # What happens.

    def run(self, seconds: float = 0.0) -> Self:
        """Lets time pass; whatever can happen in between happens."""
        end_s = self.now_s + seconds
        self._settle()
        while True:
            next_s = self.next_s()
            if next_s > end_s:
                break
            self.now_s = max(self.now_s, next_s)
            self._settle()
        self.now_s = max(self.now_s, end_s)
        self._settle()
        return self

    def next_s(self) -> float:
        """When something happens by itself."""
        return self.controller.next_s()

    def _settle(self) -> None:
        for _ in range(MOST_ROUNDS):
            if not self.round():
                return
        raise AssertionError("it never comes to rest")

    def round(self, most: int | None = None) -> int:
        """One pass of the controller, and what the cluster makes of it; how much happened."""
        count = self.reconcile(most) + self._bury() + self._schedule() + self._start()
        for look in self.watching:
            look()
        return count

    def reconcile(self, most: int | None = None) -> int:
        """One pass; only the first `most` of its commands are carried out."""
        commands = self.controller.reconcile(self.now_s)
        for command in commands[:most]:
            self.commands.append(command)
            if not self.server.apply(command, self.now_s):
                self.controller.refused(command)
        for command in commands[len(commands[:most]) :]:
            self.controller.refused(command)
        return len(commands[:most])

    def crash(self) -> None:
        """The controller is gone, with all that it kept; another takes over."""
        self.controller.close()
        self.controller = Controller(self.view)

    def _bury(self) -> int:
        ended = [pod for pod in self.view.pods.values() if pod.terminating]
        for pod in ended:
            self.taken.pop(pod.node, None)
            self.server.remove_pod(pod)
        return len(ended)

    def free(self) -> list[str]:
        return [
            node.name
            for node in self.view.nodes.values()
            if node.ready and not node.cordoned and node.name not in self.taken
        ]

    def _schedule(self) -> int:
        free, placed = self.free(), 0
        if not self.gangs:
            pending = [pod for pod in self.view.pods.values() if not pod.node and not pod.gated]
            return self._bind(pending, free)
        gangs = list(self.view.gangs.values())
        for gang in gangs:
            need = self._missing(gang)
            if need and sum(count for _, count in need) <= len(free):
                first = [pod for pods, count in need for pod in pods[:count]]
                placed += self._bind(first, free)
        for gang in gangs:
            if not self._missing(gang):
                placed += self._bind(self._pending(gang), free)
        return placed

    def _missing(self, gang: PodGang) -> list[tuple[list[Pod], int]]:
        """Of each pod group the pods that can come, and how many must; none when it is whole."""
        found, short = [], False
        for group in gang.groups:
            pods = self._listed(group)
            have = sum(1 for pod in pods if pod.node and pod.active)
            pending = [pod for pod in pods if not pod.node and not pod.gated]
            need = group.min_replicas - have
            if need > 0:
                short = True
                if len(pending) < need:
                    return [([], MOST_ROUNDS)]
                found.append((pending, need))
        return found if short else []

    def _pending(self, gang: PodGang) -> list[Pod]:
        pods = (pod for group in gang.groups for pod in self._listed(group))
        return [pod for pod in pods if not pod.node and not pod.gated]

    def _listed(self, group: PodGroup) -> list[Pod]:
        """In the order of their indices, whatever they are called."""
        found = [self.view.pods[name] for name in group.pods if name in self.view.pods]
        return sorted(found, key=lambda pod: (pod.index, pod.created_s))

    def _bind(self, pods: Iterable[Pod], free: list[str]) -> int:
        count = 0
        for pod in pods:
            if not free:
                break
            pod.node, pod.scheduled_s = free.pop(0), self.now_s
            self.taken[pod.node] = pod.name
            self.view.changed(pod)
            count += 1
        return count

    def _start(self) -> int:
        ready = [
            pod
            for pod in self.view.pods.values()
            if pod.node and not pod.ready and self.startable(pod) and not waits_for(self.view, pod)
        ]
        for pod in ready:
            pod.started = pod.ready = True
            pod.phase, pod.ready_s = RUNNING, self.now_s
            self.ready_order.append(pod)
            self.view.changed(pod)
        return len(ready)

    # What is seen.

    def pods(self, clique: str = "") -> list[Pod]:
        """The active pods whose clique's name contains this, in the order of their names."""
        found = [pod for pod in self.view.pods.values() if clique in pod.clique and pod.active]
        return sorted(found, key=lambda pod: (pod.clique, pod.index))

    def running(self, clique: str = "") -> int:
        return sum(1 for pod in self.pods(clique) if pod.ready)

    def pending(self) -> int:
        return sum(1 for pod in self.pods() if not pod.node)

    def uids(self, clique: str = "") -> set[str]:
        return {pod.uid for pod in self.pods(clique)}

    def events(self, reason: str) -> list[ObjectEvent]:
        return [event for event in self.view.events.values() if event.reason == reason]

    def told(self, reason: str) -> int:
        """How many commands wanted to tell this."""
        emitted = (command for command in self.commands if isinstance(command, Emit))
        return sum(1 for command in emitted if command.event.reason == reason)

    def condition(self, name: str, type: str = "MinAvailableBreached") -> tuple[str, str]:  # noqa: A002
        thing = self.view.groups.get(name) or self.view.cliques.get(name)
        assert thing is not None
        found = thing.conditions[type]
        return found.status, found.reason
