"""Updates the demand for machines from the objects of a cluster: nodes, pods, gangs, priorities.

The twin and the operator use the same class. It reads a view like that of the gang controllers
through the few attributes declared here, so that it depends on none of their code.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, Protocol

from windtunnel.core.errors import MALFORMED, InputError
from windtunnel.core.taints import Taint, Toleration, toleration_of
from windtunnel.fleet.demand.demand import Demand
from windtunnel.fleet.demand.requests import (
    CPU,
    GPU,
    MEMORY,
    TAINTS,
    MachineKind,
    NodeTerm,
    PodRequest,
    taints_text,
)
from windtunnel.fleet.requirements import OPERATORS, requirement

Fields = Mapping[str, object]
UNKNOWN: Final = {CPU: math.inf, GPU: math.inf, MEMORY: math.inf}
"""The requests of a pod that cannot be read: nothing else fits beside it."""


class NodeRequirement(Protocol):
    """A requirement of a pod on the labels of its node."""

    @property
    def key(self) -> str: ...
    @property
    def operator(self) -> str: ...
    @property
    def values(self) -> Sequence[str]: ...


TermsOf = Callable[[Fields], Sequence[Sequence[NodeRequirement]]]
"""Returns the terms of a pod spec's required node affinity, one of which must hold."""
ApartOf = Callable[[Any], tuple[str, ...]]
"""Returns the host anti-affinity names of a gang's pod."""


class ClusterNode(Protocol):
    @property
    def capacity(self) -> Mapping[str, float]: ...
    @property
    def labels(self) -> Mapping[str, str]: ...
    @property
    def taints(self) -> Sequence[Taint]: ...
    @property
    def ready(self) -> bool: ...
    @property
    def cordoned(self) -> bool: ...


class PodTemplate(Protocol):
    @property
    def pod_spec(self) -> Fields: ...


class GangPod(Protocol):
    @property
    def uid(self) -> str: ...
    @property
    def requests(self) -> dict[str, float]: ...
    @property
    def template(self) -> PodTemplate: ...
    @property
    def gang(self) -> str: ...
    @property
    def set_name(self) -> str: ...
    @property
    def created_s(self) -> float: ...
    @property
    def clique(self) -> str: ...
    @property
    def index(self) -> int: ...
    @property
    def node(self) -> str: ...
    @property
    def active(self) -> bool: ...
    @property
    def gated(self) -> bool: ...


class PackLimit(Protocol):
    @property
    def required(self) -> str: ...


class Packed(Protocol):
    """A gang or a part of it, with the label whose value its machines must share."""

    @property
    def pack(self) -> PackLimit | None: ...


class Gang(Packed, Protocol):
    @property
    def groups(self) -> Sequence[Packed]: ...
    @property
    def pack_groups(self) -> Sequence[Packed]: ...


class SetShape(Protocol):
    @property
    def priority_class(self) -> str: ...


class PodSet(Protocol):
    @property
    def spec(self) -> SetShape: ...


class ClusterChanges(Protocol):
    @property
    def sets(self) -> Iterable[str]: ...
    @property
    def gangs(self) -> Iterable[str]: ...
    @property
    def nodes(self) -> Iterable[str]: ...
    @property
    def pods(self) -> Iterable[str]: ...
    def clear(self) -> None: ...


class ClusterView(Protocol):
    """The objects of a cluster, and what has changed."""

    @property
    def sets(self) -> Mapping[str, PodSet]: ...
    @property
    def gangs(self) -> Mapping[str, Gang]: ...
    @property
    def nodes(self) -> Mapping[str, ClusterNode]: ...
    @property
    def pods(self) -> Mapping[str, GangPod]: ...
    @property
    def priorities(self) -> Mapping[str, int]: ...
    def watch(self) -> ClusterChanges: ...
    def unwatch(self, changes: Any) -> None: ...


class ClusterDemand:
    """Keeps a `Demand` up to date with the objects of one cluster, at the cost of the changes."""

    def __init__(
        self,
        view: ClusterView,
        kinds: list[MachineKind],
        cluster: str,
        terms_of: TermsOf,
        apart_of: ApartOf,
        asks: Callable[[str], bool] | None = None,
    ) -> None:
        self._view: Final = view
        self._terms_of: Final = terms_of
        self._apart_of: Final = apart_of
        self._asks: Final = asks
        """Whether machines are requested for a pod; None: for all. Other pods still take room."""
        self.changes: Final = view.watch()
        self._requests: Final[dict[str, PodRequest]] = {}  # by pod
        self._daemons: Final[dict[str, dict[str, dict[str, float]]]] = {}  # by node and pod
        self.demand: Final = Demand(cluster, kinds)
        self.unreadable: Final[dict[str, str]] = {}
        """By pod: why no machine is requested for it."""
        self._others: Final[dict[str, None]] = {}  # pods that the driver reports, not the view

    def close(self) -> None:
        """Stops following the view."""
        self._view.unwatch(self.changes)

    def look(self, now_s: float) -> Demand:
        """Returns the current demand of the cluster."""
        view, changes, demand = self._view, self.changes, self.demand
        for name in changes.sets:
            found = view.sets.get(name)
            priority = found.spec.priority_class if found is not None else ""
            demand.prioritize(name, view.priorities.get(priority, 0))
        for name in changes.gangs:
            gang = view.gangs.get(name)
            demand.gang(name, "" if gang is None else together(gang))
        for name in changes.nodes:
            self._node(name)
        for name in changes.pods:
            if name not in self._others:
                self._pod(name, view.pods.get(name))
        changes.clear()
        demand.look(now_s)
        return demand

    def other_pod(
        self,
        name: str,
        uid: str,
        spec: Fields,
        requests: dict[str, float] | None,
        created_s: float,
    ) -> PodRequest:
        """The request of a pod outside the view, which the driver reports to `demand`.

        Without `requests` its size is unknown: it fills its node, and no machine is requested for
        it.
        """
        self._others[name] = None
        known = self._requests.get(name)
        if known is None or known.uid != uid:
            affinity, tolerations = self._rules(name, spec)
            known = self._requests[name] = PodRequest(
                name,
                uid,
                UNKNOWN if requests is None else requests,
                selector_of(spec),
                owner=name,
                created_s=created_s,
                place=(name, 0),
                affinity=affinity,
                tolerations=tolerations,
            )
            if requests is None:
                self.unreadable[name] = "its requests cannot be read"
        return known

    def pod_in_view(self, name: str) -> None:
        """Switches a pod to the view's data, if it was reported as another pod until now."""
        if name in self._others:
            self.forget(name)
            self._pod(name, self._view.pods.get(name))

    def _rules(
        self, name: str, spec: Fields
    ) -> tuple[tuple[NodeTerm, ...], tuple[Toleration, ...]]:
        self.unreadable.pop(name, None)
        try:
            return affinity_of(spec, self._terms_of), tolerations_of(spec)
        except (InputError, *MALFORMED) as error:
            self.unreadable[name] = str(error)
            return (), ()

    def _apart(self, name: str, pod: GangPod) -> tuple[str, ...]:
        try:
            return self._apart_of(pod)
        except (InputError, *MALFORMED) as error:
            self.unreadable[name] = str(error)
            return ()

    def asks(self, name: str) -> bool:
        """Whether machines are requested for a pod while it has none."""
        return name not in self.unreadable and (self._asks is None or self._asks(name))

    def forget(self, name: str) -> None:
        """Removes a pod that is gone."""
        self._others.pop(name, None)
        self._requests.pop(name, None)
        self.unreadable.pop(name, None)
        self.demand.pod_gone(name)

    def daemon(self, name: str, node: str, requests: dict[str, float] | None) -> None:
        """Sets the room of a DaemonSet's pod, which keeps no machine in use; None: it is gone."""
        there = self._daemons.setdefault(node, {})
        if requests is None:
            there.pop(name, None)
        else:
            there[name] = requests
        self._node(node)

    def _node(self, name: str) -> None:
        node = self._view.nodes.get(name)
        if node is None:
            self.demand.node_gone(name)
            return
        capacity = node.capacity
        daemons = self._daemons.get(name)
        if daemons:
            capacity = dict(capacity)
            for requests in daemons.values():
                for resource, amount in requests.items():
                    capacity[resource] = capacity.get(resource, 0.0) - amount
        labels, taints = node.labels, taints_text(node.taints)
        if taints:
            labels = {**labels, TAINTS: taints}
        self.demand.node(name, capacity, labels, ready=node.ready, cordoned=node.cordoned)

    def _pod(self, name: str, pod: GangPod | None) -> None:
        if pod is None:
            self.forget(name)
            return
        known = self._requests.get(name)
        if known is None or known.uid != pod.uid:
            spec = pod.template.pod_spec
            known = self._requests[name] = PodRequest(
                name,
                pod.uid,
                pod.requests,
                selector_of(spec),
                pod.gang,
                pod.set_name,
                pod.created_s,
                (pod.clique, pod.index),
                *self._rules(name, spec),
                self._apart(name, pod),
            )
        pending = pod.active and not pod.node and self.asks(name)
        self.demand.pod(known, pod.node, pending=pending, gated=pod.gated)


def selector_of(spec: Fields) -> dict[str, str]:
    """The labels that a pod's node must have."""
    wanted = spec.get("nodeSelector")
    if not isinstance(wanted, dict):
        return {}
    return {str(key): str(value) for key, value in wanted.items()}


def affinity_of(spec: Fields, terms_of: TermsOf) -> tuple[NodeTerm, ...]:
    """The terms of a pod's required node affinity, without Gt and Lt: no machine has them."""
    return tuple(
        tuple(
            requirement(one.key, one.operator, one.values)
            for one in term
            if one.operator in OPERATORS
        )
        for term in terms_of(spec)
    )


def tolerations_of(spec: Fields) -> tuple[Toleration, ...]:
    """The tolerations of a pod."""
    found = spec.get("tolerations")
    if found is None:
        return ()
    if not isinstance(found, list) or not all(isinstance(one, Mapping) for one in found):
        raise InputError("tolerations are not a list of mappings", where="tolerations")
    return tuple(toleration_of(one) for one in found)


def together(gang: Gang) -> str:
    """The label whose value the machines of a gang must share; empty: none."""
    packs = [one.pack for one in (gang, *gang.pack_groups, *gang.groups)]
    return next((pack.required for pack in packs if pack is not None and pack.required), "")
