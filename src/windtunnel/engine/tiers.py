"""KV tiers below the accelerator: cached blocks move to host memory or disk, and back.

A block that the accelerator evicts moves to the first tier, what that tier evicts moves to the
next, and what the last one evicts is lost. A block is in one place at a time. The accelerator
evicts the end of a prefix first, and so does every tier, so the start of a chain is on the
accelerator, its continuation in the first tier, and the rest in the next. Like `cache.py`, this
tracks spans of blocks and never single ones.
"""

from typing import Final

from mypy_extensions import i64

from windtunnel.core.statistics.distribution import FEW_VALUES, Distribution
from windtunnel.engine.limits import TierLimits
from windtunnel.workload.request import Request


def own_key(request: Request) -> int:
    """The key of a preempted request's own blocks; keys of prefixes are >= 0."""
    return -2 - int(request.id)


class Span:
    """Consecutive blocks [low, high) of a chain in a tier; the high end is evicted first."""

    def __init__(self, rest: "Rest | None", low: i64, high: i64) -> None:
        self.rest = rest
        self.low: i64 = low
        self.high: i64 = high
        self.before: Span | None = None
        self.after: Span | None = None


class Rest:
    """The part of a chain in the tiers: blocks from `low` on; tier t has them up to ends[t]."""

    def __init__(self, key: int, start: i64, tiers: int) -> None:
        self.key = key
        self.low: i64 = start
        self.ends: list[int] = [int(start)] * tiers
        self.spans: list[list[Span]] = [[] for _ in range(tiers)]  # deepest, so oldest, first


class Tier:
    """One tier: its blocks, oldest first, and its link to the accelerator."""

    def __init__(self, limits: TierLimits) -> None:
        self.limits: Final = limits
        self.used: i64 = 0
        self.most_used: i64 = 0
        self.stored: i64 = 0  # blocks stored, loaded and evicted
        self.loaded: i64 = 0
        self.evicted: i64 = 0
        self.loads: i64 = 0
        self.busy_s = 0.0
        self._free_s = 0.0  # when the link from here is idle
        self._ring: Final = Span(None, 0, 0)  # after it the oldest span, before it the newest
        self._ring.before = self._ring
        self._ring.after = self._ring

    def add(self, span: Span) -> None:
        newest = self._ring.before
        assert newest is not None
        span.before = newest
        span.after = self._ring
        newest.after = span
        self._ring.before = span
        count = span.high - span.low
        self.used += count
        self.stored += count

    def oldest(self) -> Span:
        span = self._ring.after
        assert span is not None
        return span

    def unlink(self, span: Span) -> None:
        before, after = span.before, span.after
        assert before is not None
        assert after is not None
        before.after = after
        after.before = before

    def begin(self, blocks: i64, now: float) -> float:
        """Starts to load blocks, after all current loads; returns when they arrive."""
        takes_s = self.limits.block_s * float(blocks)
        self._free_s = max(now, self._free_s) + takes_s
        self.busy_s += takes_s
        self.loads += 1
        self.loaded += blocks
        return self._free_s + self.limits.latency_s

    def recount(self) -> int:
        """Blocks counted span by span, for checking the counter."""
        found = 0
        span = self.oldest()
        while span is not self._ring:
            found += span.high - span.low
            after = span.after
            assert after is not None
            span = after
        return found


class Load:
    """A request that waits for KV to load, and the keys of the chains being loaded."""

    def __init__(self, request: Request, begun_s: float, ready_s: float, keys: list[int]) -> None:
        self.request: Final = request
        self.begun_s: Final = begun_s
        self.ready_s: Final = ready_s
        self.keys: Final = keys
        self.blocks: i64 = 0  # loaded for this request; others may already be loading


class Tiers:
    """The tiers of one server, from fast to slow."""

    def __init__(self, limits: list[TierLimits], block_size: i64) -> None:
        self.tiers: Final = [Tier(one) for one in limits]
        self.waits: Final = Distribution(FEW_VALUES)  # of requests, for their loads
        self.journal: list[Load] | None = None  # loads as they begin
        self.lost: Final[list[int]] = []  # keys of chains that the last tier has evicted from
        self._size: Final[i64] = block_size
        self._rests: Final[dict[int, Rest]] = {}
        self._arriving: Final[dict[int, list[tuple[int, float]]]] = {}  # from which block, when

    # Down

    def put(self, key: int, low: i64, high: i64) -> None:
        """Stores blocks evicted by the accelerator, the last that it had of the chain."""
        rest = self._rests.get(key)
        if rest is None or rest.low != high:
            self.forget(key)  # chains of the same name that do not match
            rest = Rest(key, high, len(self.tiers))
            self._rests[key] = rest
        rest.low = low
        arriving = self._arriving.get(key)
        if arriving is not None:
            self._keep(key, [piece for piece in arriving if piece[0] < low])
        self._store(0, rest, low, high)

    def put_private(self, count: i64) -> None:
        """Stores evicted blocks whose content will not be used again; they take up room."""
        self._store(0, None, 0, count)

    def _store(self, place: int, rest: Rest | None, low: i64, high: i64) -> None:
        if place == len(self.tiers):
            if rest is not None:
                self.lost.append(rest.key)
                self._drop_if_empty(rest)
            return
        tier = self.tiers[place]
        span = Span(rest, low, high)
        if rest is not None:
            rest.spans[place].append(span)
        tier.add(span)
        while tier.used > tier.limits.blocks:
            self._evict(place, tier)
        tier.most_used = max(tier.most_used, tier.used)

    def _evict(self, place: int, tier: Tier) -> None:
        """Moves the oldest blocks of an overfull tier to the next one."""
        span = tier.oldest()
        rest = span.rest
        count = min(tier.used - tier.limits.blocks, span.high - span.low)
        span.high -= count
        tier.used -= count
        tier.evicted += count
        if span.high == span.low:
            tier.unlink(span)
            if rest is not None:
                rest.spans[place].pop(0)
        if rest is not None:
            rest.ends[place] -= count
        self._store(place + 1, rest, span.high, span.high + count)

    def _drop_if_empty(self, rest: Rest) -> None:
        if rest.low == rest.ends[-1] and self._rests.get(rest.key) is rest:
            del self._rests[rest.key]

    def forget(self, key: int) -> None:
        """Forgets a chain that will not be used again; its blocks stay until they are evicted."""
        rest = self._rests.pop(key, None)
        if rest is not None:
            for spans in rest.spans:
                for span in spans:
                    span.rest = None

    # Up

    def found(self, request: Request, hit: i64) -> i64:
        """Up to which block the tiers continue a prompt's first `hit` blocks on the accelerator.

        The last token of a prompt is never among them.
        """
        reach = hit
        prefix = request.prefix
        if prefix is not None:
            for index, key in enumerate(prefix.keys):
                last: i64 = prefix.ends[index] // self._size
                if last > reach:
                    rest = self._rests.get(key)
                    if rest is not None and rest.low == reach:
                        reach = min(rest.ends[-1], last)
                    if reach < last:
                        break
        if request.preemptions and reach >= request.shared_blocks:
            own = self._rests.get(own_key(request))
            if own is not None and own.low == reach:
                reach = own.ends[-1]
        return min(reach, (request.target - 1) // self._size)

    def load(self, request: Request, hit: i64, reach: i64, now: float) -> tuple[float, list[int]]:
        """Loads blocks [hit, reach) of a prompt onto the accelerator; returns when they arrive.

        The returned keys are those of the chains being loaded.
        """
        pieces: list[tuple[int, int, int]] = []  # key, from which block, out of which tier
        counts = [0] * len(self.tiers)
        prefix = request.prefix
        start = hit
        if prefix is not None:
            for index, key in enumerate(prefix.keys):
                last = min(prefix.ends[index] // self._size, reach)
                if last > start:
                    self._take(self._rests[key], last, counts, pieces)
                    start = last
        if reach > start:
            self._take(self._rests[own_key(request)], reach, counts, [])
        times = [0.0] * len(self.tiers)
        for place, count in enumerate(counts):
            if count:
                times[place] = self.tiers[place].begin(count, now)
        keys: list[int] = []
        for key, low, place in pieces:
            self._arriving.setdefault(key, []).append((low, times[place]))
            keys.append(key)
        return max(times), keys

    def trim(self, key: int, reach: i64) -> None:
        """Drops the blocks of a chain that the accelerator now holds, up to `reach`."""
        rest = self._rests.get(key)
        if rest is not None and rest.low < reach:
            self._take(rest, reach, [0] * len(self.tiers), [])

    def _take(
        self, rest: Rest, upto: i64, counts: list[int], pieces: list[tuple[int, int, int]]
    ) -> None:
        """Takes the blocks below `upto` out of the tiers, and records how many from which."""
        for place, tier in enumerate(self.tiers):
            end = min(rest.ends[place], upto)
            if end <= rest.low:
                continue
            pieces.append((rest.key, int(rest.low), place))
            counts[place] += end - rest.low
            tier.used -= end - rest.low
            rest.low = end
            spans = rest.spans[place]
            while spans and spans[-1].low < end:
                span = spans[-1]
                span.low = min(end, span.high)
                if span.low == span.high:
                    tier.unlink(span)
                    spans.pop()
        for place in range(len(self.tiers)):
            rest.ends[place] = max(rest.ends[place], int(rest.low))
        self._drop_if_empty(rest)

    # On the way

    def ready_s(self, request: Request, upto: i64) -> float:
        """When the last of a prompt's first `upto` blocks arrives that are being loaded; 0: none
        is."""
        ready = 0.0
        prefix = request.prefix
        if prefix is None or not self._arriving:
            return ready
        for index, key in enumerate(prefix.keys):
            pieces = self._arriving.get(key)
            if pieces is not None:
                last = min(prefix.ends[index] // self._size, upto)
                for low, arrives_s in pieces:
                    if low < last and arrives_s > ready:
                        ready = arrives_s
        return ready

    def landed(self, load: Load) -> None:
        """Ends a load that has arrived."""
        for key in load.keys:
            pieces = self._arriving.get(key)
            if pieces is not None:
                self._keep(key, [piece for piece in pieces if piece[1] > load.ready_s])

    def _keep(self, key: int, pieces: list[tuple[int, float]]) -> None:
        if pieces:
            self._arriving[key] = pieces
        else:
            del self._arriving[key]

    # Observations

    def reach(self, key: int) -> i64:
        """Up to which block the tiers hold a chain; 0 when they hold none of it."""
        rest = self._rests.get(key)
        return rest.ends[-1] if rest is not None else 0

    def fault(self) -> str | None:
        """Describes a wrong count or an overfull tier; None when all is well."""
        for tier in self.tiers:
            counted = tier.recount()
            if counted != tier.used or counted > tier.limits.blocks:
                room = f"{tier.limits.blocks} fit"
                return f"{counted} blocks in tier {tier.limits.name}, {tier.used} counted, {room}"
        return None
