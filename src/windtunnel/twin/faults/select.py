"""Whom a fault befalls: a server that was named, or some that are drawn."""

from windtunnel.core.random import Stream
from windtunnel.twin.cluster import Cluster
from windtunnel.twin.faults.plan import SelectPlan
from windtunnel.twin.replicas import DRAINING, READY, Replica


def chosen(
    select: SelectPlan,
    cluster: Cluster,
    stream: Stream,
    states: tuple[int, ...] = (READY, DRAINING),
) -> list[Replica]:
    """Replicas in these states, by number; fewer than asked for, or none, if there are no more.

    One uniform is drawn for each that is chosen by chance, whatever else there is.
    """
    found: list[Replica] = []
    for pool in cluster.pools:
        if select.pool in (None, pool.name):
            found.extend([one for one in pool.here if one.state in states])
    if select.server is not None:
        return [one for one in found if one.number == select.server]
    if select.count is None or select.count >= len(found):
        return found
    picked = [found.pop(stream.integer(0, len(found) - 1)) for _ in range(select.count)]
    picked.sort(key=lambda one: int(one.server.index))
    return picked


def names_of(replicas: list[Replica]) -> list[str]:
    """As events and results call them."""
    return [f"{one.pool.name}-{one.number}" for one in replicas]
