"""The KV blocks of the reference engine, one by one: which are free, and what each holds.

Rules where vLLM leaves copies of equal content findable, which a simulation need not follow:
- a shared block that somebody else made findable first is a copy; copies have no hash, and from its
  first copy on a request's shared blocks are copies;
- a preempted request that resumes forgets cached blocks of its own that it did not take back;
- an answer that prompts to come contain can be found from when all of it is computed and its blocks
  are given back.
"""

from collections import OrderedDict

from windtunnel.engine.limits import EngineLimits, TierLimits
from windtunnel.workload.request import Request

Key = tuple[str, int, int]
"""Whose content it is (shared, own, nobody's), the segment or request, and which block of it."""


class Block:
    """One KV block: what it holds (when that has a name) and how many requests use it."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.key: Key | None = None
        self.hashed = False
        self.users = 0
        self.ready_s = 0.0  # when its content is there, if that comes from a tier


class ReferenceTier:
    """Blocks that were evicted, by name, least recently stored first, and the way from them."""

    def __init__(self, limits: TierLimits) -> None:
        self.limits = limits
        self.names: OrderedDict[Key, None] = OrderedDict()
        self.free_s = 0.0
        self.stored = 0
        self.loaded = 0

    def begin(self, blocks: int, now: float) -> float:
        """Loads go one after another; when this one has arrived."""
        self.free_s = max(self.free_s, now) + self.limits.block_s * blocks
        self.loaded += blocks
        return self.free_s + self.limits.latency_s


class ReferenceBlocks:
    """The free list, block by block, in the order in which blocks are taken."""

    def __init__(self, limits: EngineLimits) -> None:
        self.limits = limits
        self.size = int(limits.block_size)
        self.free: OrderedDict[int, Block] = OrderedDict(
            (number, Block(number)) for number in range(limits.usable_blocks)
        )
        self.table: dict[Key, Block] = {}
        self.lowest_free = len(self.free)
        self.tiers = [ReferenceTier(tier) for tier in limits.tiers or ()]
        self.nameless = 0

    def take(self) -> Block:
        _, block = self.free.popitem(last=False)
        if block.hashed:
            key = block.key
            if key is not None and self.table.get(key) is block:
                del self.table[key]
            else:
                key = self.new_name()
            self.put_down(key)
        block.key = None
        block.hashed = False
        block.ready_s = 0.0
        block.users = 1
        self.lowest_free = min(self.lowest_free, len(self.free))
        return block

    def touch(self, block: Block) -> None:
        if block.users == 0:
            del self.free[block.number]
        block.users += 1

    def give_back(self, blocks: list[Block]) -> None:
        """Tail first: the start of a prompt stays cached longest."""
        for block in reversed(blocks):
            block.users -= 1
            if block.users == 0:
                self.free[block.number] = block
                if not block.hashed and self.limits.unhashed_blocks_first:
                    self.free.move_to_end(block.number, last=False)

    # What blocks hold

    def key(self, request: Request, index: int) -> Key:
        """The name of a full block: by shared segment where one covers it, else its own."""
        if request.prefix is not None:
            for key, end in zip(request.prefix.keys, request.prefix.ends, strict=True):
                if (index + 1) * self.size <= end:
                    return ("shared", key, index)
        return ("own", int(request.id), index)

    def hits(self, request: Request, spare: int = 1) -> list[Block]:
        """The cached blocks of a prompt, from its start to `spare` tokens before its end."""
        found: list[Block] = []
        if self.limits.prefix_caching:
            while (len(found) + 1) * self.size <= request.target - spare:
                block = self.table.get(self.key(request, len(found)))
                if block is None:
                    break
                found.append(block)
        return found

    def name(self, request: Request, held: list[Block], computed: int) -> None:
        """Makes the full blocks of a request findable."""
        if not self.limits.prefix_caching:
            return
        for index in range(computed // self.size):
            block = held[index]
            key = self.key(request, index)
            if block.hashed or (key[0] == "shared" and not request.sharing):
                continue
            if key[0] == "shared" and key in self.table:
                request.sharing = False
                continue
            block.key = key
            block.hashed = True
            self.table[key] = block
            self.trim(key)

    def trim(self, key: Key) -> None:
        """What the accelerator has, tiers need not."""
        for tier in self.tiers:
            tier.names.pop(key, None)

    def name_answer(self, request: Request, held: list[Block]) -> None:
        """A whole answer is known by its own name from now on."""
        for index in range(request.last // self.size):
            block = held[index]
            answer = ("shared", int(request.answer_key), index)
            if block.key is None or block.key[0] != "own":
                continue
            if not request.sharing or answer in self.table:
                return
            del self.table[block.key]
            block.key = answer
            self.table[answer] = block
            self.trim(answer)

    def forget_own(self, request: Request, kept: int) -> None:
        for key in [key for key in self.table if key[:2] == ("own", request.id)]:
            if key[2] >= kept:
                del self.table[key]
        for tier in self.tiers:
            names = [self.new_name() if k[:2] == ("own", request.id) else k for k in tier.names]
            tier.names = OrderedDict.fromkeys(names)

    # Tiers

    def new_name(self) -> Key:
        """For content that nobody will ask for."""
        self.nameless += 1
        return ("nobody", self.nameless, 0)

    def put_down(self, key: Key) -> None:
        """An evicted block goes to the first tier, what that evicts to the next, and so on."""
        for tier in self.tiers:
            tier.names[key] = None
            tier.stored += 1
            if len(tier.names) <= tier.limits.blocks:
                return
            key, _ = tier.names.popitem(last=False)

    def below(self, request: Request, start: int) -> list[Key]:
        """The blocks of a prompt that tiers have, from block `start` on."""
        found: list[Key] = []
        while (start + len(found) + 1) * self.size < request.target:
            key = self.key(request, start + len(found))
            if not any(key in tier.names for tier in self.tiers):
                break
            found.append(key)
        return found

    def load(self, keys: list[Key], now: float) -> list[float]:
        """Takes blocks out of the tiers: when each arrives."""
        arrives: dict[Key, float] = {}
        for tier in self.tiers:
            mine = [key for key in keys if key in tier.names]
            if mine:
                arrives |= dict.fromkeys(mine, tier.begin(len(mine), now))
            for key in mine:
                del tier.names[key]
        return [arrives[key] for key in keys]
