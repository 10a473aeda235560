"""Feeds the demand for machines from a simulated cluster: its nodes, pods, gangs and priorities."""

from typing import Final

from windtunnel.fleet.demand import Demand, MachineKind, NodeTerm, PodRequest
from windtunnel.fleet.requirements import OPERATORS, requirement
from windtunnel.gangs.objects import Node, Pod, PodGang
from windtunnel.gangs.placement.constraints import NODE_NAME
from windtunnel.gangs.placement.constraints import selector_of as selector_of_spec
from windtunnel.gangs.view import View


class ClusterDemand:
    """Keeps a `Demand` up to date with the objects of one cluster, at the cost of what changed."""

    def __init__(self, view: View, kinds: list[MachineKind], cluster: str) -> None:
        self._view: Final = view
        self._changes: Final = view.watch()
        self._requests: Final[dict[str, PodRequest]] = {}  # by pod
        self.demand: Final = Demand(cluster, kinds)

    def look(self, now_s: float) -> Demand:
        """The demand of the cluster as it is now."""
        view, changes, demand = self._view, self._changes, self.demand
        for name in changes.sets:
            found = view.sets.get(name)
            priority = found.spec.priority_class if found is not None else ""
            demand.prioritize(name, view.priorities.get(priority, 0))
        for name in changes.gangs:
            gang = view.gangs.get(name)
            demand.gang(name, "" if gang is None else together(gang))
        for name in changes.nodes:
            self._node(name, view.nodes.get(name))
        for name in changes.pods:
            self._pod(name, view.pods.get(name))
        changes.clear()
        demand.look(now_s)
        return demand

    def _node(self, name: str, node: Node | None) -> None:
        if node is None:
            self.demand.node_gone(name)
        else:
            self.demand.node(
                name, node.capacity, node.labels, ready=node.ready, cordoned=node.cordoned
            )

    def _pod(self, name: str, pod: Pod | None) -> None:
        if pod is None:
            self._requests.pop(name, None)
            self.demand.pod_gone(name)
            return
        known = self._requests.get(name)
        if known is None or known.uid != pod.uid:
            known = self._requests[name] = PodRequest(
                name,
                pod.uid,
                pod.requests,
                selector_of(pod),
                pod.gang,
                pod.set_name,
                pod.created_s,
                (pod.clique, pod.index),
                affinity_of(pod),
            )
        pending = pod.active and not pod.node
        self.demand.pod(known, pod.node, pending=pending, gated=pod.gated)


def selector_of(pod: Pod) -> dict[str, str]:
    """The labels that a pod wants its node to have."""
    wanted = pod.template.pod_spec.get("nodeSelector")
    if not isinstance(wanted, dict):
        return {}
    return {str(key): str(value) for key, value in wanted.items()}


def affinity_of(pod: Pod) -> tuple[NodeTerm, ...]:
    """The terms of a pod's required node affinity. Names of nodes, Gt and Lt are left out: no kind
    of machine has them."""
    affinity = pod.template.pod_spec.get("affinity")
    if not isinstance(affinity, dict) or not affinity.get("nodeAffinity"):
        return ()
    found = selector_of_spec({"affinity": {"nodeAffinity": affinity["nodeAffinity"]}})
    return tuple(
        tuple(
            requirement(one.key, one.operator, one.values)
            for one in term
            if one.operator in OPERATORS and one.key != NODE_NAME
        )
        for term in (found.terms if found is not None else [])
    )


def together(gang: PodGang) -> str:
    """The label whose value the machines of a gang must share; empty: none."""
    packs = [gang.pack, *(group.pack for group in gang.pack_groups)]
    packs += [group.pack for group in gang.groups]
    return next((pack.required for pack in packs if pack is not None and pack.required), "")
