"""A trace that ui.perfetto.dev opens: servers as tracks, requests as slices through their phases.

A pool is a process. Each of its servers has a track of slices, in each of which its batch stays
about the same size, and counters of what runs and waits and of the KV cache. A request is a slice
with its queue, prefill and decode inside. Time is in microseconds, as the format wants it.
"""

import gzip
import io
from pathlib import Path
from typing import Any

import msgspec

from windtunnel.twin.accounts import Names
from windtunnel.twin.run import Run
from windtunnel.twin.scenario.plan import ScenarioPlan
from windtunnel.twin.timeline import Sample
from windtunnel.workload.request import UNSET, Request

MOST_REQUESTS = 20_000
"""Requests in one trace: what a browser still opens with ease."""

MICROSECONDS = 1e6
NOWHERE = 0
"""The process of requests that were never sent to a server; pools count from 1."""

Event = dict[str, Any]


class PerfettoTrace:
    """Receives ended requests; keeps every one, or every second, fourth, ... when they are many."""

    def __init__(self, plan: ScenarioPlan) -> None:
        self._plan = plan
        self._sources: list[str] = []
        self._pools = [n for n, pool in enumerate(plan.pools, 1) for _ in range(pool.replicas)]
        self._kept: list[tuple[Request, str]] = []
        self.every = 1

    def write(self, requests: list[Request], outcomes: list[str], names: Names) -> None:
        self._sources = names.sources
        for request, outcome in zip(requests, outcomes, strict=True):
            if request.id % self.every == 0:
                self._kept.append((request, outcome))
        while len(self._kept) > MOST_REQUESTS:
            self.every *= 2
            self._kept = [pair for pair in self._kept if pair[0].id % self.every == 0]

    @property
    def cut(self) -> str:
        """What is missing, in a sentence; empty when nothing is."""
        if self.every == 1:
            return ""
        return (
            f"the trace has every {self.every}th request, "
            f"since more than {MOST_REQUESTS:,} make it hard to open"
        )

    def content(self, run: Run, path: Path) -> bytes:
        """The whole trace, compressed when the name ends in .gz."""
        end_s = run.result["simulated_seconds"]
        events = [*self._names(), *self._counters(run), *self._batches(run)]
        for request, outcome in sorted(self._kept, key=lambda pair: int(pair[0].id)):
            events += self._slices(request, outcome, end_s)
        # Stable, so that what begins and ends at one instant keeps its order.
        events.sort(key=lambda event: (event["ph"] != "M", event.get("ts", 0.0)))
        about = {key: run.result[key] for key in ("name", "seed", "windtunnel", "scenario_sha256")}
        about["requests"] = self.cut or "all"
        trace = {"displayTimeUnit": "ms", "otherData": about, "traceEvents": events}
        content = msgspec.json.encode(trace)
        if path.suffix != ".gz":
            return content
        packed = io.BytesIO()
        with gzip.GzipFile(fileobj=packed, mode="wb", filename="", mtime=0) as file:
            file.write(content)
        return packed.getvalue()

    def _names(self) -> list[Event]:
        events = []
        for pid, pool in enumerate(self._plan.pools, 1):
            events.append(_meta("process_name", pid, 0, f"pool {pool.name}"))
            events += [
                _meta("thread_name", pid, replica + 1, f"server {replica}")
                for replica in range(pool.replicas)
            ]
        if any(request.server < 0 for request, _ in self._kept):
            events.append(_meta("process_name", NOWHERE, 0, "sent nowhere"))
        return events

    def _places(self) -> list[tuple[int, int]]:
        """The pool's process and the replica of every server."""
        pools = enumerate(self._plan.pools, 1)
        return [(pid, replica) for pid, pool in pools for replica in range(pool.replicas)]

    def _counters(self, run: Run) -> list[Event]:
        events = []
        for sample in run.timeline.samples:
            for server, (pid, replica) in enumerate(self._places()):
                for name, value in (
                    ("running", sample.running[server]),
                    ("waiting", sample.waiting[server]),
                    ("KV used, %", round(100.0 * sample.kv_used[server], 2)),
                ):
                    event = _event("C", f"server {replica}: {name}", pid, replica + 1)
                    events.append(event | {"ts": _us(sample.time_s), "args": {"value": value}})
        return events

    def _batches(self, run: Run) -> list[Event]:
        """Runs of steps on each server, cut where the batch doubles, halves or is empty."""
        events = []
        for server, (pid, replica) in enumerate(self._places()):
            start = 0
            samples = run.timeline.samples
            for number in range(1, len(samples) + 1):
                size = _size(samples[start], server)
                if number < len(samples) and _size(samples[number], server) == size:
                    continue
                if size:
                    before = samples[start - 1] if start else None
                    events.append(_batch(before, samples[start:number], server, pid, replica + 1))
                start = number
        return events

    def _slices(self, request: Request, outcome: str, end_s: float) -> list[Event]:
        """A request from arrival to end, its phases inside; what never came ends with the run."""
        pid = self._pools[request.server] if request.server >= 0 else NOWHERE
        finished = end_s if request.finished_s == UNSET else request.finished_s
        first = finished if request.first_token_s == UNSET else request.first_token_s
        scheduled = first if request.scheduled_s == UNSET else request.scheduled_s
        about = {
            "request": int(request.id),
            "outcome": outcome,
            "prompt tokens": int(request.prompt_tokens),
            "output tokens": int(request.output_tokens),
            "prefix hit tokens": int(request.prefix_hit_tokens),
            "preemptions": int(request.preemptions),
            "server": int(request.server),
        }
        if request.reason:
            about["reason"] = request.reason
        phases = [("queue", request.arrived_s, scheduled)]
        if request.scheduled_s != UNSET:
            phases.append(("prefill", scheduled, first))
        if request.first_token_s != UNSET:
            phases.append(("decode", first, finished))
        name = self._sources[request.source]
        key = int(request.id)
        events = [_async("b", name, pid, key, request.arrived_s) | {"args": about}]
        for phase, start_s, stop_s in phases:
            events.append(_async("b", phase, pid, key, start_s))
            events.append(_async("e", phase, pid, key, stop_s))
        events.append(_async("e", name, pid, key, finished))
        return events


def _us(time_s: float) -> float:
    return round(time_s * MICROSECONDS, 3)


def _event(kind: str, name: str, pid: int, tid: int) -> Event:
    return {"ph": kind, "name": name, "pid": pid, "tid": tid}


def _meta(kind: str, pid: int, tid: int, name: str) -> Event:
    return _event("M", kind, pid, tid) | {"args": {"name": name}}


def _async(kind: str, name: str, pid: int, key: int, time_s: float) -> Event:
    return _event(kind, name, pid, 0) | {"cat": "request", "id": key, "ts": _us(time_s)}


def _size(sample: Sample, server: int) -> int:
    """The class of a batch's size: 1, 2, up to 4, up to 8, ...; 0 when it is empty."""
    return (sample.running[server] * 2 - 1).bit_length() if sample.running[server] else 0


def _batch(before: Sample | None, samples: list[Sample], server: int, pid: int, tid: int) -> Event:
    """One slice from the sample before to the last of these."""
    last = samples[-1]
    start_s = before.time_s if before is not None else 0.0
    steps = last.steps[server] - (before.steps[server] if before is not None else 0)
    busy_s = last.busy_s[server] - (before.busy_s[server] if before is not None else 0.0)
    sizes = [sample.running[server] for sample in samples]
    low, high = min(sizes), max(sizes)
    return _event("X", f"batch {low}" if low == high else f"batch {low}-{high}", pid, tid) | {
        "ts": _us(start_s),
        "dur": max(round(_us(last.time_s) - _us(start_s), 3), 0.0),
        "args": {"steps": steps, "busy, s": round(busy_s, 6)},
    }
