"""The box that says how far a run can be believed."""

from __future__ import annotations

from typing import Any

import msgspec

from windtunnel.analysis.trust import CAUTION, DOUBT, GOOD
from windtunnel.report.terminal.trust import INTERVALS, interval_cell, intervals_are

HEADLINES = {
    GOOD: "Nothing speaks against these figures",
    CAUTION: "Take these figures with caution",
    DOUBT: "Doubt these figures",
}
MARKS = {GOOD: "\N{CHECK MARK}", CAUTION: "!", DOUBT: "\N{MULTIPLICATION SIGN}"}


class TrustBox(msgspec.Struct, frozen=True):
    """What the box shows: a headline, and findings as (severity, mark, sentence)."""

    verdict: str
    headline: str
    findings: list[tuple[str, str, str]]
    figures: tuple[str, ...]
    whose: str  # what the intervals are of
    repeated: bool
    intervals: list[tuple[str, list[str]]]  # a row for each latency; none of one run alone


def trust_box(result: dict[str, Any]) -> TrustBox:
    trust = result["trust"]
    findings = [(one["severity"], MARKS[one["severity"]], one["says"]) for one in trust["findings"]]
    figures = ("mean", "p50", "p95", "p99")
    rows = [
        (name, [interval_cell(trust["latency_intervals"][kind][figure]) for figure in figures])
        for kind, name in INTERVALS.items()
        if trust["latency_intervals"] is not None
    ]
    return TrustBox(
        verdict=trust["verdict"],
        headline=HEADLINES[trust["verdict"]],
        findings=findings,
        figures=figures,
        whose=intervals_are(trust),
        repeated=trust["repeats"] is not None,
        intervals=rows,
    )
