"""The chart of a latency: bars on a log scale, the share below, percentiles, targets."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from windtunnel.analysis.figures import FIGURES, LATENCIES
from windtunnel.analysis.latencies import LatencyCounts
from windtunnel.core.units import format_duration
from windtunnel.report.page.axes import LogScale, Tick, brief, path, percent
from windtunnel.report.terminal.run import latencies_of

if TYPE_CHECKING:
    from windtunnel.analysis.run import AnalyzedRun

MEANINGS = {
    one.path.removeprefix("latency."): one.meaning
    for one in FIGURES
    if one.path.startswith("latency.")
}
MARKED = ("p50", "p90", "p99")
TOP, BOTTOM = 48.0, 168.0
AT_ONCE_WIDTH = 0.1
LABEL_WIDTH = 0.3
"""The width of a percentile's label, as a share of the chart."""
MOST_TARGETS = 2
LEAST_RATIO = 1.3
"""A range with a smaller ratio of its ends is widened."""


class LatencyBar(msgspec.Struct, frozen=True):
    """A bar: percent across, pixels down, and its hover text."""

    x: float
    width: float
    y: float
    height: float
    says: str


class LatencyMark(msgspec.Struct, frozen=True):
    """A vertical line with a label."""

    x: float
    y: float
    label: str
    anchor: str


class LatencyChart(msgspec.Struct, frozen=True):
    """One latency, as the template draws it."""

    key: str
    title: str
    meaning: str
    count: int
    boxes: list[LatencyBar]
    below: str
    marks: list[LatencyMark]
    targets: list[LatencyMark]
    ticks: list[Tick]
    says: str


class LatencyView(msgspec.Struct, frozen=True):
    """The charts of all requests, or of one class."""

    name: str
    charts: list[LatencyChart]


def views(run: AnalyzedRun) -> list[LatencyView]:
    """All requests first, then each class if there are several."""
    result, scenario = run.result, run.scenario
    shown = latencies_of(result)
    found = [
        LatencyView("all requests", _charts(run.latencies, shown, list(result["slo"]), scenario))
    ]
    for name, counts in run.classes.items():
        charts = _charts(counts, result["slo"][name], [name], scenario)
        if charts:
            found.append(LatencyView(name, charts))
    return [view for view in found if view.charts]


def _charts(
    counts: dict[str, LatencyCounts],
    figures: dict[str, Any],
    classes: list[str],
    scenario: dict[str, Any],
) -> list[LatencyChart]:
    """A chart for each latency that was seen, in the usual order."""
    return [
        _distribution(key, counts[key], figures[key], _targets(key, classes, scenario))
        for key in LATENCIES
        if key in counts and key in figures and counts[key].total
    ]


def _targets(key: str, classes: list[str], scenario: dict[str, Any]) -> list[tuple[str, float]]:
    """The targets of the classes, by name."""
    found = []
    for name in classes:
        target = scenario["slos"].get(name, {}).get(f"{key}_s")
        if target is not None:
            found.append((name, float(target)))
    return found[:MOST_TARGETS]


def _distribution(
    key: str,
    counts: LatencyCounts,
    figures: dict[str, float | None],
    targets: list[tuple[str, float]],
) -> LatencyChart:
    title, noun = LATENCIES[key][0].capitalize(), "gaps" if key == "itl" else "requests"
    meaning = MEANINGS[key]
    bars = counts.bars()
    start = AT_ONCE_WIDTH if counts.at_once else 0.0
    low, high = (bars[0].low, bars[-1].high) if bars else (1e-3, 1.0)
    if high < LEAST_RATIO * low:
        middle = (low * high) ** 0.5
        low, high = middle / LEAST_RATIO, middle * LEAST_RATIO
    for _, target in targets:
        if high < target < 20.0 * high:  # near enough to show
            high = target * 1.05
    axis = LogScale(low, high, start)
    tallest = max(counts.at_once, *(bar.count for bar in bars)) if bars else counts.at_once
    total = counts.total
    boxes, below = [], []
    if counts.at_once:
        share = counts.at_once / total
        says = f"at once: {counts.at_once:,} {noun}, {share:.1%}"
        boxes.append(_box(0.0, start * 0.6, counts.at_once / tallest, says))
        below.append((start, 1.0 - share))
    for bar in bars:
        left, right = axis.at(bar.low), axis.at(bar.high)
        reach = f"{format_duration(bar.low)} to {format_duration(bar.high)}"
        says = f"{reach}: {bar.count:,} {noun}; {bar.below:.1%} are below"
        boxes.append(_box(left, right - left, bar.count / tallest, says))
        if not below:
            below.append((left, 1.0))
        below.append((right, 1.0 - bar.below))
    marks = _marks(axis, [(name, value) for name in MARKED if (value := figures[name]) is not None])
    lines = [mark.x / 100.0 for mark in marks]
    goals = [_goal(axis, name, target, lines) for name, target in targets if low <= target <= high]
    ticks = axis.ticks() if bars else []
    if counts.at_once:
        ticks = [Tick(0.0, "0", "start"), *(tick for tick in ticks if tick.at > 100.0 * start)]
    listed = ", ".join(f"{mark.label}" for mark in marks)
    says = f"{title}, distribution of {total:,} {noun}: {listed}"
    return LatencyChart(key, title, meaning, total, boxes, path(below), marks, goals, ticks, says)


def _box(x: float, width: float, share: float, says: str) -> LatencyBar:
    height = round((BOTTOM - TOP) * share, 2)
    if share > 0.0:
        height = max(height, 1.0)  # a single value stays visible
    return LatencyBar(percent(x), max(percent(width), 0.1), BOTTOM - height, height, says)


def _marks(axis: LogScale, figures: list[tuple[str, float]]) -> list[LatencyMark]:
    """Ascending percentiles, each with its label in a row of its own that no line crosses: a line
    begins at its label."""
    at = [axis.at(value) if value > 0.0 else 0.0 for _, value in figures]
    count = len(figures)
    if not count:
        return []
    if at[-1] + LABEL_WIDTH <= 1.0:
        rows, anchors = list(range(count)), ["start"] * count
    elif at[0] >= LABEL_WIDTH:
        rows, anchors = list(range(count))[::-1], ["end"] * count
    else:  # the outer ones face each other, and those between take the wider gap
        wider = ["start" if at[-1] - one > one - at[0] else "end" for one in at[1:-1]]
        rows, anchors = [0, *range(2, count), 1][:count], ["start", *wider, "end"][:count]
    return [
        LatencyMark(percent(x), 12.0 + 14.0 * row, f"{name} {brief(value)}", anchor)
        for (name, value), x, row, anchor in zip(figures, at, rows, anchors, strict=True)
    ]


def _goal(axis: LogScale, name: str, target: float, lines: list[float]) -> LatencyMark:
    """A target, with its label on the side where fewer lines cross it."""
    at = axis.at(target)
    width = 1.4 * LABEL_WIDTH
    left = sum(at - width < line < at for line in lines), at < width
    right = sum(at < line < at + width for line in lines), at + width > 1.0
    anchor = "end" if (left[1], left[0]) <= (right[1], right[0]) else "start"
    return LatencyMark(percent(at), TOP + 12.0, f"{name} target {brief(target)}", anchor)
