"""The pictures of a run over time: rates, lines and levels under one another on one time axis."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from windtunnel.core.units import format_duration
from windtunnel.report.page.axes import (
    Tick,
    area,
    height_ticks,
    label_of,
    path,
    percent,
    round_up,
)
from windtunnel.twin.saturation import Stretch

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from windtunnel.report.page.folder import Series

    Floats = npt.NDArray[np.float64]

HEIGHT = 92.0
MOST_RATES = 120
"""Rates are means over stretches of time; more of them would show chance instead of load."""


class Line(msgspec.Struct, frozen=True):
    """One quantity of a chart: its look is `a` or `b`, never told by colour alone."""

    name: str
    look: str
    path: str
    area: str
    values: list[float]


class Chart(msgspec.Struct, frozen=True):
    """All that the template draws of one chart; `limit` is a level with a name."""

    title: str
    note: str
    unit: str
    times: list[float]
    lines: list[Line]
    ticks: list[Tick]
    limit: Tick | None
    says: str


class Band(msgspec.Struct, frozen=True):
    """A stretch of time that is marked."""

    x: float
    width: float
    says: str


def bands(found: list[Stretch], end_s: float) -> list[Band]:
    """The saturated stretches, as they are drawn behind every chart."""
    return [
        Band(
            percent(stretch.start_s / end_s),
            percent((stretch.end_s - stretch.start_s) / end_s),
            f"saturated from {format_duration(stretch.start_s)} to "
            f"{format_duration(stretch.end_s)}: {stretch.cause}",
        )
        for stretch in found
    ]


def charts(series: Series, slots: list[int]) -> list[Chart]:
    """The charts of a run, from what came to what it cost the servers."""
    import numpy as np

    end_s = float(series.times[-1])
    if end_s <= 0.0:
        return []
    whole, one = series.whole, len(series.names) == 1
    times, interval = _grouped(series.times, series.whole["interval"])
    rates = {
        name: _sums(whole[name]) / interval for name in ("arrived", "completed", "output_tokens")
    }
    kv = series.servers["kv_used"]
    levels = (
        {"mean": whole["kv_used"]}
        if one
        else {"highest server": np.nanmax(kv, axis=1), "mean": whole["kv_used"]}
    )
    busy = {"busy": whole["busy"]}
    drawn = [
        _chart(
            "Requests",
            "per second",
            "/s",
            times,
            {"arrived": rates["arrived"], "completed": rates["completed"]},
            end_s,
        ),
        _chart(
            "Waiting", "requests in line", "", series.times, {"waiting": whole["waiting"]}, end_s
        ),
        _chart(
            "Running",
            "requests in batches",
            "",
            series.times,
            {"running": whole["running"]},
            end_s,
            limit=("slots", float(sum(slots))),
        ),
        _chart("KV cache", "share of blocks in use", "%", series.times, levels, end_s, top=1.0),
        _chart("Busy", "share of time in a step", "%", series.times, busy, end_s, top=1.0),
        _chart(
            "Output tokens",
            "of ended requests, per second",
            "/s",
            times,
            {"output tokens": rates["output_tokens"]},
            end_s,
        ),
    ]
    if len(set(whole["replicas"].tolist())) > 1:
        replicas = {"servers": whole["replicas"]}
        drawn.append(_chart("Servers", "ready to serve", "", series.times, replicas, end_s))
    return drawn


def _every(samples: int) -> int:
    return -(-samples // MOST_RATES)


def _sums(values: Floats) -> Floats:
    import numpy as np

    return np.add.reduceat(values, np.arange(0, len(values), _every(len(values))))


def _grouped(times: Floats, interval: Floats) -> tuple[Floats, Floats]:
    """The middle and the length of each stretch over which rates are taken."""
    import numpy as np

    span = np.maximum(_sums(interval), 1e-12)
    ends = np.minimum(np.cumsum(span), times[-1])
    return ends - span / 2.0, span


def _chart(
    title: str,
    note: str,
    unit: str,
    times: Floats,
    values: dict[str, Floats],
    end_s: float,
    *,
    top: float | None = None,
    limit: tuple[str, float] | None = None,
) -> Chart:
    highest = max(float(line.max()) for line in values.values())
    reach = top if top is not None else round_up(highest)
    lines = []
    for number, (name, line) in enumerate(values.items()):
        points = [
            (time / end_s, 1.0 - value / reach)
            for time, value in zip(
                [0.0, *times.tolist(), end_s], [line[0], *line.tolist(), line[-1]], strict=True
            )
        ]
        fill = area(points) if number == 0 else ""
        rounded = [float(f"{value:.4g}") for value in line.tolist()]
        lines.append(Line(name, "ab"[number], path(points), fill, rounded))
    level = None
    if limit is not None and limit[1] <= 1.0 * reach:
        at = round(HEIGHT * (1.0 - limit[1] / reach), 1)
        level = Tick(at, f"{label_of(limit[1], unit)} {limit[0]}")
    peak = ", ".join(
        f"{name} at most {label_of(float(v.max()), unit)}" for name, v in values.items()
    )
    return Chart(
        title,
        note,
        unit,
        [float(f"{time:.6g}") for time in times.tolist()],
        lines,
        height_ticks(reach, HEIGHT, unit),
        level,
        f"{title}, {note}, over {format_duration(end_s)}: {peak}",
    )


def hover_data(drawn: list[Chart]) -> list[dict[str, Any]]:
    """What the page's script reads to say the values under the pointer."""
    return [
        {
            "unit": chart.unit,
            "t": chart.times,
            "lines": [[line.name, line.values] for line in chart.lines],
        }
        for chart in drawn
    ]
