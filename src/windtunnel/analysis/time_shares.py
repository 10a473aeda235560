"""Where the time of requests went on average: of all, and of the slowest hundredth."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from windtunnel.analysis.phases import (
    DECODE,
    ENCODE,
    GATEWAY,
    PHASES,
    PREFILL,
    QUEUE,
    RETRY,
    ROOM,
    START,
    TRANSFER,
    UNPLACED,
    RequestTimes,
)
from windtunnel.analysis.rows import RowBatch

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    Floats = npt.NDArray[np.float64]

MOMENTS = RequestTimes.__struct_fields__


class PhaseShare(msgspec.Struct, frozen=True):
    """A phase of a group of requests: its mean seconds, and its share of their time."""

    phase: str
    mean_s: float
    share: float
    before: float
    """The sum of the shares of the phases before it."""


class RequestGroup(msgspec.Struct, frozen=True):
    """A group of requests: its name, size, mean time, and the shares of its phases."""

    name: str
    count: int
    mean_s: float
    shares: list[PhaseShare]


class TimeShares:
    """Sums the phases of completed requests, from batches of rows."""

    def __init__(self, result: dict[str, Any]) -> None:
        latency = result["latency"]
        self._limits: dict[str, tuple[str, float]] = {}
        if latency["e2e"]["p99"] is not None:
            self._limits = {
                "all": ("e2e", 0.0),
                "slowest 1% to the first token": ("ttft", latency["ttft"]["p99"]),
                "slowest 1% to the end": ("e2e", latency["e2e"]["p99"]),
            }
        self._sums = {name: dict.fromkeys(PHASES, 0.0) for name in self._limits}
        self._counts = dict.fromkeys(self._limits, 0)

    def add(self, batch: RowBatch) -> None:
        rows = batch.completed
        times = {name: rows.floats(name) for name in MOMENTS}
        phases = phases_of_many(rows)
        took = {
            "ttft": times["first_token"] - times["arrived"],
            "e2e": times["finished"] - times["arrived"],
        }
        for name, (latency, least_s) in self._limits.items():
            chosen = took[latency] >= least_s
            self._counts[name] += int(chosen.sum())
            for phase, seconds in phases.items():
                self._sums[name][phase] += float(seconds[chosen].sum())

    def groups(self) -> list[RequestGroup]:
        """The groups that the page draws; empty if no request completed."""
        found = []
        for name, sums in self._sums.items():
            count, total = self._counts[name], sum(sums.values())
            if not count or total <= 0.0:
                continue
            shares, before = [], 0.0
            for phase, seconds in sums.items():
                if seconds > 0.0:
                    shares.append(PhaseShare(phase, seconds / count, seconds / total, before))
                    before += seconds / total
            found.append(RequestGroup(name, count, total / count, shares))
        return found


def phases_of_many(rows: RowBatch) -> dict[str, Floats]:
    """Seconds that completed requests spent in each phase; for a single row there is
    `RequestRow.phases`."""
    import numpy as np

    times = {name: rows.floats(name) for name in MOMENTS}
    (computed_in, names), (pools, others) = rows.words("prefill_pool"), rows.words("pool")
    number = {name: place for place, name in enumerate(names)}
    answered_in = np.array([*(number.get(name, -1) for name in others), -1])[pools]
    elsewhere = rows.floats("prefill_replica") != rows.floats("replica")
    split = (computed_in >= 0) & ((computed_in != answered_in) | elsewhere)

    def apart(end: str, start: str) -> Floats:
        return np.where(split, times[end] - times[start], 0.0)

    computed = np.where(split, times["prefilled"], times["first_token"])
    sent = np.where(np.isnan(times["encoded"]), times["admitted"], times["encoded"])
    began = np.where(np.isnan(times["restarted"]), sent, times["restarted"])
    return {
        GATEWAY: times["admitted"] - times["arrived"],
        ENCODE: sent - times["admitted"],
        RETRY: began - sent,
        UNPLACED: times["routed"] - began,
        QUEUE: times["scheduled"] - times["routed"],
        PREFILL: computed - times["scheduled"],
        ROOM: apart("transfer_start", "prefilled"),
        TRANSFER: apart("transfer_end", "transfer_start"),
        START: apart("first_token", "transfer_end"),
        DECODE: times["finished"] - times["first_token"],
    }
