"""Invariants of gangs, machines and servers together.

Most events of a run change nothing here: a check runs only when something has changed since the
last one.
"""

from collections.abc import Callable, Iterator

from windtunnel.core.invariants import Invariant, InvariantChecker
from windtunnel.fleet.checks import INVARIANTS as FLEET_INVARIANTS
from windtunnel.fleet.checks import Fleet
from windtunnel.fleet.states import CONFIGURED, DRAINING, FAILED
from windtunnel.twin.fleet.meter import PAID
from windtunnel.twin.infrastructure.infrastructure import Infrastructure
from windtunnel.twin.kubernetes.checks import CLUSTER_INVARIANTS
from windtunnel.twin.kubernetes.cluster import SimCluster
from windtunnel.twin.servers.replicas import GONE

Check = Callable[[Infrastructure], str | None]

OBJECTS_PER_CHANGE = 32
"""A full check waits for one change per this many pods and machines."""


def _servers_are_backed(infrastructure: Infrastructure) -> str | None:
    """Every replica that is not gone is one unit of pods, and its state matches that of its
    pods."""
    known: dict[int, str] = {}
    for serving_cluster in infrastructure.serving_clusters:
        fault = serving_cluster.units.check()
        if fault is not None:
            return fault
        known |= {server: unit.key for server, unit in serving_cluster.units.by_server.items()}
    for pool in infrastructure.pools():
        for replica in pool.here:
            if known.pop(int(replica.server.index), None) is None:
                return f"server {replica.server.index} of {pool.name} has no pods"
            if replica.state == GONE:
                return f"server {replica.server.index} of {pool.name} is gone but still listed"
    return f"{known} are pods of servers that are gone" if known else None


def _pods_are_on_machines(infrastructure: Infrastructure) -> str | None:
    """A pod is on a machine of its own cluster, and a machine is in one cluster."""
    machines = infrastructure.machines
    if machines is None:
        return None
    for serving_cluster in infrastructure.serving_clusters:
        for pod in serving_cluster.cluster.view.pods.values():
            record = machines.provider.get(pod.node) if pod.node else None
            if not pod.node or machines.is_unnoticed_loss(pod.node):
                continue
            if record is None or record.state not in (CONFIGURED, DRAINING, FAILED):
                where = f"{pod.node}, which is not a machine of {serving_cluster.name}"
                return f"the pod {pod.name} is on {where}"
            if record.cluster not in (serving_cluster.name, ""):
                return f"the pod {pod.name} is on {pod.node}, a machine of {record.cluster}"
    return None


def _machines_are_paid(infrastructure: Infrastructure) -> str | None:
    """Existing machines, and no others, are paid for."""
    machines = infrastructure.machines
    if machines is None:
        return None
    counts = dict.fromkeys(machines.meter.accounts, 0)
    for record in machines.provider.records():
        counts[record.shape.instance_type] += record.state in PAID
    for name, account in machines.meter.accounts.items():
        if account.here != counts[name]:
            return f"{counts[name]} machines of {name} exist, {account.here} are paid for"
    return None


def _table() -> Iterator[Invariant[Infrastructure]]:
    yield Invariant(
        "servers-backed", "every server has pods, and its state matches theirs", _servers_are_backed
    )
    yield Invariant(
        "pods-on-machines", "every pod is on a machine of its cluster", _pods_are_on_machines
    )
    yield Invariant("machines-paid", "every existing machine is paid for", _machines_are_paid)
    for one in CLUSTER_INVARIANTS:
        yield Invariant(one.name, one.sentence, _of_clusters(one))
    for two in FLEET_INVARIANTS:
        yield Invariant(f"fleet.{two.name}", two.sentence, _of_fleet(two))


def _of_clusters(invariant: Invariant[SimCluster]) -> Check:
    def look(infrastructure: Infrastructure) -> str | None:
        found = (
            invariant.check(serving_cluster.cluster)
            for serving_cluster in infrastructure.serving_clusters
        )
        return next((one for one in found if one is not None), None)

    return look


def _of_fleet(invariant: Invariant[Fleet]) -> Check:
    def look(infrastructure: Infrastructure) -> str | None:
        machines = infrastructure.machines
        if machines is None:
            return None
        return invariant.check(Fleet([machines.shard], machines.provider))

    return look


INFRASTRUCTURE_INVARIANTS = tuple(_table())


class InfrastructureChecker:
    """Checks gangs and machines of a run when something has changed since the last check.

    A check costs as much as there are pods and machines. With few of them, every change is checked
    at once; with many, only after several changes.
    """

    def __init__(self, infrastructure: Infrastructure) -> None:
        self._infrastructure = infrastructure
        self._checker = InvariantChecker(INFRASTRUCTURE_INVARIANTS)
        self._next = 0  # the version at which the next check is due

    @property
    def checked(self) -> int:
        return self._checker.checked

    def check(self, context: str | Callable[[], str], *, at_once: bool = False) -> None:
        """Checks after an event; raises InvariantBroken."""
        here = self._infrastructure
        if here.version < self._next and not at_once:
            return
        if not here.is_settled:
            return  # a server ended at this instant, and its pods follow next
        self._checker.run(here, context)
        objects = sum(len(one.cluster.view.pods) for one in here.serving_clusters)
        if here.machines is not None:
            objects += len(here.machines.provider.records())
        self._next = here.version + max(1, objects // OBJECTS_PER_CHANGE)
