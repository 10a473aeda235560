"""Measured steps: JSON lines as `windtunnel profile` writes them.

A line has `shape` (a catalog name or a `...-tpN-slice` of one), `prefill` new prompt tokens of one
sequence with `prior` cached tokens, `decodes` sequences of `context` cached tokens each, and the
step's time in `ms`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import msgspec

from windtunnel.core.errors import InputError
from windtunnel.core.system.files import read_lines
from windtunnel.models.catalog.models import resolve_model
from windtunnel.models.step_time.model import StepWork

__all__ = ["Measurement", "read_measurements"]

MOST_BYTES = 64 << 20
LARGEST_COUNT = 10**9
SHORTEST_STEP_MS = 1e-3
LONGEST_STEP_MS = 3.6e6

Count = Annotated[int, msgspec.Meta(ge=0, le=LARGEST_COUNT)]


class Measurement(msgspec.Struct, frozen=True):
    """One measured step; other fields of the line, such as the spread, are ignored."""

    shape: str
    ms: float
    prefill: Count = 0
    prior: Count = 0
    decodes: Count = 0
    context: Count = 0  # of each decoding sequence

    def work(self) -> StepWork:
        """The step as the engine would describe it."""
        chunks = [(self.prefill, self.prior, self.prefill + self.prior)] if self.prefill else []
        samples = self.decodes + len(chunks)
        return StepWork(chunks, self.decodes, self.decodes * self.context, samples)


def read_measurements(path: Path, *, fewest: int = 1) -> list[Measurement]:
    """Reads the measurements of a file; an `InputError` names every bad line by number."""
    found = read_lines(path, MOST_BYTES, _read_line)
    if len(found) < fewest:
        what = f"the file holds {len(found)} measurements"
        raise InputError(what, where=str(path), allowed=f"{fewest} or more")
    return found


def _read_line(line: bytes, where: str) -> Measurement:
    try:
        row = msgspec.json.decode(line, type=Measurement)
    except msgspec.ValidationError as error:
        what = str(error)[0].lower() + str(error)[1:]
        raise InputError(f"not a measurement: {what}", where=where) from error
    except (msgspec.DecodeError, RecursionError) as error:
        odd = b"NaN" in line or b"Infinity" in line
        hint = "NaN and Infinity are not numbers in JSON" if odd else None
        raise InputError("the line is not JSON", where=where, hint=hint) from error
    if not SHORTEST_STEP_MS <= row.ms <= LONGEST_STEP_MS:
        allowed = (
            f"a step of {SHORTEST_STEP_MS:g} (a microsecond) to {LONGEST_STEP_MS:.0f} (an hour)"
        )
        raise InputError(f"ms is {row.ms:g}", where=where, allowed=allowed)
    if row.prefill + row.decodes == 0:
        what = "the step has neither prefill tokens nor decodes"
        raise InputError(what, where=where, allowed="prefill or decodes of 1 or more")
    try:
        resolve_model(row.shape)
    except InputError as error:
        what = f"shape: {error.what}"
        raise InputError(what, where=where, allowed=error.allowed, hint=error.hint) from error
    return row
