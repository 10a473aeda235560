"""The KV blocks of one server: exact counts, and which free blocks still hold a known prefix.

vLLM keeps a list of free blocks; blocks whose content has a hash stay findable in it until they are
taken again, least recently used first. Tracking every block would take time in proportion to
tokens. Here consecutive blocks of one prefix move together: a request's blocks are freed tail
first, so the cached part of a prefix is always its head, and its free blocks are few runs.

    Chain   one segment of shared prompt, an answer that later prompts contain, or a preempted
            request's own blocks: blocks [first, resident) are cached; those below `pinned` are in
            use
    Run     free, cached, consecutive blocks of one chain, at one place in the eviction order
"""

from typing import Any, Final

from mypy_extensions import i64

from windtunnel.engine.limits import EngineLimits
from windtunnel.engine.tiers import Tiers, own_key
from windtunnel.workload.request import PrefixChain, Request


class BlockRun:
    """Blocks [low, high) of a chain in the eviction list; the high end is evicted first.

    Without a chain, no request can find these blocks; `hashed` when they have a hash.
    """

    def __init__(self, chain: "Chain | None", low: i64, high: i64, hashed: bool) -> None:  # noqa: FBT001
        self.chain = chain
        self.hashed = hashed
        self.low: i64 = low
        self.high: i64 = high
        self.before: BlockRun | None = None
        self.after: BlockRun | None = None
        self.deeper: BlockRun | None = None  # neighbours in its chain
        self.shallower: BlockRun | None = None


class Chain:
    """A cached segment of a prefix. Block numbers count from the start of the prompt."""

    def __init__(self, key: Any, first: i64) -> None:
        self.key = key
        self.first: i64 = first
        self.resident: i64 = first
        self.pinned: i64 = first
        # Users that hold the chain up to `_upto`, usually all; and the number of others by block.
        self._upto: i64 = first
        self._users: i64 = 0
        self._others: dict[int, int] | None = None
        self.shallowest: BlockRun | None = None  # of its runs; the deepest is evicted first
        self.is_named = False  # whether later requests find it by its key

    def hold(self, upto: i64) -> None:
        """Counts one more request that holds the chain up to a block."""
        if self._users == 0:
            self._upto = upto
        if self._upto == upto:
            self._users += 1
            return
        if self._others is None:
            self._others = {}
        self._others[upto] = self._others.get(upto, 0) + 1

    def drop(self, upto: i64) -> None:
        """Uncounts a request that held the chain up to this block."""
        if self._upto == upto and self._users > 0:
            self._users -= 1
            return
        others = self._others
        assert others is not None
        users = others[upto] - 1
        if users:
            others[upto] = users
        else:
            del others[upto]

    def add(self, run: BlockRun) -> None:
        """Adds a run, shallower than all others."""
        deeper = self.shallowest
        run.deeper = deeper
        if deeper is not None:
            deeper.shallower = run
        self.shallowest = run

    def remove(self, run: BlockRun) -> None:
        deeper, shallower = run.deeper, run.shallower
        if deeper is not None:
            deeper.shallower = shallower
        if shallower is not None:
            shallower.deeper = deeper
        else:
            self.shallowest = deeper

    def is_held(self) -> bool:
        return self._users > 0 or bool(self._others)

    def held(self) -> i64:
        """Up to which block any request holds it; `first` when none does."""
        held = self._upto if self._users > 0 else self.first
        others = self._others
        if others:
            held = max(held, *others)
        return held


class BlockPool:
    """All blocks of a server. `free` counts the blocks without an owner, cached or not."""

    def __init__(self, limits: EngineLimits) -> None:
        self._limits: Final = limits
        self.blocks: Final[i64] = limits.usable_blocks
        self.block_size: Final[i64] = limits.block_size
        self.caching: Final = limits.prefix_caching
        self._unhashed_first: Final = limits.unhashed_blocks_first
        self._computed_at_least: Final[i64] = 1 if limits.compute_whole_hits else 0
        self._unhashed: i64 = self.blocks  # free and at the head of the list
        self._listed: i64 = 0  # free and in runs
        self.free: i64 = self.blocks
        self.lowest_free: i64 = self.blocks
        self.leaked: i64 = 0  # unusable for good: neither free nor held by a request
        self._chains: Final[dict[Any, Chain]] = {}
        self._own: Final[dict[int, Chain]] = {}  # preempted requests' own blocks, by request id
        self._ends: Final = BlockRun(None, 0, 0, False)  # noqa: FBT003 - a ring: after it the oldest run, before it the newest
        self._ends.before = self._ends
        self._ends.after = self._ends
        self.tiers: Tiers | None = None  # where evicted blocks go
        self.journal: list[int] | None = None  # (owner, key, resident tokens or 0) of each change
        self._owner: Any = 0  # a number, kept boxed

    def listen(self, journal: list[int], owner: int) -> None:
        """Writes every change of a cached shared prefix to the journal, as `owner`."""
        self.journal = journal
        self._owner = owner

    def _note(self, chain: Chain) -> None:
        if chain.is_named:
            self._write(chain.key, chain.resident if chain.resident > chain.first else 0)

    def _write(self, key: Any, reach: i64) -> None:
        """Journals up to which block a chain can be found, on the accelerator or in a tier."""
        journal = self.journal
        number: i64 = key
        if journal is not None and number >= 0:
            if self.tiers is not None:
                reach = max(reach, self.tiers.reach(key))
            journal.append(self._owner)
            journal.append(key)
            journal.append(reach * self.block_size)

    def take(self, count: i64) -> None:
        """Takes blocks for a request, evicting the least recently used ones if necessary."""
        self.free -= count
        assert self.free >= 0
        if self.free < self.lowest_free:
            self.lowest_free = self.free
        if count <= self._unhashed:
            self._unhashed -= count
            return
        count -= self._unhashed
        self._unhashed = 0
        self._listed -= count
        while count > 0:
            run = self._ends.after
            assert run is not None
            evicted = min(count, run.high - run.low)
            run.high -= evicted
            count -= evicted
            chain = run.chain
            if chain is not None:
                chain.resident -= evicted
            if self.tiers is not None:
                self._offload(run, evicted)
            elif self.journal is not None and chain is not None:
                self._note(chain)
            if run.high == run.low:
                self._unlink(run)
                if chain is not None:
                    chain.remove(run)
                    if chain.resident == chain.first and not chain.is_held():
                        self._forget(chain)

    def leak(self, count: i64) -> None:
        """Makes free blocks unusable for good."""
        self.take(count)
        self.leaked += count

    def _offload(self, run: BlockRun, count: i64) -> None:
        """Moves evicted blocks to the tiers, where the last tier may evict others."""
        tiers = self.tiers
        assert tiers is not None
        chain = run.chain
        if chain is not None:
            tiers.put(chain.key, run.high, run.high + count)
        elif run.hashed:
            tiers.put_private(count)
        for key in tiers.lost:
            known = self._chains.get(key)
            self._write(key, known.resident if known is not None else 0)
        tiers.lost.clear()

    def hit(self, request: Request) -> i64:
        """The number of cached blocks from the start of the prompt.

        The last token is never among them, unless `compute_whole_hits` is false.
        """
        if not self.caching:
            return 0
        found: i64 = 0
        prefix = request.prefix
        if prefix is not None:
            for index, key in enumerate(prefix.keys):
                last = prefix.ends[index] // self.block_size
                if last > found:
                    chain = self._chains.get(key)
                    if chain is not None and chain.first == found:
                        found = min(chain.resident, last)
                    if found < last:
                        break
        if request.preemptions and found == request.shared_blocks:
            own = self._own.get(request.id)
            if own is not None:
                found = own.resident
        most = (request.target - self._computed_at_least) // self.block_size
        return found if found < most else most

    def for_windows(self, request: Request) -> i64:
        """Blocks that a request takes at admission for its sliding-window layers."""
        if self._limits.windows is None:
            return 0
        held = request.window_blocks
        return held if held > 0 else self._limits.window_blocks(request.last)

    def free_among(self, request: Request, hit: i64) -> i64:
        """How many of the first `hit` blocks are not held: pinning them uses up free blocks."""
        unheld: i64 = 0
        start: i64 = 0
        prefix = request.prefix
        if prefix is not None:
            for index, key in enumerate(prefix.keys):
                last = min(prefix.ends[index] // self.block_size, hit)
                if last > start:
                    unheld += max(0, last - max(self._chains[key].pinned, start))
                    start = last
        return unheld + max(0, hit - request.shared_blocks)

    def admit(self, request: Request, hit: i64) -> None:
        """Pins the cached blocks that a request hit; the rest of its own cached blocks is
        forgotten."""
        request.sharing = self.caching
        shared = request.shared_blocks
        request.pinned_blocks = hit if hit < shared else shared
        start: i64 = 0
        prefix = request.prefix
        if prefix is not None:
            for index, key in enumerate(prefix.keys):
                last = min(prefix.ends[index] // self.block_size, request.pinned_blocks)
                if last > start:
                    self._hold(self._chains[key], last)
                    start = last
        if request.preemptions:
            own = self._own.get(request.id)
            if own is not None:
                self._hold(own, max(hit, own.first))
                self.forget_own(request)
        if self._limits.windows is not None:
            request.window_blocks = self.for_windows(request)
            self.take(request.window_blocks)

    def forget_own(self, request: Request) -> None:
        """Drops the chain of a preempted request's own blocks, which no request will use again."""
        own = self._own.pop(request.id, None)
        if own is not None:
            run = own.shallowest
            while run is not None:
                deeper = run.deeper
                run.chain = run.deeper = run.shallower = None
                run = deeper
            if self.tiers is not None:
                self.tiers.forget(own.key)

    def _hold(self, chain: Chain, upto: i64) -> None:
        chain.hold(upto)
        if upto > chain.pinned:
            chain.pinned = upto
        run = chain.shallowest
        while run is not None and run.low < upto:
            taken = min(upto, run.high) - run.low
            run.low += taken
            self._listed -= taken
            self.free -= taken
            if run.low == run.high:
                self._unlink(run)
                chain.remove(run)
            run = chain.shallowest

    def extend(self, request: Request, computed: i64) -> None:
        """Makes the shared blocks that a request has computed findable, unless others did so
        before."""
        prefix = request.prefix
        if prefix is None or not request.sharing:
            return
        upto = min(computed // self.block_size, request.shared_blocks)
        if upto <= request.pinned_blocks:
            return
        index = self._segment_of(prefix, request.pinned_blocks)
        start: i64 = prefix.ends[index - 1] // self.block_size if index else 0
        while start < upto:
            last = prefix.ends[index] // self.block_size
            reach = min(last, upto)
            held = request.pinned_blocks
            if reach > held:
                key = prefix.keys[index]
                chain = self._chains.get(key)
                if chain is None:
                    chain = self._name(key, start)
                if chain.first != start or chain.resident != max(held, start):
                    request.sharing = False
                    return
                if held > start:
                    chain.drop(held)
                chain.hold(reach)
                chain.resident = reach
                chain.pinned = reach
                if self.tiers is not None:
                    self.tiers.trim(key, reach)
                if self.journal is not None:
                    self._note(chain)
                request.pinned_blocks = reach
            start = max(start, last)
            index += 1

    def _segment_of(self, prefix: PrefixChain, block: i64) -> i64:
        """The first segment that extends beyond this many blocks of a prompt."""
        tokens = (block + 1) * self.block_size
        low: i64 = 0
        high: i64 = len(prefix.ends) - 1
        while low < high:
            middle = (low + high) >> 1
            if prefix.ends[middle] < tokens:
                low = middle + 1
            else:
                high = middle
        return low

    def release(self, request: Request, computed: i64, *, preempted: bool) -> None:
        """Frees a request's blocks, tail first; full ones can be found until they are taken."""
        held = -(-computed // self.block_size)
        if request.window_blocks:
            self._close_window(request)
        if request.spare_blocks:
            self._free_unhashed(request.spare_blocks)
            request.spare_blocks = 0
        if request.unheld_blocks:
            self._free_unhashed(held - request.unheld_blocks)
            request.unheld_blocks = 0
            if not preempted:
                self.forget_own(request)
            return
        if not self.caching:
            self._free_unhashed(held)
            return
        full = computed // self.block_size
        if held > full:
            self._free_unhashed(held - full)
        if full > request.shared_blocks:
            chain: Chain | None = None
            if preempted:
                chain = Chain(own_key(request), request.shared_blocks)
                chain.resident = full
                self._own[request.id] = chain
            elif request.answer_key >= 0 and computed == request.last:
                chain = self._answer(request, full)
            self._list(chain, request.shared_blocks, full, True)  # noqa: FBT003
        if request.shared_blocks:
            self._free_unhashed(min(full, request.shared_blocks) - request.pinned_blocks)
        if request.pinned_blocks:
            self._release_shared(request)
            request.pinned_blocks = 0

    def _answer(self, request: Request, full: i64) -> Chain | None:
        """Names a whole answer as a segment of later prompts; None when it is already cached."""
        key = int(request.answer_key)
        if not request.sharing or key in self._chains:
            return None
        chain = self._name(key, request.shared_blocks)
        chain.resident = full
        if self.tiers is not None:
            self.tiers.trim(key, full)
        if self.journal is not None:
            self._note(chain)
        return chain

    def unreserve(self, request: Request, held: i64) -> None:
        """Frees blocks reserved for KV that never arrived; its prefix hits can still be found."""
        self._close_window(request)
        self._free_unhashed(held - request.pinned_blocks)
        if request.pinned_blocks:
            self._release_shared(request)
            request.pinned_blocks = 0

    def _close_window(self, request: Request) -> None:
        if request.window_blocks:
            self._free_unhashed(request.window_blocks)
            request.window_blocks = 0

    def give_back(self, count: i64) -> None:
        """Frees blocks that were never written to."""
        if count:
            self._free_unhashed(count)

    def _release_shared(self, request: Request) -> None:
        prefix = request.prefix
        assert prefix is not None
        end: i64 = prefix.ends[-1] // self.block_size
        for index in range(len(prefix.keys) - 1, -1, -1):
            last = min(end, request.pinned_blocks)
            end = prefix.ends[index - 1] // self.block_size if index else 0
            if last <= end:
                continue
            chain = self._chains[prefix.keys[index]]
            chain.drop(last)
            pinned = chain.held()
            if pinned < chain.pinned:
                self._list(chain, pinned, chain.pinned, True)  # noqa: FBT003
                chain.pinned = pinned

    def _free_unhashed(self, count: i64) -> None:
        if self._unhashed_first:
            self._unhashed += count
            self.free += count
        elif count:
            self._list(None, 0, count, False)  # noqa: FBT003

    def _list(self, chain: Chain | None, low: i64, high: i64, hashed: bool) -> None:  # noqa: FBT001
        """Appends blocks to the eviction list, as the most recently used."""
        run = BlockRun(chain, low, high, hashed)
        if chain is not None:
            chain.add(run)
        newest = self._ends.before
        assert newest is not None
        run.before = newest
        run.after = self._ends
        newest.after = run
        self._ends.before = run
        self._listed += high - low
        self.free += high - low

    def _unlink(self, run: BlockRun) -> None:
        before, after = run.before, run.after
        assert before is not None
        assert after is not None
        before.after = after
        after.before = before

    def _name(self, key: Any, first: i64) -> Chain:
        """Creates a chain that requests find by its key."""
        chain = Chain(key, first)
        chain.is_named = True
        self._chains[key] = chain
        return chain

    def _forget(self, chain: Chain) -> None:
        if chain.is_named:
            chain.is_named = False
            del self._chains[chain.key]

    @property
    def chains(self) -> i64:
        """The number of prefixes known by key."""
        return len(self._chains)

    def pinned(self) -> i64:
        """Shared blocks that requests hold, each counted once."""
        return sum(chain.pinned - chain.first for chain in self._chains.values())

    def recount(self) -> tuple[int, int]:
        """(free, cached) counted from the list itself, for checking the counters."""
        listed = 0
        cached = 0
        run = self._ends.after
        while run is not None and run is not self._ends:
            listed += run.high - run.low
            if run.chain is not None:
                cached += run.high - run.low
            run = run.after
        assert listed == self._listed
        return self._unhashed + listed, cached
