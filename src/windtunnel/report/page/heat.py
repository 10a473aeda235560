"""The heat map of servers over time, as small images; many servers share rows to stay readable.

A cell is one pixel whose opacity is its value, so that the image suits light and dark pages, and
its size in the file does not grow with the run.
"""

from __future__ import annotations

import base64
import struct
import zlib
from typing import TYPE_CHECKING, Any

import msgspec

from windtunnel.report.page.axes import label_of

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from windtunnel.analysis.run_folder import Series

    Floats = npt.NDArray[np.float64]

MOST_ROWS = 40
MOST_COLUMNS = 160
LEAST_ROW, MOST_ROW = 8.0, 30.0
FULL_HEIGHT = 400.0
LABEL_ROOM = 13.0
LONGEST_NAME = 10
FAINTEST = 28
CALM_QUEUE = 8.0
"""A shorter queue never looks hot."""

METRICS = {
    "waiting": ("Queued", "", (213, 94, 0)),
    "running": ("Running", "", (40, 130, 200)),
    "kv_used": ("KV cache", "%", (0, 150, 110)),
}


class HeatRow(msgspec.Struct, frozen=True):
    """A server, or neighbouring servers of one pool that share a row."""

    label: str
    first: int
    middle: float  # pixels down
    shown: bool  # whether there is room for the label


class HeatLayer(msgspec.Struct, frozen=True):
    """One metric of the map."""

    key: str
    title: str
    picture: str
    top: str
    colour: str
    says: str


class HeatMap(msgspec.Struct, frozen=True):
    """The map, as the template draws it."""

    rows: list[HeatRow]
    row_height: float
    height: float
    columns: int
    grouped: bool
    layers: list[HeatLayer]
    values: dict[str, Any]


def heat_map(series: Series, slots: list[int]) -> HeatMap:
    """The map of a run; each cell shows its highest value."""
    rows = _rows(series.names)
    height = rows[0].middle * 2.0
    starts = _columns(series.times)
    columns = len(starts)
    tops = {"waiting": CALM_QUEUE, "running": float(max(slots)), "kv_used": 1.0}
    layers, cells = [], {}
    for key, (title, unit, colour) in METRICS.items():
        grid = _highest(series.servers[key], rows, starts)
        top = max(tops[key], float(grid.max()))
        shown = label_of(top, unit)
        red, green, blue = colour
        picture = _picture(grid / top, colour)
        says = f"{title} by server over time, 0 to {shown}"
        layers.append(
            HeatLayer(key, title, picture, shown, f"#{red:02x}{green:02x}{blue:02x}", says)
        )
        scale = 100.0 if unit == "%" else 1.0
        cells[key] = (grid * scale).round().astype(int).ravel().tolist()
    end_s = float(series.times[-1])
    times = [float(f"{end_s * (column + 0.5) / columns:.4g}") for column in range(columns)]
    values = {"rows": [row.label for row in rows], "t": times, "cells": cells}
    grouped = len(rows) < len(series.names)
    return HeatMap(rows, height, height * len(rows), columns, grouped, layers, values)


def _rows(names: list[tuple[str, int]]) -> list[HeatRow]:
    """Groups each pool's servers into rows of equal size, to limit the number of rows."""
    share = -(-len(names) // MOST_ROWS)
    spans: list[tuple[int, int]] = []
    for number, (pool, _) in enumerate(names):
        start = spans[-1][0] if spans else 0
        if not spans or names[start][0] != pool or number - start == share:
            spans.append((number, number))
        else:
            spans[-1] = (start, number)
    height = min(max(FULL_HEIGHT / len(spans), LEAST_ROW), MOST_ROW)
    between = -(-LABEL_ROOM // height)
    return [
        HeatRow(_label(names[first], names[last]), first, height * (row + 0.5), row % between == 0)
        for row, (first, last) in enumerate(spans)
    ]


def _label(first: tuple[str, int], last: tuple[str, int]) -> str:
    pool = first[0] if len(first[0]) <= LONGEST_NAME else first[0][: LONGEST_NAME - 1] + "…"
    return f"{pool} {first[1]}" if first == last else f"{pool} {first[1]}\N{EN DASH}{last[1]}"


def _columns(times: Floats) -> list[int]:
    """The first sample of each column: equal intervals of time, each with a sample."""
    import numpy as np

    end_s, interval = float(times[-1]), float(times[0])
    columns = max(1, min(MOST_COLUMNS, int(end_s / interval)))
    edges = np.arange(columns) * (end_s / columns)
    starts: list[int] = np.searchsorted(times, edges * (1.0 + 1e-12), side="right").tolist()
    return starts


def _highest(values: Floats, rows: list[HeatRow], starts: list[int]) -> Floats:
    """Rows by columns: the highest value of a row's servers in each interval."""
    import numpy as np

    known = np.nan_to_num(values, nan=0.0)
    by_time = np.maximum.reduceat(known, starts, axis=0)
    highest: Floats = np.maximum.reduceat(by_time, [row.first for row in rows], axis=1).T
    return highest


def _picture(shares: Floats, colour: tuple[int, int, int]) -> str:
    """A PNG in which a cell's opacity is its share, as a data URL."""
    import numpy as np

    levels = np.where(shares > 0.0, FAINTEST + (255 - FAINTEST) * np.minimum(shares, 1.0), 0.0)
    height, width = levels.shape
    lines = np.zeros((height, width + 1), dtype=np.uint8)  # each line starts with filter type 0
    lines[:, 1:] = levels.round()
    header = struct.pack(">IIBBBBB", width, height, 8, 3, 0, 0, 0)
    png = b"\x89PNG\r\n\x1a\n" + b"".join(
        _chunk(kind, content)
        for kind, content in (
            (b"IHDR", header),
            (b"PLTE", bytes(colour) * 256),
            (b"tRNS", bytes(range(256))),
            (b"IDAT", zlib.compress(lines.tobytes(), 9)),
            (b"IEND", b""),
        )
    )
    return "data:image/png;base64," + base64.b64encode(png).decode("ascii")


def _chunk(kind: bytes, content: bytes) -> bytes:
    check = zlib.crc32(kind + content)
    return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", check)
