"""Everything that a report shows of a finished run, read from its folder in one pass."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from windtunnel.analysis.endings import EndingCounts
from windtunnel.analysis.explain.history import ControlHistory, read_history
from windtunnel.analysis.latencies import FirstTokens, Latencies, LatencyCounts
from windtunnel.analysis.long_prompts import LongPrompts
from windtunnel.analysis.run_folder import (
    CONTROL,
    REQUESTS,
    SCENARIO,
    TIMELINE,
    TOKEN_GAPS,
    Series,
    batches_of,
    json_of,
    parquet_of,
    result_of,
    series_of,
)
from windtunnel.analysis.saturation import slots_of
from windtunnel.analysis.slowest import LostRequests, Slowest
from windtunnel.analysis.time_shares import TimeShares


class AnalyzedRun(msgspec.Struct, frozen=True):
    """The contents of a run's files, as far as a report shows them."""

    result: dict[str, Any]
    scenario: dict[str, Any]
    series: Series
    latencies: dict[str, LatencyCounts]
    classes: dict[str, dict[str, LatencyCounts]]  # the same by class, if there are several
    shares: TimeShares
    slowest: Slowest
    lost: LostRequests
    long_prompts: LongPrompts
    endings: EndingCounts
    first_tokens: FirstTokens
    history: ControlHistory  # of the control plane; empty in folders of older versions

    @property
    def slots(self) -> list[int]:
        return slots_of(self.series, self.scenario)

    @property
    def end_s(self) -> float:
        end_s: float = self.result["simulated_seconds"]
        return end_s


def read_run(folder: Path) -> AnalyzedRun:
    """Reads a folder that `simulate` wrote; a missing or damaged file is an InputError."""
    result, scenario = result_of(folder), json_of(folder / SCENARIO)
    series = series_of(folder / TIMELINE)
    latencies, shares = Latencies(scenario, result), TimeShares(result)
    slowest, endings = Slowest(result), EndingCounts(result)
    lost = LostRequests(result)
    first_tokens, long_prompts = FirstTokens(result), LongPrompts(result)
    for batch in batches_of(folder / REQUESTS):
        latencies.add(batch)
        first_tokens.add(batch)
        shares.add(batch)
        slowest.add(batch)
        lost.add(batch)
        long_prompts.add(batch)
        endings.add(batch)
    latencies.counts["itl"] = _gaps(folder / TOKEN_GAPS)
    return AnalyzedRun(
        result,
        scenario,
        series,
        latencies.counts,
        latencies.classes,
        shares,
        slowest,
        lost,
        long_prompts,
        endings,
        first_tokens,
        read_history(folder) if (folder / CONTROL).is_file() else ControlHistory([]),
    )


def _gaps(path: Path) -> LatencyCounts:
    import numpy as np

    table = parquet_of(path, ("low", "high", "count")).read(columns=["low", "high", "count"])
    low, high = np.asarray(table["low"]), np.asarray(table["high"])
    counts = LatencyCounts()
    counts.add(np.sqrt(low * high), np.asarray(table["count"]))
    return counts
