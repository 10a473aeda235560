"""A scheduler with a few columns on made-up models, and a driver that calls for its cells."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from heapq import heappop, heappush

from tests.admission.invariants import TASK_INVARIANTS
from tests.core.sinks import MemorySink
from windtunnel.admission.dataset.cells import DatasetCell, FailureAction, RowSeed
from windtunnel.admission.dataset.graph import ColumnGraph
from windtunnel.admission.dataset.scheduler import CellQueue, CellRetries, Dataset, DatasetScheduler
from windtunnel.admission.events import EventReporter
from windtunnel.admission.queues.groups import GroupShare
from windtunnel.admission.tasks.admission import TaskAdmission
from windtunnel.admission.tasks.metadata import SchedulingMetadata, WorkKind, resolve, task_limits
from windtunnel.admission.tasks.row_groups import RowGroupAdmission, rows_guard
from windtunnel.core.invariants import InvariantChecker
from windtunnel.core.random import Stream
from windtunnel.core.telemetry import Telemetry

OK, BAD, RATE_LIMITED, FAILS = "ok", "bad", "rate limited", "fails"
Answer = Callable[[DatasetCell, float], str]


class Bench:
    """Columns by name with what they need; `answer` says what becomes of each call."""

    def __init__(
        self,
        needs: Mapping[str, Sequence[str]],
        rows: Sequence[RowSeed],
        answer: Answer,
        *,
        cap: int = 4,
        group_rows: int = 8,
        groups_max: int = 8,
        tenants: Mapping[str, int] | None = None,
        settings: CellRetries = CellRetries(),  # noqa: B008 - a constant
        service_s: Callable[[DatasetCell], float] = lambda cell: 1.0,
        models: Mapping[str, str] | None = None,
    ) -> None:
        self.sink = MemorySink()
        reporter = EventReporter(Telemetry(self.sink), "run")
        self.graph = ColumnGraph(needs)
        self.answer, self.service_s = answer, service_s
        self.tenants = dict(tenants or {"": 1})
        by_model = models or {}
        metadata = [
            SchedulingMetadata(WorkKind.MODEL, ("model", "p", by_model.get(n, "m"), "chat"), cap)
            for n in self.graph.names
        ]
        resolved = [
            resolve(one, [name], cap) for one, name in zip(metadata, self.graph.names, strict=True)
        ]
        slots = cap * len({one.identity for one in metadata})
        limits = task_limits(slots, list(zip(metadata, resolved, strict=True)))
        self.tasks = TaskAdmission("run", limits, reporter=reporter)
        places = [
            [
                CellQueue(
                    self.tasks.demand(one.amounts),
                    GroupShare(f"{tenant}/{one.group.key}", weight, 0, one.group.admitted_limit),
                )
                for tenant, weight in self.tenants.items()
            ]
            for one in resolved
        ]
        self.row_groups = RowGroupAdmission(
            groups_max, slots, rows_guard(max(1, len(rows)), group_rows), reporter=reporter
        )
        self.scheduler = DatasetScheduler(
            Dataset(self.graph, places, _groups(rows, group_rows)),
            self.tasks,
            self.row_groups,
            Stream(1, "retries"),
            settings,
            reporter=reporter,
        )
        self.now = 0.0
        self.started: list[tuple[float, int, int]] = []
        self.finished: list[tuple[float, int, int]] = []
        self.complete: list[int] = []
        self.dropped: list[int] = []
        self.gave_up: list[int] = []
        self.most_in_flight = 0
        self._calls: list[tuple[float, int, DatasetCell]] = []

    def run(self, until_s: float = float("inf")) -> None:
        """Calls for cells until everything has ended, or is stalled, or the time is up."""
        checker = InvariantChecker(TASK_INVARIANTS)
        while not self.scheduler.is_done:
            while (cell := self.scheduler.next_cell(self.now)) is not None:
                self.started.append((self.now, cell.row.seed.row, cell.column))
                self.scheduler.began(cell, self.now)
                ends_s = self.now + self.service_s(cell)
                heappush(self._calls, (ends_s, len(self.started), cell))
            self.most_in_flight = max(self.most_in_flight, self.scheduler.in_flight)
            checker.run(self.tasks, f"at {self.now}")
            assert len(self.tasks.ledger.active) == len(self._calls), "a lease is held for a call"
            ends_s = self._calls[0][0] if self._calls else float("inf")
            wake_s = self.scheduler.next_wake_s()
            if min(ends_s, wake_s) > until_s:
                return
            if wake_s < ends_s:
                self.now = max(self.now, wake_s)
                if self.scheduler.is_stalled(self.now):
                    return
                continue
            self.now = ends_s
            self._end(heappop(self._calls)[2])
            if self.scheduler.is_stalled(self.now):
                return

    def _end(self, cell: DatasetCell) -> None:
        row = cell.row.seed.row
        said = self.answer(cell, self.now)
        if said == OK:
            self.finished.append((self.now, row, cell.column))
            if self.scheduler.finished(cell, self.now):
                self.complete.append(row)
        elif said == BAD:
            if self.scheduler.refused(cell, "bad_request", self.now):
                self.dropped.append(row)
        else:
            verdict = (
                self.scheduler.rate_limited(cell, self.now)
                if said == RATE_LIMITED
                else self.scheduler.failed(cell, "http_500", self.now)
            )
            if verdict is FailureAction.GAVE_UP:
                self.gave_up.append(row)

    def kinds(self, kind: str) -> list[str]:
        return [event.subject for event in self.sink.events if event.kind == kind]


def _groups(rows: Sequence[RowSeed], size: int) -> Iterator[Sequence[RowSeed]]:
    for start in range(0, len(rows), size):
        yield rows[start : start + size]


def seeds(count: int) -> list[RowSeed]:
    return [RowSeed(row) for row in range(count)]
