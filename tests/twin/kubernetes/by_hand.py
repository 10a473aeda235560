"""A cluster whose gangs are made by hand: no controller is at work."""

from typing import Any

from windtunnel.core.taints import taint_of
from windtunnel.gangs.commands import Create, CreatePod, PatchGang, Ungate
from windtunnel.gangs.objects import Node, Pod, PodClique, PodGang
from windtunnel.gangs.roster import roster_of
from windtunnel.gangs.templates import CliquePlace, CliqueTemplate, Pack, PodGroup, SetSpec
from windtunnel.twin.kubernetes.api_server import ApiServer
from windtunnel.twin.kubernetes.cluster import SimCluster
from windtunnel.twin.kubernetes.driver import Driver
from windtunnel.twin.kubernetes.times import PodTimes

QUICK = PodTimes(
    scheduling=0.0,
    image_pull=10.0,
    startup=1.0,
    readiness=5.0,
    ending=2.0,
)


def crash_after(driver: Driver, commands: int, now_s: float) -> int:
    """Carries out so many commands of a pass, then the controller crashes; how many it was."""
    wanted = driver.controller.reconcile(now_s)[:commands]
    driver.cluster.apply(wanted, now_s)
    driver.restart()
    return len(wanted)


def template(name: str, count: int, **pod_spec: Any) -> CliqueTemplate:
    """Pods that are asked every second whether they are ready."""
    pod_spec.setdefault("containers", [{"name": "main", "readinessProbe": {"periodSeconds": 1}}])
    return CliqueTemplate(name, count, count, pod_spec, {"gpu": 1.0}, f"hash-{name}")


class World:
    """A view with one set, to which gangs are added, and its cluster."""

    def __init__(
        self,
        nodes: int,
        gpus: int = 1,
        times: PodTimes = QUICK,
        taints: dict[int, str] | None = None,
        **options: Any,
    ) -> None:
        self.server = ApiServer()
        self.view = self.server.view
        self.cluster = SimCluster(self.server, times=times, **options)
        for number in range(nodes):
            labels = {"rack": f"r{number // 2}"}
            own = tuple(taint_of(text) for at, text in (taints or {}).items() if at == number)
            self.cluster.add_node(Node(f"n{number}", {"gpu": float(gpus)}, labels, own), 0.0)
        self.server.add_set("s", SetSpec(1, (template("a", 1),)), 0.0)

    def gang(
        self,
        name: str,
        count: int,
        now_s: float = 0.0,
        *,
        minimum: int = 0,
        priority: str = "",
        pack: Pack | None = None,
        after: tuple[tuple[str, int], ...] = (),
        **pod_spec: Any,
    ) -> PodClique:
        """A gang of one clique of the same name, all pods of which may be scheduled."""
        made = template(name, count, **pod_spec)
        clique = PodClique(name, CliquePlace("s", 0, name), made, count, after)
        gang = PodGang(name, "s", 0)
        gang.priority_class, gang.pack = priority, pack
        self.cluster.apply([Create(clique), Create(gang)], now_s)
        self.fill(clique, now_s, minimum=minimum or count)
        return clique

    def fill(self, clique: PodClique, now_s: float, *, minimum: int) -> None:
        """Makes the pods that the clique lacks, and lets all be scheduled."""
        taken = {pod.index for pod in clique.pods.values() if pod.active}
        missing = [index for index in range(clique.replicas) if index not in taken]
        self.cluster.apply([CreatePod(clique, index) for index in missing], now_s)
        group = PodGroup(clique.name, minimum)
        group.pods = roster_of(clique.pods)
        gates = [Ungate(pod) for pod in clique.pods.values() if pod.gates]
        self.cluster.apply(
            [PatchGang(self.cluster.view.gangs[clique.gang], (group,)), *gates], now_s
        )

    def run(self, until_s: float = float("inf")) -> float:
        """Lets everything happen that will by then; when the last of it did."""
        last_s = 0.0
        while self.cluster.next_s() <= until_s and self.cluster.next_s() < float("inf"):
            last_s = self.cluster.next_s()
            self.cluster.advance(last_s)
        return last_s

    def pods(self, clique: str) -> list[Pod]:
        return sorted(
            self.view.cliques[clique].pods.values(), key=lambda pod: (pod.created_s, pod.index)
        )

    def nodes(self, clique: str) -> list[str]:
        return sorted(pod.node for pod in self.pods(clique))

    def told(self, reason: str) -> list[str]:
        events = self.view.events.values()
        return [f"{event.name}: {event.message}" for event in events if event.reason == reason]
