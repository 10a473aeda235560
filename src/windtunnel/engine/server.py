"""The fast engine: vLLM's schedule, exactly, at a cost that does not grow with output length.

While nobody arrives, ends a prompt, finishes or runs out of blocks, every step is the same batch with
one more token each, so many steps are one event: the sum of their times has a closed form. Everything
that a step could change is kept as an aggregate over the decoding requests:

    clock       decode steps planned so far; a decoding request's `computed` is its offset plus the clock
    context     the sum of their `computed`
    residues    how many need a new block at each value of the clock modulo the block size
    finishes    a heap of the clock at which each one ends

A step that does more (chunked prompts that are not last in line, preemption) is planned request by
request. `reference.py` plans every step that way, and property tests hold the two equal.

Times, for step k ending at e(k): `sync` plans step k+1 at e(k), and a step takes its time plus the
host overhead. `async` plans step k+2 at e(k), so what arrives or is freed during k counts from k+2 on,
and a step takes the longer of its time and the host overhead, which also precedes the first step
after an idle time.
"""

import math
from typing import Final

from windtunnel.core.histogram import Histogram
from windtunnel.engine.cache import BlockPool
from windtunnel.engine.limits import FCFS, LENGTH_CAPPED, PRIORITY, EngineLimits
from windtunnel.engine.queue import FinishHeap, WaitingQueue, rank
from windtunnel.workload.request import UNSET, Request
from windtunnel.models.steptime import StepTimeModel, StepWork

NEVER: Final = math.inf


class Step:
    """One planned step, or a run of equal ones: who gets a token in it, and when."""

    def __init__(self, duration_s: float, decodes: int, context: int, pure: bool) -> None:  # noqa: FBT001
        self.duration_s = duration_s  # of the first step
        self.decodes = decodes
        self.context = context
        self.pure = pure  # every running request decodes, and each follows its latest token
        self.steps = 1
        self.start_s = 0.0
        self.end_s = 0.0
        self.planned_s = 0.0  # when what follows is planned: later arrivals do not count for it
        self.admitted: list[Request] = []
        self.prompted: list[
            Request
        ] = []  # their prompt ends here: a first token, or one after resuming
        self.finishing: list[Request] = []
        self.pauses: list[
            float
        ] = []  # when the latest token was, for those that missed steps since
        self.late_decodes = 0  # how many decodes are among those


class Server:
    """One replica. Give it requests with `submit`; call `advance` when `wake_s` has come."""

    def __init__(self, index: int, limits: EngineLimits, model: StepTimeModel) -> None:
        self.index: Final = index
        self.limits: Final = limits
        self.model: Final = model
        self.pool: Final = BlockPool(
            limits.kv_blocks, limits.block_size, limits.prefix_caching, limits.unhashed_blocks_first
        )
        self.waiting: Final = WaitingQueue(limits.scheduling)
        self.running: Final[dict[int, Request]] = {}
        self.finished: list[Request] = []
        self.token_gaps: Final = Histogram()
        self.token_overhead_s = 0.0  # what a client waits beside the engine, for every token
        self.wake_s = NEVER
        self.busy_s = 0.0
        self.steps = 0
        self.preemptions = 0
        self.prefilled_tokens = 0

        self._size: Final = limits.block_size
        self._late_arrivals: list[Request] = []
        self._partial: list[Request] = []
        self._skipped = 0  # decoding requests that got no token in the step planned last
        self._admissions = 0
        self._current: Step | None = None
        self._work: Final = StepWork([], 0, 0, 0)
        self._clock = 0
        self._decodes = 0
        self._context = 0
        self._residues: list[int] = [0] * limits.block_size
        self._finishes = FinishHeap()

    # What the driver calls

    def submit(self, request: Request, now: float) -> None:
        """Queues a request, or refuses it for good when it can never run here."""
        limits = self.limits
        request.server = self.index
        reason = limits.refusal(request.prompt_tokens, request.output_tokens)
        if reason:
            request.reason = reason
            request.dropped = True
            request.finished_s = now
            self.finished.append(request)
            return
        answer = limits.answer_tokens(request.prompt_tokens, request.output_tokens)
        if answer < request.output_tokens:
            request.output_tokens = answer
            request.reason = LENGTH_CAPPED
        request.target = request.prompt_tokens
        request.last = request.prompt_tokens + answer - 1
        if limits.prefix_caching and request.prefix is not None:
            request.shared_blocks = (
                min(request.prefix.ends[-1], request.prompt_tokens) // self._size
            )
        step = self._current
        if step is None:
            self.waiting.push(request)
            self.wake_s = min(self.wake_s, now)
            return
        if limits.async_scheduling and (now > step.planned_s or step.steps == 1):
            self._late_arrivals.append(request)
            return
        blocked = len(self.waiting) > 0 and limits.scheduling == FCFS
        self.waiting.push(request)
        if step.steps > 1 and not blocked and len(self.running) < limits.max_num_seqs:
            self._shorten(step, now)

    def advance(self, now: float) -> None:
        """Ends the step that ends now and plans what follows. The ended requests are in `finished`."""
        step = self._current
        following: Step | None = None
        if step is not None:
            if step.steps > 1:
                self._decode(step, step.steps - 1)
            if self.limits.async_scheduling:
                following = self._plan(step.end_s)
            self._complete(step)
            for request in self._late_arrivals:
                self.waiting.push(request)
            self._late_arrivals.clear()
        idle = following is None and (step is None or self.limits.async_scheduling)
        if following is None:
            following = self._plan(now)
        self._current = following
        if following is None:
            self.wake_s = NEVER
            return
        following.planned_s = now
        following.start_s = now
        if idle and self.limits.async_scheduling:
            following.start_s += self.limits.host_overhead_s
        self._start(following)

    def unfinished(self) -> list[Request]:
        """All requests that are here and have not ended, for a run that ends before they do."""
        rest = [*self.waiting.requests(), *self._late_arrivals]
        rest.extend(request for request in self.running.values())
        return rest

    @property
    def load(self) -> int:
        """How many requests are here, waiting or running."""
        return len(self.waiting) + len(self._late_arrivals) + len(self.running)

    def blocks_held(self) -> int:
        """KV blocks that running requests hold, counted one by one, for checking the pool."""
        held = 0
        for request in self.running.values():
            computed = request.computed
            if request.finish_clock >= 0:
                computed = request.offset + self._clock
            held += -(-computed // self._size) - request.pinned_blocks
        return held + self.pool.pinned()

    # Time

    def _start(self, step: Step) -> None:
        """Settles how many equal steps pass before anything can change, and so when to look again."""
        for request in step.admitted:
            if request.scheduled_s == UNSET:
                request.scheduled_s = step.start_s
        step.end_s = step.start_s + step.duration_s
        if step.pure and not step.finishing and not self._partial and not self._could_admit():
            steps = self._affordable(self._finishes.first(self._clock) - self._clock)
            if steps > 0:
                step.steps = 1 + steps
                self._time(step)
        self.wake_s = step.end_s

    def _time(self, step: Step) -> None:
        """Sets the end, and when what follows is planned, from the number of steps."""
        steps = step.steps
        step.end_s = step.start_s + self._span(step, steps)
        if self.limits.async_scheduling and steps > 1:
            step.planned_s = step.start_s + self._span(step, steps - 1)

    def _shorten(self, step: Step, now: float) -> None:
        """Cuts a run of steps at the boundary where a request that arrives now is seen."""
        seen = self._steps_until(step, now - step.start_s)
        steps = seen + 1 if self.limits.async_scheduling else seen
        if steps < step.steps:
            step.steps = steps
            self._time(step)
            self.wake_s = step.end_s

    def _line(self, decodes: int, context: int) -> tuple[float, float, float]:
        """The model's line for a decode step, with the host overhead."""
        base, slope, until = self.model.decode_line(decodes, context)
        host = self.limits.host_overhead_s
        if not self.limits.async_scheduling:
            return base + host, slope, until
        if base + slope * context >= host or host == 0.0:
            return base, slope, until
        if slope <= 0.0:
            return host, 0.0, until
        return host, 0.0, min(until, max((host - base) / slope, context + 0.5))

    def _span(self, step: Step, steps: int) -> float:
        """How long the first `steps` steps take."""
        decodes = step.decodes
        context = step.context
        total = 0.0
        while steps > 0:
            base, slope, until = self._line(decodes, context)
            count = steps
            if until != NEVER:
                count = min(steps, math.ceil((until - context) / decodes))
            total += count * base + slope * (count * context + decodes * (count * (count - 1) // 2))
            context += count * decodes
            steps -= count
        return total

    def _steps_until(self, step: Step, elapsed: float) -> int:
        """The fewest steps, at least one, after which `elapsed` seconds have passed."""
        decodes = step.decodes
        context = step.context
        done = 0
        total = 0.0
        while True:
            base, slope, until = self._line(decodes, context)
            count = step.steps - done
            if until != NEVER:
                count = min(count, math.ceil((until - context) / decodes))
            whole = count * base + slope * (count * context + decodes * (count * (count - 1) // 2))
            if total + whole >= elapsed or done + count >= step.steps:
                break
            total += whole
            done += count
            context += count * decodes
        first = base + slope * context
        guess = steps_to_cover(first, slope * decodes, elapsed - total)
        steps = min(max(done + guess, 1), step.steps)
        while steps > 1 and self._span(step, steps - 1) >= elapsed:
            steps -= 1
        while steps < step.steps and self._span(step, steps) < elapsed:
            steps += 1
        return steps

    # The schedule

    def _plan(self, start_s: float) -> Step | None:
        """Plans the step that starts at `start_s`, or later by the host overhead."""
        if not self.running and not len(self.waiting):
            return None
        work = self._work
        work.chunks.clear()
        step = Step(0.0, self._decodes, self._context, False)
        preempted = self.preemptions
        budget = self._plan_together(step)
        together = budget >= 0
        if not together:
            budget = self._plan_one_by_one(step, start_s)
        if self.preemptions == preempted:
            self._admit(step, budget)
        if not step.decodes and not work.chunks:
            # An empty step takes no time. After a preemption the others deserve another look.
            return self._plan(start_s) if self.preemptions > preempted else None
        work.decodes = step.decodes
        work.context = step.context
        work.samples = step.decodes + len(step.prompted)
        if work.chunks or not together:
            time_s = self.model.step_s(work)
            host = self.limits.host_overhead_s
            step.duration_s = max(time_s, host) if self.limits.async_scheduling else time_s + host
        else:
            base, slope, _ = self._line(step.decodes, step.context)
            step.duration_s = base + slope * step.context
            step.pure = True
        return step

    def _plan_together(self, step: Step) -> int:
        """Plans all decodes at once, then the one unfinished prompt; the budget left, or -1 for "cannot"."""
        if self._skipped or (self._partial and self.limits.long_prefill_threshold):
            return -1
        blocks = self._residues[(-self._clock) % self._size]
        budget = self.limits.max_num_batched_tokens - self._decodes
        want = 0
        if self._partial:
            request = self._partial[0]
            want = min(request.target - request.computed, budget)
            more = -(-(request.computed + want) // self._size) - -(-request.computed // self._size)
            if blocks + more > self.pool.free:
                return -1
        elif blocks > self.pool.free:
            return -1
        if self._decodes:
            self._decode(step, 1)
        if want:
            request = self._partial.pop()
            self._prefill(step, request, want)
            budget -= want
        return budget

    def _decode(self, step: Step, steps: int) -> None:
        """Passes decode steps: every decoding request gains a token in each; some end with the last."""
        blocks = self._blocks_for(steps)
        if blocks:
            self.pool.take(blocks)
        self._clock += steps
        self._context += self._decodes * steps
        while self._finishes.first(self._clock + 1) <= self._clock:
            request = self._finishes.pop()
            self._leave(request)
            request.computed = request.last
            request.finish_clock = -1
            step.finishing.append(request)

    def _blocks_for(self, steps: int) -> int:
        """New blocks that the decoding requests need over the next steps."""
        cycles, rest = divmod(steps, self._size)
        blocks = cycles * self._decodes
        for passed in range(rest):
            blocks += self._residues[(-(self._clock + passed)) % self._size]
        return blocks

    def _affordable(self, steps: int) -> int:
        """The most decode steps, up to `steps`, for which free blocks suffice."""
        free = self.pool.free
        if self._blocks_for(steps) <= free:
            return steps
        cycles = free // self._decodes
        free -= cycles * self._decodes
        passed = cycles * self._size
        while passed < steps:
            free -= self._residues[(-(self._clock + passed)) % self._size]
            if free < 0:
                break
            passed += 1
        return passed

    def _prefill(self, step: Step, request: Request, want: int) -> None:
        """Schedules a chunk of a prompt for which blocks are known to suffice."""
        computed = request.computed + want
        self.pool.take(-(-computed // self._size) - -(-request.computed // self._size))
        self.pool.extend(request, computed)
        self._chunk(step, request, want)

    def _chunk(self, step: Step, request: Request, want: int) -> None:
        """Writes down a chunk whose blocks are taken; with its last one the request starts to decode."""
        self._work.chunks.append((want, request.computed, request.target))
        request.computed += want
        self.prefilled_tokens += want
        if request.computed < request.target:
            self._partial.append(request)
            return
        step.prompted.append(request)
        self._note_pause(step, request)
        if request.computed == request.last:
            step.finishing.append(request)
        else:
            self._join(request)

    def _admit(self, step: Step, budget: int) -> None:
        """Takes requests from the queue, in its order, until budget, slots or blocks run out."""
        limits = self.limits
        waiting = self.waiting
        while budget > 0 and len(self.running) < limits.max_num_seqs and len(waiting):
            request = waiting.head()
            hit = self.pool.hit(request)
            want = self._wanted(request, hit, budget)
            if not want or not self._fits(request, hit, want):
                return
            waiting.pop()
            self.pool.admit(request, hit)
            request.computed = hit * self._size
            request.prefix_hit_tokens += request.computed
            request.admission = self._admissions
            self.running[self._admissions] = request
            self._admissions += 1
            step.admitted.append(request)
            budget -= want
            self._prefill(step, request, want)

    def _wanted(self, request: Request, hit: int, budget: int) -> int:
        """How many prompt tokens a newly admitted request computes; 0 when it must wait for budget."""
        want = request.target - hit * self._size
        threshold = self.limits.long_prefill_threshold
        if 0 < threshold < want:
            want = threshold
        if want > budget:
            return budget if self.limits.chunked_prefill else 0
        return want

    def _fits(self, request: Request, hit: int, want: int) -> bool:
        """Whether blocks suffice for the first chunk and, when they are reserved, the whole prompt."""
        tokens = request.target if self.limits.reserve_full_prompt else hit * self._size + want
        blocks = -(-tokens // self._size) - hit
        return blocks + self.pool.free_among(request, hit) <= self.pool.free

    def _could_admit(self) -> bool:
        """Whether the queue's head would be admitted beside the present decodes."""
        if not len(self.waiting) or len(self.running) >= self.limits.max_num_seqs:
            return False
        request = self.waiting.head()
        hit = self.pool.hit(request)
        want = self._wanted(request, hit, self.limits.max_num_batched_tokens - self._decodes)
        return want > 0 and self._fits(request, hit, want)

    # Requests one by one

    def _join(self, request: Request) -> None:
        """Counts a request among the decoding ones, from the next step on."""
        request.offset = request.computed - self._clock
        request.finish_clock = request.last - request.offset
        self._decodes += 1
        self._context += request.computed
        self._residues[request.offset % self._size] += 1
        self._finishes.push(request)

    def _leave(self, request: Request) -> None:
        self._decodes -= 1
        self._context -= request.offset + self._clock
        self._residues[request.offset % self._size] -= 1

    def _plan_one_by_one(self, step: Step, start_s: float) -> int:
        """Plans the running requests in order, preempting when blocks run out; the budget left."""
        for request in self.running.values():
            if request.finish_clock >= 0:
                request.computed = request.offset + self._clock
        self._partial.clear()
        self._finishes.clear()
        self._decodes = 0
        self._context = 0
        self._residues = [0] * self._size
        order = list(self.running.values())
        wants: dict[int, int] = {}
        budget = self.limits.max_num_batched_tokens
        position = 0
        while position < len(order) and budget > 0:
            request = order[position]
            want = self._wants_more(request, budget)
            blocks = -(-(request.computed + want) // self._size) - -(
                -request.computed // self._size
            )
            while blocks > self.pool.free:
                chosen = self._victim(order)
                victim = order.pop(chosen)
                if chosen < position:
                    position -= 1
                    budget += wants.get(victim.admission, 0)
                self._preempt(victim, wants.pop(victim.admission, 0), start_s)
                if victim is request:
                    self._settle(step, order, wants, start_s)
                    return budget
            if want:
                self.pool.take(blocks)
                self.pool.extend(request, request.computed + want)
                wants[request.admission] = want
                budget -= want
            position += 1
        self._settle(step, order, wants, start_s)
        return budget

    def _wants_more(self, request: Request, budget: int) -> int:
        """Tokens that a running request would compute next: rest of the prompt, one, or none."""
        if request.computed >= request.target:
            return 1 if request.computed < request.last else 0
        want = request.target - request.computed
        threshold = self.limits.long_prefill_threshold
        if 0 < threshold < want:
            want = threshold
        return min(want, budget)

    def _victim(self, order: list[Request]) -> int:
        """Who makes room: the last admitted, or under priority scheduling the least urgent."""
        chosen = len(order) - 1
        if self.limits.scheduling == PRIORITY:
            for index, request in enumerate(order):
                if rank(request, PRIORITY) > rank(order[chosen], PRIORITY):
                    chosen = index
        return chosen

    def _preempt(self, request: Request, want: int, start_s: float) -> None:
        """Takes all blocks from a request and queues it to be computed again, tokens kept."""
        self.preemptions += 1
        request.preemptions += 1
        done = request.computed == request.last
        self.pool.release(request, request.computed + want, preempted=not done)
        del self.running[request.admission]
        request.admission = -1
        request.finish_clock = -1
        if done:
            return  # its last token is on its way: it ends with the current step
        if request.computed >= request.target:
            request.target = request.computed + 1
            if request.token_s == UNSET:
                request.token_s = start_s
        request.computed = 0
        self.waiting.push_preempted(request)

    def _settle(
        self, step: Step, order: list[Request], wants: dict[int, int], start_s: float
    ) -> None:
        """Writes down what was planned one by one, and groups the decoding requests again."""
        step.decodes = 0
        step.context = 0
        self._skipped = 0
        for request in order:
            want = wants.get(request.admission, 0)
            if request.computed < request.target:
                if not want:
                    self._partial.append(request)
                else:
                    self._chunk(step, request, want)
            elif request.computed < request.last:
                if want:
                    step.decodes += 1
                    step.context += request.computed
                    request.computed += 1
                    step.late_decodes += self._note_pause(step, request)
                else:
                    self._skipped += 1
                    if request.token_s == UNSET:
                        request.token_s = start_s
                if request.computed < request.last:
                    self._join(request)
                else:
                    request.finish_clock = -1
                    step.finishing.append(request)

    def _complete(self, step: Step) -> None:
        """Hands out the step's tokens, and frees what its finished requests held."""
        end_s = step.end_s
        self.busy_s += end_s - step.start_s
        self.steps += step.steps
        regular = step.decodes - step.late_decodes
        if step.steps > 1:
            self._count_gaps(step)
        elif regular:
            self.token_gaps.add(step.duration_s + self.token_overhead_s, regular)
        for token_s in step.pauses:
            self.token_gaps.add(end_s - token_s + self.token_overhead_s, 1)
        for request in step.prompted:
            if request.first_token_s == UNSET:
                request.first_token_s = end_s
        for request in step.finishing:
            request.finished_s = end_s
            if request.admission >= 0:
                self.pool.release(request, request.last, preempted=False)
                del self.running[request.admission]
            self.finished.append(request)

    def _note_pause(self, step: Step, request: Request) -> int:
        """Notes when the latest token was if the next does not follow it a step later; 1 if so."""
        if request.token_s == UNSET:
            return 0
        step.pauses.append(request.token_s)
        request.token_s = UNSET
        return 1

    def _count_gaps(self, step: Step) -> None:
        """Counts the gaps between the tokens of a run of equal steps."""
        decodes = step.decodes
        context = step.context
        steps = step.steps
        while steps > 0:
            base, slope, until = self._line(decodes, context)
            count = steps
            if until != NEVER:
                count = min(steps, math.ceil((until - context) / decodes))
            first_s = base + slope * context + self.token_overhead_s
            self.token_gaps.add_series(first_s, slope * decodes, count, decodes)
            context += count * decodes
            steps -= count


def steps_to_cover(first: float, increase: float, elapsed: float) -> int:
    """About how many terms of an arithmetic series add up to `elapsed`."""
    if elapsed <= 0.0:
        return 0
    if increase <= 0.0:
        return math.ceil(elapsed / first)
    half = first - increase / 2
    return math.ceil((math.sqrt(half * half + 2 * increase * elapsed) - half) / increase)
