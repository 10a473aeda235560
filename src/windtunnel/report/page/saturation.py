"""The saturated stretches that a result lists, and how many requests each server can run."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from windtunnel.twin.saturation import Stretch

if TYPE_CHECKING:
    from windtunnel.report.page.folder import Series


def stretches_of(result: dict[str, Any]) -> list[Stretch]:
    """The stretches of time in which the run was saturated, in order."""
    return msgspec.convert(result["trust"]["saturated"]["stretches"], list[Stretch])


def slots_of(series: Series, scenario: dict[str, Any]) -> list[int]:
    """How many requests each server can run at once."""
    slots = {pool["name"]: pool["engine"]["max_num_seqs"] for pool in scenario["pools"]}
    return [slots[pool] for pool, _ in series.names]
