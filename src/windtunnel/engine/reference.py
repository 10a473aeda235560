"""The reference engine: one step at a time, one request at a time, one block at a time.

Slow and obvious on purpose. It is the specification in code of what `server.py` does in jumps, and
property tests hold the two equal. Nothing here is shared with the fast engine but the request
record, the limits, the queue order and the histogram. `reference_blocks.py` has its blocks,
`reference_slots.py` its LoRA adapters.
"""

import math

from windtunnel.core.histogram import Histogram
from windtunnel.engine.limits import FCFS, LENGTH_CAPPED, PRIORITY, EngineLimits
from windtunnel.engine.queue import rank
from windtunnel.engine.reference_blocks import Block, ReferenceBlocks
from windtunnel.engine.reference_slots import ReferenceSlots
from windtunnel.models.steptime import StepTimeModel, StepWork
from windtunnel.workload.request import UNSET, Request


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
        self.slots = None if limits.lora is None else ReferenceSlots(limits.lora)
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
        self.fetching: list[tuple[float, int, Request]] = []  # and when it will be there
        self.fetched = 0
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
        elif any(request is other for _, _, other in self.fetching):
            self.fetching = [entry for entry in self.fetching if entry[2] is not request]
            self.give_back(request)
        else:
            self.leaving.append(request)
        self.look_again(now)

    def reserve(self, request: Request, tokens: int, now: float) -> int:
        if not self.receive(request, now):
            return -1
        size = self.limits.block_size
        hits = self.blocks.hits(request)
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
        ready_s = max((block.ready_s for block in self.held[request.id]), default=0.0)
        self.blocks.name(request, self.held[request.id], request.computed)
        if ready_s > now:
            self.wait_for(request, ready_s)
            self.wake_s = min(self.wake_s, ready_s)
            return
        self.transferred.append(request)
        self.look_again(now)

    def let_go(self, request: Request, now: float) -> None:
        self.apart.remove(request)
        self.give_back(request)
        self.look_again(now)

    def advance(self, now: float) -> None:
        host = self.limits.host_overhead_s
        self.land(now)
        if self.current is not None and now < self.current.end_s:
            self.free_after.append((now, len(self.blocks.free)))
            self.wake_s = self.next_s()
            return
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
                self.current = self.plan(now + host, now)
            self.free_after.append((now, len(self.blocks.free)))
            if self.current is not None:
                self.following = self.plan(self.current.end_s, now)
        else:
            self.current = self.plan(now, now)
            self.free_after.append((now, len(self.blocks.free)))
        self.wake_s = self.next_s()
        if self.current is not None:
            for request in self.current.admitted:
                if request.scheduled_s == UNSET and not request.cancelled:
                    request.scheduled_s = self.current.start_s

    def land(self, now: float) -> None:
        """Those whose KV has come from a tier are in line."""
        for entry in sorted(self.fetching):
            if entry[0] <= now:
                self.fetching.remove(entry)
                self.transferred.append(entry[2])

    def next_s(self) -> float:
        """When the current step ends, or something arrives from a tier."""
        ends = [entry[0] for entry in self.fetching]
        if self.current is not None:
            ends.append(self.current.end_s)
        return min(ends, default=math.inf)

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

    def plan(self, start_s: float, now: float) -> PlannedStep | None:
        """One call of vLLM's schedule(): running requests first, then the queue.

        It is called now, for a step that starts at `start_s`.
        """
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
        if self.slots is not None:
            self.slots.look(self.running)
        if not preempted:
            self.admit(planned, admitted, budget, now)
        if planned:
            step = self.as_step(planned, start_s)
            step.admitted = admitted
            return step
        return self.plan(start_s, now) if preempted else None  # an empty step takes no time

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
        while budget > 0 and len(self.running) < self.limits.max_num_seqs:
            request = self.first(self.transferred)
            if request is None:
                break
            rest = request.target - request.computed
            threshold = self.limits.long_prefill_threshold
            if not self.limits.chunked_prefill and min(rest, threshold or rest) > budget:
                break
            self.transferred.remove(request)
            self.enter(request)
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
        self, planned: list[tuple[Request, int]], admitted: list[Request], budget: int, now: float
    ) -> None:
        budget = self.admit_transferred(planned, admitted, budget)
        if self.first(self.transferred) is not None:
            return
        while budget > 0 and len(self.running) < self.limits.max_num_seqs:
            if self.limits.scheduling != FCFS:
                self.waiting.sort(key=lambda request: rank(request, self.limits.scheduling))
            request = self.first(self.waiting)
            if request is None:
                return
            hits = self.blocks.hits(request)
            if self.must_fetch(request, hits, now):
                if not self.fits_whole(request, hits):
                    return
                self.waiting.remove(request)
                self.fetch(request, hits, now)
                continue
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
            self.waiting.remove(request)
            self.enter(request)
            self.admission_order.append(request.id)
            for block in hits:
                self.blocks.touch(block)
            self.held[request.id] = hits
            self.blocks.forget_own(request, len(hits))
            request.computed = len(hits) * size
            if not request.preemptions:
                request.prefix_hit_tokens = request.computed
            request.sharing = True
            admitted.append(request)
            self.hold(request, want)
            planned.append((request, want))
            budget -= want

    def must_fetch(self, request: Request, hits: list[Block], now: float) -> bool:
        """Whether tiers have more of a prompt, or blocks that it hits are still on their way."""
        coming = any(block.ready_s > now for block in hits)
        return coming or bool(self.blocks.below(request, len(hits)))

    def fits_whole(self, request: Request, hits: list[Block]) -> bool:
        new = -(-request.target // self.limits.block_size) - len(hits)
        return new + sum(block.users == 0 for block in hits) <= len(self.blocks.free)

    def fetch(self, request: Request, hits: list[Block], now: float) -> None:
        """Takes all blocks of a prompt, and lets tiers fill those that they have."""
        keys = self.blocks.below(request, len(hits))
        arrives = self.blocks.load(keys, now)
        for block in hits:
            self.blocks.touch(block)
        known = len(hits) + len(keys)
        self.blocks.forget_own(request, known)
        size = self.limits.block_size
        new = -(-request.target // size) - len(hits)
        held = hits + [self.blocks.take() for _ in range(new)]
        for block, arrives_s in zip(held[len(hits) :], arrives, strict=False):
            block.ready_s = arrives_s
        self.held[request.id] = held
        request.sharing = True
        request.computed = known * size
        self.blocks.name(request, held, request.computed)
        if not request.preemptions:
            request.prefix_hit_tokens = request.computed
        self.wait_for(request, max(block.ready_s for block in held))

    def wait_for(self, request: Request, ready_s: float) -> None:
        self.fetching.append((ready_s, self.fetched, request))
        self.fetched += 1

    def first(self, line: list[Request]) -> Request | None:
        """Who is next: those whose adapter finds no slot are passed by."""
        for request in line:
            if self.slots is None or self.slots.has_room(request, self.running):
                return request
        return None

    def enter(self, request: Request) -> None:
        if self.slots is not None:
            self.slots.enter(request, self.running)
        self.running.append(request)

    def give_back(self, request: Request) -> None:
        """Frees what a request holds."""
        if request.answer_key >= 0 and request.computed >= request.last:
            self.blocks.name_answer(request, self.held[request.id])
        self.blocks.give_back(self.held.pop(request.id))

    def can_hold(self, request: Request, want: int) -> bool:
        total = -(-(request.computed + want) // self.limits.block_size)
        return total - len(self.held[request.id]) <= len(self.blocks.free)

    def hold(self, request: Request, want: int) -> None:
        """Takes the blocks for the next tokens, and makes the ones that become full findable."""
        size = self.limits.block_size
        held = self.held[request.id]
        while len(held) * size < request.computed + want:
            held.append(self.blocks.take())
        self.blocks.name(request, held, request.computed + want)

    def as_step(self, planned: list[tuple[Request, int]], start_s: float) -> PlannedStep:
        work = StepWork([], 0, 0, 0)
        produces = []
        used = 0 if self.slots is None else len(self.slots.in_use(self.running))
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
        if self.slots is not None:
            time_s = self.slots.time_s(time_s, used)
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
