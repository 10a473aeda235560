"""Follows the files of a running gateway: its trace, and its event log if there is one.

Lines are read as they are written; an incomplete line waits. A gateway that starts announces it in
a line of its log; without a log, a restart shows as a step back in the trace's times. Unreadable
lines are counted and skipped, so that the shadow continues. While nothing is written, time advances
with the clock.
"""

import os
from bisect import bisect_right
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import IO, Final, Protocol

import msgspec

from windtunnel.analysis.shadow.window import GAP_S, MOST_IN_FLIGHT, TrafficWindow
from windtunnel.core import vocabulary
from windtunnel.core.clock import monotonic_s
from windtunnel.core.errors import InputError
from windtunnel.core.telemetry import Event
from windtunnel.live.event_log import STARTED
from windtunnel.live.gateway import facts
from windtunnel.live.gateway.settings import GatewayFile
from windtunnel.live.rotation import opened
from windtunnel.workload.traces.formats.windtunnel import TraceLine
from windtunnel.workload.traces.gateway_folder import (
    MOST_BEHIND,
    PATTERN,
    RESTART_S,
    SAME_ARRIVAL_S,
    StartOrder,
)
from windtunnel.workload.traces.record import TraceRequest, fault_of

READ_BYTES: Final = 1 << 20
LONGEST_LINE: Final = 16 << 20
COMPARED_BYTES: Final = 512
"""Bytes compared before the read position: if they differ, it is another file."""
MOST_UNKNOWN: Final = 10_000
SILENT: Final = "nothing new in the files for over a minute: the gateway is idle, or has stopped"


class TrafficSource(Protocol):
    """Keeps a window of traffic up to date."""

    bad_lines: int
    """Records that could not be read."""
    says: str
    """Why the known traffic may be old; empty if it is not."""

    @property
    def source(self) -> object:
        """Where the traffic comes from, for display."""

    def look(self) -> None:
        """Reads everything new since the last call."""

    def unknown(self) -> list[str]:
        """What this source cannot know, one sentence each."""


class FileTail:
    """The lines of a file that is being written."""

    def __init__(self, path: Path) -> None:
        self.path: Final = path
        self._place = 0
        self._last = b""
        """The bytes before that position."""
        self._rest = b""
        self._id = (0, 0)

    def lines(self) -> Iterator[bytes]:
        """The complete lines that are new since the last call, in all rotated files of its name.

        If another file has replaced it: the whole new one.
        """
        try:
            with opened(self.path) as files:
                known = [place for place, file in enumerate(files) if self._goes_on(file)]
                known = [place for place in known if _id_of(files[place]) == self._id] or known
                first = 0 if not self._place else known[-1] if known else len(files) - 1
                for number, file in enumerate(files[first:]):
                    if number or not known:
                        if not os.fstat(file.fileno()).st_size:
                            continue  # just rotated: reading stopped in the file before
                        self._place, self._last, self._rest = 0, b"", b""
                        file.seek(0)
                    yield from self._read(file)
        except FileNotFoundError:
            return
        except OSError as error:
            what = f"the file cannot be read: {error.strerror}"
            raise InputError(what, where=str(self.path)) from None

    def _goes_on(self, file: IO[bytes]) -> bool:
        """Whether this is the same file; it is then positioned where reading stopped."""
        file.seek(self._place - len(self._last))
        return file.read(len(self._last)) == self._last

    def _read(self, file: IO[bytes]) -> Iterator[bytes]:
        self._id = _id_of(file)
        while data := file.read(READ_BYTES):
            self._place += len(data)
            self._last = (self._last + data)[-COMPARED_BYTES:]
            *whole, self._rest = (self._rest + data).split(b"\n")
            yield from whole
            if len(self._rest) > LONGEST_LINE:
                self._rest = b""


def _id_of(file: IO[bytes]) -> tuple[int, int]:
    found = os.fstat(file.fileno())
    return found.st_dev, found.st_ino


class GatewayFollower:
    """Keeps a window of traffic in step with a gateway's files."""

    def __init__(self, window: TrafficWindow, trace: Path, log: Path | None) -> None:
        if not trace.exists():
            hint = "`live.trace` of a gateway names its folder"
            raise InputError("there is no such trace", where=str(trace), hint=hint)
        if log is not None and not log.exists():
            hint = "`live.log` of a gateway names it"
            raise InputError("there is no such log", where=str(log), hint=hint)
        self.window: Final = window
        self.bad_lines = 0
        self.says = ""
        self.source: Final = trace
        self._tails: Final[dict[Path, FileTail]] = {}
        self._log: Final = None if log is None else FileTail(log)
        self._behind = 0
        """Consecutive lines of the log whose times are long past."""
        self._is_started = False
        """Whether the log has announced the gateway's start."""
        self._classes: list[str] = []
        self._tenants: list[str] = []
        self._healthy: Final[dict[str, bool]] = {}
        self._order: Final = StartOrder[TraceRequest]()
        self._complete: Final[set[Path]] = set()
        """Trace files with a complete request."""
        self._news: tuple[float, float] | None = None
        """When something new was last read: by our clock, and by the gateway's."""
        self._arrivals: Final[dict[str, float]] = {}
        """By id: requests that are in the log but not yet in the trace."""
        self._unknown: list[bytes] = []
        """Trace rows of requests that are not in the log, or not yet."""

    def look(self) -> None:
        """Reads everything written since the last call."""
        self.look_at(monotonic_s())

    def look_at(self, clock_s: float) -> None:
        """The same, at a given time of our own clock."""
        is_new = False
        if self._log is not None:
            for raw in self._log.lines():
                is_new = True
                self._take(raw, self._fact)
        again, self._unknown = self._unknown, []
        for raw in again:
            self._take(raw, partial(self._row, self.source))
        self._unknown.clear()  # unknown twice: their requests are of an earlier start
        for file in sorted(self.source.glob(PATTERN)) if self.source.is_dir() else [self.source]:
            tail = self._tails.setdefault(file, FileTail(file))
            for raw in tail.lines():
                is_new = True
                self._take(raw, partial(self._row, file))
        if self._news is None:
            self.window.late = 0  # records from before the first read are old, not late
        if is_new or self._news is None:
            self._news = clock_s, self.window.now_s
        news_s, then_s = self._news
        silent_s = clock_s - news_s
        self.says = SILENT if silent_s > GAP_S else ""
        if then_s > 0.0:
            self.window.see(then_s + silent_s)

    def unknown(self) -> list[str]:
        """What these files do not contain."""
        if self._log is not None:
            return []
        return [
            "which requests are in flight, and how many servers are healthy: add --log (a request "
            "is known once it has ended)"
        ]

    def _begin_anew(self) -> None:
        self._behind = 0
        self.window.restart()
        self._healthy.clear()
        self._arrivals.clear()

    def _take(self, raw: bytes, take: Callable[[bytes], None]) -> None:
        try:
            take(raw)
        except (
            *(msgspec.DecodeError, LookupError, TypeError, ValueError, OverflowError),
            RecursionError,
        ):
            self.bad_lines += 1

    def _row(self, file: Path, raw: bytes) -> None:
        row = msgspec.json.decode(raw, type=TraceLine)
        request = TraceRequest(
            arrived_s=row.arrived,
            prompt_tokens=row.prompt_tokens,
            output_tokens=row.output_tokens,
            id=str(row.id),
            tenant=row.tenant,
            slo=row.slo,
            ttft_s=row.ttft,
            e2e_s=row.e2e,
            prefix_keys=row.prefix_keys,
            prefix_ends=row.prefix_ends,
        )
        _check(fault_of(request))
        ended_s = request.arrived_s + (request.e2e_s or 0.0)
        if not self.window.believes(ended_s):
            raise ValueError("a time far ahead of all others")
        if self._log is not None:
            logged_s = self._arrivals.get(str(row.id))
            if logged_s is None or abs(logged_s - request.arrived_s) > SAME_ARRIVAL_S:
                if len(self._unknown) < MOST_UNKNOWN:
                    self._unknown.append(raw)
                return
            del self._arrivals[str(row.id)]
            self.window.end(request)
            return
        is_first = file not in self._complete
        if request.e2e_s is not None:
            self._complete.add(file)
        decided = self._order.take(request, request.arrived_s, request.e2e_s, is_first=is_first)
        for begins, one in decided:
            if begins:
                self._begin_anew()
            self.window.end(one)

    def _fact(self, raw: bytes) -> None:
        line = msgspec.json.decode(raw, type=Event)
        if line.kind == STARTED:
            if self._is_started:
                self._begin_anew()
            self._is_started = True
        if not self.window.believes(line.time):
            raise ValueError("a time far ahead of all others")
        is_behind = line.kind != STARTED and line.time < self.window.now_s - RESTART_S
        self._behind = self._behind + 1 if is_behind else 0
        if self._behind == MOST_BEHIND:  # lines are in order: the clock was set back
            self._begin_anew()
        self.window.see(line.time)
        about = line.subject.partition("/")[2]
        if line.kind == STARTED:
            settings = GatewayFile.read(line.data["settings"])
            objectives = line.data.get("objectives", {})
            self._classes = [one.name for one in settings.classes(objectives)]
            self._tenants = list(settings.tenants)
        elif line.kind == facts.TENANT:
            self._tenants.append(line.data["name"])
        elif line.kind == facts.ARRIVED:
            data = line.data
            prompt, ends = int(data["prompt_tokens"]), data.get("prefix_ends", ())
            shared = bisect_right(ends, prompt)  # prompt lengths are estimates, and may be shorter
            request = TraceRequest(
                arrived_s=line.time,
                prompt_tokens=prompt,
                output_tokens=int(data["output_tokens"]),
                id=about,
                tenant=self._tenants[data["tenant"]],
                slo=self._classes[data["slo"]],
                model=data["model"],
                prefix_keys=tuple(data.get("prefix_keys", ())[:shared]),
                prefix_ends=tuple(ends[:shared]),
            )
            _check(fault_of(request))
            self.window.arrive(request)
            self._arrivals[about] = line.time
            if len(self._arrivals) > MOST_IN_FLIGHT:
                del self._arrivals[next(iter(self._arrivals))]
        elif line.kind == vocabulary.ENDED or line.kind in (
            vocabulary.REJECTED,
            vocabulary.EVICTED,
        ):
            self.window.leave(about, line.time)
        elif line.kind in (facts.HEALTHY, facts.UNHEALTHY, facts.DRAINING):
            self._healthy[about] = line.kind == facts.HEALTHY
            self.window.servers = sum(self._healthy.values())
        elif line.kind == facts.UNDRAINED:
            self._healthy[about] = True
            self.window.servers = sum(self._healthy.values())


def _check(fault: str | None) -> None:
    if fault is not None:
        raise ValueError(fault)
