"""Who has how much of a prompt's start: what servers have cached, as heard, or what was sent there.

A prefix is known by the keys of its segments, so a map from key to servers answers for a prompt by
looking at the servers that hold some of it, never at all.
"""

import math
from typing import Final

from mypy_extensions import i64

from windtunnel.engine.server import Server
from windtunnel.workload.request import Request

MOST_ENTRIES: Final = 3_000_000
"""Numbers that a journal holds before readers who decide nothing must read it all the same."""


class PrefixMap:
    """Tokens of prefix segments by key and server, counted from the start of the prompt."""

    def __init__(self, block_sizes: list[int]) -> None:
        self._sizes: Final = block_sizes
        self._largest: i64 = max(block_sizes, default=1)
        self._by_key: Final[dict[int, dict[int, int]]] = {}
        self.found = [0] * len(block_sizes)  # of the prompt looked at last: tokens by server
        self.holders: Final[list[int]] = []  # the servers for which that is not 0

    def join(self, block_size: int) -> None:
        """A server more."""
        self._sizes.append(block_size)
        self._largest = max(self._largest, block_size)
        self.found.append(0)

    def put(self, server: int, key: int, tokens: int) -> None:
        """The server has the segment up to so many tokens; 0: nothing of it."""
        servers = self._by_key.get(key)
        if tokens:
            if servers is None:
                self._by_key[key] = {server: tokens}
            else:
                servers[server] = tokens
        elif servers is not None:
            servers.pop(server, None)
            if not servers:
                del self._by_key[key]

    def look(self, request: Request) -> None:
        """Fills `found` and `holders` for the prompt of a request that no server has yet."""
        found = self.found
        sizes = self._sizes
        for server in self.holders:
            found[server] = 0
        self.holders.clear()
        prefix = request.prefix
        if prefix is None:
            return
        start: i64 = 0
        for index, key in enumerate(prefix.keys):
            end: i64 = prefix.ends[index]
            servers = self._by_key.get(key)
            further = False
            if servers is not None:
                for server, tokens in servers.items():
                    size: i64 = sizes[server]
                    held: i64 = found[server]
                    if held == start - start % size:
                        if held == 0:
                            self.holders.append(server)
                        found[server] = min(tokens, end - end % size)
                        further = True
            if not further and end // self._largest > start // self._largest:
                break
            start = end
        if prefix.ends[-1] >= request.prompt_tokens:
            self._leave_a_token(request)

    def _leave_a_token(self, request: Request) -> None:
        """A prompt's last token is always computed, so its block is no hit."""
        last = request.prompt_tokens - 1
        kept = 0
        for server in self.holders:
            most = last - last % self._sizes[server]
            if self.found[server] > most:
                self.found[server] = most
            if self.found[server]:
                self.holders[kept] = server
                kept += 1
        del self.holders[kept:]

    def tokens(self, request: Request, server: int) -> int:
        """The same for one server, followed segment by segment."""
        prefix = request.prefix
        if prefix is None:
            return 0
        size = self._sizes[server]
        found = 0
        for index, key in enumerate(prefix.keys):
            last = prefix.ends[index] // size * size
            if last > found:
                found = max(found, min(self._by_key.get(key, {}).get(server, 0), last))
                if found < last:
                    break
        return min(found, (request.prompt_tokens - 1) // size * size)


class CacheJournal:
    """What servers cache and evict, written down only from when somebody reads it."""

    def __init__(self, servers: list[Server]) -> None:
        self.servers: Final = servers
        self.entries: Final[list[int]] = []  # (server, key, tokens) in a row
        self._readers: Final[list[CacheIndex]] = []

    def read_by(self, reader: "CacheIndex") -> None:
        self._readers.append(reader)

    def follow(self, servers: list[int]) -> None:
        """From now on at least these write down what they cache."""
        for number in servers:
            pool = self.servers[number].pool
            if pool.journal is None:
                pool.listen(self.entries, number)

    def forget(self, server: int) -> None:
        """The server is gone for good: nothing of what it said is news any more."""
        self.servers[server].pool.journal = None
        entries = self.entries
        for place in range(0, len(entries), 3):
            if entries[place] == server:
                entries[place + 2] = 0

    def trim(self) -> None:
        """Forgets what all have read."""
        size = len(self.entries)
        for reader in self._readers:
            if reader.read < size:
                if size < MOST_ENTRIES:
                    return
                reader.read_on()
        self.entries.clear()
        for reader in self._readers:
            reader.read = 0


class CacheIndex(PrefixMap):
    """What servers have cached, as heard at most `delay_s` ago.

    A server that passes many equal steps as one evicts at the end of them, so an eviction is heard
    of when the run of steps ends; what is cached is heard of as it is scheduled.
    """

    def __init__(self, journal: CacheJournal, servers: list[int], delay_s: float) -> None:
        super().__init__([server.limits.block_size for server in journal.servers])
        self._journal: Final = journal
        self._delay_s: Final = delay_s
        self.taken_s = -math.inf
        self.read = len(journal.entries)
        journal.read_by(self)
        journal.follow(servers)

    def follow(self, servers: list[int]) -> None:
        """These are asked about from now on; some may be new."""
        for server in self._journal.servers[len(self.found) :]:
            self.join(server.limits.block_size)
        self._journal.follow(servers)

    def forget(self, server: int) -> None:
        """The server is gone for good, and its cache with it."""
        self._journal.forget(server)
        for key in [key for key, servers in self._by_key.items() if server in servers]:
            self.put(server, key, 0)

    def catch_up(self, now_s: float) -> None:
        """Reads the journal, when the last time is long enough ago."""
        if now_s - self.taken_s < self._delay_s:
            return
        self.taken_s = now_s
        if self.read < len(self._journal.entries):
            self.read_on()
            self._journal.trim()

    def read_on(self) -> None:
        entries = self._journal.entries
        size = len(entries)
        place = self.read
        while place < size:
            self.put(entries[place], entries[place + 1], entries[place + 2])
            place += 3
        self.read = size


class RouteMemory(PrefixMap):
    """Which prefixes were sent where: a router's own guess at what is cached there.

    Of each server it remembers so many tokens, and forgets the segment sent longest ago.
    """

    def __init__(self, servers: int, most_tokens: int) -> None:
        super().__init__([1] * servers)
        self._most: Final[i64] = most_tokens
        self._recent: Final[list[dict[int, int]]] = [{} for _ in range(servers)]
        self._held = [0] * servers

    def reach(self, servers: int) -> None:
        """There are so many servers now."""
        while len(self._held) < servers:
            self.join(1)
            self._recent.append({})
            self._held.append(0)

    def forget(self, server: int) -> None:
        """The server is gone for good."""
        for key in self._recent[server]:
            self.put(server, key, 0)
        self._recent[server].clear()
        self._held[server] = 0

    def note(self, request: Request, server: int) -> None:
        """A request was sent there."""
        prefix = request.prefix
        if prefix is None:
            return
        recent = self._recent[server]
        start = 0
        for index, key in enumerate(prefix.keys):
            end = prefix.ends[index]
            tokens = recent.pop(key, 0)
            if not tokens:
                tokens = end - start
                self._held[server] += tokens
                self.put(server, key, end)
            recent[key] = tokens
            start = end
        while self._held[server] > self._most and recent:
            oldest = next(iter(recent))
            self._held[server] -= recent.pop(oldest)
            self.put(server, oldest, 0)
