"""The fast engine: vLLM's schedule, exactly, at a cost that does not grow with output length.

While no request arrives, ends its prompt, finishes or lacks blocks, every step is the same batch
with one more token each, so many steps are one event (`step.py` times them, `decoding.py` computes
how long the batch stays the same). An arrival in the middle cuts the run at the step that sees it.

`schedule.py` plans steps. The tests' reference engine does one step at a time, and property tests
verify that both give equal results.
"""

from typing import Final

from mypy_extensions import i64

from windtunnel.core.loop import INFINITY
from windtunnel.core.statistics.histogram import Histogram, HistogramBuckets
from windtunnel.engine.limits import FCFS, LENGTH_CAPPED, EngineLimits
from windtunnel.engine.schedule import Schedule
from windtunnel.engine.step import Step
from windtunnel.engine.tiers import Load
from windtunnel.models.step_time.model import StepTimeModel
from windtunnel.workload.request import (
    AWAY,
    CLOSING,
    FETCHING,
    KEPT,
    RESERVED,
    TRANSFERRED,
    UNSET,
    WAITING,
    WANTING,
    Request,
)


class Closing:
    """Requests with nothing left to compute whose step has not ended, by end time.

    Only where `last_step_blocks` is false: the server has already gone on with a new request, and
    the requests of the earlier step are handed out when that step ends.
    """

    def __init__(self) -> None:
        self.requests: Final[list[Request]] = []

    def add(self, ended: list[Request]) -> None:
        for request in ended:
            request.stage = CLOSING
            self.requests.append(request)
        self.requests.sort(key=_end_of)

    @property
    def next_s(self) -> float:
        """When the first of their steps ends; infinity without any."""
        return self.requests[0].finished_s if self.requests else INFINITY

    def hand_out(self, now: float, finished: list[Request]) -> None:
        """Moves the requests that have ended by now to `finished`."""
        while self.requests and self.requests[0].finished_s <= now:
            request = self.requests.pop(0)
            request.stage = AWAY
            finished.append(request)


def _end_of(request: Request) -> float:
    return request.finished_s


class Server(Schedule):
    """One replica. Pass it requests with `submit`; call `advance` at `wake_s`."""

    __slots__ = (
        "_ahead",
        "_apart",
        "_closing",
        "_following",
        "_late_arrivals",
        "_leaving",
        "_orders",
        "_overlaps",
        "_wanted_tokens",
        "_whole_steps",
        "busy_s",
        "finished",
        "granted",
        "steps",
        "token_gaps",
        "token_overhead_s",
    )

    def __init__(
        self,
        index: int,
        limits: EngineLimits,
        model: StepTimeModel,
        token_gaps: HistogramBuckets | None = None,
    ) -> None:
        super().__init__(index, limits, model)
        self.busy_s = 0.0
        self.steps: i64 = 0
        self.finished: list[Request] = []
        self.granted: Final[list[Request]] = []  # blocks reserved since `await_room`
        self.token_gaps: Final = Histogram(token_gaps)  # servers may share its buckets
        self.token_overhead_s = 0.0  # added to inter-token times for a client

        self._late_arrivals: Final[list[Request]] = []
        self._leaving: Final[list[Request]] = []  # cancelled, but still in planned steps
        self._closing: Final = Closing()  # in steps that the server has already left
        self._apart: Final[dict[int, Request]] = {}  # holding blocks, neither waiting nor running
        self._wanted_tokens: Final[dict[int, int]] = {}  # tokens from elsewhere, by request
        self._orders: i64 = 0
        self._overlaps: Final = limits.async_scheduling
        # Whether nothing happens within a step, unless a request is cancelled.
        self._whole_steps: Final = limits.last_step_blocks and self.tiers is None
        self._ahead = False  # whether the next step is already planned
        self._following: Step | None = None  # that plan; None when nothing follows

    # What the driver calls

    def submit(self, request: Request, now: float) -> None:
        """Queues a request, or refuses it for good if it can never run here."""
        limits = self.limits
        if not self._receive(request, now):
            return
        request.stage = WAITING
        step = self._current
        if step is None:
            self.waiting.push(request)
            self.wake_s = min(self.wake_s, now)
            return
        if self._overlaps and (now > step.planned_s or step.steps == 1):
            self._late_arrivals.append(request)
            return
        if not limits.last_step_blocks and self._empties(step, now):
            self._close(step, now)
            self.waiting.push(request)
            self.wake_s = now
            return
        blocked = limits.scheduling == FCFS and self.waiting.head() is not None
        self.waiting.push(request)
        if step.steps > 1 and not blocked and self.running.count < limits.max_num_seqs:
            self._shorten(step, now)

    def refusal(self, request: Request) -> str:
        """Why a request can never run here; empty when it can."""
        reason = self.limits.refusal(request.prompt_tokens, request.output_tokens)
        if reason or not self.pool.leaked:
            return reason
        answer = self.limits.answer_tokens(request.prompt_tokens, request.output_tokens)
        blocks = self.limits.blocks_of(request.prompt_tokens + answer - 1)
        left = self.pool.blocks - self.pool.leaked
        return f"needs {blocks} KV blocks, {left} have not leaked" if blocks > left else ""

    def cached_tokens(self, request: Request) -> i64:
        """Prompt tokens of a new request that need not be computed here."""
        request.target = request.prompt_tokens
        hit = self.pool.hit(request)
        if self.tiers is not None:
            hit = self.tiers.found(request, hit)
        return hit * self._size

    def cancel(self, request: Request, now: float) -> None:
        """Cancels a request that waits or runs here; it will not be in `finished`.

        A waiting request leaves at once. A running one is part of the planned steps, and holds its
        blocks until the next step is planned. `load` no longer counts it.
        """
        assert request.server == self.index
        assert not request.cancelled
        assert request.stage not in {AWAY, RESERVED, KEPT}, "it is not here"
        self._catch_up(now)
        request.cancelled = True
        if request.stage == CLOSING:
            self._closing.requests.remove(request)
        elif request.stage in {TRANSFERRED, FETCHING}:
            if request.stage == TRANSFERRED:
                self._transferred.remove(request)
            else:
                del self._fetching[request.id]
            self.pool.give_back(self._spare_blocks(request))
            self.pool.release(request, request.computed, preempted=False)
        elif request.stage != WAITING:
            self._leaving.append(request)
            self._wake_at_boundary()
            return
        elif request in self._late_arrivals:
            self._late_arrivals.remove(request)
        else:
            self.waiting.remove(request)
            self.pool.forget_own(request)
        request.stage = AWAY
        self._look_again(now)
        self._grant()

    def reserve(self, request: Request, tokens: i64, now: float) -> i64:
        """Takes the blocks of a prompt whose first `tokens` tokens will come from elsewhere.

        Returns how many of those tokens are not cached here and must be transferred; -1 when there
        are too few blocks or other requests wait for them, or when the request is refused for good
        (it is then in `finished`, as dropped).
        """
        if not self._receive(request, now):
            return -1
        self._catch_up(now)
        first = self._wanting.head()
        if first is not None and self._goes_before(first, request):
            return -1
        return self._take_prompt(request, tokens) if self._is_next(request) else -1

    def await_room(self, request: Request, tokens: i64) -> None:
        """Queues a request for which `reserve` found no blocks.

        It is in `granted` once they are reserved: first come, first served, as blocks are freed.
        """
        request.stage = WANTING
        self._wanted_tokens[request.id] = tokens
        self._wanting.push(request)
        self._wake_at_boundary()

    def forgo(self, request: Request, now: float) -> None:
        """Withdraws a request that awaits room."""
        assert request.stage == WANTING
        self._catch_up(now)
        request.cancelled = True
        self._wanting.remove(request)
        del self._wanted_tokens[request.id]
        request.stage = AWAY
        self._look_again(now)
        self._grant()

    def _is_next(self, request: Request) -> bool:
        """Whether no earlier request waits for blocks; preempted requests count as earlier."""
        if self.waiting.preempted or any(late.preemptions for late in self._late_arrivals):
            return False
        if self.running.count >= self.limits.max_num_seqs:
            return True  # queued requests wait for a place in the batch
        first = self.waiting.head()
        for late in self._late_arrivals:
            if self.slots is not None and not self.slots.has_room(late.adapter):
                continue  # it will be skipped
            if first is None or self._goes_before(late, first):
                first = late
        if first is None or not self._goes_before(first, request):
            return True
        return self._fits_whole(first, self.pool.hit(first))

    def _prompt_hit(self, request: Request) -> i64:
        """Cached blocks of a prompt whose remaining blocks are available; -1 when they are not."""
        pool = self.pool
        hit = min(pool.hit(request), (request.prompt_tokens - 1) // self._size)
        blocks = -(-request.prompt_tokens // self._size) - hit + pool.for_windows(request)
        return hit if blocks + pool.free_among(request, hit) <= pool.free else -1

    def _has_room(self) -> bool:
        """Whether there is room for the first request that awaits it."""
        first = self._wanting.head()
        return first is not None and self._is_next(first) and self._prompt_hit(first) >= 0

    def _grant(self) -> None:
        """Reserves blocks for requests that await room, in order, as long as blocks suffice."""
        while self._wanting.count and self._has_room():
            request = self._wanting.head()
            assert request is not None
            self._wanting.pop(request)
            self._take_prompt(request, self._wanted_tokens.pop(request.id))
            self.granted.append(request)

    def _take_prompt(self, request: Request, tokens: i64) -> i64:
        pool = self.pool
        hit = self._prompt_hit(request)
        if hit < 0:
            return -1
        pool.admit(request, hit)
        pool.take(-(-request.prompt_tokens // self._size) - hit)
        request.prefix_hit_tokens = hit * self._size
        request.computed = max(min(tokens, request.prompt_tokens - 1), request.prefix_hit_tokens)
        request.stage = RESERVED
        self._apart[request.id] = request
        return max(0, tokens - request.prefix_hit_tokens)

    def adopt(self, request: Request, kept: Request, now: float) -> None:
        """Reserves the blocks of a request's prompt, which `kept` computed here and holds."""
        self._catch_up(now)
        del self._apart[kept.id]
        windows = kept.window_blocks
        self.pool.release(kept, kept.last, preempted=False)
        kept.stage = AWAY
        missing: i64 = -1
        if self._receive(request, now):
            request.window_blocks = windows  # no more than were just freed
            missing = self._take_prompt(request, request.prompt_tokens - 1)
        assert missing >= 0, "what was just freed suffices"

    def submit_arrived(self, request: Request, now: float) -> None:
        """Queues a request whose reserved KV has arrived; it goes before those without KV."""
        assert request.stage == RESERVED
        self._catch_up(now)
        del self._apart[request.id]
        present = request.pinned_blocks
        self.pool.extend(request, request.computed)
        if self.tiers is not None:
            ready_s = self.tiers.ready_s(request, present)
            if ready_s > now:  # the blocks it hit are themselves still loading from a slower tier
                self._await(Load(request, now, ready_s, []))
                self._wake(self.wake_s)
                return
        request.stage = TRANSFERRED
        self._transferred.append(request)
        self._look_again(now)

    def let_go(self, request: Request, now: float) -> None:
        """Frees the blocks that an ended request kept, or those reserved for KV that will not
        arrive."""
        self._catch_up(now)
        del self._apart[request.id]
        if request.stage == KEPT:
            self.pool.release(request, request.last, preempted=False)
        else:
            assert request.stage == RESERVED
            self.pool.unreserve(request, -(-request.prompt_tokens // self._size))
        request.stage = AWAY
        self._look_again(now)
        self._grant()

    def advance(self, now: float) -> None:
        """Ends the step that ends now and plans the next one. Ended requests are in `finished`."""
        if (self._leaving or not self._whole_steps) and self._is_within_step(now):
            return
        step = self._current
        following: Step | None = None
        if step is not None:
            following = self._end(step, now)
        idle = following is None
        if self._leaving:
            self._depart()
            if following is not None:
                following.pure = False  # it still computes the cancelled ones: no run of steps
        if self.tiers is not None:
            self._land(now, True)  # noqa: FBT003 - what has just been planned may have begun loads
        # Freed blocks go to running requests, then to those that await room.
        has_room = self._wanting.count > 0 and self._has_room()
        if following is None:
            following = self._plan(now, now)
        self._current = following
        if has_room and (following is None or not self._overlaps):
            self._grant()
        if following is None:
            self._wake(INFINITY)
            return
        self._moment_s = now
        following.planned_s = now
        following.start_s = now
        if idle and self._overlaps:
            following.start_s += self.limits.host_overhead_s
        self._start(following)
        if has_room and self._overlaps:
            self._catch_up(now)
            self._grant()

    def stop(self, now: float) -> None:
        """Accounts for the elapsed part of the current step when a run ends before the step
        does."""
        step = self._current
        if step is None or step.start_s >= now:
            return
        whole = self._clock.whole_steps(step, now)
        begun = min(whole, step.steps - 1)
        if self.extrapolation is not None:
            self.extrapolation.add(step, self._clock, whole, begun + 1, now - step.start_s)
        if begun and not step.passed:
            self._pass_steps(step, begun)
        if whole:
            step.steps = whole
            self._clock.count_gaps(step, self.token_gaps, self.token_overhead_s)
        self.steps += whole
        self.busy_s += now - step.start_s

    def leak(self, blocks: i64, now: float) -> i64:
        """Makes up to `blocks` free blocks unusable; returns how many.

        Requests that can no longer be served here stay: `refusal` names them.
        """
        self._catch_up(now)
        blocks = min(blocks, self.pool.free)
        self.pool.leak(blocks)
        return blocks

    def slow_down(self, factor: float, now: float) -> None:
        """Makes steps planned from now on slower than the model, by this factor."""
        self._catch_up(now)
        self.slowness = factor
        if self._following is not None:
            self._following.pure = False  # later steps take a different time: no run of equal steps

    def crash(self, now: float) -> None:
        """Stops the server, frees all blocks and drops its steps. All requests must have been
        cancelled."""
        assert not self.load, "a request that is here would be lost"
        assert not self._apart
        assert not self._wanting.count
        self.stop(now)
        self._current = None
        self._following = None
        self._ahead = False
        self._depart()
        self._ending.clear()
        if self.tiers is not None:
            for entry in self._loads:
                self.tiers.landed(entry[2])
        self._loads.clear()
        self.wake_s = INFINITY

    # Requests in and out

    def _receive(self, request: Request, now: float) -> bool:
        """Prepares a request to be served here; False when it is refused, and has ended."""
        limits = self.limits
        assert request.stage == AWAY
        request.server = self.index
        self._orders += 1
        request.order = self._orders
        reason = self.refusal(request)
        if reason:
            request.reason = reason
            request.dropped = True
            request.finished_s = now
            self.finished.append(request)
            return False
        answer = limits.answer_tokens(request.prompt_tokens, request.output_tokens)
        if answer < request.output_tokens:
            request.output_tokens = answer
            request.reason = LENGTH_CAPPED
        request.target = request.prompt_tokens
        request.last = request.prompt_tokens + answer - 1
        if request.prefix is not None and limits.prefix_caching:
            assert request.prefix.ends[-1] <= request.prompt_tokens
            request.shared_blocks = request.prefix.ends[-1] // self._size
        return True

    def _catch_up(self, now: float) -> None:
        """Brings the state up to the current step, so that it may be changed from outside.

        Otherwise runs of steps, and in async mode the following step, are processed when they end,
        because the difference is not observable.
        """
        step = self._current
        if step is None or self._ahead:
            return
        if step.steps > 1 and not step.passed:
            if not self._overlaps or now <= step.planned_s:
                self._shorten(step, now)
            if step.steps > 1:
                self._pass_steps(step, step.steps - 1)
                step.passed = True
        if self._overlaps and (now > step.planned_s or step.steps == 1):
            if self._leaving:
                self._depart()
            self._ahead = True
            self._following = self._plan(step.end_s, step.planned_s)
            if self.tiers is not None:
                self._land(now, False)  # noqa: FBT003 - loads that have begun and ended by now
                self._wake(step.end_s)

    def _look_again(self, now: float) -> None:
        """Wakes an idle server if a waiting request may have more room than before."""
        if self._current is None and self.queued:
            self.wake_s = min(self.wake_s, now)

    def _depart(self) -> None:
        """Removes cancelled requests and frees their blocks."""
        for request in self._leaving:
            if request.admission >= 0:
                if request.finish_clock >= 0:
                    self._decoding.leave(request)
                elif request.computed < request.target:
                    self._partial.remove(request)
                self.pool.release(request, request.computed, preempted=False)
                self._leave(request)
            request.stage = AWAY
        self._leaving.clear()

    # Time

    def _is_within_step(self, now: float) -> bool:
        """Does what is due within a step; returns whether that is all because no step ends now."""
        if self._leaving and self._passes_boundary(now):
            return True
        if self.tiers is not None and self._only_lands(now):
            return True
        return not self.limits.last_step_blocks and self._goes_on(self._current, now)

    def _wake_at_boundary(self) -> None:
        """Wakes the server when the step after a run is planned, if that frees blocks for requests
        that await room."""
        step = self._current
        if self._leaving and self._wanting.count and self._departs_within(step):
            assert step is not None
            self.wake_s = min(self.wake_s, step.planned_s)

    def _departs_within(self, step: Step | None) -> bool:
        """Whether cancelled requests leave before the last step of a run."""
        return step is not None and step.steps > 1 and self._overlaps and not self._ahead

    def _passes_boundary(self, now: float) -> bool:
        """Plans the step after a run before its last step ends; returns whether that is all."""
        step = self._current
        if not self._departs_within(step):
            return False
        assert step is not None
        if not step.planned_s <= now < step.end_s:
            return False
        if self.tiers is not None:
            self._land(now, True)  # noqa: FBT003
        self._depart()
        has_room = self._has_room()
        self._ahead = True
        self._following = self._plan(step.end_s, now)
        if has_room:
            self._grant()
        self._wake(step.end_s)
        return True

    def _only_lands(self, now: float) -> bool:
        """Queues requests whose KV has arrived; returns whether that is all because no step ends
        now."""
        if self._loads and self._loads[0][0] <= now:
            self._catch_up(now)
            self._land(now, True)  # noqa: FBT003
        step = self._current
        if step is None or step.end_s <= now:
            return False
        self._wake(step.end_s)
        self._wake_at_boundary()
        return True

    def _end(self, step: Step, now: float) -> Step | None:
        """Ends a step; returns the next one if it is already planned."""
        following: Step | None = None
        if self._ahead:
            following = self._following
            self._following = None
            self._ahead = False
        else:
            if step.steps > 1 and not step.passed:
                self._pass_steps(step, step.steps - 1)
            if self._overlaps:
                if self._leaving:
                    self._depart()
                following = self._plan(step.end_s, step.planned_s)
        self._complete(step, now)
        if self._late_arrivals:
            for request in self._late_arrivals:
                self.waiting.push(request)
            self._late_arrivals.clear()
        return following

    def _start(self, step: Step) -> None:
        """Determines how many equal steps pass before anything can change, and so when to wake."""
        request = self.running.tail
        while request is not None and request.admission >= step.first_admission:
            if request.scheduled_s == UNSET and not request.cancelled:
                request.scheduled_s = step.start_s
            elif request.pauses is not None:
                request.resume(step.start_s)
            request = request.ahead
        steps: i64 = 0
        if step.pure and not step.finishing and not self._next_step_admits():
            ends = self._decoding.steps_to_first_end()
            steps = self._decoding.affordable(ends, self.pool.free)
        if steps > 0:
            step.steps = 1 + steps
            self._time(step)
        else:
            step.end_s = self._clock.on_tick(step.start_s + step.duration_s)
        self._wake(step.end_s)

    def _wake(self, at_s: float) -> None:
        """Sets the next wake-up, at the latest `at_s`: a closed step or a load may end before."""
        if not self._whole_steps:
            at_s = min(at_s, self._closing.next_s)
            if self._loads and self._loads[0][0] < at_s:
                at_s = self._loads[0][0]
        self.wake_s = at_s

    def _next_step_admits(self) -> bool:
        """Whether the next step would admit a request."""
        return (self.waiting.count > 0 or self._transferred.count > 0) and self._could_admit()

    def _time(self, step: Step) -> None:
        """Sets when a run of steps ends, and when the next step is planned."""
        steps = step.steps
        step.end_s = self._clock.end_s(step, steps)
        if self._overlaps and steps > 1:
            step.planned_s = self._clock.end_s(step, steps - 1)

    def _shorten(self, step: Step, now: float) -> None:
        """Cuts a run of steps at the boundary where a request that arrives now is seen."""
        if step.passed:
            return  # it ends there already
        seen = self._clock.steps_until(step, now)
        steps = seen + 1 if self._overlaps else seen
        if steps < step.steps:
            step.steps = steps
            self._time(step)
            self._wake(step.end_s)

    def _empties(self, step: Step, now: float) -> bool:
        """Whether the current step is the last one for all requests here."""
        if self.queued or self._leaving:
            return False
        if step.steps > 1 and not step.passed:
            if now <= self._clock.end_s(step, step.steps - 1):
                return False
            self._pass_steps(step, step.steps - 1)
            step.passed = True
        for request in step.finishing:
            if request.keeps_blocks:
                return False
        return len(step.finishing) == self.running.count

    def _close(self, step: Step, now: float) -> None:
        """Frees the blocks of a step before it ends; its requests are handed out when it does."""
        handed_out = len(self.finished)
        self._complete(step, now)
        self._closing.add(self.finished[handed_out:])
        del self.finished[handed_out:]
        self._current = None

    def _goes_on(self, step: Step | None, now: float) -> bool:
        """Hands out requests of a step closed early that ends now; returns whether another step
        goes on."""
        self._closing.hand_out(now, self.finished)
        if step is None or step.end_s <= now:
            return False
        self._wake(step.end_s)
        self._wake_at_boundary()
        return True

    def _free(self, request: Request) -> None:
        """Frees the blocks of a request that has ended."""
        if self.limits.store_last_token and request.last % self._size == 0 and self.pool.free:
            self.pool.take(1)
            self.pool.give_back(1)
        self.pool.release(request, request.last, preempted=False)

    def _complete(self, step: Step, now: float) -> None:
        """Completes a step: records its tokens, and frees the blocks of its finished requests."""
        end_s = step.end_s
        self.busy_s += now - step.start_s
        self.steps += step.steps
        regular = step.decodes - step.late_decodes
        if self.extrapolation is not None:
            steps = step.steps
            self.extrapolation.add(step, self._clock, steps, steps, end_s - step.start_s)
        if step.steps > 1:
            self._clock.count_gaps(step, self.token_gaps, self.token_overhead_s)
        elif regular:
            self.token_gaps.add(step.duration_s + self.token_overhead_s, regular)
        for token_s in step.pauses:
            self.token_gaps.add(end_s - token_s + self.token_overhead_s, 1)
        for request in step.prompted:
            if request.first_token_s == UNSET and not request.cancelled:
                request.first_token_s = end_s
        for request in step.finishing:
            if request.cancelled:
                continue
            request.finished_s = end_s
            if request.admission >= 0:
                self._leave(request)
                if request.keeps_blocks:
                    request.stage = KEPT
                    self._apart[request.id] = request
                    self.finished.append(request)
                    continue
                self._free(request)
            request.stage = AWAY
            self.finished.append(request)
        if self._ending:
            self._ending.clear()

    # Observations at any time. Within a run of steps, they are those of the current step.

    @property
    def queued(self) -> i64:
        """The number of waiting requests."""
        lines = self.waiting.count + len(self._late_arrivals) + self._transferred.count
        return lines + len(self._fetching) if self.tiers is not None else lines

    @property
    def load(self) -> i64:
        """The number of waiting and running requests, without cancelled ones."""
        ending = len(self._ending) + len(self._closing.requests) - len(self._leaving)
        return self.queued + self.running.count + ending

    @property
    def holds_apart(self) -> i64:
        """The number of requests that hold blocks but neither wait nor run: kept and reserved
        ones."""
        return len(self._apart)

    def kv_used(self, now: float) -> float:
        """The share of KV blocks in use; within a run of steps, at the step of `now`."""
        return 1.0 - float(self.kv_free_blocks(now)) / float(self.pool.blocks)

    def kv_free_blocks(self, now: float) -> i64:
        """Blocks without an owner; within a run of steps, at the step of `now`."""
        free = self.pool.free
        step = self._current
        if step is not None and step.steps > 1 and not step.passed:
            passed = self._clock.steps_until(step, now) - 1
            free -= self._decoding.blocks_for(passed)
        return free

    def busy_until(self, now: float) -> float:
        """Seconds spent in steps so far, including the elapsed part of the current one."""
        step = self._current
        if step is None or now <= step.start_s:
            return self.busy_s
        return self.busy_s + min(now, step.end_s) - step.start_s

    def steps_until(self, now: float) -> i64:
        """Steps done so far, including those of the current run that have ended."""
        step = self._current
        if step is None or step.steps == 1 or now <= step.start_s:
            return self.steps
        return self.steps + self._clock.steps_until(step, now) - 1

    def unfinished(self) -> list[Request]:
        """All requests that `load` counts, for a run that ends before the requests do."""
        here = self.waiting.requests() + self._late_arrivals + self._transferred.requests()
        here.extend(self._fetching.values())
        for request in self.running.requests() + self._ending + self._closing.requests:
            if not request.cancelled:
                here.append(request)
        return here

    def computed_tokens(self, request: Request) -> i64:
        """Tokens of a request whose KV was or is being computed here, without prefix cache hits.

        For a preempted, waiting request: the tokens of its answer that it will not generate again.
        """
        computed = request.computed
        if request.finish_clock >= 0:
            computed = request.offset + self._decoding.clock
        if not computed:
            return max(0, request.target - request.prompt_tokens)
        return max(0, computed - request.prefix_hit_tokens)

    def blocks_held(self) -> i64:
        """KV blocks that requests hold, counted one by one, for checking the pool."""
        held = self.pool.pinned()
        for request in self.running.requests():
            computed = request.computed
            if request.finish_clock >= 0:
                computed = request.offset + self._decoding.clock
            held += -(-computed // self._size) - request.pinned_blocks - request.unheld_blocks
            held += request.window_blocks + request.spare_blocks
        reserved = [*self._apart.values(), *self._transferred.requests(), *self._fetching.values()]
        for request in reserved:
            tokens = request.last if request.stage == KEPT else request.target
            held += -(-tokens // self._size) - request.pinned_blocks - request.unheld_blocks
            held += request.window_blocks + request.spare_blocks
        return held

    # For a live driver, which hands out tokens as they are generated

    @property
    def steps_in_run(self) -> i64:
        """How many equal steps are computed before `wake_s`; 0 when the server is idle."""
        step = self._current
        return step.steps if step is not None else 0

    def step_end_s(self, number: i64) -> float:
        """When the first, second, ... of these steps ends, which gives every decoding request a
        token.

        An arrival may cut the run short, but not before a step that has ended.
        """
        step = self._current
        assert step is not None
        assert 1 <= number <= step.steps
        return self._clock.end_s(step, number)

    def tokens_begun(self, request: Request) -> i64:
        """Tokens of the answer after the first of the steps that are computed now.

        Valid from `advance` until the next call that changes the server.
        """
        computed = request.computed
        if request.finish_clock >= 0:
            computed = request.offset + self._decoding.clock
        if computed < request.target:
            return request.target - request.prompt_tokens  # its tokens before a preemption
        return computed - request.prompt_tokens + 1
