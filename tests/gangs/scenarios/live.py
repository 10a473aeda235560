"""Sets on a simulated cluster with their controller: a node has room for exactly one pod."""

from collections.abc import Callable
from typing import Any

from tests.gangs.manifests import load, the_clique
from windtunnel.core.loop import Loop
from windtunnel.gangs.commands import Scale
from windtunnel.gangs.controllers.controller import Controller
from windtunnel.gangs.objects import CLIQUE, GROUP, SET, Node, Pod
from windtunnel.gangs.statuses import Condition
from windtunnel.twin.kubernetes.api_server import ApiServer
from windtunnel.twin.kubernetes.cluster import SimCluster
from windtunnel.twin.kubernetes.driver import Driver
from windtunnel.twin.kubernetes.times import PodTimes

QUICK = PodTimes(
    scheduling=0.1,
    image_pull=1.0,
    startup=1.0,
    readiness=1.0,
    ending=1.0,
)
SOON_S = 60.0
"""Long enough for everything but a termination delay of hours."""
MEMORY = 150.0 * 1024**2


class Live:
    """Manifests at work. Whatever is done is followed by a minute, unless it is said otherwise."""

    def __init__(
        self,
        *manifests: dict[str, Any],
        nodes: int = 10,
        usable: int | None = None,
        labels: Callable[[int], dict[str, str]] | None = None,
        pods_per_node: int = 1,
        times: PodTimes = QUICK,
        priorities: dict[str, int] | None = None,
        one_by_one: bool = False,
        seed: int = 0,
    ) -> None:
        self.manifests = [*manifests]
        self.server = ApiServer()
        view = self.server.view
        found = load(*manifests)
        view.levels.update(found.levels)
        view.priorities.update(priorities or {})
        self.cluster = SimCluster(self.server, times=times, one_by_one=one_by_one, seed=seed)
        self.view = view
        self.pods_per_node = pods_per_node
        self.grow(nodes, labels)
        for number in range(nodes - 1, nodes if usable is None else usable - 1, -1):
            self.cluster.cordon(f"n{number}", 0.0)
        for named in found.sets:
            self.server.add_set(named.name, named.spec, 0.0)
        self.driver = Driver(self.cluster, Controller, check=True)
        self.loop = Loop(self.driver)
        self.run()

    def grow(self, nodes: int, labels: Callable[[int], dict[str, str]] | None = None) -> None:
        """Adds nodes until there are so many."""
        now_s = self.now_s if hasattr(self, "loop") else 0.0
        for number in range(len(self.view.nodes), nodes):
            capacity = {"memory": MEMORY * self.pods_per_node}
            made = Node(f"n{number}", capacity, labels(number) if labels else {})
            self.cluster.add_node(made, now_s)

    @property
    def now_s(self) -> float:
        return self.loop.now_s

    def run(self, seconds: float = SOON_S) -> None:
        self.loop.wake()
        self.loop.run(self.now_s + seconds)

    # What is done.

    def add(self, count: int) -> None:
        """Uncordons so many nodes."""
        closed = [node.name for node in self.view.nodes.values() if node.cordoned]
        for name in closed[:count]:
            self.cluster.uncordon(name, self.now_s)
        assert len(closed) >= count
        self.run()

    def scale(self, name: str, replicas: int, seconds: float = SOON_S) -> None:
        kind = SET if name in self.view.sets else GROUP if name in self.view.groups else CLIQUE
        self.cluster.apply([Scale(kind, name, replicas)], self.now_s)
        self.run(seconds)

    def kill(self, pod: Pod, seconds: float = SOON_S, *, cordon: bool = True) -> None:
        """A pod is deleted; its node gets no other, so that it cannot simply come back."""
        if cordon:
            self.cluster.cordon(pod.node, self.now_s)
        self.cluster.delete_pod(pod.name, self.now_s)
        self.run(seconds)

    def change(self, *roles: int, image: str = "busybox:2", seconds: float = SOON_S) -> None:
        """Another image for some of the cliques of the first set."""
        for role in roles:
            the_clique(self.manifests[0], role)["spec"]["podSpec"]["containers"][0]["image"] = image
        self.apply(seconds)

    def apply(self, seconds: float = SOON_S) -> None:
        """The first manifest is applied again, as it is now."""
        named = load(*self.manifests).sets[0]
        self.server.change_spec(named.name, named.spec)
        self.run(seconds)

    # What is seen.

    def pods(self, clique: str = "") -> list[Pod]:
        """Pods that are not about to go, of all cliques whose name ends so, oldest first."""
        found = [
            pod for pod in self.view.pods.values() if pod.active and pod.clique.endswith(clique)
        ]
        return sorted(found, key=lambda pod: (pod.created_s, pod.clique, pod.index))

    @property
    def placed(self) -> int:
        return sum(pod.scheduled for pod in self.pods())

    @property
    def pending(self) -> int:
        return sum(not pod.scheduled for pod in self.pods())

    def ready(self, clique: str = "") -> int:
        return sum(pod.ready for pod in self.pods(clique))

    def uids(self, clique: str = "") -> set[str]:
        return {pod.uid for pod in self.pods(clique)}

    def ready_s(self, clique: str) -> list[float]:
        return sorted(pod.ready_s for pod in self.pods(clique))

    def images(self, clique: str = "") -> list[str]:
        specs: list[Any] = [pod.template.pod_spec for pod in self.pods(clique)]
        return sorted(spec["containers"][0]["image"] for spec in specs)

    def domains(self, key: str, clique: str = "") -> set[str]:
        return {self.view.nodes[pod.node].labels[key] for pod in self.pods(clique)}

    def condition(self, kind: str, name: str) -> Condition:
        view = self.view
        known: Any = view.cliques.get(name) or view.groups.get(name) or view.gangs.get(name)
        found: Condition = (known or view.sets[name]).conditions[kind]
        return found

    def told(self, reason: str) -> list[str]:
        return [event.name for event in self.view.events.values() if event.reason == reason]

    def why(self, gang: str) -> str:
        return self.view.gangs[gang].why_pending
