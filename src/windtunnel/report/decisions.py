"""Reads the decisions of an autoscaler from the folder of a run."""

from pathlib import Path

import msgspec

from windtunnel.core.errors import InputError
from windtunnel.report.contents import CONTROL, EVENTS

MARKS = (b'"kind":"scaling.decided"', b'"kind":"scaling.kept"')
"""In every line that has a decision, so that other lines need not be read."""


class Limited(msgspec.Struct, frozen=True):
    """A limit that bound a decision."""

    name: str
    before: int
    after: int
    without: int
    reason: str


class Told(msgspec.Struct, frozen=True):
    """The numbers of a decision."""

    current: int
    recommended: int
    target: int
    metrics: dict[str, float]
    limits: list[Limited]


class Decided(msgspec.Struct, frozen=True):
    """A decision as it stands in a file of a run."""

    time: float
    kind: str
    subject: str
    reason: str
    data: Told

    @property
    def pool(self) -> str:
        return self.subject.partition("/")[2]

    @property
    def changes(self) -> bool:
        return self.data.target != self.data.current


def decisions_of(folder: Path) -> list[Decided]:
    """All of a run, in the order of time; a folder without any is a sentence."""
    path = folder / CONTROL
    if not path.is_file():
        path = folder / EVENTS
    if not path.is_file():
        what = f"there is neither {CONTROL} nor {EVENTS}"
        hint = "decisions are in the folder of a run whose scenario has a `scaling` section"
        raise InputError(what, where=str(folder), hint=hint)
    decoder = msgspec.json.Decoder(Decided)
    found = []
    with path.open("rb") as file:
        for number, line in enumerate(file, 1):
            if any(mark in line for mark in MARKS):
                try:
                    found.append(decoder.decode(line))
                except msgspec.MsgspecError as error:
                    what = f"line {number} is not a decision: {error}"
                    raise InputError(what, where=str(path)) from error
    return found
