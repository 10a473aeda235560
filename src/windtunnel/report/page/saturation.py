"""When servers could not keep up, and why: stretches of time in which small errors grow large.

A server is saturated while requests wait for it and it has no room for them: every slot of its
batch is taken, or its KV blocks are used up, or more requests wait than run. Samples are few, so a
stretch counts from LEAST_SAMPLES in a row. The run is saturated while a tenth of its servers are;
stretches with less than LEAST_SAMPLES between them are one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from windtunnel.report.page.folder import Series

KV_FULL = 0.9
LEAST_SAMPLES = 3
LEAST_SHARE = 0.1

SLOTS, BLOCKS, LINE = 1, 2, 3
CAUSES = {
    SLOTS: "all batch slots taken",
    BLOCKS: "KV cache full",
    LINE: "more waiting than running",
}


class Stretch(msgspec.Struct, frozen=True):
    """A stretch of time in which the run was saturated."""

    start_s: float
    end_s: float
    cause: str
    most_servers: int


def slots_of(series: Series, scenario: dict[str, Any]) -> list[int]:
    """How many requests each server can run at once."""
    slots = {pool["name"]: pool["engine"]["max_num_seqs"] for pool in scenario["pools"]}
    return [slots[pool] for pool, _ in series.names]


def causes_of(series: Series, slots: list[int]) -> npt.NDArray[np.int8]:
    """Time by server: why it is saturated, 0 where it is not."""
    import numpy as np

    waiting, running = series.servers["waiting"], series.servers["running"]
    cause = np.zeros(waiting.shape, dtype=np.int8)
    some = waiting > 0
    cause[some & (waiting > running)] = LINE
    cause[some & (series.servers["kv_used"] >= KV_FULL)] = BLOCKS
    cause[some & (running >= np.array(slots))] = SLOTS
    for server in range(len(series.names)):
        for start, end in _runs(cause[:, server] > 0):
            if end - start < LEAST_SAMPLES:
                cause[start:end, server] = 0
    return cause


def stretches(series: Series, causes: npt.NDArray[np.int8]) -> list[Stretch]:
    """The stretches in which enough servers were saturated, in order."""
    import numpy as np

    saturated = causes > 0
    exist = ~np.isnan(series.servers["waiting"])
    enough = saturated.sum(axis=1) >= np.maximum(LEAST_SHARE * exist.sum(axis=1), 1)
    found = []
    for start, end in _runs(_closed(enough)):
        times = np.bincount(causes[start:end][saturated[start:end]], minlength=len(CAUSES) + 1)
        found.append(
            Stretch(
                float(series.times[start - 1]) if start else 0.0,
                float(series.times[end - 1]),
                CAUSES[int(times.argmax())],
                int(saturated[start:end].sum(axis=1).max()),
            )
        )
    return found


def _closed(flags: npt.NDArray[np.bool_]) -> npt.NDArray[np.bool_]:
    """The same flags with short gaps between them filled."""
    whole = flags.copy()
    for start, end in _runs(~flags):
        if start > 0 and end < len(flags) and end - start < LEAST_SAMPLES:
            whole[start:end] = True
    return whole


def _runs(flags: npt.NDArray[np.bool_]) -> list[tuple[int, int]]:
    """Where flags are true: (first, one past the last) of every run of them."""
    import numpy as np

    edges = np.flatnonzero(np.diff(flags.astype(np.int8), prepend=0, append=0))
    return list(zip(edges[::2].tolist(), edges[1::2].tolist(), strict=True))
