"""What must hold of gangs, machines and servers together, by name.

Most events of a run change nothing here: a check looks only where something has changed since it
looked last.
"""

from collections.abc import Callable, Iterator

from windtunnel.core.invariants import Invariant
from windtunnel.fleet.checks import INVARIANTS as FLEET_INVARIANTS
from windtunnel.fleet.checks import Fleet
from windtunnel.fleet.states import CONFIGURED, DRAINING, FAILED
from windtunnel.twin.checks import INVARIANTS
from windtunnel.twin.fleet.meter import PAID
from windtunnel.twin.infrastructure.infrastructure import Infrastructure
from windtunnel.twin.kubernetes.checks import CLUSTER_INVARIANTS
from windtunnel.twin.kubernetes.cluster import SimCluster
from windtunnel.twin.servers.replicas import GONE
from windtunnel.twin.simulation import Simulation

Check = Callable[[Infrastructure], str | None]


def _servers_are_backed(infrastructure: Infrastructure) -> str | None:
    """Every replica that is not gone is one unit of pods, and is where its pods are."""
    known: dict[int, str] = {}
    for serving_cluster in infrastructure.serving_clusters:
        fault = serving_cluster.units.check()
        if fault is not None:
            return fault
        known |= {server: unit.key for server, unit in serving_cluster.units.by_server.items()}
    for pool in infrastructure.pools():
        for replica in pool.here:
            if known.pop(int(replica.server.index), None) is None:
                return f"server {replica.server.index} of {pool.name} stands on no pods"
            if replica.state == GONE:
                return f"server {replica.server.index} of {pool.name} is gone and still there"
    return f"{known} are pods of servers that are gone" if known else None


def _pods_are_on_machines(infrastructure: Infrastructure) -> str | None:
    """A pod is on a machine of its own cluster, and a machine is in one cluster."""
    machines = infrastructure.machines
    if machines is None:
        return None
    for serving_cluster in infrastructure.serving_clusters:
        for pod in serving_cluster.cluster.view.pods.values():
            record = machines.provider.get(pod.node) if pod.node else None
            if not pod.node or machines.is_struck_off(pod.node):
                continue
            if record is None or record.state not in (CONFIGURED, DRAINING, FAILED):
                where = f"{pod.node}, which is no machine of {serving_cluster.name}"
                return f"the pod {pod.name} is on {where}"
            if record.cluster not in (serving_cluster.name, ""):
                return f"the pod {pod.name} is on {pod.node}, a machine of {record.cluster}"
    return None


def _machines_are_paid(infrastructure: Infrastructure) -> str | None:
    """Machines that are there, and no others, are paid for."""
    machines = infrastructure.machines
    if machines is None:
        return None
    counts = dict.fromkeys(machines.meter.accounts, 0)
    for record in machines.provider.records():
        counts[record.shape.instance_type] += record.state in PAID
    for name, account in machines.meter.accounts.items():
        if account.here != counts[name]:
            return f"{counts[name]} machines of {name} are there, {account.here} are paid for"
    return None


def _guarded(name: str, check: Check) -> Callable[[Simulation], str | None]:
    """The check, where something has moved since it last found all well."""

    def look(simulation: Simulation) -> str | None:
        infrastructure = simulation.lifecycle.infrastructure
        if (
            not isinstance(infrastructure, Infrastructure)
            or infrastructure.checked.get(name) == infrastructure.version
        ):
            return None
        if not infrastructure.is_settled:
            return None  # a server ended in this very instant, and its pods hear of it next
        found = check(infrastructure)
        if found is None:
            infrastructure.checked[name] = infrastructure.version
        return found

    return look


def _table() -> Iterator[Invariant[Simulation]]:
    own: tuple[tuple[str, str, Check], ...] = (
        (
            "servers-backed",
            "every server stands on pods, and is what they are",
            _servers_are_backed,
        ),
        ("pods-on-machines", "every pod is on a machine of its cluster", _pods_are_on_machines),
        ("machines-paid", "every machine that is there is paid for", _machines_are_paid),
    )
    for name, sentence, check in own:
        yield Invariant(name, sentence, _guarded(name, check))
    for one in CLUSTER_INVARIANTS:
        yield Invariant(one.name, one.sentence, _guarded(one.name, _of_clusters(one)))
    for two in FLEET_INVARIANTS:
        name = f"fleet.{two.name}"
        yield Invariant(name, two.sentence, _guarded(name, _of_fleet(two)))


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


EVERY_INVARIANT = (*INVARIANTS, *_table())
"""Of runs whose servers stand on gangs and machines."""
