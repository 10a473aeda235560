"""What a scheduler keeps of its work: cells, rows, and groups of rows."""

from enum import StrEnum
from typing import Final

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


class RowSeed:
    """A row that is to be worked on: of which kind it is, and which columns it has already."""

    __slots__ = ("finished", "kind", "payload", "row")

    def __init__(
        self, row: int, payload: object = None, kind: int = 0, finished: tuple[int, ...] = ()
    ) -> None:
        self.row: Final = row
        """What it is called in events: a number that a person can look up."""
        self.payload: Final = payload
        self.kind: Final = kind
        """Which of a column's places its cells take: a tenant, or a tenant's model."""
        self.finished: Final = finished


class RowGroup:
    """Rows that are admitted together; it ends when each of them is complete or closed."""

    __slots__ = (
        "admitted_s",
        "id",
        "in_flight",
        "open_rows",
        "parked",
        "queued",
        "resting",
        "size",
    )

    def __init__(self, id: int, size: int, admitted_s: float) -> None:  # noqa: A002 - an id
        self.id: Final = id
        self.size: Final = size
        self.admitted_s: Final = admitted_s
        self.open_rows = size
        self.queued = 0
        self.in_flight = 0
        self.resting = 0
        """Cells that wait out a delay before they are tried again."""
        self.parked: Final[list[DatasetCell]] = []
        """Cells that failed too often, until the rest of the group is done."""

    @property
    def is_quiet(self) -> bool:
        return self.queued == 0 and self.in_flight == 0 and self.resting == 0


class DatasetRow:
    """A row in work: which columns still miss others, and its cells that are ready or going."""

    __slots__ = ("cells", "group", "is_closed", "left", "missing", "seed")

    def __init__(self, seed: RowSeed, group: RowGroup, missing: list[int], left: int) -> None:
        self.seed: Final = seed
        self.group: Final = group
        self.missing: Final = missing
        self.left = left
        self.cells: Final[dict[int, DatasetCell]] = {}
        self.is_closed = False


class DatasetCell:
    """One column of one row: a task, tried until it is there or given up."""

    __slots__ = (
        "attempts",
        "began_s",
        "column",
        "failing_s",
        "has_failed",
        "id",
        "landed_s",
        "lease",
        "own_wait_s",
        "refusals",
        "rest",
        "round",
        "row",
        "tries",
    )

    def __init__(self, row: DatasetRow, column: int, name: str) -> None:
        self.row: Final = row
        self.column: Final = column
        self.id: Final = f"{row.seed.row}/{name}"
        self.tries = 0
        """Calls made so far, whatever came of them."""
        self.attempts = 0
        """Failures in this round that count against the retries."""
        self.round = 0
        self.refusals = 0
        """Rate limits in a row."""
        self.has_failed = False
        self.failing_s = 0.0
        """Since its first failure: calls, and waits of its own; not what it waited for others."""
        self.landed_s = 0.0
        self.own_wait_s = 0.0
        """How long it had to wait after its last call, apart from queueing: a rest, Retry-After."""
        self.began_s = NEVER
        """When the call that is out was sent; infinity when none is."""
        self.lease: TaskLease | None = None
        self.rest: Entry | None = None
