"""What a scheduler keeps of its work: cells, rows, and groups of rows."""

from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple

from windtunnel.admission.leases import TaskLease
from windtunnel.admission.requests.limiter import NEVER
from windtunnel.core.loop import Entry


class FailureAction(StrEnum):
    """What becomes of a cell whose call failed."""

    RETRY = "retry"
    SALVAGE = "salvage"
    GAVE_UP = "gave_up"
    IGNORED = "row_closed"
    """Its row was closed meanwhile, by another cell."""


class RowSeed(NamedTuple):
    """A row that is to be worked on: of which kind it is, and which columns it has already."""

    row: int
    """What it is called in events: a number that a person can look up."""
    payload: object = None
    kind: int = 0
    """Which of a column's queues its cells take: a tenant, or a tenant's model."""
    finished: tuple[int, ...] = ()


@dataclass(slots=True, eq=False)
class RowGroup:
    """Rows that are admitted together; it ends when each of them is complete or closed."""

    id: int
    size: int
    admitted_s: float
    open_rows: int = 0
    queued: int = 0
    in_flight: int = 0
    resting: int = 0
    """Cells that wait out a delay before they are tried again."""
    parked: list["DatasetCell"] = field(default_factory=list)
    """Cells that failed too often, until the rest of the group is done."""

    def __post_init__(self) -> None:
        self.open_rows = self.size

    @property
    def is_quiet(self) -> bool:
        return self.queued == 0 and self.in_flight == 0 and self.resting == 0


@dataclass(slots=True, eq=False)
class DatasetRow:
    """A row in work: which columns still miss others, and its cells that are ready or going."""

    seed: RowSeed
    group: RowGroup
    missing: list[int]
    left: int
    cells: dict[int, "DatasetCell"] = field(default_factory=dict)
    is_closed: bool = False


@dataclass(slots=True, eq=False)
class DatasetCell:
    """One column of one row: a task, tried until it is there or given up."""

    row: DatasetRow
    column: int
    id: str
    tries: int = 0
    """Calls made so far, whatever came of them."""
    attempts: int = 0
    """Failures in this round that count against the retries."""
    round: int = 0
    refusals: int = 0
    """Rate limits in a row."""
    has_failed: bool = False
    failing_s: float = 0.0
    """Since its first failure: calls, and waits of its own; not what it waited for others."""
    landed_s: float = 0.0
    own_wait_s: float = 0.0
    """How long it had to wait after its last call, apart from queueing: a rest, Retry-After."""
    began_s: float = NEVER
    """When the call that is out was sent; infinity when none is."""
    lease: TaskLease | None = None
    rest: Entry | None = None
