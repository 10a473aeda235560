"""The parts of the page by themselves: buckets, axes, the heat map's rows."""

import base64
import math
import struct
import zlib
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from windtunnel.analysis.latencies import MOST_BARS, FirstTokens, LatencyCounts
from windtunnel.analysis.rows import RowBatch
from windtunnel.report.page.axes import LogScale, height_ticks, reach_of, round_up, time_ticks
from windtunnel.report.page.distributions import LABEL_WIDTH, LEAST_RATIO, _marks
from windtunnel.report.page.heat import MOST_COLUMNS, MOST_ROWS, _columns, _picture, _rows
from windtunnel.report.page.searches.plan import hardware_of
from windtunnel.report.page.series import draw_chart

TIMES = st.floats(min_value=1e-9, max_value=1e7)


@given(st.lists(TIMES, min_size=1, max_size=200))
def test_every_value_is_in_one_bar(values: list[float]) -> None:
    counts = LatencyCounts()
    half = len(values) // 2
    counts.add(np.array(values[:half]))
    counts.add(np.array(values[half:]))
    bars = counts.bars()
    assert len(bars) <= MOST_BARS
    assert counts.at_once + sum(bar.count for bar in bars) == counts.total == len(values)
    for bar in bars:
        inside = [v for v in values if v > 1e-6 and bar.low * 1.0001 < v < bar.high * 0.9999]
        assert len(inside) <= bar.count
    if bars:
        assert bars[-1].below == 1.0


@given(TIMES, st.floats(min_value=LEAST_RATIO, max_value=1e9))
def test_ticks_are_on_the_axis_and_apart(low: float, ratio: float) -> None:
    axis = LogScale(low, low * ratio)
    places = [tick.at for tick in axis.ticks()]
    assert all(0.0 <= place <= 100.0 for place in places)
    assert all(b - a >= 10.0 for a, b in pairwise(places))
    assert len({tick.label for tick in axis.ticks()}) == len(places)


@given(st.floats(min_value=1e-6, max_value=1e9))
def test_time_ticks_are_few_and_start_at_nothing(end_s: float) -> None:
    ticks = time_ticks(end_s)
    assert ticks[0].label == "0"
    assert 1 <= len(ticks) <= 40
    assert all(0.0 <= tick.at <= 100.001 for tick in ticks)


@given(st.floats(min_value=1e-6, max_value=1e12))
def test_an_axis_reaches_the_highest_value_and_not_far_above(value: float) -> None:
    assert value * 0.999 <= round_up(value) <= value * 2.001


@pytest.mark.parametrize(
    ("highest", "unit", "labels"),
    [
        (0.7, " s", ["0 s", "0.40 s", "0.80 s"]),
        (900.0, " s", ["0 s", "10 min", "20 min"]),
        (40_000.0, " s", ["0 s", "10 h", "20 h"]),
        (7_000.0, "", ["0", "4,000", "8,000"]),
    ],
)
def test_levels_are_said_plainly(highest: float, unit: str, labels: list[str]) -> None:
    top = reach_of(highest, unit)
    assert top >= highest
    assert [tick.label for tick in height_ticks(top, 92.0, unit)] == labels


def test_a_time_without_first_tokens_is_a_gap() -> None:
    came = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 99.0, 99.5, 99.6, 99.7]
    first = FirstTokens({"simulated_seconds": 100.0, "requests": {"completed": len(came)}})
    arrived = [at - 0.5 for at in came]
    first.add(RowBatch(pa.table({"arrived": arrived, "first_token": came})))
    times, lines = first.lines()
    assert times.tolist() == [pytest.approx(at) for at in (100 / 6, 50.0, 500 / 6)]
    assert [math.isnan(value) for value in lines["mean"]] == [False, True, False]
    chart = draw_chart(("First tokens", "", " s"), times, lines, 100.0)
    for line in chart.lines:
        assert line.values == [0.5, None, 0.5]
        assert line.path.count("M") == 2


@given(st.lists(st.integers(1, 400), min_size=1, max_size=6))
def test_rows_hold_every_server_once_and_no_two_pools(sizes: list[int]) -> None:
    names = [(f"p{pool}", n) for pool, size in enumerate(sizes) for n in range(size)]
    rows = _rows(names)
    assert len(rows) <= MOST_ROWS + len(sizes)
    starts = [row.first for row in rows]
    assert starts[0] == 0
    assert starts == sorted(set(starts))
    for row, end in zip(rows, [*starts[1:], len(names)], strict=True):
        assert len({pool for pool, _ in names[row.first : end]}) == 1


@given(st.integers(1, 960), st.sampled_from([0.25, 0.5, 64.0]), st.floats(0.01, 1.0))
def test_every_column_has_a_sample(samples: int, interval: float, rest: float) -> None:
    times = np.append(np.arange(1, samples + 1) * interval, (samples + rest) * interval)
    starts = _columns(times)
    assert 1 <= len(starts) <= MOST_COLUMNS
    assert starts[0] == 0
    assert all(a < b for a, b in pairwise(starts))
    assert starts[-1] < len(times)


def test_a_cell_is_a_pixel_as_opaque_as_its_value() -> None:
    picture = _picture(np.array([[0.0, 0.5], [1.0, 2.0]]), (1, 2, 3))
    png = base64.b64decode(picture.partition(",")[2])
    assert png[:8] == b"\x89PNG\r\n\x1a\n"
    assert struct.unpack(">II", png[16:24]) == (2, 2)
    at = png.index(b"IDAT")
    (length,) = struct.unpack(">I", png[at - 4 : at])
    lines = zlib.decompress(png[at + 4 : at + 4 + length])
    assert list(lines) == [0, 0, 142, 0, 255, 255]


def test_a_scale_of_ratios_puts_the_middle_in_the_middle() -> None:
    axis = LogScale(1.0, 100.0, start=0.2)
    assert axis.at(10.0) == pytest.approx(0.6)
    assert (axis.at(0.0), axis.at(math.inf)) == (0.2, 1.0)


@given(st.lists(st.floats(0.0, 1.0), min_size=3, max_size=3))
def test_the_line_of_a_percentile_crosses_no_label_of_another(places: list[float]) -> None:
    values = [math.exp(at) for at in sorted(places)]
    marks = _marks(LogScale(1.0, math.e), list(zip(("p50", "p90", "p99"), values, strict=True)))
    assert len({mark.y for mark in marks}) == 3
    low, middle, high = (mark.x for mark in marks)
    width = 100.0 * LABEL_WIDTH
    for one in marks:
        left, right = (one.x - width, one.x) if one.anchor == "end" else (one.x, one.x + width)
        assert left > -0.1
        assert right < 100.1
        if one.x != middle or max(middle - low, high - middle) > width:
            assert not [other for other in marks if left < other.x < right and other.y < one.y]


@pytest.mark.parametrize(
    ("label", "hardware"),
    [
        ("5 x h200 (5 servers, tp 1), round-robin", "5 x h200 (5 servers, tp 1)"),
        ("4 x h200 (2 servers, tp 2), some-model-fp8, least-loaded", "4 x h200 (2 servers, tp 2)"),
        ("2 servers, least-loaded", "2 servers"),
    ],
)
def test_the_hardware_of_an_answer_ends_where_its_brackets_close(label: str, hardware: str) -> None:
    assert hardware_of(label) == hardware
