"""The invariants of a cluster: no overfull node, no partial gang, no wrong count."""

from windtunnel.core.invariants import Invariant
from windtunnel.gangs.placement.space import PARTS
from windtunnel.twin.kubernetes.cluster import SimCluster


def _overfull(cluster: SimCluster) -> str | None:
    used: dict[str, dict[str, float]] = {}
    for pod in cluster.view.pods.values():
        if pod.node:
            sums = used.setdefault(pod.node, {})
            for resource, amount in pod.requests.items():
                sums[resource] = sums.get(resource, 0.0) + amount
    for name, sums in used.items():
        capacity = cluster.view.nodes[name].capacity
        for resource, amount in sums.items():
            have = capacity.get(resource, 0.0)
            if amount > have + 1.0 / PARTS:
                return f"{amount} {resource} on {name}, which has {have}"
    return None


def _half_admitted(cluster: SimCluster) -> str | None:
    return "; ".join(cluster.scheduler.half_admitted) or None


def _miscounted(cluster: SimCluster) -> str | None:
    """The free capacity that the scheduler counts on is what pods leave free."""
    space, taken = cluster.scheduler.space, dict[str, list[int]]()
    for pod in cluster.view.pods.values():
        if pod.node:
            sums = taken.setdefault(pod.node, [0] * len(space.resource_names))
            for resource, amount in cluster.scheduler.shapes.of(pod).needs:
                sums[resource] += amount
    for node in space.nodes:
        sums = taken.get(node.name, [0] * len(space.resource_names))
        sums += [0] * (len(node.free) - len(sums))
        left = [have - used for have, used in zip(node.capacity, sums, strict=True)]
        if left != node.free:
            return f"{node.free} on {node.name}, where pods leave {left}"
    return None


def _apart(cluster: SimCluster) -> str | None:
    """Affinity terms count their pods correctly, and pods that must be apart are."""
    for term, kept in cluster.scheduler.shapes.terms.items():
        counts: dict[str, int] = {}
        for pod in cluster.view.pods.values():
            if pod.node and term.matches(pod):
                labels = cluster.scheduler.space.by_name[pod.node].labels
                domain = labels.get(term.topology_key, "")
                counts[domain] = counts.get(domain, 0) + 1
        counts.pop("", None)
        if counts != {domain: count for domain, count in kept.matching.items() if count}:
            return f"{kept.matching} by {term.topology_key}, where {counts} are"
        if kept.domains != len(counts):
            return f"{kept.domains} domains of {term.topology_key}, where {len(counts)} have pods"
        for domain, count in counts.items():
            holding = kept.holding.get(domain, 0) if term.required else 0
            if holding and holding + count > 2:
                return f"{count} pods in {domain}, where {holding} keep away from them"
    return None


def _usable(cluster: SimCluster) -> str | None:
    for node in cluster.scheduler.space.nodes:
        known = cluster.view.nodes[node.name]
        if node.usable != (known.ready and not known.cordoned):
            return f"{node.name}: usable is {node.usable}"
    return None


CLUSTER_INVARIANTS = (
    Invariant("gangs.overfull", "pods of a node request no more than its capacity", _overfull),
    Invariant("gangs.whole", "a gang gets its minimum as a whole or not at all", _half_admitted),
    Invariant("gangs.room", "the scheduler knows the free capacity", _miscounted),
    Invariant("gangs.apart", "pods with anti-affinity are apart", _apart),
    Invariant("gangs.usable", "the scheduler knows which nodes take pods", _usable),
)
