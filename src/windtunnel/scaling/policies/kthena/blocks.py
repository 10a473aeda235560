"""Chooses between several kinds of replica: by the cheapest block, with blocks that grow.

Every kind starts at its minimum. Its range up to the maximum is cut into blocks of 1, 2, 4, ...
replicas (at 200 percent), a block costs its length times the price, and blocks are taken in order
of cost. So an expensive kind is added when the next block of a cheap one costs as much. The split
depends on the total alone: shrinking removes exactly what growing added last.
"""

from collections.abc import Sequence
from typing import Final, NamedTuple


class ReplicaKind(NamedTuple):
    """One kind of replica: its cost, minimum and maximum."""

    name: str
    cost: float
    minimum: int
    maximum: int


class Blocks:
    """The order in which blocks are filled, computed once per policy."""

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
        """Splits a total into replicas of each kind, as far as the bounds allow."""
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
    """Block sizes that grow by the rate; the last block has the remainder."""
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
