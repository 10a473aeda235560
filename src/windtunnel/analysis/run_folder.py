"""The folder of a run: the names of its files, and functions that read them in batches.

Memory does not grow with the number of requests.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from windtunnel.analysis.figures import misfit
from windtunnel.analysis.phases import Owner, RequestRow
from windtunnel.analysis.rows import RowBatch, floats_of, words_of
from windtunnel.core.errors import InputError, one_line
from windtunnel.core.system import files

RESULT = "result.json"
SCENARIO = "scenario.json"
REQUESTS = "requests.parquet"
TIMELINE = "timeline.parquet"
TOKEN_GAPS = "token_gaps.parquet"  # noqa: S105 - a file name, not a secret
EVENTS = "events.jsonl"
CONTROL = "control.jsonl"
REPORT = "report.html"
ALL = (RESULT, SCENARIO, REQUESTS, TIMELINE, TOKEN_GAPS, EVENTS, CONTROL, REPORT)
"""Any other file in a folder is not ours."""
SIMULATE_AGAIN = "another version wrote it, or it is damaged: simulate again"


if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    Floats = npt.NDArray[np.float64]
    Numbers = npt.NDArray[np.int64]

ROWS_PER_LOOK = 65_536
PER_SERVER = ("waiting", "running", "kv_used", "busy", "steps")
PER_RUN = (
    *PER_SERVER,
    "interval",
    "arrived",
    "completed",
    "rejected",
    "timed_out",
    "dropped",
    "output_tokens",
    "at_gateway",
    "awaiting_server",
    "in_flight",
    "transfers",
    "transferred_bytes",
    "cost",
    "replicas",
    "replicas_ready",
    "replicas_wanted",
)
OF_REQUESTS = list(RequestRow.__struct_fields__)


class Series(msgspec.Struct, frozen=True):
    """A run over time, by quantity: samples in `whole`, samples by servers in `servers`."""

    times: Floats
    whole: dict[str, Floats]
    names: list[tuple[str, int]]  # pool and replica of each server
    servers: dict[str, Floats]  # NaN where a server does not exist

    def place_of(self, owner: Owner) -> int | None:
        """The index of a server; None if it is not in the series."""
        return next((place for place, name in enumerate(self.names) if name == owner), None)

    def backlog_since(self, pool: str, time_s: float, *, only_model: bool) -> float:
        """The time since which requests have been queued for a pool, at least one per server.

        At most `time_s`, which is returned if the queues are shorter. Requests that wait until a
        server is ready count if there is one model, since they are then for this pool.
        """
        import numpy as np

        places = [place for place, (name, _) in enumerate(self.names) if name == pool]
        if not places:
            return time_s
        waiting = self.servers["waiting"][: self.sample_at(time_s) + 1, places]
        total = np.nansum(waiting, axis=1)
        if only_model:
            total += self.whole["awaiting_server"][: len(total)]
        queued = total >= np.maximum(1, (~np.isnan(waiting)).sum(axis=1))
        short = np.flatnonzero(~queued)
        first = int(short[-1]) if len(short) else 0
        return min(time_s, float(self.times[first]) if len(short) else 0.0)

    def surplus(self, owner: Owner, time_s: float) -> float:
        """How many more requests are queued on a server than on others of its pool on average."""
        import numpy as np

        others = [at for at, (name, _) in enumerate(self.names) if name == owner[0]]
        place, sample = self.place_of(owner), self.sample_at(time_s)
        if place is None or len(others) < 2:
            return 0.0
        others.remove(place)
        waiting = self.servers["waiting"][sample]
        here = waiting[others]
        here = here[~np.isnan(here)]
        queued = float(np.nan_to_num(waiting[place]))
        return max(0.0, queued - float(here.mean())) if len(here) else 0.0

    def queued_for_s(self, pool: str, time_s: float) -> float:
        """About how long the first of a pool's queue has waited: since so many have arrived."""
        import numpy as np

        last = self.sample_at(time_s)
        places = [place for place, (name, _) in enumerate(self.names) if name == pool]
        queued = float(np.nansum(self.servers["waiting"][last, places]))
        since = np.cumsum(self.whole["arrived"][last::-1])
        first = last - min(int(np.searchsorted(since, queued)), last)
        return max(0.0, time_s - float(self.times[first] - self.whole["interval"][first]))

    def sample_at(self, time_s: float) -> int:
        """The first sample at or after a time."""
        return min(int(self.times.searchsorted(time_s)), len(self.times) - 1)


def _fault(path: Path, what: str) -> InputError:
    hint = "give a folder that `windtunnel simulate` has written"
    return InputError(what, where=str(path), hint=hint)


@contextmanager
def whole(*folders: Path) -> Iterator[None]:
    """Turns errors from missing or malformed contents of runs into an InputError.

    Each file is checked when it is read; that one lacks something another refers to shows only in
    use.
    """
    try:
        yield
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        for folder in folders:
            refuse_misfit(folder, result_of(folder))
        what = "its files are incomplete, or have another form"
        if isinstance(error, KeyError):
            what += f": {one_line(str(error))} is missing in one of them"
        where = " or ".join(str(folder) for folder in folders)
        raise InputError(what, where=where, hint=SIMULATE_AGAIN) from error


def refuse_misfit(folder: Path, result: dict[str, Any]) -> None:
    """Raises an InputError for a result that lacks a figure or has it in another form."""
    wrong = misfit(result)
    if wrong:
        raise InputError(one_line(wrong), where=str(folder / RESULT), hint=SIMULATE_AGAIN)


def refuse_damaged(folder: Path) -> None:
    """Raises an InputError for a Parquet file that is cut off."""
    for name in (REQUESTS, TIMELINE, TOKEN_GAPS):
        if (folder / name).exists():
            parquet_of(folder / name, ())


def _refuse_pipes(path: Path) -> None:
    """Rejects pipes: reading one would wait for a writer, possibly forever."""
    if path.exists() and not path.is_file() and not path.is_dir():
        raise _fault(path, "this is a pipe or a device, not a file")


def json_of(path: Path) -> dict[str, Any]:
    """The contents of a JSON file; a missing or damaged one is an InputError."""
    _refuse_pipes(path)
    try:
        return msgspec.json.decode(path.read_bytes(), type=dict[str, Any])
    except FileNotFoundError as error:
        raise _fault(path, "there is no such file") from error
    except OSError as error:
        raise _fault(path, f"cannot read it: {(error.strerror or str(error)).lower()}") from error
    except msgspec.DecodeError as error:
        raise _fault(path, f"it is damaged: {error}") from error


def result_of(folder: Path) -> dict[str, Any]:
    """The contents of `result.json`; a folder whose files are being replaced is an InputError."""
    if folder.is_dir() and any(one.name.startswith(files.READY) for one in folder.iterdir()):
        what = "a run is replacing these files, or was killed meanwhile"
        raise InputError(what, where=str(folder), hint="simulate again into the same folder")
    if folder.is_file():
        fault = _fault(folder, "this is a file, not the folder of a run")
        if folder.name in ALL:
            fault.hint = f"give the folder that has it: {folder.parent}"
        raise fault
    return json_of(folder / RESULT)


def scenario_of(path: Path) -> dict[str, Any]:
    """The contents of `scenario.json`; one written by an incompatible version is an InputError."""
    found = json_of(path)
    if not isinstance(found.get("serving"), dict):
        hint = "another version wrote it: simulate again, or use that version"
        raise InputError("it does not say which servers the run had", where=str(path), hint=hint)
    return found


def parquet_of(path: Path, columns: tuple[str, ...] | list[str]) -> Any:
    """Opens a Parquet file that must have these columns."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    _refuse_pipes(path)
    if not path.is_file():
        raise _fault(path, "there is no such file")
    try:
        file = pq.ParquetFile(pa.OSFile(str(path), "rb"))
    except (OSError, pa.ArrowException) as error:
        raise _fault(path, "it is damaged, or not a Parquet file") from error
    missing = [name for name in columns if name not in file.schema_arrow.names]
    if missing:
        raise _fault(path, f"it has no column {missing[0]}")
    return file


def series_of(path: Path) -> Series:
    """Reads the timeline of a run."""
    import numpy as np

    names = ("time", "pool", "replica", *PER_RUN)
    table = parquet_of(path, names).read(columns=list(names))
    if not table.num_rows:
        raise _fault(path, "it has no rows")
    columns = {name: floats_of(table[name]) for name in ("time", "replica", *PER_RUN)}
    of_run = np.isnan(columns["replica"])
    of_server = ~of_run
    times = columns["time"][of_run]
    pools, words = words_of(table["pool"])
    owners, column = _owners_of(pools[of_server], words, columns["replica"][of_server])
    row = np.searchsorted(times, columns["time"][of_server])
    servers = {}
    for name in PER_SERVER:
        servers[name] = np.full((len(times), len(owners)), np.nan)
        servers[name][row, column] = columns[name][of_server]
    sums = {name: columns[name][of_run] for name in PER_RUN}
    return Series(times, sums, owners, servers)


def _owners_of(
    pools: Numbers, words: list[str], replicas: Floats
) -> tuple[list[tuple[str, int]], Any]:
    """The servers in the order of their first rows, and the index of the server of each row."""
    import numpy as np

    numbers = replicas.astype(np.int64)
    keys = pools * (1 + numbers.max(initial=0)) + numbers
    _, firsts, which = np.unique(keys, return_index=True, return_inverse=True)
    order = np.argsort(firsts)
    place = np.empty_like(order)
    place[order] = np.arange(len(order))
    firsts = firsts[order]
    names = [words[number] for number in pools[firsts]]
    return list(zip(names, numbers[firsts].tolist(), strict=True)), place[which]


def batches_of(path: Path) -> Iterator[RowBatch]:
    """The rows of requests, in batches."""
    file = parquet_of(path, OF_REQUESTS)
    kinds = {"batch_size": ROWS_PER_LOOK, "columns": OF_REQUESTS}
    groups = range(file.num_row_groups)  # given all groups at once, it would read far ahead
    parts = (file.iter_batches(row_groups=[group], **kinds) for group in groups)
    return (RowBatch(batch) for part in parts for batch in part)
