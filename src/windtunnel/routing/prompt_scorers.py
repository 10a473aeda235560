"""Scorers that depend on the prompt: where its prefix is cached or its adapter is loaded."""

from typing import Final

from mypy_extensions import i64

from windtunnel.core.signals import Signals
from windtunnel.routing.prefixes import CacheIndex, RouteMemory
from windtunnel.routing.scorers import Scorer
from windtunnel.workload.request import Request

AFFINITY_TOKENS: Final = 10_000 * 16  # remembered per server
KTHENA_TOKENS: Final = 50_000 * 16  # its router's blocks are 64 bytes: some 16 tokens
KTHENA_LONGEST: Final = 128 * 16
KTHENA_BEST: Final = 5
LORA_ROOM: Final = 0.8  # the score of a server that has a slot for one more adapter
LORA_QUEUED: Final = 0.6  # and of one whose queued requests need the same adapter


class Marks:
    """Points of individual servers for one prompt, beyond what all servers get."""

    def __init__(self, servers: int) -> None:
        self.points = [0] * servers
        self.marked: Final[list[int]] = []

    def reach(self, servers: int) -> None:
        """Grows to this number of servers."""
        self.points.extend([0] * (servers - len(self.points)))

    def clear(self) -> None:
        for server in self.marked:
            self.points[server] = 0
        self.marked.clear()

    def add(self, server: int, points: i64) -> None:
        if points > 0:
            before: i64 = self.points[server]
            if before == 0:
                self.marked.append(server)
            self.points[server] = before + points


class PromptScorer(Scorer):
    """Scores that depend on the prompt, and mostly concern few servers.

    `mark` gives the same scores as `scores`, less what all servers have in common.
    """

    def __init__(self, signals: Signals) -> None:
        super().__init__(signals)
        self.member: list[bool] = []

    def reads_signals(self) -> bool:
        return False

    def set_candidates(self, candidates: list[int]) -> None:
        super().set_candidates(candidates)
        self.member = [False] * len(self.signals.in_flight)
        for server in candidates:
            self.member[server] = True

    def mark(self, request: Request, marks: Marks) -> None:
        raise NotImplementedError

    def note(self, request: Request, server: int) -> None:
        """Records that the request is sent to a server, chosen among `candidates`."""

    def reload(self) -> None:
        """Reads the signals again after servers were probed."""

    def gone(self, server: int) -> None:
        """Drops the state of a server that will never be a candidate again."""


class PrefixCache(PromptScorer):
    """Most cached prompt tokens score 1, fewest 0, as servers report them."""

    def __init__(self, signals: Signals, index: CacheIndex) -> None:
        super().__init__(signals)
        self._index: Final = index

    def scores(self, request: Request) -> list[float]:
        cached = [self._index.tokens(request, server) for server in self.candidates]
        low, high = min(cached), max(cached)
        if low == high:
            return [1.0] * len(cached)
        return [(tokens - low) / (high - low) for tokens in cached]

    def mark(self, request: Request, marks: Marks) -> None:
        index = self._index
        index.find(request)
        found = index.found
        low: i64 = 0
        high: i64 = 0
        count = 0
        for server in index.holders:
            if self.member[server]:
                tokens: i64 = found[server]
                low = tokens if count == 0 or tokens < low else low
                high = max(high, tokens)
                count += 1
        if count < len(self.candidates):
            low = 0
        if high == low:
            return
        for server in index.holders:
            if self.member[server]:
                marks.add(server, self.points(float(found[server] - low) / float(high - low)))


class CachedShare(PromptScorer):
    """The share of the prompt that is cached; used to judge estimates of it."""

    def __init__(self, signals: Signals, index: CacheIndex, longest: int) -> None:
        super().__init__(signals)
        self._index: Final = index
        self._longest: Final = longest

    def scores(self, request: Request) -> list[float]:
        whole = min(int(request.prompt_tokens), self._longest)
        cached = [self._index.tokens(request, server) for server in self.candidates]
        return [min(tokens, whole) / whole for tokens in cached]


class PrefixAffinity(PromptScorer):
    """The share of the prompt that earlier prompts sent to the server had in common with it."""

    def __init__(self, signals: Signals) -> None:
        super().__init__(signals)
        self._memory: Final = RouteMemory(len(signals.in_flight), AFFINITY_TOKENS)

    def scores(self, request: Request) -> list[float]:
        whole = request.prompt_tokens
        return [self._memory.tokens(request, server) / whole for server in self.candidates]

    def mark(self, request: Request, marks: Marks) -> None:
        memory = self._memory
        memory.find(request)
        whole = float(request.prompt_tokens)
        for server in memory.holders:
            if self.member[server]:
                marks.add(server, self.points(float(memory.found[server]) / whole))

    def note(self, request: Request, server: int) -> None:
        self._memory.note(request, server)

    def set_candidates(self, candidates: list[int]) -> None:
        super().set_candidates(candidates)
        self._memory.reach(len(self.member))

    def gone(self, server: int) -> None:
        self._memory.forget(server)


class KthenaPrefixCache(PromptScorer):
    """Like PrefixAffinity, for the first 2048 tokens and the five servers that match most."""

    def __init__(self, signals: Signals) -> None:
        super().__init__(signals)
        self._memory: Final = RouteMemory(len(signals.in_flight), KTHENA_TOKENS)

    def scores(self, request: Request) -> list[float]:
        whole = min(int(request.prompt_tokens), KTHENA_LONGEST)
        matched = [
            min(self._memory.tokens(request, server), whole) / whole for server in self.candidates
        ]
        order = sorted(range(len(matched)), key=lambda n: (-matched[n], self.candidates[n]))
        for n in order[KTHENA_BEST:]:
            matched[n] = 0.0
        return matched

    def mark(self, request: Request, marks: Marks) -> None:
        memory = self._memory
        memory.find(request)
        whole = min(int(request.prompt_tokens), KTHENA_LONGEST)
        matched = [
            (-min(memory.found[server], whole), server)
            for server in memory.holders
            if self.member[server]
        ]
        if len(matched) > KTHENA_BEST:
            matched.sort()
        for tokens, server in matched[:KTHENA_BEST]:
            marks.add(server, self.points(float(-tokens) / float(whole)))

    def note(self, request: Request, server: int) -> None:
        self._memory.note(request, server)

    def set_candidates(self, candidates: list[int]) -> None:
        super().set_candidates(candidates)
        self._memory.reach(len(self.member))

    def gone(self, server: int) -> None:
        self._memory.forget(server)


class NoHitLru(PromptScorer):
    """Rotates prompts that no server has cached; if one has, all servers score the same.

    Of n servers, the one that got such a prompt longest ago scores 1, the next 1 - 1/(n - 1), and
    so on to 0. Because it ranks all servers, it is the only scorer whose cost grows with their
    number.
    """

    def __init__(self, signals: Signals, index: CacheIndex) -> None:
        super().__init__(signals)
        self._index: Final = index
        self._order: list[int] = []  # longest ago first

    def set_candidates(self, candidates: list[int]) -> None:
        super().set_candidates(candidates)
        kept = [server for server in self._order if self.member[server]]
        known = set(kept)
        self._order = [server for server in candidates if server not in known] + kept

    def scores(self, request: Request) -> list[float]:
        if any(self._index.tokens(request, server) for server in self.candidates):
            return [0.5] * len(self.candidates)
        last = max(len(self.candidates) - 1, 1)
        ranked = set(self.candidates)
        order = [server for server in self._order if server in ranked]
        rank = {server: n for n, server in enumerate(order)}
        return [1.0 - rank[server] / last for server in self.candidates]

    def mark(self, request: Request, marks: Marks) -> None:
        if self._cold(request):
            last = float(max(len(self._order) - 1, 1))
            for n, server in enumerate(self._order):
                marks.add(server, self.points(1.0 - float(n) / last))

    def note(self, request: Request, server: int) -> None:
        if self._cold(request):
            self._order.remove(server)
            self._order.append(server)

    def _cold(self, request: Request) -> bool:
        """Whether none of the servers to choose from has any of the prompt cached."""
        self._index.find(request)
        holders = self._index.holders
        if len(self.candidates) == len(self._order):
            return not any(self.member[server] for server in holders)
        return not any(server in self.candidates for server in holders)  # of those that passed


class LoraAffinity(PromptScorer):
    """Prefers servers where the request's adapter is loaded or can be loaded, as in llm-d.

    1 if it is loaded, 0.8 if more slots are free than queued requests need, 0.6 if queued requests
    also need it, and 0 otherwise. Without an adapter, all servers score the same.
    """

    def __init__(self, signals: Signals) -> None:
        super().__init__(signals)
        self._loaded: dict[int, list[int]] = {}  # candidates by adapter
        self._queued: dict[int, list[int]] = {}  # candidates by adapter that queued requests need
        self._roomy: list[int] = []  # candidates with a slot for one more

    def reads_signals(self) -> bool:
        return True

    def set_candidates(self, candidates: list[int]) -> None:
        super().set_candidates(candidates)
        self.reload()

    def reload(self) -> None:
        self._loaded, self._queued, self._roomy = {}, {}, []
        for server in self.candidates:
            for adapter in self.signals.adapters[server]:
                self._loaded.setdefault(adapter, []).append(server)
            for adapter in self.signals.adapters_queued[server]:
                self._queued.setdefault(adapter, []).append(server)
            if self._has_room(server):
                self._roomy.append(server)

    def _has_room(self, server: int) -> bool:
        signals = self.signals
        loaded = signals.adapters[server]
        coming = [one for one in signals.adapters_queued[server] if one not in loaded]
        return len(coming) < signals.adapter_room[server]

    def scores(self, request: Request) -> list[float]:
        adapter = int(request.adapter)
        if adapter < 0:
            return [1.0] * len(self.candidates)
        return [self._score(adapter, server) for server in self.candidates]

    def _score(self, adapter: int, server: int) -> float:
        if adapter in self.signals.adapters[server]:
            return 1.0
        if self._has_room(server):
            return LORA_ROOM
        return LORA_QUEUED if adapter in self.signals.adapters_queued[server] else 0.0

    def mark(self, request: Request, marks: Marks) -> None:
        adapter = int(request.adapter)
        if adapter < 0:
            return
        marked: set[int] = set()
        places = (
            (1.0, self._loaded.get(adapter)),
            (LORA_ROOM, self._roomy),
            (LORA_QUEUED, self._queued.get(adapter)),
        )
        for score, servers in places:
            for server in servers or ():
                if server not in marked:
                    marked.add(server)
                    marks.add(server, self.points(score))
