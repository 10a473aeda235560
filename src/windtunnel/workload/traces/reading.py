"""Opens a trace of any format as a stream of requests in order of arrival."""

import math
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from windtunnel.core.errors import InputError
from windtunnel.settings.limits import FASTEST_REPLAY
from windtunnel.workload.settings.sources import ReplaySettings, WorkloadEntry
from windtunnel.workload.traces.lines import unpacked_name
from windtunnel.workload.traces.notes import COMMAND_WORDS, SCENARIO_WORDS, Repairs, TraceNotes
from windtunnel.workload.traces.record import TraceRequest, shifted

if TYPE_CHECKING:
    from windtunnel.workload.traces.formats.sharegpt import AssignedArrivals

REORDER_WINDOW = 8_192
"""How many rows too late a request may be in a file that is read as a stream."""
ROWS_CHECKED = 100_000
"""Requests of a trace that are read to check a file with other faults."""
SORT_LIMIT = 2_000_000
"""Most requests that are sorted in memory; each takes a few hundred bytes."""

_ARRIVED = attrgetter("arrived_s")


def open_trace(
    path: str | Path,
    format: str | None = None,  # noqa: A002 - the word that people write
    *,
    arrivals: "AssignedArrivals | None" = None,
    sort: bool = False,
    notes: TraceNotes | None = None,
) -> Iterator[TraceRequest]:
    """The requests of a trace in order of arrival, read lazily.

    `format` is a name in FORMATS, `windtunnel`, or None to detect it. `arrivals` are for files
    without times. `sort` reads the whole file first and sorts it. `notes`, made for the same path,
    records what is left out. Anything wrong with the file raises an InputError.
    """
    from windtunnel.workload.traces.formats import parquet, sharegpt
    from windtunnel.workload.traces.formats.registry import FORMATS, named

    path = Path(path)
    notes = notes if notes is not None else TraceNotes(str(path))
    try:
        name = named(format, path)
    except InputError as error:
        if error.hint == COMMAND_WORDS.format:
            error.hint = notes.words.format
        raise
    kind = FORMATS[name]
    if kind.read is not None:
        requests = kind.read(path, notes)
    elif arrivals is None:
        what = f"a trace of the format {name} says nothing about times"
        raise notes.fault(what, hint=notes.words.rate)
    else:
        requests = sharegpt.read(path, notes, arrivals)
    if name == "parquet" and parquet.is_by_end(path):
        ordered = _sorted(requests, notes, _by_id)
    elif sort or not kind.ordered:
        ordered = _sorted(requests, notes, _ARRIVED)
    else:
        ordered = _reordered(requests, notes)
    return _from_first(ordered) if kind.from_first else ordered


def _by_id(request: TraceRequest) -> tuple[float, int, str]:
    """Sort key: arrival time, then id, because the rows are in order of completion."""
    name = request.id or ""
    return request.arrived_s, len(name), name


def _sorted(
    requests: Iterator[TraceRequest], notes: TraceNotes, key: Callable[[TraceRequest], Any]
) -> Iterator[TraceRequest]:
    held = list(islice(requests, SORT_LIMIT + 1))
    if len(held) > SORT_LIMIT:
        raise notes.fault(
            f"the rows are not in order of time, and more than {SORT_LIMIT} are too many to sort",
            hint="sort the file by its time column first, as with `sort -t, -k1,1`",
        )
    held.sort(key=key)
    yield from held


def _reordered(requests: Iterator[TraceRequest], notes: TraceNotes) -> Iterator[TraceRequest]:
    """Sorts rows that are slightly out of order; larger disorder is an error."""
    held: list[TraceRequest] = []
    until_s = latest_s = -math.inf
    while True:
        fresh = 0
        for request in islice(requests, REORDER_WINDOW):
            if request.arrived_s < until_s:
                raise _disorder(request, until_s, notes)
            if request.arrived_s < latest_s:
                notes.late()
            else:
                latest_s = request.arrived_s
            held.append(request)
            fresh += 1
        if not fresh:
            break
        held.sort(key=_ARRIVED)
        ready = held[:-REORDER_WINDOW]
        if ready:
            del held[:-REORDER_WINDOW]
            until_s = ready[-1].arrived_s
            yield from ready
    yield from held


def _disorder(early: TraceRequest, until_s: float, notes: TraceNotes) -> InputError:
    what = (
        f"the request arrives at {early.arrived_s:g} s, "
        f"{REORDER_WINDOW} rows or more after one at {until_s:g} s"
    )
    hint = f"{notes.words.sort} up to {SORT_LIMIT} requests in memory"
    return notes.fault(what, notes.line, hint=hint)


def _from_first(requests: Iterator[TraceRequest]) -> Iterator[TraceRequest]:
    first = next(requests, None)
    if first is None:
        return
    start_s = first.arrived_s
    if start_s == 0.0:
        yield first
        yield from requests
        return
    yield shifted(first, start_s)
    for request in requests:
        yield shifted(request, start_s)


def _after(requests: Iterator[TraceRequest], start_s: float) -> Iterator[TraceRequest]:
    """The requests from a time on, with arrivals counted from it."""
    for request in requests:
        if request.arrived_s >= start_s:
            yield shifted(request, start_s)


class LeftOut(NamedTuple):
    """Rows of a trace that were not replayed."""

    path: str
    empty: int
    """Requests without a prompt or an output."""
    bad: int
    """Rows that could not be read."""
    adapters: int
    """Requests for an adapter that were served by the base model, as servers have no LoRA slots."""
    prefix_tokens: int = 0
    """For a run's own requests: tokens found in its caches, which a replay cannot find."""
    repairs: Repairs = Repairs()


def at_its_rate(entry: WorkloadEntry) -> WorkloadEntry:
    """Replaces a replay's mean rate by the speedup that gives it, computed from the file.

    If the file cannot be read, the replay reports that when it is run.
    """
    if not isinstance(entry, ReplaySettings) or entry.trace.rate_per_s is None:
        return entry
    count, lasts_s = 0, 0.0
    try:
        for row in islice(OpenTrace(entry, None).requests, entry.count):
            count += 1
            lasts_s = max(lasts_s, row.arrived_s)
    except InputError:
        return entry
    rate_per_s = entry.trace.rate_per_s
    if lasts_s <= 0.0:
        what = f"its {count} requests come at once, so no speed gives them a rate"
        raise InputError(what, where=entry.trace.path, hint="leave `rate` out")
    speedup = rate_per_s * lasts_s / count
    if not 1 / FASTEST_REPLAY <= speedup <= FASTEST_REPLAY:
        what = f"a rate of {rate_per_s:g}/s takes a speedup of {speedup:.4g}"
        allowed = f"{1 / FASTEST_REPLAY:g} to {FASTEST_REPLAY:g}"
        raise InputError(what, where=entry.trace.path, allowed=allowed)
    trace = entry.trace.model_copy(update={"speedup": speedup, "rate_per_s": None})
    return entry.model_copy(update={"trace": trace})


def check_rows(entry: ReplaySettings) -> None:
    """Reads the first requests of a replay's trace; raises for a row that its run would refuse."""
    most = ROWS_CHECKED if entry.count is None else min(entry.count, ROWS_CHECKED)
    for _ in islice(OpenTrace(entry, None).requests, most):
        pass


class OpenTrace:
    """The trace of a workload entry while it is read; errors name options of the scenario.

    Its rows may have these classes of service; None: any.
    """

    def __init__(self, plan: ReplaySettings, classes: Sequence[str] | None) -> None:
        path = Path(plan.trace.path)
        self._notes = TraceNotes(plan.trace.path, plan.trace.skip_bad, SCENARIO_WORDS)
        if plan.slo is None and classes is not None:
            self._notes.classes = frozenset(classes)
        self.name = unpacked_name(path).stem
        self.requests: Iterator[TraceRequest] = open_trace(
            path, plan.trace.format, sort=plan.trace.sort, notes=self._notes
        )
        if self._notes.is_followed and plan.trace.sessions == "open":
            what = "a concurrent load has no times: a request follows the end of another"
            raise self._notes.fault(what, hint="add `sessions: closed` to the trace")
        if plan.trace.start_s > 0.0:
            self.requests = _after(self.requests, plan.trace.start_s)

    def left_out(self, adapters: int) -> LeftOut:
        """What was left out so far; `adapters` counts requests served without their adapter."""
        notes = self._notes
        counts = notes.empty, notes.bad, adapters, notes.prefix_tokens, notes.repairs
        return LeftOut(notes.path, *counts)
