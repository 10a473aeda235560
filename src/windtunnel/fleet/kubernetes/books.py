"""State of a shard that no machine carries: the rows of its demand, in a ConfigMap.

Rows are stored before any machine is ordered for them. A restarted process requests the same
machines under the same names, and counts on those already on their way.
"""

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from windtunnel.core.errors import InputError
from windtunnel.fleet.demand.demand import Demand
from windtunnel.fleet.demand.requests import DemandRow
from windtunnel.fleet.requirements import MachineRequirement

ROWS: Final = "rows"
"""The key in the ConfigMap."""
LARGEST_BOOKS: Final = 900 << 10
"""In bytes; an API server accepts 1 MiB."""


class StoredRow(msgspec.Struct, frozen=True, omit_defaults=True):
    """A row of the demand."""

    name: str
    selector: dict[str, str] = {}
    accelerators: int = 0
    machines: int = 1
    same: str = ""
    priority: int = 0
    since_s: float = 0.0
    affinity: tuple[MachineRequirement, ...] = ()
    pod: str = ""
    """The pod that it was first requested for."""

    def row(self) -> DemandRow:
        return DemandRow(
            self.name,
            dict(self.selector),
            self.accelerators,
            self.machines,
            self.same,
            self.priority,
            self.since_s,
            None,
            self.affinity,
        )


class RowBooks(msgspec.Struct, frozen=True):
    """All rows of a demand, oldest first."""

    issued: int = 0
    rows: tuple[StoredRow, ...] = ()

    def text(self) -> str:
        return msgspec.json.encode(self).decode()


def books_of(demand: Demand, pods: Mapping[str, str]) -> RowBooks:
    """`pods`: by row, the pod that it was first requested for."""
    return RowBooks(
        demand.issued,
        tuple(
            StoredRow(
                row.name,
                dict(row.selector),
                row.accelerators,
                row.machines,
                row.same,
                row.priority,
                row.since_s,
                row.affinity,
                pods.get(row.name, ""),
            )
            for row in demand.rows
        ),
    )


def read_books(data: dict[str, Any] | None, where: str) -> RowBooks:
    """Reads the books from the data of a ConfigMap; raises InputError if they are garbled."""
    text = (data or {}).get(ROWS)
    if text is None:
        return RowBooks()
    try:
        return msgspec.json.decode(text, type=RowBooks)
    except msgspec.DecodeError as error:
        what = f"its key {ROWS!r} cannot be read: {error}"
        hint = "delete the ConfigMap: machines on their way may then be asked for twice"
        raise InputError(what, where=where, hint=hint) from None
