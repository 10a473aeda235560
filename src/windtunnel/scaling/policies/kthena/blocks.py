"""Which of several kinds of replica to take: the cheapest block of each first, blocks that grow.

Every kind starts at its minimum. Its room up to the maximum is cut into blocks of 1, 2, 4, ...
replicas (at 200 percent), a block costs its length times the price, and blocks are taken in the
order of their cost. So a dear kind joins when the next block of the cheap one costs as much. What
a total comes to depends on the total alone: shrinking gives back exactly what growing took last.
"""

from collections.abc import Sequence
from typing import Final, NamedTuple


class ReplicaKind(NamedTuple):
    """One kind of replica: what one costs, and how few and how many there may be."""

    name: str
    cost: float
    minimum: int
    maximum: int


class Blocks:
    """The order in which room is filled, made once for a policy."""

    def __init__(self, backends: Sequence[ReplicaKind], growth_percent: int) -> None:
        self.backends: Final = list(backends)
        blocks: list[tuple[float, int, int]] = []  # cost, which backend, replicas
        for index, backend in enumerate(backends):
            for size in block_sizes(backend.maximum - backend.minimum, growth_percent):
                # At 100 percent and below every block is one replica: one long block, same order.
                length = size if growth_percent > 100 else 1
                blocks.append((backend.cost * length, index, size))
        self._blocks: Final = sorted(blocks)
        self.minimum: Final = sum(backend.minimum for backend in backends)
        self.maximum: Final = sum(backend.maximum for backend in backends)

    def split(self, total: int) -> dict[str, int]:
        """How many of each; together the total, as far as the bounds allow it."""
        sizes = [backend.minimum for backend in self.backends]
        left = min(total, self.maximum) - self.minimum
        for _, index, size in self._blocks:
            if left <= 0:
                break
            taken = min(left, size)
            sizes[index] += taken
            left -= taken
        return {backend.name: size for backend, size in zip(self.backends, sizes, strict=True)}


def block_sizes(room: int, growth_percent: int) -> list[int]:
    """Blocks that grow by the rate until the room is full; the last one is what is left."""
    if growth_percent <= 100:
        return [room] if room > 0 else []
    sizes: list[int] = []
    length = 1.0
    while room > 0:
        size = min(room, max(int(length), 1))
        sizes.append(size)
        room -= size
        length *= growth_percent / 100
    return sizes
