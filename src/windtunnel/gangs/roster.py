"""Sorted names in blocks: rosters that differ by one name share all blocks but one.

A gang refers to thousands of pods, and an update replaces them one by one. Writing and comparing
after each replacement costs one block and the list of blocks, not all names.
"""

from bisect import bisect_left
from collections.abc import Iterable, Iterator
from typing import Final

BLOCK: Final = 64
"""Names in a newly built block; a block of twice as many is split."""

Block = tuple[str, ...]


class NameRoster:
    """Immutable sorted unique names."""

    def __init__(self, blocks: tuple[Block, ...] = (), size: int = 0) -> None:
        self.blocks: Final = blocks
        """None is empty."""
        self._size: Final = size

    def __len__(self) -> int:
        return self._size

    def __iter__(self) -> Iterator[str]:
        return iter([name for block in self.blocks for name in block])

    def __contains__(self, name: str) -> bool:
        block = self._block(name)
        return block < len(self.blocks) and name in self.blocks[block]

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        if not isinstance(other, NameRoster) or self._size != other._size:
            return False
        return self.until(other) == ([], [])

    def __hash__(self) -> int:
        return hash(tuple(self))

    def _block(self, name: str) -> int:
        """Returns the block that has a name or should have it; the number of blocks if after all of
        them."""
        return bisect_left(self.blocks, name, key=_last)

    def plus(self, name: str) -> "NameRoster":
        """Returns the roster with another name, which must be new."""
        blocks = self.blocks
        if not blocks:
            return NameRoster(((name,),), 1)
        at = min(self._block(name), len(blocks) - 1)
        block = blocks[at]
        place = bisect_left(block, name)
        changed: tuple[Block, ...] = ((*block[:place], name, *block[place:]),)
        if len(block) >= 2 * BLOCK:
            whole = changed[0]
            changed = (whole[:BLOCK], whole[BLOCK:])
        return NameRoster(blocks[:at] + changed + blocks[at + 1 :], self._size + 1)

    def minus(self, name: str) -> "NameRoster":
        """Returns the roster without a name, which must be in it."""
        at, blocks = self._block(name), self.blocks
        block = blocks[at]
        place = bisect_left(block, name)
        changed: tuple[Block, ...] = ()
        if len(block) > 1:
            changed = (block[:place] + block[place + 1 :],)
        return NameRoster(blocks[:at] + changed + blocks[at + 1 :], self._size - 1)

    def until(self, newer: "NameRoster") -> tuple[list[str], list[str]]:
        """Returns the names removed and the names added in a newer roster, sorted, comparing only
        the blocks that differ."""
        ours = {id(block) for block in self.blocks}
        theirs = {id(block) for block in newer.blocks}
        before = {name for block in self.blocks if id(block) not in theirs for name in block}
        after = {name for block in newer.blocks if id(block) not in ours for name in block}
        return sorted(before - after), sorted(after - before)


def roster_of(names: Iterable[str]) -> NameRoster:
    """Builds a roster from unique names."""
    known = sorted(names)
    blocks = [tuple(known[at : at + BLOCK]) for at in range(0, len(known), BLOCK)]
    return NameRoster(tuple(blocks), len(known))


def _last(block: Block) -> str:
    return block[-1]
