"""From pods to servers: which pods form one server, and what happens to it when they change.

A server is requested once its pods exist, loads once they are on nodes, and serves once they are
ready. When one of its pods is terminated, the server drains, and its pods end once it has no
requests left or their grace period is over. When one dies, the server and its requests are lost;
the next server of the same pods is a new one.

`ServerPods` follows the pods of a cluster; `PodUnit.next_move` decides one step at a time. A driver
executes each step and asks again until there is none.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from windtunnel.gangs import names
from windtunnel.gangs.objects import CLIQUE, GANG, GROUP, SET, Node, Pod
from windtunnel.gangs.templates import SetSpec
from windtunnel.gangs.view import View

NO_SERVER: Final = -1
PENDING: Final = 0  # requested, but not on a node yet
STARTING: Final = 1  # placed, and loading the model
READY: Final = 2
DRAINING: Final = 3  # gets no new requests, and finishes its own
GONE: Final = 4

ASK: Final = "ask"
LOAD: Final = "load"
SERVE: Final = "serve"
DRAIN: Final = "drain"
LOSE: Final = "lose"
FORGET: Final = "forget"
DROP: Final = "drop"

NO_GRACE_LEFT: Final = "its grace period ended"
POD_DIED: Final = "one of its pods failed"
POD_MOVED: Final = "one of its pods is replaced"
MACHINE_LOST: Final = "its machine was lost"
MACHINE_TAKEN: Final = "its machine was removed before it had drained"
PODS_ENDING: Final = "its pods are being terminated"
NOT_WANTED: Final = ""
"""For a pending server without pods: the reason is that of the pool's latest resize."""

GRACE_S: Final = 30.0
"""The default grace period of a pod."""

ALONE: Final = -1
"""Replaces the group replica in slots of cliques that belong to no group."""

Slot = tuple[str, int]
"""A role and its replica of the scaling group, or `ALONE`."""


def slots_of(spec: SetSpec, kind: str, name: str) -> dict[Slot, int]:
    """Returns how many pods of each role one replica needs to serve; groups count as replica 0."""
    if kind == CLIQUE:
        return {(name, ALONE): 1}
    if kind == GROUP:
        group = next(one for one in spec.groups if one.name == name)
        return {(role, 0): spec.roles[role].min_available for role in group.roles}
    slots = {(role.name, ALONE): role.min_available for role in spec.alone}
    for group in spec.groups:
        for number in range(group.min_available):
            for role in group.roles:
                slots[role, number] = spec.roles[role].min_available
    return slots


@dataclass
class PoolPods:
    """The pods that form a pool's servers: of a clique, of scaling group replicas, or of a set."""

    pool: str
    set_name: str
    kind: str
    name: str
    slots: dict[Slot, int]

    def key_of(self, pod: Pod) -> str | None:
        """Returns the unit that a pod belongs to; None if it does not belong to this pool."""
        if pod.set_name != self.set_name:
            return None
        if self.kind == SET:
            return f"{pod.set_name}-{pod.replica}"
        if self.kind == GROUP:
            of_group = pod.group == names.group(pod.set_name, pod.replica, self.name)
            return f"{pod.group}-{pod.group_replica}" if of_group else None
        alone = not pod.group and pod.template.name == self.name
        return pod.name if alone else None

    def slot_of(self, pod: Pod) -> Slot:
        if self.kind == CLIQUE or not pod.group:
            return (pod.template.name, ALONE)
        return (pod.template.name, 0 if self.kind == GROUP else pod.group_replica)


@dataclass
class ServerMove:
    """One step of a server, and why."""

    kind: str
    why: str = ""


class PodUnit:
    """The pods that form one server."""

    def __init__(self, key: str, of: PoolPods, nodes: Mapping[str, Node]) -> None:
        self.key: Final = key
        self.of: Final = of
        self.pods: Final[dict[str, Pod]] = {}
        self._nodes: Final = nodes

    def next_move(self, state: int) -> ServerMove | None:
        """Returns the next step for a server in this state; None if it matches its pods."""
        if state == GONE:
            return ServerMove(FORGET)
        if state == READY:
            return None if self.can_serve() else self._stop()
        if state == DRAINING:
            return ServerMove(LOSE, MACHINE_LOST) if self.is_dead() else None
        active = any(pod.active for pod in self.pods.values())
        if state == NO_SERVER:
            return ServerMove(ASK) if active else None if self.pods else ServerMove(DROP)
        if state == PENDING:
            if not active:
                return ServerMove(DRAIN, NOT_WANTED)
            return ServerMove(LOAD) if self._has(self._alive()) else None
        assert state == STARTING, state
        if not self._has(self._alive()):
            return ServerMove(LOSE, self._why())
        return ServerMove(SERVE) if self.can_serve() else None

    def _stop(self) -> ServerMove:
        """Stops a server that lost a pod: it drains if its pods are terminating, otherwise it is
        lost."""
        if self.is_lost():
            return ServerMove(LOSE, self._why())
        ending = sum(pod.terminating for pod in self.pods.values())
        return ServerMove(DRAIN, PODS_ENDING if ending == len(self.pods) else POD_MOVED)

    def can_serve(self) -> bool:
        """Whether enough of its pods are ready, on working nodes."""
        return self._has([pod for pod in self._alive() if pod.ready])

    def is_lost(self) -> bool:
        """Whether a server that lacks a pod is dead, rather than asked to end."""
        ending = any(pod.terminating for pod in self.pods.values())
        others = any(pod.active and not pod.ready for pod in self.pods.values())
        return not ending or others or self.is_dead()

    def is_dead(self) -> bool:
        """Whether one of its machines has failed."""
        return any(pod.node and not self._is_up(pod.node) for pod in self.pods.values())

    def over_s(self) -> float:
        """Returns when the first grace period of its terminating pods is over."""
        ending = [pod for pod in self.pods.values() if pod.terminating]
        return min(pod.deleted_s + grace_s(pod) for pod in ending)

    def released(self) -> list[str]:
        """Returns the pods that waited for the server to finish and may end now that it is gone."""
        return [
            name for name, pod in self.pods.items() if pod.terminating and self._is_up(pod.node)
        ]

    def _is_up(self, node: str) -> bool:
        found = self._nodes.get(node)
        return found is not None and found.ready

    def _alive(self) -> list[Pod]:
        active = [pod for pod in self.pods.values() if pod.active and pod.node]
        return [pod for pod in active if self._is_up(pod.node)]

    def _has(self, pods: list[Pod]) -> bool:
        """Whether these pods suffice to serve."""
        counts: dict[Slot, int] = {}
        for pod in pods:
            slot = self.of.slot_of(pod)
            counts[slot] = counts.get(slot, 0) + 1
        return all(counts.get(slot, 0) >= least for slot, least in self.of.slots.items())

    def _why(self) -> str:
        if self.is_dead():
            return MACHINE_LOST
        if not self.pods:
            return MACHINE_TAKEN
        ending = any(pod.terminating for pod in self.pods.values())
        return PODS_ENDING if ending else POD_DIED


class ServerPods:
    """The units of one cluster, updated at the cost of what changed."""

    def __init__(self, view: View, pools: Iterable[PoolPods]) -> None:
        self._view: Final = view
        self._changes: Final = view.watch()
        self._by_set: Final[dict[str, list[PoolPods]]] = {}
        for pool in pools:
            self._by_set.setdefault(pool.set_name, []).append(pool)
        self.units: Final[dict[str, PodUnit]] = {}
        self._by_pod: Final[dict[str, PodUnit]] = {}
        self._node_of: Final[dict[str, str]] = {}  # by pod
        self._on: Final[dict[str, dict[str, None]]] = {}  # by node: pods
        self._pools: Final[dict[tuple[str, str], dict[str, int]]] = {}
        """The number of pods by pool, for each owner, given by kind and name."""

    def changed(self) -> dict[str, PodUnit] | None:
        """Returns the units whose pods or machines changed since the last call; None if nothing
        changed."""
        changes = self._changes
        if not (changes.pods or changes.nodes):
            return None
        touched: dict[str, PodUnit] = {}
        for name in changes.nodes:
            for pod in self._on.get(name, {}):
                unit = self._by_pod[pod]
                touched[unit.key] = unit
        for name in changes.pods:
            followed = self._follow(name)
            if followed is not None:
                touched[followed.key] = followed
        changes.clear()
        return touched

    def unit_of(self, pod: str) -> PodUnit | None:
        return self._by_pod.get(pod)

    def drop(self, unit: PodUnit) -> None:
        """Drops a unit that has neither pods nor a server."""
        del self.units[unit.key]

    def pool_of(self, name: str) -> str:
        """Returns the pool that a pod belongs to; empty if it belongs to none, or is gone."""
        pod = self._view.pods.get(name)
        pools = [] if pod is None else self._by_set.get(pod.set_name, [])
        found = (one.pool for one in pools if pod is not None and one.key_of(pod) is not None)
        return next(found, "")

    def pools_of(self, kind: str, name: str) -> list[str]:
        """Returns the pools that the pods of a gang, a clique, a group or a set belong to."""
        return list(self._pools.get((kind, name), {}))

    def _follow(self, name: str) -> PodUnit | None:
        """Adds a pod to its unit, or removes it once it is gone."""
        unit = self._by_pod.get(name)
        pod = self._view.pods.get(name)
        if pod is None:
            if unit is not None:
                self._count(unit.pods[name], unit.of.pool, -1)
                self._move_to(name, "")
                del self._by_pod[name]
                del unit.pods[name]
            return unit
        if unit is None:
            for pool in self._by_set.get(pod.set_name, ()):
                key = pool.key_of(pod)
                if key is not None:
                    unit = self.units.get(key)
                    if unit is None:
                        unit = self.units[key] = PodUnit(key, pool, self._view.nodes)
                    unit.pods[name] = pod
                    self._by_pod[name] = unit
                    self._count(pod, pool.pool, 1)
                    break
        if unit is not None:
            self._move_to(name, pod.node)
        return unit

    def _move_to(self, pod: str, node: str) -> None:
        before = self._node_of.get(pod, "")
        if before == node:
            return
        if before:
            del self._on[before][pod]
            del self._node_of[pod]
        if node:
            self._on.setdefault(node, {})[pod] = None
            self._node_of[pod] = node

    def _count(self, pod: Pod, pool: str, by: int) -> None:
        owners = ((GANG, pod.gang), (CLIQUE, pod.clique), (GROUP, pod.group), (SET, pod.set_name))
        for owner in owners:
            counts = self._pools.setdefault(owner, {})
            counts[pool] = counts.get(pool, 0) + by
            if not counts[pool]:
                del counts[pool]
                if not counts:
                    del self._pools[owner]


def grace_s(pod: Pod) -> float:
    """Returns how long a terminating pod may take."""
    found = pod.template.pod_spec.get("terminationGracePeriodSeconds")
    return float(found) if isinstance(found, int | float) else GRACE_S
