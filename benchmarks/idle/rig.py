"""Assembles a case from the controllers that live runs use, without a second implementation."""

from collections.abc import Iterator, Sequence

from benchmarks.idle.cases import PIPELINE, Case
from windtunnel.admission.dataset.cells import RowSeed
from windtunnel.admission.dataset.graph import ColumnGraph
from windtunnel.admission.dataset.scheduler import (
    CellQueue,
    CellRetries,
    Dataset,
    DatasetScheduler,
)
from windtunnel.admission.events import EventReporter
from windtunnel.admission.queues.groups import GroupShare
from windtunnel.admission.reasons import Domain
from windtunnel.admission.requests.admission import RequestAdmission
from windtunnel.admission.requests.endpoint import RequestAsk
from windtunnel.admission.requests.limiter import AimdSettings
from windtunnel.admission.tasks.admission import LLM_WAIT, SUBMISSION, TaskAdmission
from windtunnel.admission.tasks.metadata import Resolved, SchedulingMetadata, WorkKind, resolve
from windtunnel.admission.tasks.pressure import PressureAdvisory
from windtunnel.admission.tasks.row_groups import RowGroupAdmission, rows_guard
from windtunnel.core.random import Stream, Streams
from windtunnel.core.telemetry import Sink, Telemetry

PROVIDER = "p"


class Column:
    """One column: its model, if any, and how long a call takes."""

    def __init__(self, name: str, needs: Sequence[str], service_s: float, model: str) -> None:
        self.name = name
        self.needs = needs
        self.service_s = service_s
        self.ask = RequestAsk(PROVIDER, model, Domain.CHAT) if model else None

    def metadata(self, weight: int) -> SchedulingMetadata:
        if self.ask is None:
            identity = ("custom_model", "idle", self.name, "1")
            return SchedulingMetadata(WorkKind.CUSTOM_MODEL, identity, weight)
        identity = ("model", PROVIDER, self.ask.model, Domain.CHAT.value)
        return SchedulingMetadata(WorkKind.MODEL, identity, weight)


def columns_of(case: Case) -> list[Column]:
    if case.shape == PIPELINE:
        pairs = range(case.fan)
        slow = [Column(f"slow_{n}", (), case.slow_s, "") for n in pairs]
        quick = [Column(f"quick_{n}", (f"slow_{n}",), case.quick_s, "") for n in pairs]
        return slow + quick
    return [
        Column("a_pressed", (), case.slow_s, "a"),
        Column("z_open", (), case.quick_s, "z"),
    ]


class Rig:
    """The controllers of one case."""

    def __init__(
        self,
        columns: Sequence[Column],
        case: Case,
        sink: Sink | None = None,
        model_cap: int | None = None,
        retries: CellRetries = CellRetries(),  # noqa: B008 - a constant
    ) -> None:
        """With `model_cap`, the tasks of each model are limited, not only the slots."""
        reporter = EventReporter(Telemetry(sink) if sink is not None else None)
        weight = case.weight or case.slots
        resolved = [resolve(one.metadata(weight), [one.name], case.slots) for one in columns]
        per_model = {
            name: model_cap or case.slots
            for one in resolved
            for name in one.amounts
            if name not in (SUBMISSION, LLM_WAIT)
        }
        limits = {SUBMISSION: case.tasks, LLM_WAIT: case.slots} | per_model
        self.columns = columns
        self.tasks = TaskAdmission("idle", limits, reporter=reporter)
        self.requests = RequestAdmission("idle", Streams(1), AimdSettings(startup_ramp_s=0.0))
        self.advisory: PressureAdvisory | None = None
        if case.advisory:
            self.advisory = PressureAdvisory(self.tasks, self.requests)
            for one in resolved:
                if one.request_key is not None:
                    self.advisory.watch(self.tasks.demand(one.amounts), *one.request_key)
        guard = rows_guard(case.rows, case.group_rows)
        self.row_groups = RowGroupAdmission(
            case.groups, case.tasks, guard, adaptive=case.adaptive, reporter=reporter
        )
        self.scheduler = DatasetScheduler(
            Dataset(
                ColumnGraph({one.name: one.needs for one in columns}),
                [self._queues(one, case.tenants) for one in resolved],
                _groups(case),
            ),
            self.tasks,
            self.row_groups,
            Stream(1, "retries"),
            retries,
            advisory=self.advisory,
            reporter=reporter,
        )

    def left_over(self) -> int:
        """Leases and waiters that are left; 0 when everything has ended."""
        held = len(self.tasks.ledger.active) + len(self.requests.ledger.active)
        return held + len(self.tasks.queue) + self.requests.waiting

    def _queues(self, one: Resolved, tenants: Sequence[int]) -> list[CellQueue]:
        group, lane = one.group, self.tasks.demand(one.amounts)
        return [
            CellQueue(
                lane,
                GroupShare(f"{number}/{group.key}", group.weight * share, 0, group.admitted_limit),
            )
            for number, share in enumerate(tenants)
        ]


def _groups(case: Case) -> Iterator[Sequence[RowSeed]]:
    tenants = len(case.tenants)
    for start in range(0, case.rows, case.group_rows):
        end = min(start + case.group_rows, case.rows)
        yield [RowSeed(row, kind=row % tenants) for row in range(start, end)]
