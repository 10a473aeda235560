"""What a run had too little of: saturated stretches, slots of servers, bandwidth of the link."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from windtunnel.twin.saturation import Stretch

if TYPE_CHECKING:
    from windtunnel.report.page.folder import Series

LINK_FULL = 0.99


def stretches_of(result: dict[str, Any]) -> list[Stretch]:
    """The stretches of time in which the run was saturated, in order."""
    return msgspec.convert(result["trust"]["saturated"]["stretches"], list[Stretch])


def slots_of(series: Series, scenario: dict[str, Any]) -> list[int]:
    """How many requests each server can run at once."""
    slots = {pool["name"]: pool["engine"]["max_num_seqs"] for pool in scenario["pools"]}
    return [slots[pool] for pool, _ in series.names]


def bandwidth_of(scenario: dict[str, Any]) -> float | None:
    """What all transfers between servers share, in bytes per second; None: nobody shares."""
    split = scenario["split"]
    return split["bytes_per_s"] if split is not None and split["contention"] else None


def link_full_s(series: Series, bandwidth: float | None) -> float:
    """For how long transfers had all of the bandwidth and wanted more."""
    if bandwidth is None:
        return 0.0
    interval, moved = series.whole["interval"], series.whole["transferred_bytes"]
    full = (moved >= LINK_FULL * bandwidth * interval) & (series.whole["transfers"] > 1)
    return float(interval[full].sum())
