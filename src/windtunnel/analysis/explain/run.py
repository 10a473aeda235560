"""The folder of a run, read as far as an explanation needs it."""

import sys
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol

import msgspec

from windtunnel.analysis.explain.history import ControlHistory, read_history
from windtunnel.analysis.long_prompts import LongPrompts
from windtunnel.analysis.phases import RequestRow
from windtunnel.analysis.run_folder import (
    OF_REQUESTS,
    REQUESTS,
    SCENARIO,
    TIMELINE,
    Series,
    batches_of,
    parquet_of,
    result_of,
    scenario_of,
    series_of,
)
from windtunnel.analysis.saturation import slots_of
from windtunnel.analysis.slowest import LostRequests, Slowest
from windtunnel.core.errors import InputError

ALSO = ("tenant", "redirects", "retries", "deadline")


class FullRequestRow(RequestRow, frozen=True, kw_only=True):
    """A request with the additional columns that its own explanation needs."""

    tenant: str
    deadline: float | None
    model: str | None = None
    """The model it was for, if there are several."""


class ExplainedRun(Protocol):
    """The parts of a finished run that explanations need."""

    @property
    def result(self) -> dict[str, Any]: ...
    @property
    def scenario(self) -> dict[str, Any]: ...
    @property
    def series(self) -> Series: ...
    @property
    def history(self) -> ControlHistory: ...
    @property
    def slots(self) -> list[int]: ...
    @property
    def end_s(self) -> float: ...
    @property
    def long_prompts(self) -> LongPrompts: ...


class RunReader:
    """Reads a finished run from its folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.result: dict[str, Any] = result_of(folder)

    @property
    def end_s(self) -> float:
        end_s: float = self.result["simulated_seconds"]
        return end_s

    @cached_property
    def scenario(self) -> dict[str, Any]:
        return scenario_of(self.folder / SCENARIO)

    @cached_property
    def series(self) -> Series:
        return series_of(self.folder / TIMELINE)

    @cached_property
    def history(self) -> ControlHistory:
        return read_history(self.folder)

    @cached_property
    def slots(self) -> list[int]:
        return slots_of(self.series, self.scenario)

    @cached_property
    def long_prompts(self) -> LongPrompts:
        """The long prompts of the run; reads all rows."""
        found = LongPrompts(self.result)
        for batch in batches_of(self.folder / REQUESTS):
            found.add(batch)
        return found

    def worst(self, how_many: int) -> tuple[Slowest, LostRequests]:
        """The slowest requests, and those that were lost; reads all rows."""
        slowest, lost = Slowest(self.result, how_many), LostRequests(self.result)
        for batch in batches_of(self.folder / REQUESTS):
            slowest.add(batch)
            lost.add(batch)
        return slowest, lost

    def request(self, number: int) -> FullRequestRow:
        """One request; an unknown number is an InputError that names the valid ones."""
        import numpy as np

        columns = [*OF_REQUESTS, *ALSO]
        file = parquet_of(self.folder / REQUESTS, columns)
        columns += [name for name in ("model",) if name in file.schema_arrow.names]
        low, high = sys.maxsize, -1
        for batch in file.iter_batches(columns=columns):
            ids = np.asarray(batch["id"])
            places = np.flatnonzero(ids == number)
            if len(places):
                return msgspec.convert(
                    batch.slice(int(places[0]), 1).to_pylist()[0], FullRequestRow
                )
            if len(ids):
                low, high = min(low, int(ids.min())), max(high, int(ids.max()))
        allowed = f"{low} to {high}" if low <= high else "none: no request arrived"
        raise InputError(f"there is no request {number}", where="--request", allowed=allowed)
