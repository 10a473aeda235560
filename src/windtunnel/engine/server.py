"""The fast engine: vLLM's schedule, exactly, at a cost that does not grow with output length.

While nobody arrives, ends a prompt, finishes or runs out of blocks, every step is the same batch
with one more token each, so many steps are one event (`step.py` times them, `decoding.py` says how
long the batch stays the same). An arrival in the middle cuts the run at the step that sees it.

A step that does more (prompts in chunks that are not last in line, preemption) is planned request
by request. `reference.py` plans every step that way, and property tests hold the two equal.
"""

from typing import Final

from mypy_extensions import i64

from windtunnel.core.agenda import NEVER, Actor
from windtunnel.core.histogram import Histogram
from windtunnel.engine.cache import BlockPool
from windtunnel.engine.decoding import Decoding
from windtunnel.engine.limits import FCFS, LENGTH_CAPPED, PRIORITY, EngineLimits
from windtunnel.engine.queue import RequestLine, WaitingQueue, rank
from windtunnel.engine.step import Step, StepClock
from windtunnel.models.steptime import StepTimeModel, StepWork
from windtunnel.workload.request import UNSET, Request


class Server(Actor):
    """One replica. Give it requests with `submit`; call `advance` when `wake_s` has come."""

    def __init__(self, index: int, limits: EngineLimits, model: StepTimeModel) -> None:
        super().__init__(index)
        self.index: Final[i64] = index
        self.limits: Final = limits
        self.pool: Final = BlockPool(
            limits.kv_blocks, limits.block_size, limits.prefix_caching, limits.unhashed_blocks_first
        )
        self.waiting: Final = WaitingQueue(limits.scheduling)
        self.running: Final = RequestLine()
        self.finished: Final[list[Request]] = []
        self.token_gaps: Final = Histogram()
        self.token_overhead_s = 0.0  # what a client waits beside the engine, for every token
        self.busy_s = 0.0
        self.steps: i64 = 0
        self.preemptions: i64 = 0
        self.prefilled_tokens: i64 = 0

        self._size: Final[i64] = limits.block_size
        self._overlaps: Final = limits.async_scheduling
        self._clock: Final = StepClock(limits, model)
        self._decoding: Final = Decoding(limits.block_size)
        self._partial: Final[list[Request]] = []  # prompts that are computed in part
        self._skipped: i64 = 0  # decoding requests that got no token in the step planned last
        self._late_arrivals: Final[list[Request]] = []
        self._admissions: i64 = 0
        self._work: Final = StepWork([], 0, 0, 0)
        self._one: Final = Step()
        self._other: Final = Step()
        self._current: Step | None = None

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
        if request.prefix is not None and limits.prefix_caching:
            assert request.prefix.ends[-1] <= request.prompt_tokens
            request.shared_blocks = request.prefix.ends[-1] // self._size
        step = self._current
        if step is None:
            self.waiting.push(request)
            self.wake_s = min(self.wake_s, now)
            return
        if self._overlaps and (now > step.planned_s or step.steps == 1):
            self._late_arrivals.append(request)
            return
        blocked = self.waiting.count > 0 and limits.scheduling == FCFS
        self.waiting.push(request)
        if step.steps > 1 and not blocked and self.running.count < limits.max_num_seqs:
            self._shorten(step, now)

    def advance(self, now: float) -> None:
        """Ends the step that ends now and plans what follows. Ended requests are in `finished`."""
        step = self._current
        following: Step | None = None
        idle = step is None
        if step is not None:
            if step.steps > 1:
                self._pass_steps(step, step.steps - 1)
            if self._overlaps:
                following = self._plan(step.end_s)
                idle = following is None
            self._complete(step)
            for request in self._late_arrivals:
                self.waiting.push(request)
            self._late_arrivals.clear()
        if following is None:
            following = self._plan(now)
        self._current = following
        if following is None:
            self.wake_s = NEVER
            return
        following.planned_s = now
        following.start_s = now
        if idle and self._overlaps:
            following.start_s += self.limits.host_overhead_s
        self._start(following)

    def stop(self, now: float) -> None:
        """Accounts for what has passed of the current step when a run ends before it does."""
        step = self._current
        if step is None or step.start_s >= now:
            return
        whole = self._clock.whole_steps(step, now - step.start_s)
        begun = min(whole, step.steps - 1)
        if begun:
            self._pass_steps(step, begun)
        if whole:
            step.steps = whole
            self._clock.count_gaps(step, self.token_gaps, self.token_overhead_s)
        self.steps += whole
        self.busy_s += now - step.start_s

    @property
    def queued(self) -> i64:
        """How many requests wait here."""
        return self.waiting.count + len(self._late_arrivals)

    @property
    def load(self) -> i64:
        """How many requests are here, waiting or running."""
        return self.queued + self.running.count

    def kv_used(self, now: float) -> float:
        """The share of KV blocks in use; a run of steps is looked into at the step of `now`."""
        free = self.pool.free
        step = self._current
        if step is not None and step.steps > 1:
            passed = self._clock.steps_until(step, now - step.start_s) - 1
            free -= self._decoding.blocks_for(passed)
        return 1.0 - float(free) / float(self.pool.blocks)

    def busy_until(self, now: float) -> float:
        """Seconds spent in steps so far, the current one as far as it has come."""
        step = self._current
        if step is None or now <= step.start_s:
            return self.busy_s
        return self.busy_s + min(now, step.end_s) - step.start_s

    def steps_until(self, now: float) -> i64:
        """Steps done so far, those of the current run as far as it has come."""
        step = self._current
        if step is None or step.steps == 1 or now <= step.start_s:
            return self.steps
        return self.steps + self._clock.steps_until(step, now - step.start_s) - 1

    def unfinished(self) -> list[Request]:
        """All requests that are here, for a run that ends before they do."""
        return self.waiting.requests() + self._late_arrivals + self.running.requests()

    def blocks_held(self) -> i64:
        """KV blocks that running requests hold, counted one by one, for checking the pool."""
        held = self.pool.pinned()
        for request in self.running.requests():
            computed = request.computed
            if request.finish_clock >= 0:
                computed = request.offset + self._decoding.clock
            held += -(-computed // self._size) - request.pinned_blocks
        return held

    # Time

    def _start(self, step: Step) -> None:
        """Settles how many equal steps pass before anything can change, so when to look again."""
        for request in step.admitted:
            if request.scheduled_s == UNSET:
                request.scheduled_s = step.start_s
        step.end_s = step.start_s + step.duration_s
        if step.pure and not step.finishing and not (self.waiting.count and self._could_admit()):
            ends = self._decoding.steps_to_first_end()
            steps = self._decoding.affordable(ends, self.pool.free)
            if steps > 0:
                step.steps = 1 + steps
                self._time(step)
        self.wake_s = step.end_s

    def _time(self, step: Step) -> None:
        """Sets the end, and when what follows is planned, from the number of steps."""
        steps = step.steps
        step.end_s = step.start_s + self._clock.span(step, steps)
        if self._overlaps and steps > 1:
            step.planned_s = step.start_s + self._clock.span(step, steps - 1)

    def _shorten(self, step: Step, now: float) -> None:
        """Cuts a run of steps at the boundary where a request that arrives now is seen."""
        seen = self._clock.steps_until(step, now - step.start_s)
        steps = seen + 1 if self._overlaps else seen
        if steps < step.steps:
            step.steps = steps
            self._time(step)
            self.wake_s = step.end_s

    # The schedule

    def _plan(self, start_s: float) -> Step | None:
        """Plans the step that starts at `start_s`, or later by the host overhead."""
        if not self.running.count and not self.waiting.count:
            return None
        work = self._work
        work.chunks.clear()
        step = self._one if self._current is not self._one else self._other
        step.clear()
        step.decodes = self._decoding.count
        step.context = self._decoding.context
        preempted = self.preemptions
        budget = self._plan_together(step)
        together = budget >= 0
        if not together:
            budget = self._plan_one_by_one(step, start_s)
        if self.waiting.count and self.preemptions == preempted:
            self._admit(step, budget)
        if work.chunks or not together:
            if not step.decodes and not work.chunks:
                # An empty step takes no time. After a preemption the others deserve another look.
                return self._plan(start_s) if self.preemptions > preempted else None
            work.decodes = step.decodes
            work.context = step.context
            work.samples = step.decodes + len(step.prompted)
            step.duration_s = self._clock.one(work)
        else:
            if not step.decodes:
                return None
            step.base, step.slope, step.until = self._clock.line(step.decodes, step.context)
            step.duration_s = step.base + step.slope * step.context
            step.pure = not self._partial
        return step

    def _plan_together(self, step: Step) -> i64:
        """Plans all decodes at once, then the one unfinished prompt: the budget left, or -1."""
        partial = len(self._partial)
        if self._skipped or (partial and self.limits.long_prefill_threshold):
            return -1
        blocks = self._decoding.blocks_for_next()
        budget = self.limits.max_num_batched_tokens - self._decoding.count
        want: i64 = 0
        if partial:
            request = self._partial[0]
            want = min(request.target - request.computed, budget)
            blocks += self._more_blocks(request, want)
        if blocks > self.pool.free:
            return -1
        if self._decoding.count:
            self._pass_steps(step, 1)
        if want:
            self._prefill(step, self._partial.pop(), want)
        return budget - want

    def _more_blocks(self, request: Request, want: i64) -> i64:
        """Blocks that a request needs beside those it has, to compute so many more tokens."""
        size = self._size
        return (request.computed + want + size - 1) // size - (request.computed + size - 1) // size

    def _pass_steps(self, step: Step, steps: i64) -> None:
        """Every decoding request gains a token in each of the steps; some end with the last."""
        decoding = self._decoding
        blocks = decoding.blocks_for_next() if steps == 1 else decoding.blocks_for(steps)
        if blocks:
            self.pool.take(blocks)
        decoding.pass_steps(steps, step.finishing)

    def _prefill(self, step: Step, request: Request, want: i64) -> None:
        """Schedules a chunk of a prompt for which blocks are known to suffice."""
        self.pool.take(self._more_blocks(request, want))
        self.pool.extend(request, request.computed + want)
        self._chunk(step, request, want)

    def _chunk(self, step: Step, request: Request, want: i64) -> None:
        """Writes down a chunk whose blocks are taken; after its last one the request decodes."""
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
            self._decoding.join(request)

    def _admit(self, step: Step, budget: i64) -> None:
        """Takes requests from the queue, in its order, until budget, slots or blocks run out."""
        waiting = self.waiting
        most = self.limits.max_num_seqs
        while budget > 0 and waiting.count and self.running.count < most:
            request = waiting.head()
            hit = self.pool.hit(request)
            want = self._wanted(request, hit, budget)
            if not want or not self._fits(request, hit, want):
                return
            waiting.pop()
            self.pool.admit(request, hit)
            request.computed = hit * self._size
            if not request.preemptions:
                request.prefix_hit_tokens = request.computed
            request.admission = self._admissions
            self._admissions += 1
            self.running.append(request)
            step.admitted.append(request)
            budget -= want
            self._prefill(step, request, want)

    def _wanted(self, request: Request, hit: i64, budget: i64) -> i64:
        """Prompt tokens that a newly admitted request computes; 0 when it must wait for budget."""
        want = request.target - hit * self._size
        threshold = self.limits.long_prefill_threshold
        if 0 < threshold < want:
            want = threshold
        if want > budget:
            return budget if self.limits.chunked_prefill else 0
        return want

    def _fits(self, request: Request, hit: i64, want: i64) -> bool:
        """Whether blocks suffice for the first chunk or, when reserved, the whole prompt."""
        tokens = request.target if self.limits.reserve_full_prompt else hit * self._size + want
        blocks = (tokens + self._size - 1) // self._size - hit
        if hit:
            blocks += self.pool.free_among(request, hit)
        return blocks <= self.pool.free

    def _could_admit(self) -> bool:
        """Whether the queue's head would be admitted beside the present decodes."""
        if self.running.count >= self.limits.max_num_seqs:
            return False
        request = self.waiting.head()
        hit = self.pool.hit(request)
        want = self._wanted(request, hit, self.limits.max_num_batched_tokens - self._decoding.count)
        return want > 0 and self._fits(request, hit, want)

    # Requests one by one

    def _plan_one_by_one(self, step: Step, start_s: float) -> i64:
        """Plans the running requests in order, preempting when blocks run out; the budget left."""
        self._decoding.dissolve()
        self._partial.clear()
        order = self.running.requests()
        wants: dict[int, int] = {}
        budget = self.limits.max_num_batched_tokens
        position = 0
        while position < len(order) and budget > 0:
            request = order[position]
            want = self._wants_more(request, budget)
            blocks = self._more_blocks(request, want)
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

    def _wants_more(self, request: Request, budget: i64) -> i64:
        """Tokens that a running request would compute next: rest of the prompt, one, or none."""
        if request.computed >= request.target:
            return 1 if request.computed < request.last else 0
        want = request.target - request.computed
        threshold = self.limits.long_prefill_threshold
        if 0 < threshold < want:
            want = threshold
        return min(want, budget)

    def _victim(self, order: list[Request]) -> i64:
        """Who makes room: the last admitted, or under priority scheduling the least urgent."""
        chosen = len(order) - 1
        if self.limits.scheduling == PRIORITY:
            for index, request in enumerate(order):
                if rank(request, PRIORITY) > rank(order[chosen], PRIORITY):
                    chosen = index
        return chosen

    def _preempt(self, request: Request, want: i64, start_s: float) -> None:
        """Takes all blocks from a request and queues it to be computed again, tokens kept."""
        self.preemptions += 1
        request.preemptions += 1
        done = request.computed == request.last
        self.pool.release(request, request.computed + want, preempted=not done)
        self.running.remove(request)
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
                if want:
                    self._chunk(step, request, want)
                else:
                    self._partial.append(request)
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
                    self._decoding.join(request)
                else:
                    request.finish_clock = -1
                    step.finishing.append(request)

    def _note_pause(self, step: Step, request: Request) -> i64:
        """Notes when the latest token was if the next does not follow it a step later; 1 if so."""
        if request.token_s == UNSET:
            return 0
        step.pauses.append(request.token_s)
        request.token_s = UNSET
        return 1

    def _complete(self, step: Step) -> None:
        """Hands out the step's tokens, and frees what its finished requests held."""
        end_s = step.end_s
        self.busy_s += end_s - step.start_s
        self.steps += step.steps
        regular = step.decodes - step.late_decodes
        if step.steps > 1:
            self._clock.count_gaps(step, self.token_gaps, self.token_overhead_s)
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
                self.running.remove(request)
            self.finished.append(request)
