"""From pods to servers: which pods a replica is, and what becomes of it when they change.

A replica is asked for when its pods are there, loads when they are on machines, serves when they
are ready. When one of them is told to end, the replica drains, and its pods end once it has no
requests left or their grace is over. When one dies, the replica is lost with what it was doing; the
next one of the same pods is another replica.
"""

from collections.abc import Iterable
from typing import Final

from windtunnel.core.errors import InvariantBroken
from windtunnel.gangs import names
from windtunnel.gangs.objects import CLIQUE, GROUP, SET, Pod
from windtunnel.twin.ground.asks import ALONE, Slot
from windtunnel.twin.kubernetes.cluster import SimCluster
from windtunnel.twin.lifecycle import Lifecycle
from windtunnel.twin.replicas import DRAINING, GONE, PENDING, READY, STARTING, Pool, Replica
from windtunnel.twin.scenario.ground_plan import BackingPlan

NO_GRACE_LEFT: Final = "its grace period was over"
POD_DIED: Final = "a pod of it died"
POD_MOVED: Final = "a pod of it is to be replaced"
MACHINE_LOST: Final = "its machine was lost"
MACHINE_TAKEN: Final = "its machine left before it was done"
PODS_ENDING: Final = "its pods are to end"


class Backing:
    """What the replicas of one pool are."""

    def __init__(self, plan: BackingPlan, pool: Pool, slots: dict[Slot, int]) -> None:
        self.plan: Final = plan
        self.pool: Final = pool
        self.slots: Final = slots
        self.reason = "the run begins"
        """Why its size was last changed."""

    def key_of(self, pod: Pod) -> str | None:
        """The unit that a pod is a part of; None: of nothing that is this pool's."""
        plan = self.plan
        if pod.set_name != plan.set_name:
            return None
        if plan.kind == SET:
            return f"{pod.set_name}-{pod.replica}"
        if plan.kind == GROUP:
            of_group = pod.group == names.group(pod.set_name, pod.replica, plan.name)
            return f"{pod.group}-{pod.group_replica}" if of_group else None
        alone = not pod.group and pod.template.name == plan.name
        return pod.name if alone else None

    def slot_of(self, pod: Pod) -> Slot:
        if self.plan.kind == CLIQUE or not pod.group:
            return (pod.template.name, ALONE)
        return (pod.template.name, 0 if self.plan.kind == GROUP else pod.group_replica)


class Unit:
    """Pods that are one server together."""

    def __init__(self, key: str, backing: Backing) -> None:
        self.key: Final = key
        self.backing: Final = backing
        self.pods: Final[dict[str, Pod]] = {}
        self.replica: Replica | None = None

    def has(self, pods: list[Pod]) -> bool:
        """Whether these are enough to serve."""
        counts: dict[Slot, int] = {}
        for pod in pods:
            slot = self.backing.slot_of(pod)
            counts[slot] = counts.get(slot, 0) + 1
        return all(counts.get(slot, 0) >= least for slot, least in self.backing.slots.items())


class Units:
    """The units of one cluster."""

    def __init__(self, cluster: SimCluster, backings: list[Backing], lifecycle: Lifecycle) -> None:
        self._cluster: Final = cluster
        self._view: Final = cluster.view
        self._changes: Final = cluster.view.watch()
        self._backings: Final = backings
        self._lifecycle: Final = lifecycle
        self._by_pod: Final[dict[str, Unit]] = {}
        self.units: Final[dict[str, Unit]] = {}
        self.by_server: Final[dict[int, Unit]] = {}
        self.deadlines: Final[list[tuple[float, str]]] = []
        """When the grace of a unit that drains is over, the earliest first."""
        self._asking: Unit | None = None  # whose replica is being asked for
        cluster.holds = self._serves

    def look(self, now_s: float, offset_s: float) -> bool:
        """Follows what changed of pods and machines; whether there was anything."""
        changes = self._changes
        if not (changes.pods or changes.nodes):
            return False
        touched: dict[str, Unit] = {}
        for name in changes.nodes:
            for unit in self._on(name):
                touched[unit.key] = unit
        for name in changes.pods:
            followed = self._follow(name)
            if followed is not None:
                touched[followed.key] = followed
        changes.clear()
        self._lifecycle.shun(self._doomed(touched.values()))
        for unit in touched.values():
            self._move(unit, now_s, offset_s)
        return True

    def _serves(self, pod: Pod) -> bool:
        """Whether a server has to be done before a pod may end."""
        unit = self._by_pod.get(pod.name)
        return (
            unit is not None
            and unit.replica is not None
            and unit.replica.state in (READY, DRAINING)
        )

    def _on(self, node: str) -> list[Unit]:
        found = [pod for pod in self._view.pods.values() if pod.node == node]
        return [self._by_pod[pod.name] for pod in found if pod.name in self._by_pod]

    def _follow(self, name: str) -> Unit | None:
        """Puts a pod with its unit, or takes it out once it is gone."""
        unit = self._by_pod.get(name)
        pod = self._view.pods.get(name)
        if pod is None:
            if unit is not None:
                del self._by_pod[name]
                del unit.pods[name]
            return unit
        if unit is None:
            for backing in self._backings:
                key = backing.key_of(pod)
                if key is not None:
                    unit = self.units.get(key)
                    if unit is None:
                        unit = self.units[key] = Unit(key, backing)
                    unit.pods[name] = pod
                    self._by_pod[name] = unit
                    break
        return unit

    def _move(self, unit: Unit, now_s: float, offset_s: float) -> None:
        """Brings a replica to where its pods are."""
        active = [pod for pod in unit.pods.values() if pod.active]
        alive = [pod for pod in active if pod.node and self._view.nodes[pod.node].ready]
        replica = unit.replica
        if replica is not None and replica.state == READY:
            if not unit.has(self._ready_pods(unit)):
                self._stop(unit, replica, now_s)
        elif replica is not None and replica.state == STARTING and not unit.has(alive):
            self._lifecycle.lose(replica, now_s, self._why(unit))
        elif replica is not None and replica.state == DRAINING and self._is_dead(unit):
            self._lifecycle.lose(replica, now_s, MACHINE_LOST)
        replica = unit.replica
        if replica is not None and replica.state == GONE:
            self._forget(unit, replica, now_s + offset_s)
            replica = None
        if replica is not None and replica.state == PENDING and not active:
            self._lifecycle.drain(replica, now_s, unit.backing.reason)
            self._forget(unit, replica, now_s + offset_s)
            replica = None
        if replica is None and active:
            self._asking = unit
            replica = self._lifecycle.ask(unit.backing.pool, now_s, unit.backing.reason)
            self._asking = None
            unit.replica = replica
            self.by_server[int(replica.server.index)] = unit
        if replica is not None and replica.state == PENDING and unit.has(alive):
            self._lifecycle.begin_loading(replica, now_s, "placed")
        ready = [pod for pod in alive if pod.ready]
        if replica is not None and replica.state == STARTING and unit.has(ready):
            self._lifecycle.ready(replica, now_s)
        if not unit.pods and replica is None:
            del self.units[unit.key]

    def _stop(self, unit: Unit, replica: Replica, now_s: float) -> None:
        """A server lost a pod: by an order it may finish what it does, else it is dead."""
        if self._is_lost(unit):
            self._lifecycle.lose(replica, now_s, self._why(unit))
            return
        ending = [pod for pod in unit.pods.values() if pod.terminating]
        why = PODS_ENDING if len(ending) == len(unit.pods) else POD_MOVED
        self._lifecycle.drain(replica, now_s, why)
        if replica.state == DRAINING:
            over_s = min(pod.deleted_s + grace_s(pod) for pod in ending)
            self.deadlines.append((over_s, unit.key))
            self.deadlines.sort()

    def _doomed(self, units: Iterable[Unit]) -> list[Replica]:
        """Servers that end now, with all that is on them."""
        return [
            unit.replica
            for unit in units
            if unit.replica is not None
            and unit.replica.state == READY
            and not unit.has(self._ready_pods(unit))
            and self._is_lost(unit)
        ]

    def _ready_pods(self, unit: Unit) -> list[Pod]:
        nodes = self._view.nodes
        active = [pod for pod in unit.pods.values() if pod.active and pod.ready]
        return [pod for pod in active if pod.node and nodes[pod.node].ready]

    def _is_lost(self, unit: Unit) -> bool:
        """Whether a server that lacks a pod is dead, and has not been told to end."""
        ending = any(pod.terminating for pod in unit.pods.values())
        others = any(pod.active and not pod.ready for pod in unit.pods.values())
        return not ending or others or self._is_dead(unit)

    def _is_dead(self, unit: Unit) -> bool:
        """Whether a machine that it is on has stopped."""
        nodes = self._view.nodes
        return any(pod.node and not nodes[pod.node].ready for pod in unit.pods.values())

    def _why(self, unit: Unit) -> str:
        if self._is_dead(unit):
            return MACHINE_LOST
        if not unit.pods:
            return MACHINE_TAKEN
        ending = any(pod.terminating for pod in unit.pods.values())
        return PODS_ENDING if ending else POD_DIED

    def _forget(self, unit: Unit, replica: Replica, ground_s: float) -> None:
        """The replica of a unit is gone: pods that waited for it may end."""
        del self.by_server[int(replica.server.index)]
        unit.replica = None
        for name, pod in list(unit.pods.items()):
            if pod.terminating and self._view.nodes[pod.node].ready:
                self._cluster.unstick(name, ground_s)

    def buried(self, server: int, now_s: float, offset_s: float) -> None:
        """A server has nothing left to do and is gone."""
        unit = self.by_server.get(server)
        if unit is not None:
            self._move(unit, now_s, offset_s)

    def overdue(self, now_s: float, offset_s: float) -> None:
        """Kills servers whose grace is over."""
        while self.deadlines and self.deadlines[0][0] <= now_s + offset_s:
            unit = self.units.get(self.deadlines.pop(0)[1])
            if unit is None or unit.replica is None or unit.replica.state != DRAINING:
                continue
            self._lifecycle.lose(unit.replica, now_s, NO_GRACE_LEFT)
            self._move(unit, now_s, offset_s)

    def unit_of(self, server: int) -> Unit | None:
        """What a server stands on; while one is asked for, whose it will be."""
        return self.by_server.get(server, self._asking)

    def pool_of(self, name: str) -> str:
        """The pool that a pod is a part of; empty for one that is nobody's, or gone."""
        pod = self._view.pods.get(name)
        if pod is None:
            return ""
        found = (one for one in self._backings if one.key_of(pod) is not None)
        return next((one.pool.name for one in found), "")

    def check(self) -> str | None:
        """What is wrong with the books, as a sentence."""
        for unit in self.units.values():
            replica = unit.replica
            if replica is None:
                continue
            if replica.state == READY:
                ready = [pod for pod in unit.pods.values() if pod.active and pod.ready]
                if not unit.has([pod for pod in ready if self._view.nodes[pod.node].ready]):
                    return f"{unit.key} serves, and its pods are not all ready"
            if replica.state == GONE:
                return f"{unit.key} is gone, and nobody took note"
        return None


def grace_s(pod: Pod) -> float:
    found = pod.template.pod_spec.get("terminationGracePeriodSeconds")
    if not isinstance(found, int | float):
        raise InvariantBroken(f"the pod {pod.name} has no grace period")
    return float(found)
