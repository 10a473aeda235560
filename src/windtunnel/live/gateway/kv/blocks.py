"""KV-cache events of vLLM and SGLang: which blocks of which prompts a server has.

A server names its blocks by its own hashes, and lists the tokens of each. The tokens are hashed
again in the same way as prompts, so the server's hash function does not matter.
"""

from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

import msgspec

from windtunnel.live.gateway.kv.tokens import TokenChain

MOST_BLOCKS: Final = 2_000_000
MOST_EVENTS: Final = 100_000
FIELDS: Final = {
    "BlockStored": ("block_hashes", "parent_block_hash", "token_ids", "block_size", "lora_id",
                    "medium", "lora_name", "extra_keys", "group_idx"),
    "BlockRemoved": ("block_hashes", "medium", "group_idx"),
    "AllBlocksCleared": (),
}  # fmt: skip
"""Fields of events encoded as arrays, in order, after the event name."""
IN_ACCELERATOR: Final = (None, "GPU")
WRONG: Final = (
    LookupError, TypeError, ValueError, AttributeError, OverflowError, RecursionError,
)  # fmt: skip
"""Exceptions raised by an event with unexpected fields, types or ranges."""


class CacheChange(NamedTuple):
    """The net effect of a batch of events."""

    cleared: bool
    stored: list[tuple[int, int]]
    """Keys of prefixes, and the token at which each ends."""
    removed: list[int]


class BadEvents(ValueError):
    """A message that is not a batch of KV-cache events."""


def read_batch(payload: bytes) -> list[dict[str, Any]]:
    """The events in a message, encoded as maps or arrays."""
    try:
        data = msgspec.msgpack.decode(payload)
        events = data[1] if isinstance(data, list) else data["events"]
        found = []
        for event in events[:MOST_EVENTS]:
            if isinstance(event, list):
                name, *values = event
                event = {"type": name, **dict(zip(FIELDS.get(name, ()), values, strict=False))}  # noqa: PLW2901
            if event["type"] in FIELDS:
                found.append(event)
    except (msgspec.DecodeError, LookupError, TypeError, ValueError, RecursionError) as error:
        raise BadEvents(f"this is not a batch of KV-cache events: {error}") from None
    if len(events) > MOST_EVENTS:
        raise BadEvents(f"{len(events)} KV-cache events at once; at most {MOST_EVENTS} are read")
    return found


class MergedRanks:
    """The union of the caches of a server's data-parallel ranks."""

    def __init__(self, ranks: int) -> None:
        self._held: Final[list[dict[int, None]]] = [{} for _ in range(ranks)]

    def merge(self, rank: int, change: CacheChange) -> CacheChange:
        """Turns a change of one rank into a change of the server."""
        held = self._held[rank]
        if len(self._held) == 1:
            return change
        others = [one for one in self._held if one is not held]
        removed = dict.fromkeys(change.removed)
        if change.cleared:
            removed.update(held)
        for key in removed:
            held.pop(key, None)
        for key, _ in change.stored:
            held[key] = None
            removed.pop(key, None)
        gone = [key for key in removed if not any(key in other for other in others)]
        return CacheChange(cleared=False, stored=change.stored, removed=gone)


class ServerBlocks:
    """The blocks of one server, and the prefixes they belong to."""

    def __init__(self, model: str, key: Callable[[int], int]) -> None:
        self._model: Final = model
        self._key: Final = key
        self._chains: Final[dict[Any, TokenChain]] = {}  # up to each block, by the server's hash
        self._keys: Final[dict[Any, list[tuple[int, int]]]] = {}  # completed by each block
        self._held: Final[dict[int, int]] = {}  # number of blocks that complete a key

    def __len__(self) -> int:
        return len(self._chains)

    def forget(self) -> CacheChange:
        """Clears all knowledge of the cache, after lost messages or a restart of the server."""
        self._chains.clear()
        self._keys.clear()
        self._held.clear()
        return CacheChange(cleared=True, stored=[], removed=[])

    def apply(self, events: Sequence[dict[str, Any]]) -> CacheChange:
        """Applies events in order."""
        stored: dict[int, int] = {}
        removed: dict[int, None] = {}
        cleared = False
        for event in events:
            try:
                if event["type"] == "AllBlocksCleared":
                    self.forget()
                    stored.clear()
                    removed.clear()
                    cleared = True
                elif event.get("medium") in IN_ACCELERATOR and not event.get("group_idx"):
                    if event["type"] == "BlockStored":
                        self._store(event, stored, removed)
                    else:
                        self._remove(event["block_hashes"], stored, removed)
            except WRONG as error:
                raise BadEvents(f"a KV-cache event is not as expected: {error!r}") from None
        if len(self._chains) > MOST_BLOCKS:
            return self.forget()
        return CacheChange(cleared, list(stored.items()), list(removed))

    def _store(
        self, event: dict[str, Any], stored: dict[int, int], removed: dict[int, None]
    ) -> None:
        hashes, tokens, size = event["block_hashes"], event["token_ids"], event["block_size"]
        adapter = event.get("lora_name")
        extras = event.get("extra_keys") or []
        parent = event.get("parent_block_hash")
        if size < 1 or len(tokens) != size * len(hashes):
            raise ValueError(f"{len(tokens)} tokens in {len(hashes)} blocks of {size}")
        chain: TokenChain | None = None
        if parent is not None:
            chain = self._chains.get(parent)
            if chain is None:
                return  # its prefix is unknown or removed, so no prompt can match it
        for number, name in enumerate(hashes):
            more = [one for one in (extras[number] if number < len(extras) else None) or []
                    if one != adapter]  # fmt: skip
            if chain is None:
                salt = more.pop() if more and isinstance(more[-1], str) else ""
                chain = TokenChain.start(adapter or self._model, salt)
            if more:
                chain = chain.marked(repr(more))  # images and the like never equal text
            chain, completed = chain.extended(tokens[number * size : (number + 1) * size])
            if name in self._chains:
                continue
            self._chains[name] = chain
            keys = [(self._key(state), end) for state, end in completed]
            if keys:
                self._keys[name] = keys
            for key, end in keys:
                self._held[key] = self._held.get(key, 0) + 1
                stored[key] = end
                removed.pop(key, None)

    def _remove(
        self, hashes: Sequence[Any], stored: dict[int, int], removed: dict[int, None]
    ) -> None:
        for name in hashes:
            self._chains.pop(name, None)
            for key, _ in self._keys.pop(name, ()):
                left = self._held[key] - 1
                if left:
                    self._held[key] = left
                else:
                    del self._held[key]
                    stored.pop(key, None)
                    removed[key] = None
