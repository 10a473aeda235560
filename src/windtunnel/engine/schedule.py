"""The schedule of one server: what each request computes in the next step.

Running requests go first, then those whose KV has arrived from elsewhere, then the queue; without
`mixed_batches` all prompts go first, in steps of their own. When all requests decode and blocks
suffice, they are planned together; a step that does more (several unfinished prompts, preemption,
drafts to verify) is planned request by request.
"""

from heapq import heappop, heappush
from typing import Final

from mypy_extensions import i64

from windtunnel.core.loop import Actor
from windtunnel.engine.adapters import AdapterQueue, Slots
from windtunnel.engine.cache import BlockPool
from windtunnel.engine.decoding import Decoding
from windtunnel.engine.limits import FCFS, PRIORITY, EngineLimits
from windtunnel.engine.queue import RequestLine, WaitingQueue, rank
from windtunnel.engine.speculation import Drafts
from windtunnel.engine.step import Extrapolation, Step, StepClock
from windtunnel.engine.tiers import Load, Tiers
from windtunnel.models.step_time.model import StepTimeModel, StepWork
from windtunnel.workload.request import (
    ENDING,
    FETCHING,
    RUNNING,
    TRANSFERRED,
    UNSET,
    WAITING,
    Request,
)


class Schedule(Actor):
    """The state of a server and how it plans a step. `Server` adds time and the public methods."""

    __slots__ = (
        "_admissions",
        "_begun",
        "_clock",
        "_current",
        "_decoding",
        "_ending",
        "_fetching",
        "_held_steps",
        "_keeping",
        "_loads",
        "_moment_s",
        "_one",
        "_other",
        "_owes_decodes",
        "_partial",
        "_size",
        "_skipped",
        "_transferred",
        "_wanting",
        "_work",
        "drafts",
        "extrapolation",
        "index",
        "limits",
        "model",
        "pool",
        "preemptions",
        "prefilled_tokens",
        "running",
        "slots",
        "slowness",
        "tiers",
        "waiting",
    )

    def __init__(self, index: int, limits: EngineLimits, model: StepTimeModel) -> None:
        super().__init__(index)
        self.index: Final[i64] = index
        self.limits: Final = limits
        self.model: Final = model
        self.pool: Final = BlockPool(limits)
        self.slots: Final = None if limits.lora is None else Slots(limits.lora)
        self.waiting: Final = (
            WaitingQueue(limits.scheduling)
            if self.slots is None
            else AdapterQueue(limits.scheduling, self.slots)
        )
        self.tiers: Final = None if limits.tiers is None else Tiers(limits.tiers, limits.block_size)
        self.pool.tiers = self.tiers
        self.drafts: Final = None if limits.drafts is None else Drafts(limits.drafts)
        self.running: Final = RequestLine()
        self.preemptions: i64 = 0
        self.prefilled_tokens: i64 = 0
        bounds = model.measured()
        self.extrapolation: Final = Extrapolation(bounds) if bounds is not None else None
        self.slowness = 1.0  # factor on the model's step times

        self._size: Final[i64] = limits.block_size
        self._clock: Final = StepClock(limits, model)
        self._decoding: Final = Decoding(limits.block_size)
        self._partial: Final[list[Request]] = []  # partially computed prompts
        self._keeping: i64 = 0  # running requests whose blocks stay held when they end
        self._skipped: i64 = 0  # decoding requests that got no token in the step planned last
        self._owes_decodes = False  # whether prompt-only steps preempted others
        self._held_steps: i64 = 0  # in which a prompt waited until each rank had one
        self._transferred: Final = RequestLine()  # waiting with the KV of their prompt
        self._wanting: Final = WaitingQueue(limits.scheduling)  # for blocks to receive KV
        self._loads: Final[list[tuple[float, int, Load]]] = []  # a heap of loads from tiers
        self._fetching: Final[dict[int, Request]] = {}  # waiting for one of them
        self._begun = 0
        self._moment_s = 0.0  # the time of planning, when loads begin
        self._ending: Final[list[Request]] = []  # preempted with their last token on its way
        self._admissions: i64 = 0
        self._work: Final = StepWork([], 0, 0, 0)
        self._one: Final = Step()
        self._other: Final = Step()
        self._current: Step | None = None

    def _plan(self, start_s: float, moment_s: float) -> Step | None:
        """Plans the step that starts at `start_s`, or later by the host overhead.

        `moment_s` is when the host plans it: in async mode, when the step before it starts.
        """
        self._moment_s = moment_s
        if not (self.running.count or self.waiting.count or self._transferred.count):
            return None
        work = self._work
        if work.chunks:
            work.chunks.clear()
        step = self._one if self._current is not self._one else self._other
        step.clear()
        step.first_admission = self._admissions
        step.decodes = self._decoding.count
        step.context = self._decoding.context
        preempted = self.preemptions
        loads_s = 0.0
        if self.slots is not None and self._current is not None:
            self.slots.begin(self._current.finishing)
        if self.limits.mixed_batches:
            budget = self._plan_together(step)
            together = budget >= 0
            if not together:
                budget = self._plan_one_by_one(step, start_s)
            if (self.waiting.count or self._transferred.count) and self.preemptions == preempted:
                self._admit_all(step, budget)
        else:
            together = self._plan_in_turn(step, start_s)
        step.factor = self.slowness
        if self.slots is not None:
            factor, loads_s = self.slots.end()
            step.factor *= factor
        if work.chunks or step.prompted or not together:
            if not step.decodes and not work.chunks and not step.prompted:
                # An empty step takes no time. After a preemption, plan again for the others.
                again = self.preemptions > preempted
                return self._plan(start_s, moment_s) if again else None
            work.decodes = step.decodes
            work.context = step.context
            work.samples = step.decodes + step.drafted + len(step.prompted)
            work.drafted = step.drafted
            if self.extrapolation is not None:
                step.note_sizes(work)
            step.duration_s = self._clock.one(work, step.factor, loads_s)
        else:
            if not step.decodes:
                return None
            step.base, step.slope, step.until = self._clock.line(
                step.decodes, step.context, step.factor
            )
            step.width = float(step.decodes)
            step.tokens = float(step.context)
            step.duration_s = step.base + step.slope * step.tokens
            step.pure = not self._partial
        return step

    def _plan_in_turn(self, step: Step, start_s: float) -> bool:
        """Plans prompts alone or, without any, the decodes; returns whether all decodes were
        planned as one."""
        preempted = self.preemptions
        budget = self.limits.max_num_batched_tokens
        if self._owes_decodes:
            self._owes_decodes = False
            self._plan_one_by_one(step, start_s, prompts=False)
            if step.decodes or self.preemptions > preempted:
                return False
        if self._partial:
            request = self._partial[0]
            want = min(request.target - request.computed, budget)
            alone = len(self._partial) == 1 and not self.limits.long_prefill_threshold
            if alone and self.drafts is None and self._more_blocks(request, want) <= self.pool.free:
                self._skip_decodes(start_s, self._admissions)
                self._prefill(step, self._partial.pop(), want)
                budget -= want
            else:
                budget = self._plan_one_by_one(step, start_s, decodes=False)
            if self.preemptions == preempted:
                self._admit_all(step, budget)
            else:
                self._owes_decodes = True
        else:
            admissions = self._admissions
            self._admit_all(step, budget)
            if self._admissions == admissions:
                if self._plan_together(step) >= 0:
                    return True
                self._plan_one_by_one(step, start_s)
                return False
            self._skip_decodes(start_s, admissions)
        step.decodes = 0
        step.context = 0
        return False

    def _skip_decodes(self, start_s: float, admissions: i64) -> None:
        """Skips the decoding requests of these admissions in the step being planned."""
        skipped: i64 = 0
        request = self.running.head
        while request is not None and request.admission < admissions:
            decodes = request.finish_clock >= 0
            if self.drafts is not None:
                decodes = request.target <= request.computed < request.last
                request.unsettled = 0
            if decodes:
                skipped += 1
                if request.token_s == UNSET:
                    request.token_s = start_s
            request = request.behind
        self._skipped = skipped

    def _admit_all(self, step: Step, budget: i64) -> None:
        """Admits requests that have the KV of their prompt, then those in the queue."""
        if self._transferred.count:
            budget = self._admit_transferred(step, budget)
        if self.waiting.count and (not self._transferred.count or self._next_transferred() is None):
            self._admit(step, budget)

    def _plan_together(self, step: Step) -> i64:
        """Plans all decodes as one, then the one unfinished prompt; the remaining budget, or -1."""
        partial = self._partial
        if self.drafts is not None or self._skipped:
            return -1
        if partial and self.limits.long_prefill_threshold:
            return -1
        decoding = self._decoding
        blocks = decoding.blocks_for_next()
        decode_blocks = blocks
        budget = self.limits.max_num_batched_tokens - decoding.count
        want: i64 = 0
        if partial:
            request = partial[0]
            want = min(request.target - request.computed, budget)
            blocks += self._more_blocks(request, want)
        if blocks > self.pool.free:
            return -1
        if decode_blocks:
            self.pool.take(decode_blocks)
        if decoding.count:
            decoding.pass_steps(1, step.finishing)
        if want:
            self._prefill(step, partial.pop(), want)
        return budget - want

    def _more_blocks(self, request: Request, want: i64) -> i64:
        """The further blocks that a request needs to compute this many more tokens."""
        size = self._size
        return (request.computed + want + size - 1) // size - (request.computed + size - 1) // size

    def _pass_steps(self, step: Step, steps: i64) -> None:
        """Gives every decoding request a token in each of the steps; some end with the last
        step."""
        decoding = self._decoding
        blocks = decoding.blocks_for_next() if steps == 1 else decoding.blocks_for(steps)
        if blocks:
            self.pool.take(blocks)
        decoding.pass_steps(steps, step.finishing)

    def _prefill(self, step: Step, request: Request, want: i64) -> None:
        """Schedules a chunk of a prompt that is known to have enough blocks."""
        self.pool.take(self._more_blocks(request, want))
        self.pool.extend(request, request.computed + want)
        self._chunk(step, request, want)

    def _chunk(self, step: Step, request: Request, want: i64) -> None:
        """Adds a chunk whose blocks are taken; after its last chunk the request decodes."""
        self._work.chunks.append((want, request.computed, request.target))
        request.computed += want
        self.prefilled_tokens += want
        if request.computed < request.target:
            self._partial.append(request)
        else:
            self._answered(step, request)

    def _answered(self, step: Step, request: Request) -> None:
        """Marks a prompt as finished in this step, which yields the first token; then it
        decodes."""
        step.prompted.append(request)
        self._note_pause(step, request)
        if request.computed == request.last:
            step.finishing.append(request)
        elif self.drafts is None:
            self._decoding.join(request)

    def _admit(self, step: Step, budget: i64) -> None:
        """Admits requests from the queue, in its order, until budget, sequences or blocks run
        out."""
        waiting = self.waiting
        most = self.limits.max_num_seqs
        at_once = self.limits.prompt_wait_steps == 0
        while budget > 0 and waiting.count and self.running.count < most:
            request = waiting.head()
            if request is None or (self._wanting.count and self._wanted_before(request)):
                return
            hit = self.pool.hit(request)
            if self.tiers is not None and self._must_fetch(request, hit):
                if not self._fits_whole(request, hit):
                    return
                waiting.pop(request)
                self._fetch(request, hit)
                continue
            rest = request.target - hit * self._size
            want = self._wanted(rest, budget)
            if rest and (not want or not self._fits(request, hit, want)):
                return
            if rest and not at_once:
                if self._waits_for_ranks():
                    return
                at_once = True
            waiting.pop(request)
            if not rest:
                self._answer_at_once(step, request, hit)
                continue
            self.pool.admit(request, hit)
            request.computed = hit * self._size
            if not request.preemptions:
                request.prefix_hit_tokens = request.computed
            budget -= want
            self._enter(request)
            self._prefill(step, request, want)

    def _waits_for_ranks(self) -> bool:
        """Whether a prompt that could be computed waits until there is one for each rank."""
        limits = self.limits
        enough = self.waiting.count >= limits.prompts_for_ranks
        idle = self.running.count < limits.ranks
        if enough or idle or self._held_steps >= self.limits.prompt_wait_steps:
            self._held_steps = 0
            return False
        self._held_steps += 1
        return True

    def _answer_at_once(self, step: Step, request: Request, hit: i64) -> None:
        """Admits a request whose whole prompt is cached: it computes nothing and holds no
        blocks."""
        request.computed = request.target
        request.unheld_blocks = hit
        request.sharing = False
        if not request.preemptions:
            request.prefix_hit_tokens = request.computed
        self._enter(request)
        self._answered(step, request)
        if self.slots is not None and request.computed == request.last:
            self.slots.leave_unused(request)

    def _admit_transferred(self, step: Step, budget: i64) -> i64:
        """Admits requests that have the KV of their prompt, and so its blocks; the remaining
        budget."""
        most = self.limits.max_num_seqs
        while budget > 0 and self.running.count < most:
            request = self._next_transferred()
            if request is None:
                break
            want = self._wanted(request.target - request.computed, budget)
            if not want:
                break
            self._transferred.remove(request)
            self.pool.give_back(self._spare_blocks(request))
            budget -= want
            self._enter(request)
            self._prefill(step, request, want)
        return budget

    def _next_transferred(self) -> Request | None:
        """The first request with the KV of its prompt that needs no adapter or has a slot for
        it."""
        request = self._transferred.head
        if self.slots is not None:
            while request is not None and not self.slots.has_room(request.adapter):
                request = request.behind
        return request

    def _spare_blocks(self, request: Request) -> i64:
        """Blocks reserved for the part of the prompt that is not computed yet."""
        size = self._size
        return (request.target + size - 1) // size - (request.computed + size - 1) // size

    def _enter(self, request: Request) -> None:
        """Adds a request to the running ones."""
        request.stage = RUNNING
        request.admission = self._admissions
        self._admissions += 1
        self.running.append(request)
        request.unsettled = 0
        if request.keeps_blocks:
            self._keeping += 1
        if self.slots is not None:
            self.slots.enter(request)

    def _leave(self, request: Request) -> None:
        """Removes a request from the running ones."""
        self.running.remove(request)
        if request.keeps_blocks:
            self._keeping -= 1
        if self.slots is not None:
            self.slots.leave(request)

    def _wanted(self, want: i64, budget: i64) -> i64:
        """How many of the wanted tokens a new request computes; 0 when it must wait for budget."""
        threshold = self.limits.long_prefill_threshold
        if 0 < threshold < want:
            want = threshold
        if want > budget:
            return budget if self.limits.chunked_prefill else 0
        return want

    def _fits(self, request: Request, hit: i64, want: i64) -> bool:
        """Whether blocks suffice for the first chunk or, with `reserve_full_prompt`, the whole
        prompt."""
        tokens = request.target if self.limits.reserve_full_prompt else hit * self._size + want
        blocks = (tokens + self._size - 1) // self._size - hit + self.pool.for_windows(request)
        if hit:
            blocks += self.pool.free_among(request, hit)
        return blocks <= self.pool.free

    def _could_admit(self) -> bool:
        """Whether a waiting request would be admitted beside the current decodes."""
        if self.running.count >= self.limits.max_num_seqs:
            return False
        budget = self.limits.max_num_batched_tokens
        if self.limits.mixed_batches:
            budget -= self._decoding.count
        request = self._next_transferred()
        if request is not None:
            return self._wanted(request.target - request.computed, budget) > 0
        request = self.waiting.head()
        if request is None or (self._wanting.count and self._wanted_before(request)):
            return False
        hit = self.pool.hit(request)
        if self.tiers is not None and self._could_fetch(request, hit):
            return True
        rest = request.target - hit * self._size
        want = self._wanted(rest, budget)
        return rest == 0 or (want > 0 and self._fits(request, hit, want))

    def _wanted_before(self, request: Request) -> bool:
        """Whether an earlier request waits for blocks to receive KV from elsewhere.

        Preempted requests get blocks before any that want them for KV from elsewhere.
        """
        first = self._wanting.head()
        return (
            first is not None and not self.waiting.preempted and self._goes_before(first, request)
        )

    def _goes_before(self, one: Request, other: Request) -> bool:
        scheduling = self.limits.scheduling
        if scheduling == FCFS:
            return one.order < other.order
        return rank(one, scheduling) < rank(other, scheduling)

    # Requests whose KV is in a slower tier

    def _must_fetch(self, request: Request, hit: i64) -> bool:
        """Whether tiers hold more of a prompt, or its blocks on the accelerator are still
        loading."""
        assert self.tiers is not None
        return (
            self.tiers.found(request, hit) > hit
            or self.tiers.ready_s(request, hit) > self._moment_s
        )

    def _could_fetch(self, request: Request, hit: i64) -> bool:
        """Whether a request might be fetched, or no longer need it, in later steps.

        Evictions in between may move blocks of its prompt into a tier, or out of the last one.
        """
        if self._fits_whole(request, hit):
            return True
        return not self.limits.reserve_full_prompt and self._must_fetch(request, hit)

    def _fits_whole(self, request: Request, hit: i64) -> bool:
        blocks = (request.target + self._size - 1) // self._size - hit
        blocks += self.pool.for_windows(request)
        return blocks + self.pool.free_among(request, hit) <= self.pool.free

    def _fetch(self, request: Request, hit: i64) -> None:
        """Takes all blocks of a prompt, and loads from the tiers those that they hold."""
        assert self.tiers is not None
        now = self._moment_s
        reach = self.tiers.found(request, hit)
        ready_s = self.tiers.ready_s(request, hit)
        keys: list[int] = []
        if reach > hit:
            loaded_s, keys = self.tiers.load(request, hit, reach, now)
            ready_s = max(ready_s, loaded_s)
        self.pool.admit(request, hit)
        self.pool.take((request.target + self._size - 1) // self._size - hit)
        self.pool.extend(request, reach * self._size)
        request.computed = reach * self._size
        if not request.preemptions:
            request.prefix_hit_tokens = request.computed
        self.tiers.waits.add(ready_s - now)
        load = Load(request, now, ready_s, keys)
        load.blocks = reach - hit
        if self.tiers.journal is not None:
            self.tiers.journal.append(load)
        self._await(load)

    def _await(self, load: Load) -> None:
        """Lets a request that has its blocks wait until they are loaded."""
        load.request.stage = FETCHING
        load.request.fetching_s = load.begun_s
        self._fetching[load.request.id] = load.request
        heappush(self._loads, (load.ready_s, self._begun, load))
        self._begun += 1

    def _land(self, now: float, including: bool) -> None:  # noqa: FBT001
        """Queues requests whose KV has arrived; with `including`, also what arrives at this
        instant."""
        assert self.tiers is not None
        while self._loads:
            ready_s = self._loads[0][0]
            if ready_s > now or (ready_s == now and not including):
                return
            load = heappop(self._loads)[2]
            self.tiers.landed(load)
            request = load.request
            if self._fetching.get(request.id) is request:
                del self._fetching[request.id]
                request.stage = TRANSFERRED
                request.fetching_s = UNSET
                self._transferred.append(request)

    # When there are not enough blocks for all

    def _can_preempt_last(self) -> bool:
        """Whether all running requests decode and can be preempted in reverse order of
        admission."""
        return (
            self.drafts is None
            and self.tiers is None
            and not self._skipped
            and not self._partial
            and not self._keeping
            and self.limits.scheduling != PRIORITY
            and self._decoding.count <= self.limits.max_num_batched_tokens
        )

    def _plan_without_last(self, step: Step, start_s: float) -> i64:
        """Preempts the requests admitted last until the others have blocks; the remaining budget.

        Equivalent to planning one by one, where the first requests get the free blocks, and each
        that lacks a block takes it from the last. An overloaded server does this every few steps.
        """
        decoding = self._decoding
        pool = self.pool
        needed = decoding.blocks_for_next()
        while needed > 0:
            if pool.free:
                taken = min(pool.free, needed)
                pool.take(taken)
                needed -= taken
                continue
            victim = self.running.tail
            assert victim is not None
            if victim.finish_clock >= 0:
                if decoding.needs_block(victim):
                    needed -= 1
                decoding.leave(victim)
            self._preempt(victim, 0, start_s)
        step.decodes = decoding.count
        step.context = decoding.context
        if decoding.count:
            decoding.pass_steps(1, step.finishing)
        return self.limits.max_num_batched_tokens - step.decodes

    # Requests one by one

    def _plan_one_by_one(
        self, step: Step, start_s: float, *, prompts: bool = True, decodes: bool = True
    ) -> i64:
        """Plans the running requests in order, preempting if blocks run out; the remaining
        budget."""
        if prompts and decodes and self._can_preempt_last():
            return self._plan_without_last(step, start_s)
        self._decoding.dissolve()
        self._partial.clear()
        order = self.running.requests()
        wants: dict[int, int] = {}
        budget = self.limits.max_num_batched_tokens
        position = 0
        while position < len(order) and budget > 0:
            request = order[position]
            want = self._wants_more(request, budget)
            if not (prompts if request.computed < request.target else decodes):
                want = 0
            blocks = self._more_blocks(request, want)
            if self.drafts is not None:
                blocks = self._blocks_ahead(request, want)
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
                if self.drafts is not None:
                    request.spare_blocks += blocks
                wants[request.admission] = want
                budget -= want
            position += 1
        self._settle(step, order, wants, start_s)
        return budget

    def _blocks_ahead(self, request: Request, want: i64) -> i64:
        """The further blocks that a request needs, including those for its drafts."""
        if not want:
            return 0
        assert self.drafts is not None
        size = self._size
        tokens = request.computed + request.unsettled + want + self.drafts.limits.lookahead
        tokens = min(tokens, self.limits.max_model_len)
        held = (request.computed + size - 1) // size + request.spare_blocks
        return max(0, (tokens + size - 1) // size - held)

    def _use_spare(self, request: Request, tokens: i64) -> None:
        """Turns blocks held ahead into blocks of computed tokens."""
        request.spare_blocks -= self._more_blocks(request, tokens)

    def _wants_more(self, request: Request, budget: i64) -> i64:
        """Tokens that a running request would compute next: prompt chunk, one with its drafts, or
        none."""
        if request.computed >= request.target:
            if request.computed >= request.last:
                return 0
            if self.drafts is None:
                return 1
            want = min(1 + self.drafts.limits.tokens, budget)
            return min(want, self.limits.max_model_len - 1 - request.computed)
        want = request.target - request.computed
        threshold = self.limits.long_prefill_threshold
        if 0 < threshold < want:
            want = threshold
        return min(want, budget)

    def _victim(self, order: list[Request]) -> i64:
        """The request to preempt: the last admitted, or under priority scheduling the least urgent.

        Never one that only waits for its last token and whose blocks are needed elsewhere.
        """
        chosen: i64 = -1
        for index in range(len(order) - 1, -1, -1):
            request = order[index]
            if request.keeps_blocks and request.computed == request.last:
                continue
            if chosen < 0:
                chosen = index
                if self.limits.scheduling != PRIORITY:
                    break
            elif rank(request, PRIORITY) > rank(order[chosen], PRIORITY):
                chosen = index
        return chosen

    def _preempt(self, request: Request, want: i64, start_s: float) -> None:
        """Takes all blocks from a request and queues it to be computed again.

        Its tokens are kept, unless `preemption` is restart: then it starts over.
        """
        self.preemptions += 1
        request.preemptions += 1
        done = request.computed == request.last
        if self.drafts is not None:
            if request.computed >= request.target:
                want = min(want, 1)  # a cache cannot find drafts again
            self._use_spare(request, want)
            request.unsettled = 0
        self.pool.release(request, request.computed + want, preempted=not done)
        self._leave(request)
        request.admission = -1
        request.finish_clock = -1
        if done:
            request.stage = ENDING
            self._ending.append(request)
            return  # its last token is on its way: it ends with the current step
        request.stage = WAITING
        request.pause(start_s)
        if self.limits.restarts:
            request.first_token_s = UNSET
            request.token_s = UNSET
        elif request.computed >= request.target:
            request.target = request.computed + 1
            if request.token_s == UNSET:
                request.token_s = start_s
        request.computed = 0
        self.waiting.push_preempted(request)

    def _settle(
        self, step: Step, order: list[Request], wants: dict[int, int], start_s: float
    ) -> None:
        """Adds what was planned one by one to the step, and groups the decoding requests again."""
        step.decodes = 0
        step.context = 0
        self._skipped = 0
        for request in order:
            want = wants.get(request.admission, 0)
            if request.computed < request.target:
                if want:
                    if self.drafts is not None:
                        self._use_spare(request, want)
                    self._chunk(step, request, want)
                else:
                    self._partial.append(request)
            elif request.computed < request.last:
                if want:
                    step.decodes += 1
                    step.context += request.computed
                    if self.drafts is not None:
                        step.drafted += want - 1
                        want = self.drafts.advance(request, want)
                        self._use_spare(request, want)
                    request.computed += want
                    step.late_decodes += self._note_pause(step, request)
                else:
                    self._skipped += 1
                    if wants:  # an empty step takes no time: the step before it is still running
                        request.unsettled = 0
                    if request.token_s == UNSET:
                        request.token_s = start_s
                if request.computed < request.last:
                    if self.drafts is None:
                        self._decoding.join(request)
                else:
                    request.finish_clock = -1
                    step.finishing.append(request)

    def _note_pause(self, step: Step, request: Request) -> i64:
        """Records the latest token's time if the request missed steps since; 1 if so, otherwise
        0."""
        if request.token_s == UNSET:
            return 0
        step.pauses.append(request.token_s)
        request.token_s = UNSET
        return 1
