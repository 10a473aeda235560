"""The state of a dataset scheduler's work: cells, rows, and groups of rows."""

from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple

from windtunnel.admission.leases import TaskLease
from windtunnel.admission.requests.limiter import NEVER
from windtunnel.core.loop import Entry


class FailureAction(StrEnum):
    """What happens to a cell whose call failed."""

    RETRY = "retry"
    SALVAGE = "salvage"
    GAVE_UP = "gave_up"
    IGNORED = "row_closed"
    """Another cell closed its row in the meantime."""


class RowSeed(NamedTuple):
    """A row to work on: its kind, and the columns it already has."""

    row: int
    """Its identifier in events: a number that users can look up."""
    payload: object = None
    kind: int = 0
    """Selects the queue of each column for its cells: a tenant, or a tenant's model."""
    finished: tuple[int, ...] = ()


@dataclass(slots=True, eq=False)
class RowGroup:
    """Rows that are admitted together; the group ends when each of them is complete or closed."""

    id: int
    size: int
    admitted_s: float
    open_rows: int = 0
    queued: int = 0
    in_flight: int = 0
    resting: int = 0
    """Cells that wait out a delay before their next try."""
    parked: list["DatasetCell"] = field(default_factory=list)
    """Cells that failed too often, until the rest of the group is done."""

    def __post_init__(self) -> None:
        self.open_rows = self.size

    @property
    def is_quiet(self) -> bool:
        return self.queued == 0 and self.in_flight == 0 and self.resting == 0


@dataclass(slots=True, eq=False)
class DatasetRow:
    """A row in progress: missing inputs per column, and its ready or running cells."""

    seed: RowSeed
    group: RowGroup
    missing: list[int]
    left: int
    cells: dict[int, "DatasetCell"] = field(default_factory=dict)
    is_closed: bool = False


@dataclass(slots=True, eq=False)
class DatasetCell:
    """One column of one row: a task that is tried until it succeeds or is given up."""

    row: DatasetRow
    column: int
    id: str
    tries: int = 0
    """Calls made so far, whatever their outcome."""
    attempts: int = 0
    """Failures in this round that count against the retries."""
    round: int = 0
    refusals: int = 0
    """Consecutive rate limits."""
    has_failed: bool = False
    failing_s: float = 0.0
    """Time since its first failure in calls and its own waits, not queued behind others."""
    landed_s: float = 0.0
    own_wait_s: float = 0.0
    """Wait required after its last call, apart from queueing: a retry delay, Retry-After."""
    began_s: float = NEVER
    """When its current call was sent; infinity if there is none."""
    lease: TaskLease | None = None
    rest: Entry | None = None
