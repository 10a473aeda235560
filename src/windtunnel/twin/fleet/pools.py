"""What the machines of a pool cost, and how many a run begins with."""

import math
from collections.abc import Sequence

from windtunnel.fleet.settings import FleetPool, FleetSettings
from windtunnel.models.catalog.accelerators import catalog_price
from windtunnel.twin.settings import PoolSettings


def machine_price(pool: FleetPool) -> float | None:
    """Dollars per hour of one machine; None when neither the scenario nor the catalog has a
    price."""
    if pool.price_per_hour is not None:
        return pool.price_per_hour
    return catalog_price(pool.accelerator, pool.accelerators)


def initial_machines(fleet: FleetSettings, servers: Sequence[PoolSettings]) -> list[int]:
    """Initial machines by pool: the configured number, or what the first replicas need, cheapest
    machines first."""
    counts = [max(one.machines.min, one.machines.initial or 0) for one in fleet.pools]
    open_ended = [one.machines.initial is None for one in fleet.pools]
    order = sorted(
        range(len(counts)), key=lambda number: (machine_price(fleet.pools[number]) or 0.0, number)
    )
    free = [float(counts[number] * one.accelerators) for number, one in enumerate(fleet.pools)]
    for pool in servers:
        left = pool.replicas
        for number in order:
            one = fleet.pools[number]
            if one.accelerator != pool.accelerator:
                continue
            size = pool.gpus
            while left > 0:
                if free[number] < size and open_ended[number]:
                    more = max(1, math.ceil(size / one.accelerators))
                    if counts[number] + more > one.machines.max:
                        break
                    counts[number] += more
                    free[number] += more * one.accelerators
                if free[number] < size:
                    break
                free[number] -= size
                left -= 1
    return counts
