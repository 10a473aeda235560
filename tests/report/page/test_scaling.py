"""The sizes of pools in the report, and the decisions that made them."""

from typing import Any

from windtunnel.report.decisions import Decided, Told
from windtunnel.report.page.scaling import scaling_charts


def result(**sizes: list[list[float]]) -> dict[str, Any]:
    return {"scaling": {"pools": {pool: {"sizes": rows} for pool, rows in sizes.items()}}}


def decided(time: float, current: int, target: int) -> Decided:
    told = Told(current, target, target, {}, [])
    return Decided(time, "scaling.decided", "pool/main", "Full.", told)


def test_sizes_are_stairs_and_decisions_are_marks() -> None:
    # When, wanted, pending, starting, ready, draining.
    rows: list[list[float]] = [[0, 1, 0, 0, 1, 0], [30, 3, 1, 1, 1, 0], [60, 3, 0, 0, 3, 0]]
    (chart,) = scaling_charts(result(main=rows), [decided(30.0, 1, 3), decided(45.0, 3, 3)], 120.0)
    assert chart.title == "Servers of main"
    assert chart.times == [0, 30, 30, 60, 60, 120]
    lines = {line.name: line.values for line in chart.lines}
    assert lines["wanted"] == [1, 1, 3, 3, 3, 3]
    assert lines["ready"] == [1, 1, 1, 1, 3, 3]
    assert lines["starting"] == [0, 0, 2, 2, 0, 0]
    assert [(mark.x, mark.says) for mark in chart.marks] == [(25.0, "1 to 3 at 30 s: Full.")]


def test_pools_that_never_changed_are_left_out() -> None:
    assert scaling_charts(result(main=[[0, 1, 0, 0, 1, 0]]), [], 60.0) == []
    assert scaling_charts({"scaling": None}, [], 60.0) == []
