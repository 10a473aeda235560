"""What others may know of a server at any time: who is there, what is in use, how busy it was."""

from typing import Final

from mypy_extensions import i64

from windtunnel.engine.closing import Closing
from windtunnel.engine.limits import EngineLimits
from windtunnel.engine.schedule import Schedule
from windtunnel.models.step_time.model import StepTimeModel
from windtunnel.workload.request import KEPT, Request


class Occupancy(Schedule):
    """A schedule that can be asked. Runs of steps are looked into at the step of the moment."""

    def __init__(self, index: int, limits: EngineLimits, model: StepTimeModel) -> None:
        super().__init__(index, limits, model)
        self.busy_s = 0.0
        self.steps: i64 = 0
        self._late_arrivals: Final[list[Request]] = []
        self._leaving: Final[list[Request]] = []  # cancelled, and still in steps that are planned
        self._closing: Final = Closing()  # in steps that others have gone on from
        self._apart: Final[dict[int, Request]] = {}  # neither waiting nor running, with blocks

    @property
    def queued(self) -> i64:
        """How many requests wait here."""
        lines = self.waiting.count + len(self._late_arrivals) + self._transferred.count
        return lines + len(self._fetching)

    @property
    def load(self) -> i64:
        """How many requests are here, waiting or running, without those that are cancelled."""
        ending = len(self._ending) + len(self._closing.requests) - len(self._leaving)
        return self.queued + self.running.count + ending

    @property
    def holds_apart(self) -> i64:
        """How many requests hold blocks here that neither wait nor run: kept and reserved ones."""
        return len(self._apart)

    def kv_used(self, now: float) -> float:
        """The share of KV blocks in use; a run of steps is looked into at the step of `now`."""
        return 1.0 - float(self.kv_free_blocks(now)) / float(self.pool.blocks)

    def kv_free_blocks(self, now: float) -> i64:
        """Blocks without an owner; a run of steps is looked into at the step of `now`."""
        free = self.pool.free
        step = self._current
        if step is not None and step.steps > 1 and not step.passed:
            passed = self._clock.steps_until(step, now) - 1
            free -= self._decoding.blocks_for(passed)
        return free

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
        return self.steps + self._clock.steps_until(step, now) - 1

    def unfinished(self) -> list[Request]:
        """All requests that `load` counts, for a run that ends before they do."""
        here = self.waiting.requests() + self._late_arrivals + self._transferred.requests()
        here.extend(self._fetching.values())
        for request in self.running.requests() + self._ending + self._closing.requests:
            if not request.cancelled:
                here.append(request)
        return here

    def computed_tokens(self, request: Request) -> i64:
        """Tokens of a request whose KV was computed here, or is being, not those it found cached.

        Of one that was preempted and waits, those of its answer that it will not make again.
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
        reserved = [*self._apart.values(), *self._transferred.requests(), *self._fetching.values()]
        for request in reserved:
            tokens = request.last if request.stage == KEPT else request.target
            held += -(-tokens // self._size) - request.pinned_blocks
        return held

    # What a live driver asks, which hands out tokens as they come

    @property
    def steps_in_run(self) -> i64:
        """How many equal steps are computed before `wake_s`; 0 when the server is idle."""
        step = self._current
        return step.steps if step is not None else 0

    def step_end_s(self, number: i64) -> float:
        """When the first, second, ... of these steps ends; every decoding request has a token then.

        An arrival may cut the run short, but never before the steps that have ended.
        """
        step = self._current
        assert step is not None
        assert 1 <= number <= step.steps
        return self._clock.end_s(step, number)

    def tokens_begun(self, request: Request) -> i64:
        """Tokens of the answer after the first step that is computed now.

        Holds from an `advance` until the server is told of anything else.
        """
        computed = request.computed
        if request.finish_clock >= 0:
            computed = request.offset + self._decoding.clock
        if computed < request.target:
            return request.target - request.prompt_tokens  # what it had before a preemption
        return computed - request.prompt_tokens + 1
