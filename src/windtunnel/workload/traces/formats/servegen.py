"""ServeGen client pools: a folder with the rates and lengths of every client over time.

`chunk-N-trace.csv` has a row for each window of about ten minutes: its start, the client's rate,
the cv of its gaps, and their distribution with its shape and scale. `chunk-N-dataset.json` has the
lengths of prompts and answers per window, by the window's start. Requests are drawn from both: gaps
have the fitted shape and the rate of their window; requests without tokens are left out. The same
folder always gives the same requests.
"""

import math
import re
from bisect import bisect_right
from collections.abc import Iterator
from heapq import merge
from itertools import accumulate
from operator import attrgetter
from pathlib import Path
from typing import NamedTuple

import msgspec

from windtunnel.core.errors import InputError
from windtunnel.core.random import Stream
from windtunnel.core.system.files import read_bounded
from windtunnel.core.units import counted
from windtunnel.workload.lengths import pick
from windtunnel.workload.traces.notes import TraceNotes, seconds
from windtunnel.workload.traces.record import MOST_TOKENS, TraceRequest

TRACES = "chunk-*-trace.csv"
MOST_CLIENTS = 2_000
MOST_BYTES = 256 << 20
LAST_WINDOW_S = 600.0
FASTEST_PER_S = 1e6
SHAPES = (0.01, 1e4)
_NUMBER = re.compile(r"chunk-(\d{1,9})-trace\.csv")
_SHARE = re.compile(r"\s*(\d{1,9})\s*:\s*([0-9.eE+-]{1,40})\s*(?:,|$)")


class Window(NamedTuple):
    """A client's arrivals in one window of time."""

    start_s: float
    end_s: float
    rate_per_s: float
    pattern: str
    shape: float


class LengthTable:
    """Token counts with their probabilities."""

    def __init__(self, text: str) -> None:
        self.values: list[int] = []
        shares: list[float] = []
        at, text = 0, text.strip().removeprefix("{").removesuffix("}").rstrip(", ")
        while at < len(text):
            found = _SHARE.match(text, at)
            if found is None:
                raise ValueError(f"{text[at : at + 40]!a} is not a number of tokens and its share")
            share = seconds(found[2])
            if share < 0 or int(found[1]) > MOST_TOKENS:
                raise ValueError(f"{found[0].strip()!a} is not a number of tokens and its share")
            self.values.append(int(found[1]))
            shares.append(share)
            at = found.end()
        self._upto = list(accumulate(shares))
        if not self._upto or self._upto[-1] <= 0:
            raise ValueError("no length has a share above 0")

    def draw(self, stream: Stream) -> int:
        return self.values[pick(self._upto, stream)]


def is_pool(folder: Path) -> bool:
    """Whether a folder contains ServeGen clients."""
    return next(folder.glob(TRACES), None) is not None


def read(path: Path, notes: TraceNotes) -> Iterator[TraceRequest]:
    """Draws the requests of all clients in order of arrival; times are those of the files."""
    files = sorted(path.glob(TRACES), key=lambda file: (len(file.name), file.name))
    if len(files) > MOST_CLIENTS:
        raise notes.fault(f"there are {len(files)} clients", allowed=f"up to {MOST_CLIENTS}")
    return merge(*(_client(file, notes) for file in files), key=attrgetter("arrived_s"))


def _client(file: Path, notes: TraceNotes) -> Iterator[TraceRequest]:
    found = _NUMBER.fullmatch(file.name)
    if found is None:
        raise InputError("the name has no number", where=str(file), allowed=TRACES)
    name = f"client-{found[1]}"
    windows = _windows(file)
    lengths = _Lengths(file.with_name(f"chunk-{found[1]}-dataset.json"))
    stream = Stream(0, f"servegen.{name}")
    for window in windows:
        if not window.rate_per_s:
            continue
        prompts, answers = lengths.at(window.start_s)
        time_s = window.start_s + _gap(window, stream)
        while time_s < window.end_s:
            prompt, answer = prompts.draw(stream), answers.draw(stream)
            request = TraceRequest(time_s, prompt, answer, tenant=name)
            if notes.accepts(request, 0):
                yield request
            time_s += _gap(window, stream)


def _gap(window: Window, stream: Stream) -> float:
    mean_s, shape = 1.0 / window.rate_per_s, window.shape
    if window.pattern == "Gamma":
        return stream.gamma(shape, mean_s / shape)
    if window.pattern == "Weibull":
        return stream.weibull(shape, mean_s / math.gamma(1.0 + 1.0 / shape))
    return stream.exponential(mean_s)


def _windows(file: Path) -> list[Window]:
    rows: list[tuple[float, float, str, float]] = []
    text = read_bounded(file, MOST_BYTES).decode(errors="replace")
    for number, line in enumerate(text.splitlines(), 1):
        if line.strip():
            try:
                rows.append(_row(line.split(","), rows[-1][0] if rows else -1.0))
            except ValueError as error:
                raise InputError(str(error), where=f"{file}:{number}") from None
    if not rows:
        raise InputError("the file is empty", where=str(file))
    ends = [row[0] for row in rows[1:]]
    last_s = ends[-1] - rows[-2][0] if ends else LAST_WINDOW_S
    return [
        Window(start_s, end_s, rate, pattern, shape)
        for (start_s, rate, pattern, shape), end_s in zip(
            rows, [*ends, rows[-1][0] + last_s], strict=True
        )
    ]


def _row(cells: list[str], before_s: float) -> tuple[float, float, str, float]:
    if len(cells) != 6:
        raise ValueError(f"the row has {counted(len(cells), 'column')}, not 6")
    start_s, rate, pattern = seconds(cells[0]), seconds(cells[1]), cells[3].strip()
    if start_s <= before_s:
        raise ValueError(f"the window starts at {start_s:g} s, not after the one before")
    if not 0 <= rate <= FASTEST_PER_S:
        raise ValueError(f"the rate is {rate:g}, not 0 to {FASTEST_PER_S:g}")
    if pattern not in ("", "Gamma", "Weibull", "Exponential", "Poisson"):
        raise ValueError(f"{pattern[:60]!a} is not Gamma, Weibull, Exponential or Poisson")
    shape = seconds(cells[4]) if rate and pattern in ("Gamma", "Weibull") else 1.0
    if not SHAPES[0] <= shape <= SHAPES[1]:
        raise ValueError(f"the shape is {shape:g}, not {SHAPES[0]:g} to {SHAPES[1]:g}")
    return start_s, rate, pattern, shape


class _Lengths:
    """The lengths of one client's requests by window; a window's tables are parsed when needed."""

    def __init__(self, file: Path) -> None:
        self._file = file
        data = read_bounded(file, MOST_BYTES)
        try:
            found = msgspec.json.decode(data, type=dict[str, dict[str, object]])
            self._windows = sorted((seconds(start), tables) for start, tables in found.items())
        except (ValueError, RecursionError):
            what = "the file is not a JSON object of windows by their start"
            raise InputError(what, where=str(file)) from None
        if not self._windows:
            raise InputError("the file has no window", where=str(file))
        self._starts = [start for start, _ in self._windows]
        self._latest: tuple[int, tuple[LengthTable, LengthTable]] | None = None

    def at(self, time_s: float) -> tuple[LengthTable, LengthTable]:
        """Lengths of prompts and answers in the latest window that has begun, or the first."""
        place = max(0, bisect_right(self._starts, time_s) - 1)
        if self._latest is None or self._latest[0] != place:
            start_s, tables = self._windows[place]
            both = []
            for key in ("input_tokens", "output_tokens"):
                try:
                    both.append(LengthTable(str(tables.get(key, ""))))
                except ValueError as error:
                    what = f"window {start_s:g}: {key}: {error}"
                    raise InputError(what, where=str(self._file)) from None
            self._latest = (place, (both[0], both[1]))
        return self._latest[1]
