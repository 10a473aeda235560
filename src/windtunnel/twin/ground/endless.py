"""Machines without end: whoever needs one has it at once."""

from typing import Final

from windtunnel.gangs.objects import Node
from windtunnel.twin.ground.asks import ACCELERATOR, CPU, GPU, MEMORY
from windtunnel.twin.ground.rows import Kind
from windtunnel.twin.ground.yard import Yard

ACCELERATORS: Final = 8
CORES: Final = 1e6
BYTES: Final = 1e18
PODS: Final = 110.0


def endless_kind(accelerator: str, largest: float) -> Kind:
    """A machine of 8 accelerators, or of as many as the largest pod asks for."""
    count = float(max(ACCELERATORS, int(largest)))
    capacity = {GPU: count, CPU: CORES, MEMORY: BYTES, "pods": PODS}
    return Kind(capacity, {ACCELERATOR: accelerator})


class Endless:
    """Gives a cluster every machine that it asks for."""

    def __init__(self, kinds: list[Kind], keys: list[str]) -> None:
        self._kinds: Final = kinds
        self._keys: Final = keys  # labels of domains: all machines are in one
        self._holders: Final[dict[str, dict[str, str]]] = {}  # by cluster: the row of each machine

    def advance(self, yards: list[Yard], now_s: float) -> None:
        for yard in yards:
            holders = self._holders.setdefault(yard.name, {})
            held = set(holders.values())
            for row in list(yard.rows(holders, now_s)):
                if row.name in held:
                    continue
                kind = next(
                    one
                    for one in self._kinds
                    if all(one.labels.get(key) == value for key, value in row.selector.items())
                )
                for _ in range(row.machines):
                    name = f"{yard.name}-{len(holders)}"
                    holders[name] = row.name
                    labels = {**kind.labels, **dict.fromkeys(self._keys, "everywhere")}
                    yard.join(Node(name, dict(kind.capacity), labels), now_s)
