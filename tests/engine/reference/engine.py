"""The reference engine: one step at a time, one request at a time, one block at a time.

Slow and obvious on purpose. It is the specification in code of what `server.py` does in jumps, and
property tests hold the two equal. Nothing here is shared with the fast engine but the request
record, the limits, the queue order, the histogram and the ticks of a clock. `blocks.py` has its
blocks, `slots.py` its LoRA adapters, `step.py` its steps.
"""

import math

from tests.engine.reference.blocks import Block, ReferenceBlocks
from tests.engine.reference.slots import ReferenceSlots
from tests.engine.reference.step import Beyond, PlannedStep
from windtunnel.core.statistics.histogram import Histogram
from windtunnel.engine.limits import FCFS, LENGTH_CAPPED, PRIORITY, EngineLimits
from windtunnel.engine.queue import rank
from windtunnel.engine.step import on_tick
from windtunnel.models.step_time.model import StepTimeModel, StepWork
from windtunnel.workload.request import UNSET, Request


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
        self.windows: dict[int, list[Block]] = {}  # for layers that keep a window of a request
        self.last_token_s: dict[int, float] = {}
        self.finished: list[Request] = []
        self.token_gaps = Histogram()
        self.wake_s = math.inf
        self.busy_s = 0.0
        self.steps = 0
        self.preemptions = 0
        self.prefilled_tokens = 0
        self.beyond = Beyond(model.measured())
        self.admission_order: list[int] = []
        self.free_after: list[tuple[float, int]] = []  # free blocks after each step that ended
        self.current: PlannedStep | None = None
        self.following: PlannedStep | None = None
        self.transferred: list[Request] = []  # waiting, with the KV of their prompt
        self.fetching: list[tuple[float, int, Request]] = []  # and when it will be there
        self.fetched = 0
        self.apart: list[Request] = []  # holding blocks, neither waiting nor running
        self.leaving: list[Request] = []  # cancelled while running
        self.closing: list[Request] = []  # ended, in a step that has not
        self.unheld: dict[int, int] = {}  # blocks of prompts that were cached whole, by request
        self.wanting: list[tuple[Request, int]] = []  # for room, with their tokens from elsewhere
        self.granted: list[Request] = []
        self.orders = 0
        self.drafts = limits.drafts
        self.drafted = self.accepted = self.verified = 0
        self.held_steps = 0  # in which a prompt waited until each rank had one
        self.owes_decodes = False  # after a preemption by prompts that have steps of their own
        self.unsettled: dict[int, int] = {}  # drafts of the step planned last that proved wrong

    def submit(self, request: Request, now: float) -> None:
        if self.receive(request, now):
            if not self.limits.last_step_blocks and self.empties():
                self.close(now)
            self.waiting.append(request)
            self.look_again(now)

    def empties(self) -> bool:
        """Whether the current step is the last of all who are here."""
        if self.current is None or self.waiting or self.transferred or self.leaving:
            return False
        return all(r.computed >= r.last and not r.keeps_blocks for r in self.running)

    def close(self, now: float) -> None:
        """A newcomer need not wait for the step; what it made is handed out when it ends."""
        assert self.current is not None
        ended = len(self.finished)
        self.complete(self.current, now)
        self.closing += self.finished[ended:]
        self.closing.sort(key=lambda request: request.finished_s)
        del self.finished[ended:]
        self.current = None

    def look_again(self, now: float) -> None:
        if self.current is None:
            self.wake_s = min(self.wake_s, now)

    def receive(self, request: Request, now: float) -> bool:
        request.server = self.index
        self.orders += 1
        request.order = self.orders
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
        elif request in self.closing:
            self.closing.remove(request)
        elif request in self.transferred:
            self.transferred.remove(request)
            self.give_back(request)
        elif any(request is other for _, _, other in self.fetching):
            self.give_back(request)  # what comes is on its way all the same
        else:
            self.leaving.append(request)
            self.look_again(now)
            return
        self.look_again(now)
        self.grant()

    def place(self, request: Request) -> tuple[float, ...]:
        """Lower is first: in order of arrival, or by rank."""
        if self.limits.scheduling == FCFS:
            return (float(request.order),)
        return rank(request, self.limits.scheduling)

    def reserve(self, request: Request, tokens: int, now: float) -> int:
        if not self.receive(request, now):
            return -1
        if any(self.place(other) < self.place(request) for other, _ in self.wanting):
            return -1
        return self.take_prompt(request, tokens) if self.has_room(request) else -1

    def await_room(self, request: Request, tokens: int) -> None:
        self.wanting.append((request, tokens))

    def forgo(self, request: Request, now: float) -> None:
        request.cancelled = True
        self.wanting = [entry for entry in self.wanting if entry[0] is not request]
        self.look_again(now)
        self.grant()

    def grant(self) -> None:
        """Reserves blocks for those that await room, in order, as far as blocks suffice."""
        while self.wanting:
            first, tokens = min(self.wanting, key=lambda entry: self.place(entry[0]))
            if not self.has_room(first):
                return
            self.wanting.remove((first, tokens))
            self.take_prompt(first, tokens)
            self.granted.append(first)

    def wanted_before(self, request: Request) -> bool:
        """Whether somebody who came before awaits room; those that were preempted come first."""
        before = any(self.place(other) < self.place(request) for other, _ in self.wanting)
        return before and not any(other.preemptions for other in self.waiting)

    def has_room(self, request: Request) -> bool:
        """Whether nobody who came before waits for blocks, and blocks suffice."""
        if any(r.preemptions for r in self.waiting):
            return False
        waiting = sorted(self.waiting, key=self.place)
        first = self.first(waiting)
        in_batch = len(self.running) < self.limits.max_num_seqs
        if first is not None and in_batch and self.place(first) < self.place(request):
            hits = self.blocks.hits(first, spare=int(self.limits.compute_whole_hits))
            if not self.fits_whole(first, hits):
                return False
        hits = self.blocks.hits(request)
        new = -(-request.prompt_tokens // self.limits.block_size) - len(hits)
        new += self.limits.window_blocks(request.last)
        return new + sum(block.users == 0 for block in hits) <= len(self.blocks.free)

    def take_prompt(self, request: Request, tokens: int) -> int:
        size = self.limits.block_size
        hits = self.blocks.hits(request)
        new = -(-request.prompt_tokens // size) - len(hits)
        for block in hits:
            self.blocks.touch(block)
        self.open_window(request)
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
        self.grant()

    def advance(self, now: float) -> None:
        host = self.limits.host_overhead_s
        self.land(now)
        while self.closing and self.closing[0].finished_s <= now:
            self.finished.append(self.closing.pop(0))
        if self.current is not None and now < self.current.end_s:
            self.free_after.append((now, len(self.blocks.free)))
            self.wake_s = self.next_s()
            return
        if self.current is not None:
            self.complete(self.current, now)
        self.depart()
        wanting = sorted((request for request, _ in self.wanting), key=self.place)
        has_room = any(map(self.has_room, wanting[:1]))
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
        if has_room:
            self.grant()
        self.wake_s = self.next_s()
        if self.current is not None:
            for request in self.current.admitted:
                if request.scheduled_s == UNSET and not request.cancelled:
                    request.scheduled_s = self.current.start_s

    def depart(self) -> None:
        """Requests that were cancelled while they ran leave."""
        for request in self.leaving:
            if request in self.running:
                self.running.remove(request)
                self.give_back(request)
        self.leaving.clear()

    def land(self, now: float) -> None:
        """Those whose KV has come from a tier are in line."""
        for entry in sorted(self.fetching):
            if entry[0] <= now:
                self.fetching.remove(entry)
                if not entry[2].cancelled:
                    self.transferred.append(entry[2])

    def next_s(self) -> float:
        """When the current step ends, or one that was closed, or something comes from a tier."""
        ends = [entry[0] for entry in self.fetching]
        ends += [request.finished_s for request in self.closing]
        if self.current is not None:
            ends.append(self.current.end_s)
        return min(ends, default=math.inf)

    def stop(self, now: float) -> None:
        """Accounts for what has passed of the current step when a run ends before it does."""
        if self.current is not None and self.current.start_s < now:
            self.busy_s += now - self.current.start_s
            self.beyond.pass_time(self.current, now)

    def plan(self, start_s: float, now: float) -> PlannedStep | None:
        """One call of vLLM's schedule(): running requests first, then the queue.

        It is called now, for a step that starts at `start_s`.
        """
        planned: list[tuple[Request, int]] = []
        admitted: list[Request] = []
        mixed = self.limits.mixed_batches
        if self.slots is not None:
            self.slots.begin()
        if self.owes_decodes:
            self.owes_decodes = False
            _, preempted = self.plan_running(planned, prompts=False, decodes=True)
            if planned:
                return self.as_step(planned, start_s)
            if preempted:
                return self.plan(start_s, now)
        budget, preempted = self.plan_running(planned, prompts=True, decodes=mixed)
        self.owes_decodes = preempted and not mixed
        if not preempted:
            self.admit(planned, admitted, budget, now)
        if not mixed and not planned and not preempted:
            _, preempted = self.plan_running(planned, prompts=False, decodes=True)
        if planned:
            step = self.as_step(planned, start_s)
            step.admitted = admitted
            return step
        return self.plan(start_s, now) if preempted else None  # an empty step takes no time

    def plan_running(
        self, planned: list[tuple[Request, int]], *, prompts: bool, decodes: bool
    ) -> tuple[int, bool]:
        """Running requests in order: the budget left, and whether any were preempted."""
        budget = self.limits.max_num_batched_tokens
        preempted = False
        position = 0
        while position < len(self.running) and budget > 0:
            request = self.running[position]
            want = self.next_tokens(request, budget)
            if not (prompts if request.computed < request.target else decodes):
                want = 0
            while request in self.running and not self.can_hold(request, want):
                preempted = True
                victim = self.victim()
                if self.running.index(victim) < position:
                    position -= 1
                budget += sum(tokens for other, tokens in planned if other is victim)
                planned[:] = [entry for entry in planned if entry[0] is not victim]
                self.preempt(victim)
            if request not in self.running:
                break
            if want:
                self.hold_ahead(request, want)
                planned.append((request, want))
                budget -= want
            position += 1
        return budget, preempted

    def next_tokens(self, request: Request, budget: int) -> int:
        if request.computed < request.target:
            return self.chunk(request.target - request.computed, budget)
        if request.computed >= request.last:
            return 0
        if self.drafts is None:
            return 1
        left = self.limits.max_model_len - 1 - request.computed
        return min(1 + self.drafts.tokens, budget, left)

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
        self.unsettled.pop(request.id, None)
        if request.computed >= request.last:
            return  # nothing is left to compute; its last token is on its way
        if self.limits.restarts:
            request.first_token_s = UNSET
            self.last_token_s.pop(request.id, None)
        elif request.computed >= request.target:
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

    def waits_for_ranks(self) -> bool:
        """Prompts wait until each rank has one, for so many steps at most, while all decode."""
        short = len(self.waiting) < self.limits.prompts_for_ranks
        busy = len(self.running) >= self.limits.ranks
        if short and busy and self.held_steps < self.limits.prompt_wait_steps:
            self.held_steps += 1
            return True
        self.held_steps = 0
        return False

    def admit(
        self, planned: list[tuple[Request, int]], admitted: list[Request], budget: int, now: float
    ) -> None:
        budget = self.admit_transferred(planned, admitted, budget)
        if self.first(self.transferred) is not None:
            return
        gathered = False
        while budget > 0 and len(self.running) < self.limits.max_num_seqs:
            if self.limits.scheduling != FCFS:
                self.waiting.sort(key=lambda request: rank(request, self.limits.scheduling))
            request = self.first(self.waiting)
            if request is None or self.wanted_before(request):
                return
            hits = self.blocks.hits(request, spare=int(self.limits.compute_whole_hits))
            if self.must_fetch(request, hits, now):
                if not self.fits_whole(request, hits):
                    return
                self.waiting.remove(request)
                self.fetch(request, hits, now)
                continue
            size = self.limits.block_size
            rest = request.target - len(hits) * size
            if not rest:
                self.answer_at_once(request)
                admitted.append(request)
                planned.append((request, 0))
                continue
            want = self.chunk(rest, budget)
            threshold = self.limits.long_prefill_threshold
            if not self.limits.chunked_prefill and min(rest, threshold or rest) > budget:
                return
            if not self.fits(request, hits, want) or (not gathered and self.waits_for_ranks()):
                return
            gathered = True
            self.waiting.remove(request)
            self.enter(request)
            self.admission_order.append(request.id)
            for block in hits:
                self.blocks.touch(block)
            self.held[request.id] = hits
            self.blocks.forget_own(request, len(hits))
            self.open_window(request)
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
        new += self.limits.window_blocks(request.last)
        return new + sum(block.users == 0 for block in hits) <= len(self.blocks.free)

    def fetch(self, request: Request, hits: list[Block], now: float) -> None:
        """Takes all blocks of a prompt, and lets tiers fill those that they have."""
        keys = self.blocks.below(request, len(hits))
        arrives = self.blocks.load(keys, now)
        for block in hits:
            self.blocks.touch(block)
        known = len(hits) + len(keys)
        self.blocks.forget_own(request, known)
        self.open_window(request)
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

    def fits(self, request: Request, hits: list[Block], want: int) -> bool:
        size = self.limits.block_size
        tokens = len(hits) * size + want
        if self.limits.reserve_full_prompt:
            tokens = request.target
        unheld = sum(block.users == 0 for block in hits)
        unheld += self.limits.window_blocks(request.last)
        return -(-tokens // size) - len(hits) + unheld <= len(self.blocks.free)

    def answer_at_once(self, request: Request) -> None:
        """The whole prompt is cached: nothing of it is computed, and nothing of it is held."""
        self.waiting.remove(request)
        self.enter(request)
        self.admission_order.append(request.id)
        self.held[request.id] = []
        self.unheld[request.id] = request.target // self.limits.block_size
        if not request.preemptions:
            request.prefix_hit_tokens = request.target
        request.computed = request.target

    def open_window(self, request: Request) -> None:
        """Takes what layers with a window keep of a request, all that they ever will."""
        count = self.limits.window_blocks(request.last)
        self.windows[request.id] = [self.blocks.take() for _ in range(count)]

    def give_back(self, request: Request) -> None:
        """Frees what a request holds; without its prompt the rest cannot be found again."""
        unheld = self.unheld.pop(request.id, 0)
        if request.answer_key >= 0 and request.computed >= request.last and not unheld:
            self.blocks.name_answer(request, self.held[request.id])
        self.blocks.give_back(self.windows.pop(request.id, []))
        self.blocks.give_back(self.held.pop(request.id))

    def tokens_ahead(self, request: Request, want: int) -> int:
        """Tokens for which a running request holds slots: with drafts, as if all were right."""
        tokens = request.computed + want
        if self.drafts is None or not want:
            return tokens
        tokens += self.unsettled.get(request.id, 0) + self.drafts.lookahead
        return min(tokens, self.limits.max_model_len)

    def can_hold(self, request: Request, want: int) -> bool:
        total = -(-self.tokens_ahead(request, want) // self.limits.block_size)
        has = len(self.held[request.id]) + self.unheld.get(request.id, 0)
        return total - has <= len(self.blocks.free)

    def hold_ahead(self, request: Request, want: int) -> None:
        """Takes the blocks of a request that runs already, and the slots for its drafts."""
        held = self.held[request.id]
        known = request.computed + want
        if self.drafts is not None and request.computed >= request.target:
            known = request.computed + 1
        self.hold(request, known - request.computed)
        unheld = self.unheld.get(request.id, 0)
        while (len(held) + unheld) * self.limits.block_size < self.tokens_ahead(request, want):
            held.append(self.blocks.take())

    def hold(self, request: Request, want: int) -> None:
        """Takes the blocks for the next tokens, and makes the ones that become full findable."""
        size = self.limits.block_size
        held = self.held[request.id]
        unheld = self.unheld.get(request.id, 0)
        while (len(held) + unheld) * size < request.computed + want:
            held.append(self.blocks.take())
        if not unheld:
            self.blocks.name(request, held, request.computed + want)

    def as_step(self, planned: list[tuple[Request, int]], start_s: float) -> PlannedStep:
        work = StepWork([], 0, 0, 0)
        produces = []
        used = 0
        if self.slots is not None:
            self.slots.look(self.running)
            used = len(self.slots.in_use(self.running))
        unsettled: dict[int, int] = {}
        for request, asked in planned:
            want = asked
            if not want:
                pass  # all of its prompt was cached
            elif request.computed >= request.target:
                work.decodes += 1
                work.context += request.computed
                if self.drafts is not None:
                    work.drafted += want - 1
                    work.samples += want - 1
                    want = self.verify(request, asked)
                    if self.drafts.settles_late:
                        unsettled[request.id] = asked - want
                    self.blocks.name(request, self.held[request.id], request.computed + want)
            else:
                work.chunks.append((want, request.computed, request.target))
                self.prefilled_tokens += want
            request.computed += want
            if request.computed >= request.target:
                work.samples += 1
                produces.append(request)
        self.unsettled = unsettled
        time_s = self.model.step_s(work)
        if self.slots is not None:
            time_s = self.slots.time_s(time_s, used)
        ticks = self.model.ticks_per_s()
        time_s, host = on_tick(time_s, ticks), on_tick(self.limits.host_overhead_s, ticks)
        duration_s = max(time_s, host) if self.limits.async_scheduling else time_s + host
        step = PlannedStep(planned, start_s, on_tick(start_s + duration_s, ticks))
        step.produces = produces
        step.sizes = {
            "tokens": sum(new for new, _, _ in work.chunks) + work.decodes + work.drafted,
            "decodes": work.decodes,
            "context": work.context / work.decodes if work.decodes else 0.0,
            "prompt": max((new + cached for new, cached, _ in work.chunks), default=0),
        }
        return step

    def verify(self, request: Request, want: int) -> int:
        """Judges the drafts of a request: its tokens afterwards, the model's own among them."""
        assert self.drafts is not None
        right = self.drafts.accepted(request, want - 1)
        self.verified += 1
        self.drafted += want - 1
        self.accepted += right
        return min(1 + right, request.last - request.computed)

    def complete(self, step: PlannedStep, now: float) -> None:
        self.busy_s += now - step.start_s
        self.steps += 1
        self.beyond.count(step)
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
                    self.store_last_token(request)
                    self.give_back(request)
            self.finished.append(request)

    def store_last_token(self, request: Request) -> None:
        """Takes the block that the last token would need, as if something were to follow it."""
        fills = request.last % self.limits.block_size == 0
        if self.limits.store_last_token and fills and self.blocks.free:
            self.held[request.id].append(self.blocks.take())

    def tokens_out(self, request: Request, step: PlannedStep) -> int:
        """Tokens of a request that a later, already planned step will still produce."""
        following = self.following
        if following is None or step is following:
            return 0
        return sum(other is request for other in following.produces)
