"""One cluster of a run: its gangs and their controller, its nodes and its servers."""

from typing import Final

from windtunnel.core.errors import InvariantBroken
from windtunnel.core.telemetry import Plain
from windtunnel.fleet.demand.cluster import ClusterDemand
from windtunnel.fleet.demand.demand import Demand
from windtunnel.fleet.demand.requests import MachineKind
from windtunnel.gangs import names
from windtunnel.gangs.controllers.controller import Controller
from windtunnel.gangs.objects import CLIQUE, GROUP, SET, Node, Pod
from windtunnel.gangs.placement.constraints import apart_by_host, node_terms
from windtunnel.gangs.scaling import scale
from windtunnel.gangs.view import View
from windtunnel.twin.fleet.meter import Levels
from windtunnel.twin.infrastructure.replicas import BackedReplicas, PoolBacking
from windtunnel.twin.kubernetes.cluster import SimCluster
from windtunnel.twin.kubernetes.driver import Driver
from windtunnel.twin.servers.lifecycle import Lifecycle

WAITING: Final = 0  # on no machine
STARTING: Final = 1
READY: Final = 2
ENDING: Final = 3
STEPS: Final = ("waiting", "starting", "ready", "ending")


class PodCounts:
    """Pods by stage, and the gangs with waiting pods; counting costs what has changed."""

    def __init__(self, view: View) -> None:
        self._view: Final = view
        self._changes: Final = view.watch()
        self._known: Final[dict[str, tuple[int, str]]] = {}  # by pod: its stage and its gang
        self._short: Final[dict[str, int]] = {}  # by gang: the number of its waiting pods
        self.counts: Final = [0] * len(STEPS)
        self.levels: Final = Levels()

    @property
    def gangs_waiting(self) -> int:
        return len(self._short)

    def look(self, now_s: float) -> None:
        """Processes the changes, and records the new counts."""
        changed = self._changes.pods
        if not changed:
            self._changes.clear()
            return
        for name in changed:
            self._drop(name)
            pod = self._view.pods.get(name)
            if pod is not None:
                self._add(name, step_of(pod), pod.gang)
        self._changes.clear()
        self.levels.note(now_s, [*self.counts, self.gangs_waiting])

    def _drop(self, name: str) -> None:
        step, gang = self._known.pop(name, (-1, ""))
        if step < 0:
            return
        self.counts[step] -= 1
        if step == WAITING:
            self._short[gang] -= 1
            if not self._short[gang]:
                del self._short[gang]

    def _add(self, name: str, step: int, gang: str) -> None:
        self._known[name] = (step, gang)
        self.counts[step] += 1
        if step == WAITING:
            self._short[gang] = self._short.get(gang, 0) + 1


def step_of(pod: Pod) -> int:
    if not pod.active:
        return ENDING
    if not pod.node:
        return WAITING
    return READY if pod.ready else STARTING


class ServingCluster:
    """Pods and nodes of one cluster."""

    def __init__(
        self,
        name: str,
        cluster: SimCluster,
        backings: list[PoolBacking],
        kinds: list[MachineKind],
        lifecycle: Lifecycle,
    ) -> None:
        self.name: Final = name
        self.cluster: Final = cluster
        self.driver: Final = Driver(cluster, Controller)
        self.units: Final = BackedReplicas(cluster, backings, lifecycle)
        self._demand: Final = ClusterDemand(cluster.view, kinds, name, node_terms, apart_by_host)
        self.pods: Final = PodCounts(cluster.view)

    def next_s(self) -> float:
        return min(self.driver.next_s(), self.units.next_s())

    def advance(self, now_s: float) -> None:
        self.driver.advance(now_s)

    # Scaling.

    def scale(self, backing: PoolBacking, replicas: int, now_s: float) -> int:
        """Requests a number of replicas of a pool; returns how many it will have.

        A gang has no size between zero and its minimum: a request for less than the minimum gets
        the minimum.
        """
        plan = backing.pods
        if plan.kind == SET:
            self._scale(SET, plan.set_name, replicas, now_s)
            return replicas
        parts = range(self.cluster.view.sets[plan.set_name].replicas)
        total = 0
        for place, part in enumerate(parts):
            share = replicas // len(parts) + (place < replicas % len(parts))
            kind = CLIQUE if plan.kind == CLIQUE else GROUP
            named = names.clique if kind == CLIQUE else names.group
            name = named(plan.set_name, part, plan.name)
            least = self._least(kind, name)
            wanted = max(share, least) if share else 0
            self._scale(kind, name, wanted, now_s)
            total += wanted
        return total

    def _least(self, kind: str, name: str) -> int:
        view = self.cluster.view
        found = view.cliques.get(name) if kind == CLIQUE else view.groups.get(name)
        if found is None:
            raise InvariantBroken(f"there is no {kind} {name} to be scaled")
        return found.min_available

    def _scale(self, kind: str, name: str, replicas: int, now_s: float) -> None:
        self.cluster.apply([scale(self.cluster.view, kind, name, replicas)], now_s)

    def crash(self, server: int, now_s: float) -> None:
        """Crashes the containers of a server's first started pod, which ends the server."""
        pods = self.units.by_server[server].pods
        started = [name for name in sorted(pods) if pods[name].started]
        for name in started[:1]:
            self.cluster.crash(pods[name], now_s)

    def crash_loop(self, server: int, now_s: float) -> str | None:
        """Lets all pods in the clique of a server's first pod crash after every start; returns the
        clique."""
        pods = self.units.by_server[server].pods
        for name in sorted(pods)[:1]:
            clique = pods[name].clique
            self.cluster.crash_loop(clique, now_s)
            return clique
        return None

    # Machines, for the fleet.

    def look(self, now_s: float) -> Demand:
        return self._demand.look(now_s)

    def unplaceable_pods(self) -> list[str]:
        """A note about pods that no kind of machine can ever take."""
        pods = [self.cluster.view.pods.get(name) for name in self._demand.demand.unplaceable]
        waiting = [pod.name for pod in pods if pod is not None and pod.active and not pod.node]
        if not waiting:
            return []
        who = f"{len(waiting)} pods" if len(waiting) > 1 else "1 pod"
        what = "no kind of machine has the resources, labels and tolerated taints that they need"
        return [f"{who} can never be placed ({', '.join(waiting[:3])}): {what}"]

    def hold(self, machine: str, row: str, rank: int) -> None:
        self._demand.demand.hold(machine, row, rank)

    def release(self, machine: str) -> None:
        self._demand.demand.release(machine)

    def asked_by(self, row: str) -> dict[str, Plain]:
        """The pool, gang and pod that a row of machines was requested for."""
        found = self._demand.demand.row(row)
        if found is None or found.pod is None:
            return {}
        pod = found.pod
        return {"pool": self.units.servers.pool_of(pod.name), "gang": pod.gang, "pod": pod.name}

    def join(self, node: Node, now_s: float) -> None:
        self.cluster.add_node(node, now_s)

    def empty(self, machine: str, now_s: float) -> None:
        self.cluster.drain(machine, now_s)

    def leave(self, machine: str, now_s: float) -> None:
        if machine in self.cluster.view.nodes:  # it may have been lost before it joined
            self.cluster.remove_node(machine, now_s)

    def is_empty(self, machine: str) -> bool:
        return self.cluster.is_empty(machine)

    def fail(self, machine: str, now_s: float) -> None:
        if machine in self.cluster.view.nodes:  # a machine in transit is not a node
            self.cluster.fail(machine, now_s)
