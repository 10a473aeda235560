"""How many row groups are in progress at once.

More while models idle for lack of ready work, fewer while ready work only piles up. Lowering the
target evicts nothing: groups in progress are finished, the next ones wait.
"""

from enum import StrEnum
from typing import Final

import msgspec

from windtunnel.admission.events import EventKind, EventReporter
from windtunnel.core.errors import InputError

QUEUED_PER_IN_FLIGHT_MAX: Final = 4
"""With this many tasks queued per task that may be in flight, no further group is started."""
LOOKS_UNTIL_RAISE: Final = 2
LOOKS_UNTIL_LOWER: Final = 4
OVERFED_RATIO: Final = 2
"""With more queued model work than this many times the model slots, groups are only held open."""
ROWS_GUARD_MIN: Final = 8192
ROWS_GUARD_BUFFERS: Final = 3


class RowGroupReason(StrEnum):
    """Why the target of row groups stays or moves; the first that applies."""

    NO_PENDING = "no_pending_row_groups"
    HARD_CAP = "hard_cap"
    ADMITTED_ROWS = "max_admitted_rows"
    BELOW_TARGET = "below_target"
    """More groups may be admitted at the current target."""
    DEFERRED = "deferred_tasks"
    QUEUED_TASKS = "queued_task_guardrail"
    NO_LLM_WAIT = "no_llm_wait_resource"
    SATURATED = "llm_wait_saturated"
    QUEUED_DEMAND = "queued_llm_demand"
    SETTLING = "settling"
    HORIZON_LIMITED = "horizon_limited"
    OVERFED = "overfed"


class RowGroupView(msgspec.Struct, frozen=True):
    """The state that a decision is based on."""

    active: int
    next_rows: int
    """Rows of the next pending group; 0 if none is pending."""
    admitted_rows: int
    queued_tasks: int
    queued_llm: int
    leased_llm: int
    llm_limit: int
    """0 if no work needs a model."""
    is_deferred_blocking: bool = False


class RowGroupDecision(msgspec.Struct, frozen=True):
    """The target from now on, and why."""

    target: int
    before: int
    reason: RowGroupReason


class RowGroupAdmission:
    """Moves the target by one at a time; small fluctuations do not move it."""

    def __init__(
        self,
        hard_cap: int,
        in_flight_max: int,
        rows_guard: int,
        *,
        adaptive: bool = True,
        reporter: EventReporter | None = None,
    ) -> None:
        for name, value in (
            ("hard_cap", hard_cap),
            ("in_flight_max", in_flight_max),
            ("rows_guard", rows_guard),
        ):
            if value < 1:
                raise InputError(f"{value} is not possible", where=name, allowed="1 or more")
        self.adaptive: Final = adaptive
        self.hard_cap: Final = hard_cap
        self.rows_guard: Final = rows_guard
        self.target = 1 if adaptive else hard_cap
        self.peak_target = self.target
        self.blocked: Final[dict[RowGroupReason, int]] = {}
        self._in_flight_max: Final = in_flight_max
        self._reporter: Final = reporter if reporter is not None else EventReporter()
        self._hungry_looks = 0
        self._overfed_looks = 0

    def may_admit(self, view: RowGroupView) -> bool:
        """Whether the next group may start now."""
        return view.next_rows > 0 and view.active < self.target and not self._lacks_rows(view)

    def decide(self, view: RowGroupView, now: float) -> RowGroupDecision:
        """Decides once; the target moves by at most one."""
        before = self.target
        reason = self._blocking(view)
        overfed = view.llm_limit > 0 and view.queued_llm > OVERFED_RATIO * view.llm_limit
        self._overfed_looks = self._overfed_looks + 1 if overfed else 0
        if reason is not None:
            self._hungry_looks = 0
            if self.adaptive and self._overfed_looks >= LOOKS_UNTIL_LOWER and self.target > 1:
                self._overfed_looks = 0
                self.target -= 1
                reason = RowGroupReason.OVERFED
        else:
            self._hungry_looks += 1
            if view.queued_tasks > 0 and self._hungry_looks < LOOKS_UNTIL_RAISE:
                reason = RowGroupReason.SETTLING
            else:
                self._hungry_looks = 0
                self.target += 1
                self.peak_target = max(self.peak_target, self.target)
                reason = RowGroupReason.HORIZON_LIMITED
        decision = RowGroupDecision(self.target, before, reason)
        self._report(decision, view, now)
        return decision

    def _lacks_rows(self, view: RowGroupView) -> bool:
        return view.admitted_rows > 0 and view.admitted_rows + view.next_rows > self.rows_guard

    def _blocking(self, view: RowGroupView) -> RowGroupReason | None:
        free = view.llm_limit - view.leased_llm
        tests = (
            (view.next_rows == 0, RowGroupReason.NO_PENDING),
            (not self.adaptive or self.target >= self.hard_cap, RowGroupReason.HARD_CAP),
            (self._lacks_rows(view), RowGroupReason.ADMITTED_ROWS),
            (view.active < self.target, RowGroupReason.BELOW_TARGET),
            (view.is_deferred_blocking, RowGroupReason.DEFERRED),
            (
                view.queued_tasks >= QUEUED_PER_IN_FLIGHT_MAX * self._in_flight_max,
                RowGroupReason.QUEUED_TASKS,
            ),
            (view.llm_limit == 0, RowGroupReason.NO_LLM_WAIT),
            (free <= 0, RowGroupReason.SATURATED),
            # With nothing leased, the queue itself may wait for a new group, so one may start.
            (view.leased_llm > 0 and free <= view.queued_llm, RowGroupReason.QUEUED_DEMAND),
        )
        return next((reason for holds, reason in tests if holds), None)

    def _report(self, decision: RowGroupDecision, view: RowGroupView, now: float) -> None:
        moved = decision.target != decision.before
        if not moved:
            self.blocked[decision.reason] = self.blocked.get(decision.reason, 0) + 1
        kind = EventKind.ROW_GROUP_TARGET_CHANGED if moved else EventKind.ROW_GROUP_BLOCKED
        numbers = {"target": decision.target, "before": decision.before, "active": view.active}
        reason = decision.reason.value
        self._reporter.report(now, kind, "row_groups", reason=reason, numbers=numbers)


def rows_guard(records: int, buffer_size: int) -> int:
    """Returns how many rows may be in progress at once if groups are admitted adaptively."""
    return max(1, min(records, max(ROWS_GUARD_BUFFERS * buffer_size, ROWS_GUARD_MIN)))
