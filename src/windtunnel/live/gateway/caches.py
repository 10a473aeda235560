"""The prefixes that each server behind a gateway has cached."""

from typing import Final

from windtunnel.workload.request import PrefixChain

UNKNOWN_CACHE_TOKENS: Final = 500_000
"""Prompt tokens that a server is assumed to keep until it reports its number of blocks."""


class PrefixCaches:
    """The cached prefixes of servers: as they report them, or else as inferred from requests.

    A server that reports nothing is assumed to keep as many tokens as its KV cache holds, and to
    evict the least recently used prefix.
    """

    def __init__(self) -> None:
        self._block_sizes: Final[list[int]] = []
        self._most: Final[list[int]] = []
        self._held: Final[list[int]] = []
        self._recent: Final[list[dict[int, int]]] = []
        self._changes: Final[list[list[int] | None]] = []
        self._tells: Final[list[bool]] = []

    def join(self) -> None:
        self._block_sizes.append(1)
        self._most.append(UNKNOWN_CACHE_TOKENS)
        self._held.append(0)
        self._recent.append({})
        self._changes.append(None)
        self._tells.append(False)

    def set_capacity(self, server: int, tokens: int) -> None:
        self._most[server] = tokens

    def forget(self, server: int) -> None:
        """Clears a server's cache, because the server has restarted."""
        changes = self._changes[server]
        if changes is not None:
            for key in self._recent[server]:
                changes += (server, key, 0)
        self._recent[server].clear()
        self._held[server] = 0

    def lost(self, server: int) -> None:
        """Clears an unreachable server's cache, unless the server itself reports when it is
        empty."""
        if not self._tells[server]:
            self.forget(server)

    def told(
        self, server: int, stored: list[tuple[int, int]], removed: list[int], *, cleared: bool
    ) -> None:
        """Applies reported changes; from then on only reports count for this server."""
        if cleared or not self._tells[server]:
            self.forget(server)
            self._tells[server] = True
        changes = self._changes[server]
        if changes is None:
            changes = []  # no router reads them
        recent = self._recent[server]
        for key, end in stored:
            recent[key] = end
            changes += (server, key, end)
        for key in removed:
            if recent.pop(key, 0):
                changes += (server, key, 0)

    def sent(self, server: int, prefix: PrefixChain) -> None:
        if self._tells[server]:
            return
        changes = self._changes[server]
        if changes is None:
            changes = []  # no router reads them
        recent = self._recent[server]
        start = 0
        for key, end in zip(prefix.keys, prefix.ends, strict=True):
            tokens = recent.pop(key, 0)
            if not tokens:
                tokens = end - start
                self._held[server] += tokens
                changes += (server, key, end)
            recent[key] = tokens
            start = end
        while self._held[server] > self._most[server] and recent:
            oldest = next(iter(recent))
            self._held[server] -= recent.pop(oldest)
            changes += (server, oldest, 0)

    def cached_tokens(self, server: int, prefix: PrefixChain | None) -> int:
        """The tokens of a prompt's prefix that the server is assumed to have cached."""
        found = 0
        if prefix is not None:
            recent = self._recent[server]
            for key, end in zip(prefix.keys, prefix.ends, strict=True):
                if key not in recent:
                    break
                found = end
        return found

    # The port of `routing.prefixes.CacheFeed`.
    def servers(self) -> int:
        return len(self._block_sizes)

    def block_size(self, server: int) -> int:
        return self._block_sizes[server]

    def subscribe(self, server: int, changes: list[int]) -> None:
        self._changes[server] = changes

    def unsubscribe(self, server: int) -> None:
        self._changes[server] = None
        self.forget(server)
