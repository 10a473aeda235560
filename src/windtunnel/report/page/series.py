"""The charts of a run over time: rates, lines and levels, stacked on one time axis."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import msgspec

from windtunnel.analysis.saturation import Stretch
from windtunnel.core.units import format_duration
from windtunnel.report.page.axes import (
    Tick,
    area,
    height_ticks,
    label_of,
    path,
    percent,
    reach_of,
)
from windtunnel.report.page.marks import DecisionMark

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from windtunnel.analysis.run_folder import Series

    Floats = npt.NDArray[np.float64]

HEIGHT = 92.0
MOST_RATES = 120
"""Limit on the intervals over which rates are averaged; more would show noise instead of load."""
LOOKS = "abc"
LOST = {"timed out": "timed_out", "rejected": "rejected", "dropped": "dropped"}
"""Outcomes without an answer, by line name."""


class ChartLine(msgspec.Struct, frozen=True):
    """One line of a chart; never distinguished by colour alone."""

    name: str
    look: str
    path: str
    area: str
    values: list[float | None]


class Chart(msgspec.Struct, frozen=True):
    """One chart, as the template draws it; `limit` is a level with a name."""

    title: str
    note: str
    unit: str
    times: list[float]
    lines: list[ChartLine]
    ticks: list[Tick]
    limit: Tick | None
    says: str
    marks: list[DecisionMark] = []


class SaturatedBand(msgspec.Struct, frozen=True):
    """A saturated interval, marked in charts."""

    x: float
    width: float
    says: str


def bands(found: list[Stretch], end_s: float) -> list[SaturatedBand]:
    """The saturated intervals, as drawn behind every chart."""
    return [
        SaturatedBand(
            percent(stretch.start_s / end_s),
            percent((stretch.end_s - stretch.start_s) / end_s),
            f"saturated from {format_duration(stretch.start_s)} to "
            f"{format_duration(stretch.end_s)}: {stretch.cause}",
        )
        for stretch in found
    ]


class Drawing:
    """Creates the charts of one run, which share its time axis."""

    def __init__(self, series: Series) -> None:
        self.series = series
        self.end_s = float(series.times[-1])
        self._middles, self._spans = _grouped(series.times, series.whole["interval"])

    def levels(
        self,
        title: str,
        note: str,
        values: dict[str, Floats],
        *,
        unit: str = "",
        top: float | None = None,
        limit: tuple[str, float] | None = None,
    ) -> Chart:
        """A chart of quantities at each sample."""
        about = (title, note, unit)
        return draw_chart(about, self.series.times, values, self.end_s, top=top, limit=limit)

    def rates(
        self,
        title: str,
        note: str,
        lines: dict[str, str],
        *,
        unit: str = "/s",
        limit: tuple[str, float] | None = None,
    ) -> Chart:
        """A chart of quantities counted between samples, per second, by line name."""
        values = {
            name: _sums(self.series.whole[column]) / self._spans for name, column in lines.items()
        }
        return draw_chart((title, note, unit), self._middles, values, self.end_s, limit=limit)


def charts(
    series: Series,
    slots: list[int],
    bandwidth: float | None,
    first_tokens: tuple[Floats, dict[str, Floats]],
) -> list[Chart]:
    """The charts of a run, from arrivals to servers; empty ones are omitted."""
    import numpy as np

    whole = series.whole
    draw = Drawing(series)
    if draw.end_s <= 0.0:
        return []
    kv = {"mean": whole["kv_used"]}
    if len(series.names) > 1:
        by_server = np.nan_to_num(series.servers["kv_used"])
        kv = {"highest server": by_server.max(axis=1)} | kv
    changing = any(len(set(whole[name].tolist())) > 1 for name in ("replicas", "replicas_ready"))
    lost = {name: column for name, column in LOST.items() if whole[column].any()}
    drawn = [draw.rates("Requests", "per second", {"arrived": "arrived", "completed": "completed"})]
    if lost:
        drawn.append(draw.rates("Not completed", f"{', '.join(lost)}, per second", lost))
    if whole["at_gateway"].any():
        waiting = {"at the gateway": whole["at_gateway"]}
        drawn.append(draw.levels("At the gateway", "queued requests", waiting))
    lines, where = {"queued": whole["waiting"]}, "at servers"
    if whole["awaiting_server"].any():
        lines = {
            "until a server is ready": whole["awaiting_server"],
            "at servers": whole["waiting"],
        }
        where = "queued until a server is ready, and at servers"
    drawn += [
        draw.levels("Queued", where, lines),
        draw.levels(
            "Running",
            "requests in the batches",
            {"running": whole["running"]},
            limit=None if changing else ("slots", float(sum(slots))),
        ),
    ]
    if len(first_tokens[0]):
        about = ("First tokens", "time since arrival, as they came", " s")
        drawn.append(draw_chart(about, *first_tokens, draw.end_s))
    if whole["transfers"].any():
        on_the_way = {"transfers": whole["transfers"]}
        drawn += [
            draw.levels("KV transfers", "on their way between servers", on_the_way),
            draw.rates(
                "Link",
                "moved between servers",
                {"moved": "transferred_bytes"},
                unit="B/s",
                limit=("bandwidth", bandwidth) if bandwidth is not None else None,
            ),
        ]
    drawn += [
        draw.levels("KV cache", "share of blocks in use", kv, unit="%", top=1.0),
        draw.levels("Busy", "share of time in a step", {"busy": whole["busy"]}, unit="%", top=1.0),
        draw.rates(
            "Output tokens", "of ended requests, per second", {"output tokens": "output_tokens"}
        ),
    ]
    if changing and len({pool for pool, _ in series.names}) > 1:  # each pool has its own chart
        servers = {
            "wanted": whole["replicas_wanted"],
            "ready": whole["replicas_ready"],
            "paid for": whole["replicas"],
        }
        drawn.append(draw.levels("Servers", "wanted, ready, and paid for", servers))
    return drawn


def _every(samples: int) -> int:
    return -(-samples // MOST_RATES)


def _sums(values: Floats) -> Floats:
    import numpy as np

    return np.add.reduceat(values, np.arange(0, len(values), _every(len(values))))


def _grouped(times: Floats, interval: Floats) -> tuple[Floats, Floats]:
    """The middle and the length of each interval over which rates are averaged."""
    import numpy as np

    span = np.maximum(_sums(interval), 1e-12)
    ends = np.minimum(np.cumsum(span), times[-1])
    return ends - span / 2.0, span


def draw_chart(
    about: tuple[str, str, str],
    times: Floats,
    values: dict[str, Floats],
    end_s: float,
    *,
    top: float | None = None,
    limit: tuple[str, float] | None = None,
    marks: list[DecisionMark] | None = None,
) -> Chart:
    """Draws lines through values at times, on a fitting scale; `about` is title, note and unit.

    A NaN is a gap.
    """
    import numpy as np

    title, note, unit = about
    peaks = {name: float(np.nanmax(line)) for name, line in values.items()}
    highest = max(peaks.values())
    reach = top if top is not None else reach_of(highest, unit)
    lines = []
    for number, (name, line) in enumerate(values.items()):
        points = [
            (time / end_s, 1.0 - value / reach)
            for time, value in zip(
                [0.0, *times.tolist(), end_s], [line[0], *line.tolist(), line[-1]], strict=True
            )
        ]
        fill = area(points) if number == 0 else ""
        rounded = [None if math.isnan(value) else float(f"{value:.4g}") for value in line.tolist()]
        lines.append(ChartLine(name, LOOKS[number], path(points), fill, rounded))
    level = None
    if limit is not None and limit[1] <= 1.0 * reach:
        at = round(HEIGHT * (1.0 - limit[1] / reach), 1)
        level = Tick(at, f"{label_of(limit[1], unit)} {limit[0]}")
    peak = ", ".join(f"{name} at most {label_of(most, unit)}" for name, most in peaks.items())
    return Chart(
        title,
        note,
        unit,
        [float(f"{time:.6g}") for time in times.tolist()],
        lines,
        height_ticks(reach, HEIGHT, unit),
        level,
        f"{title}, {note}, over {format_duration(end_s)}: {peak}",
        marks or [],
    )


def hover_data(drawn: list[Chart]) -> list[dict[str, Any]]:
    """The values that the page's script shows under the pointer."""
    return [
        {
            "unit": chart.unit,
            "t": chart.times,
            "lines": [[line.name, line.values] for line in chart.lines],
            "marks": [[mark.x, mark.says] for mark in chart.marks],
        }
        for chart in drawn
    ]
