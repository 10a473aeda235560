"""A binary heap of nodes that know their position, so that any node can be moved or removed."""

from typing import Final

NOWHERE: Final = -1
"""The position of a node that is in no heap."""


class HeapNode:
    """A node of at most one heap, ordered by (rank, tag, sequence)."""

    def __init__(self) -> None:
        self.rank = 0
        self.tag = 0.0
        self.sequence = 0
        self.place = NOWHERE


def before(one: HeapNode, other: HeapNode) -> bool:
    """Whether `one` leaves a heap before `other`."""
    if one.rank != other.rank:
        return one.rank < other.rank
    if one.tag != other.tag:
        return one.tag < other.tag
    return one.sequence < other.sequence


class NodeHeap:
    """A binary heap: the first node in O(1); push, remove and reorder in O(log n)."""

    def __init__(self) -> None:
        self.nodes: Final[list[HeapNode]] = []

    def __len__(self) -> int:
        return len(self.nodes)

    def push(self, node: HeapNode) -> None:
        assert node.place == NOWHERE
        node.place = len(self.nodes)
        self.nodes.append(node)
        self._rise(node)

    def remove(self, node: HeapNode) -> None:
        place = node.place
        assert self.nodes[place] is node
        node.place = NOWHERE
        last = self.nodes.pop()
        if last is not node:
            self.nodes[place] = last
            last.place = place
            self.fix(last)

    def fix(self, node: HeapNode) -> None:
        """Moves a node whose key has changed to where it now belongs."""
        self._rise(node)
        self._sink(node)

    def _rise(self, node: HeapNode) -> None:
        nodes = self.nodes
        place = node.place
        while place > 0:
            above = nodes[(place - 1) >> 1]
            if not before(node, above):
                break
            nodes[place] = above
            above.place = place
            place = (place - 1) >> 1
        nodes[place] = node
        node.place = place

    def _sink(self, node: HeapNode) -> None:
        nodes = self.nodes
        place = node.place
        size = len(nodes)
        while True:
            below = 2 * place + 1
            if below >= size:
                break
            child = nodes[below]
            if below + 1 < size:
                sibling = nodes[below + 1]
                if before(sibling, child):
                    child = sibling
                    below += 1
            if not before(child, node):
                break
            nodes[place] = child
            child.place = place
            place = below
        nodes[place] = node
        node.place = place
