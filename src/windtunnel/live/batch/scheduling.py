"""The scheduler of a batch: rows in groups, each cell with the resources it needs."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from windtunnel.admission.dataset.cells import DatasetCell, RowSeed
from windtunnel.admission.dataset.scheduler import (
    CellQueue,
    CellRetries,
    Dataset,
    DatasetScheduler,
)
from windtunnel.admission.events import EventReporter
from windtunnel.admission.queues.groups import GroupShare
from windtunnel.admission.requests.admission import RequestAdmission
from windtunnel.admission.tasks.admission import TaskAdmission
from windtunnel.admission.tasks.metadata import (
    Resolved,
    SchedulingMetadata,
    WorkKind,
    resolve,
    task_limits,
)
from windtunnel.admission.tasks.pressure import PressureAdvisory
from windtunnel.admission.tasks.row_groups import RowGroupAdmission, rows_guard
from windtunnel.core.random import Stream
from windtunnel.live.batch.endpoints import Route
from windtunnel.live.batch.rows import ANSWER_TOKENS, RowData, Rows
from windtunnel.live.batch.settings import BatchSettings, EndpointSettings
from windtunnel.live.batch.store import CellRecord, Resumed

GROUPS_MAX = 64
"""Row groups in progress at once, even if the models could take more."""

Routes = Sequence[Sequence[Route]]
"""Routes by column and kind of row."""


def caps_of(
    routes: Routes, endpoints: Mapping[str, EndpointSettings]
) -> dict[tuple[str, str], int]:
    """The limit of calls in flight to each model of each endpoint."""
    return {
        (name, route.model): endpoints[name].slots
        for of_kinds in routes
        for route in of_kinds
        for name in route.endpoints
    }


def build_scheduler(
    plan: BatchSettings,
    rows: Rows,
    routes: Routes,
    resumed: Resumed,
    requests: RequestAdmission,
    reporter: EventReporter,
    stream: Stream,
) -> DatasetScheduler:
    slots = sum(caps_of(routes, plan.endpoints).values())
    scheduled: dict[tuple[str, Route], tuple[SchedulingMetadata, Resolved]] = {}
    names = rows.work.graph.names
    for column, name in enumerate(names):
        for route in routes[column]:
            cap = sum(plan.endpoints[one].slots for one in route.endpoints)
            identity = ("model", route.pool, route.model, route.api.domain.value)
            metadata = SchedulingMetadata(WorkKind.MODEL, identity, cap)
            scheduled[name, route] = (metadata, resolve(metadata, [name], slots))
    tasks = TaskAdmission("batch", task_limits(slots, list(scheduled.values())), reporter=reporter)
    advisory = PressureAdvisory(tasks, requests, reporter)
    queues = []
    for column, name in enumerate(names):
        of_kinds = []
        for number, route in enumerate(routes[column]):
            _, resolved = scheduled[name, route]
            tenant, _, priority = rows.kinds[number]
            weight = plan.tenant_weights.get(tenant, 1)
            lane = tasks.demand(resolved.amounts)
            key = f"{tenant}/{resolved.group.key}" + (f"@{priority}" if priority else "")
            spec = GroupShare(key, weight, priority, resolved.group.admitted_limit)
            of_kinds.append(CellQueue(lane, spec))
            for one in route.endpoints:
                advisory.watch(lane, one, route.model, route.api.domain)
        queues.append(of_kinds)

    def cost(cell: DatasetCell) -> float:
        """The cell's tokens if an endpoint has a token budget, configured or learned; else 0."""
        row = cell.row.seed
        route = routes[cell.column][row.kind]
        for one in route.endpoints:
            endpoint = requests.endpoint(one, route.model)
            if endpoint is not None and endpoint.tokens.limit > 0:
                assert isinstance(row.payload, RowData)
                answers = endpoint.answers
                likely = answers.likely if answers.is_known else ANSWER_TOKENS
                return float(rows.tokens(row.payload.row) + likely)
        return 0.0

    asked = [requests.endpoint(name, model) for name, model in caps_of(routes, plan.endpoints)]

    def answer_tokens() -> int:
        """The expected tokens of an answer if an endpoint has a token budget; else 0."""
        for endpoint in asked:
            if endpoint is not None and endpoint.tokens.limit > 0:
                return endpoint.answers.likely if endpoint.answers.is_known else ANSWER_TOKENS
        return 0

    guard = rows_guard(max(1, len(rows)), plan.group_rows)
    return DatasetScheduler(
        Dataset(rows.work.graph, queues, _groups(plan, rows, resumed, answer_tokens), cost),
        tasks,
        RowGroupAdmission(GROUPS_MAX, slots, guard, reporter=reporter),
        stream,
        CellRetries(plan.retries, plan.retry_time_s),
        advisory=advisory,
        reporter=reporter,
    )


def complete_rows(rows: Rows, resumed: Resumed) -> Iterator[RowData]:
    """Rows whose columns an earlier run all finished, but whose output line it could not write."""
    columns = set(rows.work.graph.names)
    for number, cells in list(resumed.cells.items()):
        if {cell.column for cell in cells} >= columns:
            yield _filled(rows.read(number), cells)
            resumed.is_over[number] = 1
            del resumed.cells[number]


def _groups(
    plan: BatchSettings, rows: Rows, resumed: Resumed, answer_tokens: Callable[[], int]
) -> Iterator[Sequence[RowSeed]]:
    """The remaining rows in groups, in fair order, read on demand."""
    numbers = {name: number for number, name in enumerate(rows.work.graph.names)}
    group: list[RowSeed] = []
    for number in rows.in_fair_order(plan.tenant_weights, answer_tokens):
        if resumed.is_over[number]:
            continue
        cells = resumed.cells.pop(number, [])
        row = _filled(rows.read(number), cells)
        finished = tuple(numbers[cell.column] for cell in cells)
        group.append(RowSeed(row.line, row, rows.kind_of(number), finished))
        if len(group) == plan.group_rows:
            yield group
            group = []
    if group:
        yield group


def _filled(row: RowData, cells: Sequence[CellRecord]) -> RowData:
    values: dict[str, Any] = {cell.column: cell.value for cell in cells}
    row.values.update(values)
    row.response = next((cell.response for cell in cells if cell.response is not None), None)
    return row
