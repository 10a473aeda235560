"""When servers could not keep up, and why: periods in which small errors grow large.

A server is saturated while requests are queued there and it has no room for them: every slot of its
batch is taken, or its KV blocks are used up, or more requests are queued than run. Samples are few,
so a period counts from LEAST_SAMPLES in a row. The run is saturated while a tenth of its servers
are; periods with fewer than LEAST_SAMPLES between them are merged.

Requests for which no server is ready cannot be queued on one: while they wait, the run is without
capacity, in periods of their own.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Protocol

import msgspec

if TYPE_CHECKING:
    from windtunnel.analysis.run_folder import Series

LINK_FULL = 0.99
KV_FULL = 0.9
LEAST_SAMPLES = 3
LEAST_SHARE = 0.1

SLOTS, BLOCKS, QUEUE = 1, 2, 3
CAUSES = {
    SLOTS: "all batch slots taken",
    BLOCKS: "KV cache full",
    QUEUE: "more waiting than running",
}
NO_SERVER = "no server was ready"
"""Cause of a period in which requests waited for a server and none was ready for them."""


class RunSample(Protocol):
    """The state of a run at one instant; lists have an entry per server."""

    @property
    def time_s(self) -> float: ...
    @property
    def arrived(self) -> int: ...
    @property
    def at_gateway(self) -> int: ...
    @property
    def awaiting_server(self) -> int: ...
    @property
    def in_flight(self) -> int: ...
    @property
    def serving(self) -> int: ...
    @property
    def waiting(self) -> list[int]: ...
    @property
    def running(self) -> list[int]: ...
    @property
    def kv_used(self) -> list[float]: ...


class Stretch(msgspec.Struct, frozen=True):
    """A period in which the run was saturated."""

    start_s: float
    end_s: float
    cause: str
    most_servers: int


def stretches(samples: Sequence[RunSample], slots: Sequence[int]) -> list[Stretch]:
    """The periods in which enough servers were saturated or none was ready for requests, in order;
    `slots` are by server."""
    idle = _without_server(samples)
    by_cause = [[0] * (len(CAUSES) + 1) for _ in samples]  # saturated servers at each time
    for server, most in enumerate(slots):
        causes = [_cause(sample, server, most) for sample in samples]
        for start, end in _runs([cause > 0 for cause in causes]):
            if end - start >= LEAST_SAMPLES:
                for place in range(start, end):
                    by_cause[place][causes[place]] += 1
    needed = [max(LEAST_SHARE * sample.serving, 1) for sample in samples]
    enough = _closed([sum(by_cause[n]) >= needed[n] for n in range(len(samples))])
    enough = [full and not none for full, none in zip(enough, idle, strict=True)]
    found = [Stretch(*_span(samples, *run), NO_SERVER, 0) for run in _runs(idle)]
    for start, end in _runs(enough):
        total = [sum(column) for column in zip(*by_cause[start:end], strict=True)]
        found.append(
            Stretch(
                *_span(samples, start, end),
                CAUSES[total.index(max(total))],
                max(sum(counts) for counts in by_cause[start:end]),
            )
        )
    return sorted(found, key=lambda one: one.start_s)


def _without_server(samples: Sequence[RunSample]) -> list[bool]:
    """Whether requests waited and no server was ready for them, at the samples of long periods."""
    waited = [
        sample.awaiting_server > 0 or (sample.at_gateway > 0 and not sample.serving)
        for sample in samples
    ]
    found = [False] * len(samples)
    for start, end in _runs(_closed(waited)):
        if end - start >= LEAST_SAMPLES:
            found[start:end] = [True] * (end - start)
    return found


def _span(samples: Sequence[RunSample], start: int, end: int) -> tuple[float, float]:
    """The time that samples stand for: each from the one before it."""
    return (samples[start - 1].time_s if start else 0.0), samples[end - 1].time_s


def _cause(sample: RunSample, server: int, slots: int) -> int:
    """Why a server is saturated; 0 if it is not."""
    if server >= len(sample.waiting) or not sample.waiting[server]:
        return 0  # it does not exist yet, or nothing is queued
    waiting = sample.waiting[server]
    if sample.running[server] >= slots:
        return SLOTS
    if sample.kv_used[server] >= KV_FULL:
        return BLOCKS
    return QUEUE if waiting > sample.running[server] else 0


def _closed(flags: list[bool]) -> list[bool]:
    """The same flags with short gaps filled."""
    whole = flags[:]
    for start, end in _runs([not flag for flag in flags]):
        if start > 0 and end < len(flags) and end - start < LEAST_SAMPLES:
            whole[start:end] = [True] * (end - start)
    return whole


def _runs(flags: list[bool]) -> list[tuple[int, int]]:
    """The (first, one past the last) of every run of true flags."""
    found = []
    start = -1
    for place, flag in enumerate([*flags, False]):
        if flag and start < 0:
            start = place
        elif not flag and start >= 0:
            found.append((start, place))
            start = -1
    return found


# For a run read from its folder


def stretches_of(result: dict[str, Any]) -> list[Stretch]:
    """The periods in which the run was saturated, in order."""
    return msgspec.convert(result["trust"]["saturated"]["stretches"], list[Stretch])


def slots_of(series: Series, scenario: dict[str, Any]) -> list[int]:
    """How many requests each server can run at once."""
    slots = {pool["name"]: pool["engine"]["max_num_seqs"] for pool in scenario["serving"]["pools"]}
    return [slots[pool] for pool, _ in series.names]


def bandwidth_of(scenario: dict[str, Any]) -> float | None:
    """The total bandwidth of transfers between servers, in bytes/s; None if they do not share any.

    It is limited by the NICs of all prefill or all decode servers, and by the fabric.
    """
    split = scenario["serving"]["disaggregation"]
    if split is None or not split["transfer"]["contention"]:
        return None
    transfer, pools = split["transfer"], scenario["serving"]["pools"]
    nics = [
        sum(pool["replicas"] for pool in pools if pool["role"] in (role, "both"))
        for role in ("prefill", "decode")
    ]
    bandwidth: float = transfer["bandwidth_bytes_per_s"] * max(1, min(nics))
    fabric: float | None = transfer.get("fabric_bytes_per_s")
    return bandwidth if fabric is None else min(bandwidth, fabric)


def link_full_s(series: Series, bandwidth: float | None) -> float:
    """How long transfers used all of the bandwidth."""
    if bandwidth is None:
        return 0.0
    interval, moved = series.whole["interval"], series.whole["transferred_bytes"]
    full = (moved >= LINK_FULL * bandwidth * interval) & (series.whole["transfers"] > 1)
    return float(interval[full].sum())
