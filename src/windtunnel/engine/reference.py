"""The reference engine: one step at a time, one request at a time, one block at a time.

Slow and obvious on purpose. It is the specification in code of what `server.py` does in jumps, and
property tests hold the two equal. Nothing here is shared with the fast engine but the request
record, the limits, the queue order and the histogram.

Rules of the block cache where vLLM leaves copies of equal content findable, which a simulation need
not follow:
- a shared block that somebody else made findable first is a copy; copies have no hash, and from its
  first copy on a request's shared blocks are copies;
- a preempted request that resumes forgets cached blocks of its own that it did not take back;
- an answer that prompts to come contain can be found from when all of it is computed and its blocks
  are given back.
"""

import math
from collections import OrderedDict
from collections.abc import Hashable

from windtunnel.core.histogram import Histogram
from windtunnel.engine.limits import FCFS, LENGTH_CAPPED, PRIORITY, EngineLimits
from windtunnel.engine.queue import rank
from windtunnel.models.steptime import StepTimeModel, StepWork
from windtunnel.workload.request import UNSET, Request


class Block:
    """One KV block: what it holds (when that has a name) and how many requests use it."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.key: Hashable = None
        self.hashed = False
        self.users = 0


class ReferenceBlocks:
    """The free list, block by block, in the order in which blocks are taken."""

    def __init__(self, limits: EngineLimits) -> None:
        self.limits = limits
        self.free: OrderedDict[int, Block] = OrderedDict(
            (number, Block(number)) for number in range(1, limits.kv_blocks)
        )
        self.table: dict[Hashable, Block] = {}
        self.lowest_free = len(self.free)

    def take(self) -> Block:
        _, block = self.free.popitem(last=False)
        if block.key is not None and self.table.get(block.key) is block:
            del self.table[block.key]
        block.key = None
        block.hashed = False
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


class PlannedStep:
    """One step: how many tokens each request computes in it."""

    def __init__(
        self, tokens: list[tuple[Request, int]], start_s: float, duration_s: float
    ) -> None:
        self.tokens = tokens
        self.start_s = start_s
        self.end_s = start_s + duration_s
        self.admitted: list[Request] = []
        self.produces: list[Request] = []
        self.sizes = {"tokens": 0, "decodes": 0, "context": 0.0, "prompt": 0}


class ReferenceServer:
    """The same face as `server.Server`."""

    def __init__(self, index: int, limits: EngineLimits, model: StepTimeModel) -> None:
        self.index = index
        self.limits = limits
        self.model = model
        self.blocks = ReferenceBlocks(limits)
        self.waiting: list[Request] = []
        self.running: list[Request] = []
        self.held: dict[int, list[Block]] = {}
        self.last_token_s: dict[int, float] = {}
        self.finished: list[Request] = []
        self.token_gaps = Histogram()
        self.wake_s = math.inf
        self.busy_s = 0.0
        self.steps = 0
        self.preemptions = 0
        self.prefilled_tokens = 0
        self.bounds = model.measured()
        self.beyond = {"steps": 0, "tokens": 0, "decodes": 0, "context": 0}
        self.most_beyond = {"tokens": 0.0, "decodes": 0.0, "context": 0.0}
        self.beyond_s = 0.0
        self.admission_order: list[int] = []
        self.free_after: list[tuple[float, int]] = []  # free blocks after each step that ended
        self.current: PlannedStep | None = None
        self.following: PlannedStep | None = None
        self.transferred: list[Request] = []  # waiting, with the KV of their prompt
        self.apart: list[Request] = []  # holding blocks, neither waiting nor running
        self.leaving: list[Request] = []  # cancelled while running

    def submit(self, request: Request, now: float) -> None:
        if self.receive(request, now):
            self.waiting.append(request)
            self.look_again(now)

    def look_again(self, now: float) -> None:
        if self.current is None:
            self.wake_s = min(self.wake_s, now)

    def receive(self, request: Request, now: float) -> bool:
        request.server = self.index
        reason = self.limits.refusal(request.prompt_tokens, request.output_tokens)
        if reason:
            request.reason = reason
            request.dropped = True
            request.finished_s = now
            self.finished.append(request)
            return False
        answer = self.limits.answer_tokens(request.prompt_tokens, request.output_tokens)
        if answer < request.output_tokens:
            request.output_tokens = answer
            request.reason = LENGTH_CAPPED
        request.target = request.prompt_tokens
        request.last = request.prompt_tokens + answer - 1
        return True

    def cancel(self, request: Request, now: float) -> None:
        request.cancelled = True
        if request in self.waiting:
            self.waiting.remove(request)
        elif request in self.transferred:
            self.transferred.remove(request)
            self.give_back(request)
        else:
            self.leaving.append(request)
        self.look_again(now)

    def reserve(self, request: Request, tokens: int, now: float) -> int:
        if not self.receive(request, now):
            return -1
        size = self.limits.block_size
        hits = self.hits(request)
        new = -(-request.prompt_tokens // size) - len(hits)
        if new + sum(block.users == 0 for block in hits) > len(self.blocks.free):
            return -1
        for block in hits:
            self.blocks.touch(block)
        self.held[request.id] = hits + [self.blocks.take() for _ in range(new)]
        request.sharing = True
        request.prefix_hit_tokens = len(hits) * size
        request.computed = max(len(hits) * size, min(tokens, request.prompt_tokens - 1))
        self.apart.append(request)
        return max(0, tokens - len(hits) * size)

    def submit_arrived(self, request: Request, now: float) -> None:
        self.apart.remove(request)
        self.name_blocks(request, request.computed)
        self.transferred.append(request)
        self.look_again(now)

    def let_go(self, request: Request, now: float) -> None:
        self.apart.remove(request)
        self.give_back(request)
        self.look_again(now)

    def advance(self, now: float) -> None:
        host = self.limits.host_overhead_s
        if self.current is not None:
            self.complete(self.current)
        for request in self.leaving:
            if request in self.running:
                self.running.remove(request)
                self.give_back(request)
        self.leaving.clear()
        self.current, self.following = self.following, None
        if self.limits.async_scheduling:
            if self.current is None:
                self.current = self.plan(now + host)
            self.free_after.append((now, len(self.blocks.free)))
            if self.current is not None:
                self.following = self.plan(self.current.end_s)
        else:
            self.current = self.plan(now)
            self.free_after.append((now, len(self.blocks.free)))
        self.wake_s = math.inf
        if self.current is not None:
            self.wake_s = self.current.end_s
            for request in self.current.admitted:
                if request.scheduled_s == UNSET and not request.cancelled:
                    request.scheduled_s = self.current.start_s

    def stop(self, now: float) -> None:
        """Accounts for what has passed of the current step when a run ends before it does."""
        if self.current is not None and self.current.start_s < now:
            self.busy_s += now - self.current.start_s
            if self.excesses(self.current):
                self.beyond_s += now - self.current.start_s

    def excesses(self, step: PlannedStep) -> list[str]:
        """In what the step is larger than any that its times were measured at."""
        bounds = self.bounds
        if bounds is None:
            return []
        sizes = step.sizes
        over = [name for name in ("tokens", "decodes") if sizes[name] > getattr(bounds, name)]
        if sizes["context"] > bounds.context or sizes["prompt"] > bounds.prompt:
            over.append("context")
        return over

    def plan(self, start_s: float) -> PlannedStep | None:
        """One call of vLLM's schedule(): running requests first, then the queue."""
        budget = self.limits.max_num_batched_tokens
        planned: list[tuple[Request, int]] = []
        preempted = False
        position = 0
        while position < len(self.running) and budget > 0:
            request = self.running[position]
            want = self.next_tokens(request, budget)
            while request in self.running and not self.can_hold(request, want):
                preempted = True
                victim = self.victim()
                if self.running.index(victim) < position:
                    position -= 1
                budget += sum(tokens for other, tokens in planned if other is victim)
                planned = [entry for entry in planned if entry[0] is not victim]
                self.preempt(victim)
            if request not in self.running:
                break
            if want:
                self.hold(request, want)
                planned.append((request, want))
                budget -= want
            position += 1
        admitted: list[Request] = []
        if not preempted:
            self.admit(planned, admitted, budget)
        if planned:
            step = self.as_step(planned, start_s)
            step.admitted = admitted
            return step
        return self.plan(start_s) if preempted else None  # an empty step takes no time

    def next_tokens(self, request: Request, budget: int) -> int:
        if request.computed >= request.target:
            return 1 if request.computed < request.last else 0
        return self.chunk(request.target - request.computed, budget)

    def chunk(self, tokens: int, budget: int) -> int:
        threshold = self.limits.long_prefill_threshold
        if 0 < threshold < tokens:
            tokens = threshold
        return min(tokens, budget)

    def victim(self) -> Request:
        running = [r for r in self.running if not (r.keeps_blocks and r.computed >= r.last)]
        if self.limits.scheduling == PRIORITY:
            return max(running, key=lambda request: rank(request, PRIORITY))
        return running[-1]

    def preempt(self, request: Request) -> None:
        self.preemptions += 1
        request.preemptions += 1
        self.running.remove(request)
        self.give_back(request)
        if request.computed >= request.last:
            return  # nothing is left to compute; its last token is on its way
        if request.computed >= request.target:
            request.target = request.computed + 1
        request.computed = 0
        self.waiting.insert(0, request)

    def admit_transferred(
        self, planned: list[tuple[Request, int]], admitted: list[Request], budget: int
    ) -> int:
        while budget > 0 and self.transferred and len(self.running) < self.limits.max_num_seqs:
            request = self.transferred[0]
            rest = request.target - request.computed
            threshold = self.limits.long_prefill_threshold
            if not self.limits.chunked_prefill and min(rest, threshold or rest) > budget:
                break
            self.transferred.pop(0)
            self.running.append(request)
            self.admission_order.append(request.id)
            admitted.append(request)
            used = -(-request.computed // self.limits.block_size)
            self.blocks.give_back(self.held[request.id][used:])
            del self.held[request.id][used:]
            want = self.chunk(rest, budget)
            self.hold(request, want)
            planned.append((request, want))
            budget -= want
        return budget

    def admit(
        self, planned: list[tuple[Request, int]], admitted: list[Request], budget: int
    ) -> None:
        budget = self.admit_transferred(planned, admitted, budget)
        if self.transferred:
            return
        while budget > 0 and self.waiting and len(self.running) < self.limits.max_num_seqs:
            if self.limits.scheduling != FCFS:
                self.waiting.sort(key=lambda request: rank(request, self.limits.scheduling))
            request = self.waiting[0]
            hits = self.hits(request)
            size = self.limits.block_size
            rest = request.target - len(hits) * size
            want = self.chunk(rest, budget)
            threshold = self.limits.long_prefill_threshold
            if not self.limits.chunked_prefill and min(rest, threshold or rest) > budget:
                return
            tokens = len(hits) * size + want
            if self.limits.reserve_full_prompt:
                tokens = request.target
            unheld = sum(block.users == 0 for block in hits)
            if -(-tokens // size) - len(hits) + unheld > len(self.blocks.free):
                return
            self.waiting.pop(0)
            self.running.append(request)
            self.admission_order.append(request.id)
            for block in hits:
                self.blocks.touch(block)
            self.held[request.id] = hits
            self.forget_own(request, len(hits))
            request.computed = len(hits) * size
            if not request.preemptions:
                request.prefix_hit_tokens = request.computed
            request.sharing = True
            admitted.append(request)
            self.hold(request, want)
            planned.append((request, want))
            budget -= want

    def block_key(self, request: Request, index: int) -> tuple[str, int, int]:
        """The name of a full block: by shared segment where one covers it, else its own."""
        size = self.limits.block_size
        if request.prefix is not None:
            for key, end in zip(request.prefix.keys, request.prefix.ends, strict=True):
                if (index + 1) * size <= end:
                    return ("shared", key, index)
        return ("own", request.id, index)

    def hits(self, request: Request) -> list[Block]:
        found: list[Block] = []
        if self.limits.prefix_caching:
            while (len(found) + 1) * self.limits.block_size < request.target:
                block = self.blocks.table.get(self.block_key(request, len(found)))
                if block is None:
                    break
                found.append(block)
        return found

    def give_back(self, request: Request) -> None:
        """Frees what a request holds; a whole answer is known by its own name from now on."""
        if request.answer_key >= 0 and request.computed >= request.last:
            self.name_answer(request)
        self.blocks.give_back(self.held.pop(request.id))

    def name_answer(self, request: Request) -> None:
        for index in range(request.last // self.limits.block_size):
            block = self.held[request.id][index]
            answer = ("shared", int(request.answer_key), index)
            if block.key != ("own", request.id, index):
                continue
            if not request.sharing or answer in self.blocks.table:
                return
            del self.blocks.table[block.key]
            block.key = answer
            self.blocks.table[answer] = block

    def forget_own(self, request: Request, kept: int) -> None:
        for key in [key for key in self.blocks.table if key[:2] == ("own", request.id)]:  # type: ignore[index]
            if key[2] >= kept:  # type: ignore[index]
                del self.blocks.table[key]

    def can_hold(self, request: Request, want: int) -> bool:
        total = -(-(request.computed + want) // self.limits.block_size)
        return total - len(self.held[request.id]) <= len(self.blocks.free)

    def hold(self, request: Request, want: int) -> None:
        """Takes the blocks for the next tokens, and makes the ones that become full findable."""
        size = self.limits.block_size
        held = self.held[request.id]
        while len(held) * size < request.computed + want:
            held.append(self.blocks.take())
        self.name_blocks(request, request.computed + want)

    def name_blocks(self, request: Request, computed: int) -> None:
        if not self.limits.prefix_caching:
            return
        for index in range(computed // self.limits.block_size):
            block = self.held[request.id][index]
            key = self.block_key(request, index)
            if block.hashed or (key[0] == "shared" and not request.sharing):
                continue
            if key[0] == "shared" and key in self.blocks.table:
                request.sharing = False
                continue
            block.key = key
            block.hashed = True
            self.blocks.table[key] = block

    def as_step(self, planned: list[tuple[Request, int]], start_s: float) -> PlannedStep:
        work = StepWork([], 0, 0, 0)
        produces = []
        for request, want in planned:
            if request.computed >= request.target:
                work.decodes += 1
                work.context += request.computed
            else:
                work.chunks.append((want, request.computed, request.target))
                self.prefilled_tokens += want
            request.computed += want
            if request.computed >= request.target:
                work.samples += 1
                produces.append(request)
        time_s = self.model.step_s(work)
        host = self.limits.host_overhead_s
        duration_s = max(time_s, host) if self.limits.async_scheduling else time_s + host
        step = PlannedStep(planned, start_s, duration_s)
        step.produces = produces
        step.sizes = {
            "tokens": sum(new for new, _, _ in work.chunks) + work.decodes,
            "decodes": work.decodes,
            "context": work.context / work.decodes if work.decodes else 0.0,
            "prompt": max((new + cached for new, cached, _ in work.chunks), default=0),
        }
        return step

    def complete(self, step: PlannedStep) -> None:
        self.busy_s += step.end_s - step.start_s
        self.steps += 1
        over = self.excesses(step)
        if over:
            self.beyond_s += step.end_s - step.start_s
            self.beyond["steps"] += 1
            for name in over:
                self.beyond[name] += 1
                size = step.sizes[name]
                if name == "context":
                    size = max(math.ceil(size), step.sizes["prompt"])
                self.most_beyond[name] = max(self.most_beyond[name], size)
        done = []
        for request in step.produces:
            if request.id in self.last_token_s:
                self.token_gaps.add(step.end_s - self.last_token_s[request.id], 1)
            self.last_token_s[request.id] = step.end_s
            if request.cancelled:
                continue
            if request.first_token_s == UNSET:
                request.first_token_s = step.end_s
            if request.computed >= request.last and self.tokens_out(request, step) == 0:
                done.append(request)
        for request in done:
            request.finished_s = step.end_s
            if request in self.running:
                self.running.remove(request)
                if request.keeps_blocks:
                    self.apart.append(request)
                else:
                    self.give_back(request)
            self.finished.append(request)

    def tokens_out(self, request: Request, step: PlannedStep) -> int:
        """Tokens of a request that a later, already planned step will still produce."""
        following = self.following
        if following is None or step is following:
            return 0
        return sum(other is request for other in following.produces)
