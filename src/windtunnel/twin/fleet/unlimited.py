"""Unlimited machines: a cluster without a fleet gets every machine it requests at once."""

from collections.abc import Mapping
from typing import Final

from windtunnel.fleet.demand.requests import ACCELERATOR, CPU, GPU, MEMORY, MachineKind
from windtunnel.fleet.settings import PODS
from windtunnel.gangs.objects import Node
from windtunnel.twin.fleet.machines import Tenant

ACCELERATORS: Final = 8
CORES: Final = 1e6
BYTES: Final = 1e18


def unlimited_kind(accelerator: str, largest: float) -> MachineKind:
    """A machine with 8 accelerators, or as many as the largest pod requests."""
    count = float(max(ACCELERATORS, int(largest)))
    capacity = {GPU: count, CPU: CORES, MEMORY: BYTES, "pods": PODS}
    return MachineKind(capacity, {ACCELERATOR: accelerator})


class UnlimitedMachines:
    """Gives clusters every machine that they request."""

    def __init__(
        self, kinds: list[MachineKind], keys: list[str], tenants: Mapping[str, Tenant]
    ) -> None:
        self._kinds: Final = kinds
        self._keys: Final = keys  # labels of domains: all machines are in one
        self._tenants: Final = tenants
        self._machines: Final[dict[str, int]] = {}  # by cluster: how many it has
        self._served: Final[dict[str, dict[str, None]]] = {}  # by cluster: rows with machines

    def advance(self, now_s: float) -> None:
        for cluster, tenant in self._tenants.items():
            demand = tenant.look(now_s)
            served = self._served.setdefault(cluster, {})
            fresh = [row for row in demand.added.values() if row.name not in served]
            demand.added.clear()
            demand.dropped.clear()
            for row in fresh:
                served[row.name] = None
                kind = next(
                    one
                    for one in self._kinds
                    if all(one.labels.get(key) == value for key, value in row.selector.items())
                )
                for _ in range(row.machines):
                    number = self._machines.get(cluster, 0)
                    self._machines[cluster] = number + 1
                    name = f"{cluster}-{number}"
                    labels = {**kind.labels, **dict.fromkeys(self._keys, "everywhere")}
                    tenant.join(Node(name, dict(kind.capacity), labels), now_s)
                    tenant.hold(name, row.name, number)
