"""Prefix indexes: how much of a prompt's start each server has cached, or was sent before.

A prefix is identified by the keys of its segments, so a map from key to servers finds the servers
that have part of a prompt without scanning all of them.
"""

import math
from typing import Any, Final, Protocol

from mypy_extensions import i64

from windtunnel.workload.request import Request

MOST_ENTRIES: Final = 3_000_000
"""Numbers in a journal beyond which even indexes that make no decisions must read it."""
TOKEN_BITS: Final[i64] = 40
TOKENS: Final[i64] = (1 << 40) - 1
"""The bits of a number for a server and its tokens that are the tokens."""


def _held(holders: Any, server: i64) -> i64:
    """The tokens that a server has, of an entry of a PrefixMap."""
    if isinstance(holders, dict):
        tokens: i64 = holders.get(int(server), 0)
        return tokens
    one: i64 = holders
    return one & TOKENS if one >> TOKEN_BITS == server else 0


class PrefixMap:
    """Cached tokens by segment key and server, counted from the start of the prompt."""

    def __init__(self, block_sizes: list[int]) -> None:
        self._sizes: Final = block_sizes
        self._distinct_sizes: Final = sorted(set(block_sizes))
        # By segment key: tokens by server, or for one server, as mostly, both in one number.
        self._by_key: Final[dict[Any, Any]] = {}
        self.found = [0] * len(block_sizes)  # of the last prompt: tokens by server
        self.holders: Final[list[int]] = []  # the servers for which that is not 0

    def join(self, block_size: int) -> None:
        """Adds a server."""
        self._sizes.append(block_size)
        if block_size not in self._distinct_sizes:
            self._distinct_sizes.append(block_size)
        self.found.append(0)

    def put(self, server: i64, key: Any, tokens: i64) -> None:
        """Sets up to which token a server has a segment; 0 if it has none of it."""
        holders = self._by_key.get(key)
        if holders is None:
            if tokens:
                self._by_key[key] = (server << TOKEN_BITS) + tokens
        elif isinstance(holders, dict):
            if tokens:
                holders[int(server)] = int(tokens)
            else:
                holders.pop(int(server), None)
                if not holders:
                    del self._by_key[key]
        else:
            one: i64 = holders
            other = one >> TOKEN_BITS
            if tokens and other != server:
                held = one & TOKENS
                self._by_key[key] = {int(other): int(held), int(server): int(tokens)}
            elif tokens:
                self._by_key[key] = (server << TOKEN_BITS) + tokens
            elif other == server:
                del self._by_key[key]

    def find(self, request: Request) -> None:
        """Fills `found` and `holders` for the prompt of a request that has not been routed yet."""
        found = self.found
        for server in self.holders:
            found[server] = 0
        self.holders.clear()
        prefix = request.prefix
        if prefix is None:
            return
        start: i64 = 0
        for index, key in enumerate(prefix.keys):
            end: i64 = prefix.ends[index]
            holders = self._by_key.get(key)
            further = False
            if isinstance(holders, dict):
                for server, tokens in holders.items():
                    if self._reaches(server, tokens, start, end):
                        further = True
            elif holders is not None:
                one: i64 = holders
                held = one & TOKENS
                further = self._reaches(one >> TOKEN_BITS, held, start, end)
            if not further and self._ends_blocks(start, end):
                break
            start = end
        if prefix.ends[-1] >= request.prompt_tokens:
            self._exclude_last_token(request)

    def _ends_blocks(self, start: i64, end: i64) -> bool:
        """Whether a block of every size ends in a segment, so that no server can do without it."""
        return all(end // size > start // size for size in self._distinct_sizes)

    def _reaches(self, server: i64, tokens: i64, start: i64, end: i64) -> bool:
        """Records a server's tokens of a segment; False if it lacks part of the preceding one."""
        size: i64 = self._sizes[server]
        held: i64 = self.found[server]
        if held != start - start % size:
            return False
        reached: i64 = max(held, min(tokens, end - end % size))
        if held == 0 and reached > 0:
            self.holders.append(int(server))
        self.found[server] = reached
        return True

    def _exclude_last_token(self, request: Request) -> None:
        """Excludes the block of the last token, which is always computed and never a hit."""
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
        """The tokens that one server has of the prompt, followed segment by segment."""
        prefix = request.prefix
        if prefix is None:
            return 0
        size = self._sizes[server]
        found = 0
        for index, key in enumerate(prefix.keys):
            last = prefix.ends[index] // size * size
            if last > found:
                holders = self._by_key.get(key)
                held = int(_held(holders, server)) if holders is not None else 0
                found = max(found, min(held, last))
                if found < last:
                    break
        return min(found, (request.prompt_tokens - 1) // size * size)


class CacheFeed(Protocol):
    """Port: changes of prefix caches, from simulated servers or from KV-cache events.

    A change is three numbers: the server, the key of a prefix segment, and how many tokens up to
    its end are cached, counted from the start of the prompt (0 if it was evicted).
    """

    def servers(self) -> int:
        """Number of servers that exist or existed; they are numbered from 0."""
        ...

    def block_size(self, server: int) -> int:
        """Tokens per KV block of this server; caches hold whole blocks."""
        ...

    def subscribe(self, server: int, changes: list[int]) -> None:
        """Appends this server's cache changes from now on; a second call has no effect."""
        ...

    def unsubscribe(self, server: int) -> None: ...


class CacheJournal:
    """Cache changes of the followed servers, kept until every index has read them."""

    def __init__(self, feed: CacheFeed) -> None:
        self.feed: Final = feed
        self.entries: Final[list[Any]] = []  # (server, key, tokens) in a row
        self._readers: Final[list[CacheIndex]] = []

    @property
    def readers(self) -> list["CacheIndex"]:
        return self._readers[:]

    def read_by(self, reader: "CacheIndex") -> None:
        self._readers.append(reader)

    def leave(self, reader: "CacheIndex") -> None:
        """Removes an index that is no longer used."""
        self._readers.remove(reader)

    def follow(self, servers: list[int]) -> None:
        """Records the changes of these servers, too, from now on."""
        for number in servers:
            self.feed.subscribe(number, self.entries)

    def forget(self, server: int) -> None:
        """Stops following a server that is gone for good; its recorded prefixes become evicted."""
        self.feed.unsubscribe(server)
        entries = self.entries
        for place in range(0, len(entries), 3):
            if entries[place] == server:
                entries[place + 2] = 0

    def trim(self) -> None:
        """Drops the changes that all indexes have read."""
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
    """An index of the servers' prefix caches, at most `delay_s` old.

    A simulated server that runs many equal steps as one event evicts at the end of them, so an
    eviction is known when those steps end; cached blocks are known as soon as they are scheduled.
    """

    def __init__(self, journal: CacheJournal, servers: list[int], delay_s: float) -> None:
        feed = journal.feed
        super().__init__([feed.block_size(server) for server in range(feed.servers())])
        self._journal: Final = journal
        self._delay_s: Final = delay_s
        self.taken_s = -math.inf
        self.read = len(journal.entries)
        journal.read_by(self)
        journal.follow(servers)

    def follow(self, servers: list[int]) -> None:
        """Follows these servers from now on; some may be new."""
        self._reach()
        self._journal.follow(servers)

    def _reach(self) -> None:
        feed = self._journal.feed
        for server in range(len(self.found), feed.servers()):
            self.join(feed.block_size(server))

    def age_s(self, now_s: float) -> float:
        """Age of the index."""
        return now_s - self.taken_s

    def forget(self, server: int) -> None:
        """Removes a server that is gone for good."""
        self._journal.forget(server)
        for key in [key for key, holders in self._by_key.items() if _held(holders, server)]:
            self.put(server, key, 0)

    def catch_up(self, now_s: float) -> None:
        """Reads the journal if the index is older than its delay."""
        if now_s - self.taken_s < self._delay_s:
            return
        self.taken_s = now_s
        if self.read < len(self._journal.entries):
            self.read_on()
            self._journal.trim()

    def read_on(self) -> None:
        self._reach()
        entries = self._journal.entries
        size = len(entries)
        place = self.read
        while place < size:
            self.put(entries[place], entries[place + 1], entries[place + 2])
            place += 3
        self.read = size


class RouteMemory(PrefixMap):
    """Which prefixes were sent where: a router's own estimate of what is cached.

    It remembers a limited number of tokens per server; the least recently sent segment is dropped
    first.
    """

    def __init__(self, servers: int, most_tokens: int) -> None:
        super().__init__([1] * servers)
        self._most: Final[i64] = most_tokens
        self._recent: Final[list[dict[int, int]]] = [{} for _ in range(servers)]
        self._held = [0] * servers

    def reach(self, servers: int) -> None:
        """Grows to this number of servers."""
        while len(self._held) < servers:
            self.join(1)
            self._recent.append({})
            self._held.append(0)

    def forget(self, server: int) -> None:
        """Removes a server that is gone for good."""
        for key in self._recent[server]:
            self.put(server, key, 0)
        self._recent[server].clear()
        self._held[server] = 0

    def note(self, request: Request, server: int) -> None:
        """Records that a request was sent to a server."""
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
