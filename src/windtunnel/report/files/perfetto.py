"""A trace for ui.perfetto.dev: servers as tracks, requests as slices through their phases.

A pool is a process. Each of its servers has a track of slices, within each of which its batch stays
about the same size, and counters of running and queued requests and of the KV cache. A request is a
slice, with its phases inside, on the server that generates its answer; a prompt computed on another
server is a slice there, and an arrow leads from it to the transfer. Time is in microseconds, as the
format requires.

Readers of the format identify threads by number alone, so no two tracks share one, and take the
number 0 for the idle thread of a kernel.
"""

import gzip
import io
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec

from windtunnel.analysis.phases import PREFILL, QUEUE, TRANSFER, Phase, phases
from windtunnel.core.errors import OutputError
from windtunnel.core.vocabulary import ENCODING
from windtunnel.report.files.requests import times_of
from windtunnel.twin.results.accounts import RecordNames
from windtunnel.twin.results.reasons import reason_of
from windtunnel.twin.results.timeline import Sample
from windtunnel.twin.run import Run
from windtunnel.twin.scenario.plan import ScenarioPlan
from windtunnel.twin.servers.replicas import GONE
from windtunnel.workload.request import Request

MOST_REQUESTS = 20_000
"""Requests in one trace: as many as a browser opens without trouble."""
MOST_COUNTS = 100_000
"""Server states in one trace, over all servers together."""

START, GZIP, LONGEST_START = b'{"displayTimeUnit":', b"\x1f\x8b", 4096
"""How a trace begins; a compressed one; enough of a file to tell."""

NANOSECONDS = 1e9
PER_MICROSECOND = 1e3

Event = dict[str, Any]


def trace_bytes(
    events: list[Event],
    about: dict[str, Any],
    path: Path,
    redact: Callable[[bytes], bytes] = lambda content: content,
) -> bytes:
    """A whole trace; compressed if the name ends in .gz."""
    trace = {"displayTimeUnit": "ms", "otherData": about, "traceEvents": events}
    content = redact(msgspec.json.encode(trace))
    if path.suffix != ".gz":
        return content
    packed = io.BytesIO()
    with gzip.GzipFile(fileobj=packed, mode="wb", filename="", mtime=0) as file:
        file.write(content)
    return packed.getvalue()


def refuse_other_file(path: Path) -> None:
    """Raises if a file exists that is not such a trace, and would be replaced by one."""
    if not path.is_file():
        return
    try:
        with path.open("rb") as file:
            start = file.read(LONGEST_START)
        if start.startswith(GZIP):
            start = zlib.decompressobj(wbits=31).decompress(start)
    except (OSError, zlib.error) as error:
        raise OutputError(f"it exists and cannot be read: {error}", where=str(path)) from error
    if start and not start.startswith(START):
        what = "--perfetto would overwrite a file that is not a trace for Perfetto"
        raise OutputError(what, where=str(path), hint="choose another file with --perfetto")


class PerfettoTrace:
    """Receives ended requests; keeps all of them, or one in two, four, ... if there are many."""

    def __init__(self, plan: ScenarioPlan) -> None:
        self._plan = plan
        self._sources: list[str] = []
        self._pools: list[int] = []  # the process of each server's pool
        self._replicas: list[int] = []
        self._cluster = len(plan.pools) + 1  # the process for everything outside servers
        self._first_tid = self._cluster + 1
        self._kept: list[tuple[Request, str]] = []
        self._stride = 1
        self.every = 1

    def write(self, requests: list[Request], outcomes: list[str], names: RecordNames) -> None:
        self._sources = names.sources
        for request, outcome in zip(requests, outcomes, strict=True):
            if request.id % self.every == 0:
                self._kept.append((request, outcome))
        while len(self._kept) > MOST_REQUESTS:
            self.every *= 2
            self._kept = [pair for pair in self._kept if pair[0].id % self.every == 0]

    @property
    def cut(self) -> str:
        """A sentence about what is missing; empty if nothing is."""
        parts = []
        if self.every > 1:
            parts.append(f"one request in {self.every}")
        if self._stride > 1:
            parts.append(f"one state of each server in {self._stride}")
        if not parts:
            return ""
        return f"the trace has {' and '.join(parts)}, since more would make it hard to open"

    def content(self, run: Run, path: Path) -> bytes:
        """The whole trace; compressed if the name ends in .gz."""
        end_s = run.result["simulated_seconds"]
        self._pools = [pool + 1 for pool in run.timeline.owners.pools]
        self._replicas = run.timeline.owners.numbers
        samples = self._thinned(run.timeline.samples)
        events = [*self._names(), *self._counters(samples), *self._batches(samples)]
        for request, outcome in sorted(self._kept, key=lambda pair: int(pair[0].id)):
            events += self._slices(request, outcome, end_s)
        # Stable, so that events at the same instant keep their order.
        events.sort(key=lambda event: (event["ph"] != "M", event.get("ts", 0.0)))
        about = {key: run.result[key] for key in ("name", "seed", "windtunnel", "scenario_sha256")}
        about["left out"] = self.cut or "nothing"
        return trace_bytes(events, about, path)

    def _thinned(self, samples: list[Sample]) -> list[Sample]:
        """Samples thinned evenly to the limit on server states; the last one is always kept."""
        self._stride = max(1, -(-len(samples) * len(self._pools) // MOST_COUNTS))
        last = len(samples) - 1
        return [samples[place] for place in range(last % self._stride, last + 1, self._stride)]

    def _names(self) -> list[Event]:
        events = [
            name_event("process_name", pid, pid, f"pool {pool.name}")
            for pid, pool in enumerate(self._plan.pools, 1)
        ]
        events.append(name_event("process_name", self._cluster, self._cluster, "cluster"))
        events += [
            name_event("thread_name", pid, self._first_tid + server, f"server {replica}")
            for server, (pid, replica) in enumerate(zip(self._pools, self._replicas, strict=True))
        ]
        return events

    def _counters(self, samples: list[Sample]) -> list[Event]:
        """States of servers and of the cluster, each written when it changes."""
        events = []
        known: dict[tuple[int, str], dict[str, float]] = {}
        for sample in samples:
            time = {"ts": _us(_ns(sample.time_s))}
            for pid, name, state in self._states(sample):
                before = known.setdefault((pid, name), {})
                news = {key: value for key, value in state.items() if before.get(key) != value}
                before.update(news)
                if news:
                    events.append(trace_event("C", name, pid, pid) | time | {"args": news})
        return events

    def _states(self, sample: Sample) -> Iterator[tuple[int, str, dict[str, float]]]:
        """The process and name of each state, and the state."""
        cluster: dict[str, float] = {
            "in flight": sample.in_flight,
            "at the gateway": sample.at_gateway,
            "queued for a server": sample.awaiting_server,
            "KV transfers": sample.transfers,
        }
        yield self._cluster, "cluster", cluster
        for server in range(len(sample.running)):
            if sample.states[server] == GONE:
                continue
            yield (
                self._pools[server],
                f"server {self._replicas[server]}",
                {
                    "running": sample.running[server],
                    "waiting": sample.waiting[server],
                    "KV used, %": round(100.0 * sample.kv_used[server], 2),
                },
            )

    def _batches(self, samples: list[Sample]) -> list[Event]:
        """Slices of steps on each server, split where the batch doubles, halves or is empty."""
        events = []
        for server, pid in enumerate(self._pools):
            start = 0
            for number in range(1, len(samples) + 1):
                size = _size(samples[start], server)
                if number < len(samples) and _size(samples[number], server) == size:
                    continue
                if size:
                    before = samples[start - 1] if start else None
                    tid = self._first_tid + server
                    events.append(_batch(before, samples[start:number], server, pid, tid))
                start = number
        return events

    def _slices(self, request: Request, outcome: str, end_s: float) -> list[Event]:
        """A request from arrival to end with its phases inside; an unfinished one ends with the
        run."""
        split = request.prefill_server >= 0 and request.prefill_server != request.server
        encoding = reason_of(request, outcome).endswith(ENCODING)
        passed = phases(times_of(request), end_s, split=split, encoding=encoding)
        pid = self._pools[request.server] if request.server >= 0 else self._cluster
        about = {
            "request": int(request.id),
            "outcome": outcome,
            "prompt tokens": int(request.prompt_tokens),
            "output tokens": int(request.output_tokens),
            "prefix hit tokens": int(request.prefix_hit_tokens),
            "preemptions": int(request.preemptions),
        }
        if request.server >= 0:
            about["server"] = self._replicas[request.server]
        if request.reason:
            about["reason"] = request.reason
        name, key = self._sources[request.source], int(request.id)
        arrow: Event = {}
        if any(phase.name == TRANSFER for phase in passed):
            arrow["bind_id"] = key + 1  # 0 means no arrow
        events: list[Event] = []
        if split:
            elsewhere = [phase for phase in passed if phase.name in (QUEUE, PREFILL)]
            prompt = {"request": key, "server": self._replicas[request.prefill_server]}
            place = self._pools[request.prefill_server]
            out = {PREFILL: arrow | {"flow_out": True}} if arrow else {}
            events += _nested(f"{name}, prompt", place, f"{key}-prompt", elsewhere, prompt, out)
        return events + _nested(
            name, pid, str(key), passed, about, {TRANSFER: arrow | {"flow_in": True}}
        )


def _nested(
    name: str,
    pid: int,
    key: str,
    passed: list[Phase],
    about: dict[str, Any],
    more: dict[str, Event],
) -> list[Event]:
    """A slice on a track of its own, with phases inside; `more` are extra fields by phase name."""
    if not passed:
        return []
    events = [_async("b", name, pid, key, passed[0].start_s) | {"args": about}]
    for phase in passed:
        begin = _async("b", phase.name, pid, key, phase.start_s)
        events.append(begin | more.get(phase.name, {}))
        events.append(_async("e", phase.name, pid, key, phase.end_s))
    events.append(_async("e", name, pid, key, passed[-1].end_s))
    return events


def _ns(time_s: float) -> int:
    """Whole nanoseconds, so that slices that meet do so exactly."""
    return round(time_s * NANOSECONDS)


def _us(nanoseconds: int) -> float:
    return nanoseconds / PER_MICROSECOND


def trace_event(kind: str, name: str, pid: int, tid: int) -> Event:
    return {"ph": kind, "name": name, "pid": pid, "tid": tid}


def name_event(kind: str, pid: int, tid: int, name: str) -> Event:
    return trace_event("M", kind, pid, tid) | {"args": {"name": name}}


def _async(kind: str, name: str, pid: int, key: str, time_s: float) -> Event:
    about = {"cat": "request", "id": key, "ts": _us(_ns(time_s))}
    return trace_event(kind, name, pid, pid) | about


def _size(sample: Sample, server: int) -> int:
    """The size class of a batch: 1, 2, up to 4, up to 8, ...; 0 if it is empty."""
    running = sample.running[server] if server < len(sample.running) else 0  # not created yet
    return (running * 2 - 1).bit_length() if running else 0


def _batch(before: Sample | None, samples: list[Sample], server: int, pid: int, tid: int) -> Event:
    """One slice from the sample before to the last of these."""
    last = samples[-1]
    known = before is not None and server < len(before.steps)
    start_s = before.time_s if before is not None else 0.0
    steps = last.steps[server] - (before.steps[server] if before and known else 0)
    busy_s = last.busy_s[server] - (before.busy_s[server] if before and known else 0.0)
    sizes = [sample.running[server] for sample in samples]
    low, high = min(sizes), max(sizes)
    return trace_event("X", f"batch {low}" if low == high else f"batch {low}-{high}", pid, tid) | {
        "ts": _us(_ns(start_s)),
        "dur": _us(_ns(last.time_s) - _ns(start_s)),
        "args": {"steps": steps, "busy, s": round(busy_s, 6)},
    }
