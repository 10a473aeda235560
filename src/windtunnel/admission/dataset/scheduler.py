"""Decides which cell of which row to work on next, and what happens to one that failed.

Rows come in groups, and groups are admitted as the models have room. A cell is ready when the
columns it needs are done; it is then queued in task admission's fair queue until it gets a lease. A
failed call is retried after a growing, jittered delay; a cell that failed too often is parked until
the rest of its group is done, and then salvaged. A rate-limited call waits for as long as the
server said; otherwise it is next in its queue, and delayed only if it is refused again.

Everything ends: a cell that has been failing for `retry_time_s` is given up. This counts its calls
and the waits imposed on it since its first failure, not the time it was queued behind others. If
nothing at all has succeeded for that long, by the clock, `is_stalled` becomes true, unless a call
sent before that is still out: it may yet bring an answer.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Final, NamedTuple

from windtunnel.admission.capacity import capacity_snapshot
from windtunnel.admission.dataset.cells import (
    DatasetCell,
    DatasetRow,
    FailureAction,
    RowGroup,
    RowSeed,
)
from windtunnel.admission.dataset.graph import ColumnGraph
from windtunnel.admission.events import Correlation, EventKind, EventReporter
from windtunnel.admission.queues.groups import DemandLane, GroupShare, SharedResource
from windtunnel.admission.requests.headers import refusal_delay_s, retry_delay_s
from windtunnel.admission.requests.limiter import NEVER
from windtunnel.admission.tasks.admission import LLM_WAIT, TaskAdmission
from windtunnel.admission.tasks.pressure import PressureAdvisory
from windtunnel.admission.tasks.row_groups import RowGroupAdmission, RowGroupView
from windtunnel.core.errors import InvariantBroken
from windtunnel.core.loop import EventQueue
from windtunnel.core.random import Stream
from windtunnel.core.telemetry import Plain

STARVED_LOOKS: Final = 8
"""The most kinds of upcoming rows that are checked before each call."""
SALVAGE_ROUNDS: Final = 2
"""How many times the parked cells of a group are tried again."""


class CellRetries(NamedTuple):
    """How often and how long a failed call is retried."""

    retries: int = 4
    """Failures in one round after which a cell is parked."""
    retry_time_s: float = 600.0
    """How long a cell may be failing before it is given up; also how long nothing at all may
    succeed before the run is stalled."""


class CellQueue(NamedTuple):
    """The queue of a kind of cell: the lane of its demand, and the group for fair sharing."""

    lane: DemandLane
    """Its first, narrowest resource identifies the model."""
    spec: GroupShare


class Dataset(NamedTuple):
    """The work of a run: columns, the queue for each column's cells, and the row groups."""

    graph: ColumnGraph
    queues: Sequence[Sequence[CellQueue]]
    """Queues by column, then by kind of row."""
    groups: Iterator[Sequence[RowSeed]]
    """The rows of each group, fetched as groups are admitted."""
    cost: Callable[[DatasetCell], float] | None = None
    """A cell's cost in a budget that groups share; 0 if its model has none."""


class DatasetScheduler:
    """Rows, columns and row groups over task admission; without I/O: time is an argument."""

    def __init__(
        self,
        work: Dataset,
        tasks: TaskAdmission,
        row_groups: RowGroupAdmission,
        stream: Stream,
        settings: CellRetries = CellRetries(),  # noqa: B008 - a constant
        *,
        advisory: PressureAdvisory | None = None,
        reporter: EventReporter | None = None,
    ) -> None:
        assert len(work.queues) == len(work.graph)
        self.tasks: Final = tasks
        self.row_groups: Final = row_groups
        self.is_stopping = False
        self.in_flight = 0
        self.resting = 0
        self.parked = 0
        self.open_rows = 0
        self._graph: Final = work.graph
        self._queues: Final = work.queues
        self._groups: Final = work.groups
        self._cost: Final = work.cost
        self._stream: Final = stream
        self._settings: Final = settings
        self._advisory: Final = advisory
        self._reporter: Final = reporter if reporter is not None else EventReporter()
        self._active: Final[dict[int, RowGroup]] = {}
        self._admitted = 0
        self._rests: Final = EventQueue()
        self._deferred: Final[dict[str, int]] = {}
        roots = [queue.lane for column in work.graph.roots for queue in work.queues[column]]
        self._first: Final = list({lane.name: lane for lane in roots}.values())
        self._is_shared: Final = any(
            len({queue.spec.key for queue in work.queues[column]}) > 1
            for column in work.graph.roots
        )
        """Whether rows belong to several groups that share capacity fairly."""
        self._failing_since_s = NEVER
        self._out: Final[dict[str, float]] = {}
        """When each current call was sent, earliest first."""
        self._next: Sequence[RowSeed] = ()
        self._next_keys: list[list[str]] = []
        self._take_next()

    @property
    def is_done(self) -> bool:
        """Whether every row is complete or closed."""
        return not self._active and not self._next

    def is_stalled(self, now: float) -> bool:
        """Whether calls have only failed for as long as they may."""
        return now >= self._stalls_at_s()

    def next_cell(self, now: float) -> DatasetCell | None:
        """Returns a cell to call for, with its lease; None if nothing may start now."""
        self._end_rests(now)
        while self._is_starved():
            self._open_group(now)
        while not self.is_stopping:
            selection = self._advisory.select(now) if self._advisory else self.tasks.select()
            if selection is not None:
                cell = selection.item.payload
                assert isinstance(cell, DatasetCell)
                if self._cost is not None:
                    # Known better than when it was queued; the budget itself may be new.
                    cost = self._cost(cell)
                    selection.item.lane.is_rationed = cost > 0.0
                    selection.item.cost = cost or 1.0
                cell.lease = self.tasks.admit(selection, now)
                cell.tries += 1
                group = cell.row.group
                group.queued -= 1
                group.in_flight += 1
                self.in_flight += 1
                return cell
            if not self._admit_group(now):
                break
        self._check_liveness()
        return None

    def next_wake_s(self) -> float:
        """When to ask again even if nothing happens; infinity if not needed."""
        return min(self._rests.next_s, self._stalls_at_s())

    def began(self, cell: DatasetCell, now: float) -> None:
        """Records that the call for a cell is sent, after any wait since it got its lease."""
        if cell.has_failed:
            cell.failing_s += min(now - cell.landed_s, cell.own_wait_s)
        cell.began_s = now
        self._out[cell.id] = now

    def finished(self, cell: DatasetCell, now: float) -> bool:
        """Records that a cell is done; returns whether that completes its row."""
        self._failing_since_s = NEVER
        row = cell.row
        self._land(cell, now)
        if row.is_closed:
            self._settle(row.group, now)
            return False
        self._report(now, EventKind.TASK_COMPLETED, cell, "", {"tries": cell.tries})
        del row.cells[cell.column]
        row.left -= 1
        for child in self._graph.children[cell.column]:
            row.missing[child] -= 1
            if row.missing[child] == 0:
                self._ready(row, child, now)
        if row.left == 0:
            self._close(row, now, EventKind.ROW_COMPLETED, "")
        self._settle(row.group, now)
        return row.left == 0

    def refused(self, cell: DatasetCell, reason: str, now: float) -> bool:
        """Closes a row that cannot be done, whatever is tried; returns False if it was closed
        already."""
        self._failing_since_s = NEVER
        return self._give_up(cell, reason, now)

    def rate_limited(
        self, cell: DatasetCell, now: float, wait_s: float = 0.0, share: float = 0.0
    ) -> FailureAction:
        """Records that a call was rate-limited, as a `share` of all calls are; others go on
        meanwhile.

        The cell waits for as long as it was told to, and longer if that was wrong several times.
        """
        return self._failed(cell, "rate_limited", now, wait_s, share)

    def failed(self, cell: DatasetCell, reason: str, now: float) -> FailureAction:
        """Records a call that failed in a way that may be temporary."""
        return self._failed(cell, reason, now, NEVER)

    def put_back(self, cell: DatasetCell, now: float) -> None:
        """Requeues the cell of a call that was cancelled before any answer, with no failure
        counted."""
        self._land(cell, now)
        if not cell.row.is_closed:
            self._enqueue(cell, now)
        self._settle(cell.row.group, now)

    def stop(self) -> None:
        """Starts nothing more; calls in flight still end."""
        self.is_stopping = True

    def job_started(self, rows: int, now: float) -> None:
        """Reports that work on `rows` rows begins."""
        self._reporter.report(now, EventKind.JOB_STARTED, "job", numbers={"rows": rows})
        self.report_health(now, "started")

    def job_completed(self, outcome: str, now: float) -> None:
        """Reports the final outcome, once."""
        self.report_health(now, "completed")
        self._reporter.report(now, EventKind.JOB_COMPLETED, "job", reason=outcome)

    def report_health(self, now: float, reason: str) -> None:
        """Reports all limits and their use, and why waiting groups are blocked."""
        if not self._reporter.wants(EventKind.HEALTH):
            return
        blocked = Counter(one.reason.value for one in self.tasks.explain_blocked().values())
        numbers: dict[str, Plain] = {
            "in_flight": self.in_flight,
            "queued": len(self.tasks.queue),
            "resting": self.resting,
            "parked": self.parked,
            "open_rows": self.open_rows,
            "row_groups": len(self._active),
            "blocked": {**blocked},
        }
        if self._advisory is not None:
            requests = self._advisory.requests
            numbers["capacity"] = capacity_snapshot(self.tasks, requests, self.row_groups, now)
        self._reporter.report(now, EventKind.HEALTH, "job", reason=reason, numbers=numbers)

    # Consistency of cells, rows and groups.

    def _stalls_at_s(self) -> float:
        """When everything has failed for too long; infinity while an earlier call is still out."""
        stalls_at_s = self._failing_since_s + self._settings.retry_time_s
        if self._out and next(iter(self._out.values())) < stalls_at_s:
            return NEVER
        return stalls_at_s

    def _failed(
        self, cell: DatasetCell, reason: str, now: float, wait_s: float, share: float = 0.0
    ) -> FailureAction:
        """Handles a failed call; a finite wait marks a rate limit, which does not count as a
        failure."""
        if self._failing_since_s == NEVER:
            self._failing_since_s = now
        if cell.row.is_closed:
            self._land(cell, now)
            self._settle(cell.row.group, now)
            return FailureAction.IGNORED
        if cell.has_failed and cell.began_s < NEVER:
            cell.failing_s += now - cell.began_s
        cell.has_failed = True
        is_refusal = wait_s < NEVER
        cell.refusals = cell.refusals + 1 if is_refusal else 0
        verdict = self._judge(cell, counts=not is_refusal)
        if verdict is FailureAction.GAVE_UP:
            self._give_up(cell, reason, now)
            return verdict
        self._land(cell, now)
        cell.landed_s = now
        cell.own_wait_s = wait_s if is_refusal else 0.0
        numbers: dict[str, Plain] = {"tries": cell.tries}
        if verdict is FailureAction.SALVAGE:
            cell.row.group.parked.append(cell)
            self.parked += 1
            self._count_deferred(cell, 1)
        else:
            rest_s = wait_s
            # The last try is made when its time is up, not after another rest.
            left_s = self._settings.retry_time_s - cell.failing_s
            if not is_refusal:
                rest_s = min(left_s, retry_delay_s(cell.attempts - 1, self._stream))
            elif cell.refusals > 1:
                own_s = refusal_delay_s(cell.refusals - 1, share, self._stream)
                rest_s = max(wait_s, min(left_s, own_s))
            if rest_s > 0.0:
                numbers["rest_s"] = rest_s
                self._rest(cell, now, rest_s)
            else:
                self._enqueue(cell, now)
        self._report(now, EventKind.TASK_DEFERRED, cell, reason, numbers)
        self._settle(cell.row.group, now)
        return verdict

    def _rest(self, cell: DatasetCell, now: float, rest_s: float) -> None:
        cell.own_wait_s = max(cell.own_wait_s, rest_s)
        cell.rest = self._rests.push(now + rest_s, 0, cell)
        cell.row.group.resting += 1
        self.resting += 1
        if cell.refusals == 0:
            self._count_deferred(cell, 1)

    def _judge(self, cell: DatasetCell, *, counts: bool) -> FailureAction:
        if cell.failing_s >= self._settings.retry_time_s:
            return FailureAction.GAVE_UP
        if not counts:
            return FailureAction.RETRY
        cell.attempts += 1
        if cell.attempts <= self._settings.retries:
            return FailureAction.RETRY
        return FailureAction.SALVAGE if cell.round < SALVAGE_ROUNDS else FailureAction.GAVE_UP

    def _give_up(self, cell: DatasetCell, reason: str, now: float) -> bool:
        row = cell.row
        self._land(cell, now)
        was_open = not row.is_closed
        if was_open:
            self._close(row, now, EventKind.ROW_CLOSED, reason)
        self._settle(row.group, now)
        return was_open

    def _land(self, cell: DatasetCell, now: float) -> None:
        """Ends the flight of a cell and releases its lease."""
        lease = cell.lease
        assert lease is not None, "a cell that was started has a lease"
        cell.lease = None
        cell.began_s = NEVER
        self._out.pop(cell.id, None)
        self.tasks.release(lease, now)
        cell.row.group.in_flight -= 1
        self.in_flight -= 1

    def _ready(self, row: DatasetRow, column: int, now: float) -> None:
        cell = DatasetCell(row, column, f"{row.seed.row}/{self._graph.names[column]}")
        row.cells[column] = cell
        self._enqueue(cell, now)

    def _enqueue(self, cell: DatasetCell, now: float) -> None:
        queue = self._queue_of(cell)
        is_again = cell.refusals > 0
        accepted = self.tasks.enqueue(cell.id, queue.spec, queue.lane, now, cell, 1.0, is_again)
        assert accepted, "a cell waits once"
        cell.row.group.queued += 1

    def _close(self, row: DatasetRow, now: float, kind: EventKind, reason: str) -> None:
        """Closes a row that is complete or given up; its waiting cells are withdrawn."""
        row.is_closed = True
        group = row.group
        group.open_rows -= 1
        self.open_rows -= 1
        for cell in row.cells.values():
            if cell.rest is not None:
                self._rests.cancel(cell.rest)
                self._end_rest(cell)
            elif cell in group.parked:
                group.parked.remove(cell)
                self.parked -= 1
                self._count_deferred(cell, -1)
            elif self.tasks.discard(cell.id, now):
                group.queued -= 1
        row.cells.clear()
        numbers: dict[str, Plain] = {"row": row.seed.row, "row_group": group.id}
        self._reporter.report(now, kind, f"row {row.seed.row}", reason=reason, numbers=numbers)

    def _settle(self, group: RowGroup, now: float) -> None:
        """Ends a group with no open row, or salvages its parked cells when nothing else is left."""
        if not group.is_quiet:
            return
        if group.open_rows == 0:
            del self._active[group.id]
            numbers: dict[str, Plain] = {"rows": group.size, "took_s": now - group.admitted_s}
            kind = EventKind.ROW_GROUP_ENDED
            self._reporter.report(now, kind, f"row group {group.id}", numbers=numbers)
            return
        parked = list(group.parked)
        group.parked.clear()
        self.parked -= len(parked)
        for cell in parked:
            self._count_deferred(cell, -1)
            cell.round += 1
            cell.attempts = 0
            self._report(now, EventKind.TASK_SALVAGED, cell, "", {"round": cell.round})
            self._enqueue(cell, now)

    def _end_rests(self, now: float) -> None:
        while self._rests.next_s <= now:
            entry = self._rests.pop()
            assert entry is not None
            cell = entry.payload
            assert isinstance(cell, DatasetCell)
            self._end_rest(cell)
            self._enqueue(cell, now)

    def _end_rest(self, cell: DatasetCell) -> None:
        cell.rest = None
        cell.row.group.resting -= 1
        self.resting -= 1
        if cell.refusals == 0:
            self._count_deferred(cell, -1)

    def _admit_group(self, now: float) -> bool:
        """Runs one admission decision for row groups; returns whether another one was started."""
        model = self._hungriest()
        view = RowGroupView(
            active=len(self._active),
            next_rows=len(self._next),
            admitted_rows=self.open_rows,
            queued_tasks=len(self.tasks.queue),
            queued_llm=model.queued,
            leased_llm=model.leased,
            llm_limit=model.limit,
            is_deferred_blocking=self._is_deferred_blocking(),
        )
        self.row_groups.decide(view, now)
        if not self.row_groups.may_admit(view):
            return False
        self._open_group(now)
        return True

    def _is_starved(self) -> bool:
        """Whether a group whose rows are next has nothing queued, while others have."""
        if not self._is_shared or not self._next or len(self.tasks.queue) == 0:
            return False
        limits = self.row_groups
        if len(self._active) >= limits.hard_cap or self.is_stopping:
            return False
        if self.open_rows + len(self._next) > limits.rows_guard:
            return False
        known = self.tasks.queue.groups
        return any(
            all(key not in known or known[key].queued == 0 for key in keys)
            for keys in self._next_keys
        )

    def _open_group(self, now: float) -> None:
        group = RowGroup(self._admitted, len(self._next), now)
        self._admitted += 1
        self._active[group.id] = group
        self.open_rows += group.size
        kind, numbers = EventKind.ROW_GROUP_ADMITTED, {"rows": group.size}
        self._reporter.report(now, kind, f"row group {group.id}", numbers=numbers)
        for seed in self._next:
            self._start_row(seed, group, now)
        self._take_next()

    def _take_next(self) -> None:
        self._next = next(self._groups, ())
        kinds = list(dict.fromkeys(seed.kind for seed in self._next))[:STARVED_LOOKS]
        self._next_keys = [
            [self._queues[column][kind].spec.key for column in self._graph.roots] for kind in kinds
        ]

    def _start_row(self, seed: RowSeed, group: RowGroup, now: float) -> None:
        graph, there = self._graph, seed.finished
        assert len(there) < len(graph), "a complete row is not worked on"
        missing = [sum(1 for n in above if n not in there) for above in graph.parents]
        row = DatasetRow(seed, group, missing, len(graph) - len(there))
        for column, lacks in enumerate(missing):
            if lacks == 0 and column not in there:
                self._ready(row, column, now)

    def _hungriest(self) -> SharedResource:
        """Returns the model with most spare capacity, of those that a new row needs first."""
        models = [lane.resources[0] for lane in self._first]
        return max(models, key=lambda model: model.limit - model.leased - model.queued)

    def _is_deferred_blocking(self) -> bool:
        """Whether cells to be retried would fill the models, and new rows need the same ones."""
        if self.resting + self.parked < self.tasks.resource(LLM_WAIT).limit:
            return False
        return all(self._deferred.get(lane.name) for lane in self._first)

    def _count_deferred(self, cell: DatasetCell, more: int) -> None:
        lane = self._queue_of(cell).lane.name
        self._deferred[lane] = self._deferred.get(lane, 0) + more

    def _check_liveness(self) -> None:
        if self.is_done or self.is_stopping or self.in_flight or self.resting:
            return
        raise InvariantBroken(
            f"nothing runs and nothing can start: {len(self.tasks.queue)} cells queued, "
            f"{len(self._active)} row groups open, {self.parked} cells parked",
            hint="a bug in Windtunnel: please report it",
        )

    def _queue_of(self, cell: DatasetCell) -> CellQueue:
        return self._queues[cell.column][cell.row.seed.kind]

    def _report(
        self, now: float, kind: EventKind, cell: DatasetCell, reason: str, numbers: dict[str, Plain]
    ) -> None:
        if self._reporter.wants(kind):
            about = Correlation(self._queue_of(cell).spec.key, cell.id, f"{cell.id}#{cell.tries}")
            self._reporter.report(
                now, kind, cell.id, reason=reason, correlation=about, numbers=numbers
            )
