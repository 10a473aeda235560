"""The layers under the requests in the report, and the decisions and faults that mark them."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from windtunnel.analysis.explain.history import ControlHistory, FaultHistory, LoggedEvent
from windtunnel.report.page.layers import layer_charts, stairs
from windtunnel.report.page.marks import PLACES, thinned, troubles


def result(**sizes: list[list[float]]) -> dict[str, Any]:
    pools = {pool: {"sizes": rows} for pool, rows in sizes.items()}
    return {"scaling": {"pools": pools}, "fleet": {"pools": {}}}


def decided(time: float, current: int, target: int) -> LoggedEvent:
    data = {"id": "scaling-1", "current": current, "target": target}
    return LoggedEvent(time, "scaling.decided", "pool/main", "Full.", data)


def charts(found: dict[str, Any], *happenings: LoggedEvent, end_s: float = 120.0) -> Any:
    series: Any = None  # of runs with a fleet nobody asks it
    return layer_charts(found, ControlHistory(list(happenings)), series, end_s)


def test_sizes_are_stairs_and_decisions_are_marks() -> None:
    # When, wanted, pending, starting, ready, draining.
    rows: list[list[float]] = [[0, 1, 0, 0, 1, 0], [30, 3, 1, 1, 1, 0], [60, 3, 0, 0, 3, 0]]
    (chart,) = charts(result(main=rows), decided(30.0, 1, 3), decided(45.0, 3, 3))
    assert chart.title == "Servers of main"
    assert chart.times == [0, 30, 30, 60, 60, 120]
    lines = {line.name: line.values for line in chart.lines}
    assert lines["wanted"] == [1, 1, 3, 3, 3, 3]
    assert lines["ready"] == [1, 1, 1, 1, 3, 3]
    assert lines["starting"] == [0, 0, 2, 2, 0, 0]
    assert [(mark.x, mark.says) for mark in chart.marks] == [
        (25.0, "30 s: scaling-1: 1 to 3. Full.")
    ]


def test_what_never_changed_is_left_out() -> None:
    assert charts(result(main=[[0, 1, 0, 0, 1, 0]])) == []
    assert charts({"scaling": None, "fleet": {"pools": {}}}) == []


def test_servers_that_nobody_scales_are_drawn_when_one_is_lost() -> None:
    def replica(time: float, state: str, server: int) -> LoggedEvent:
        data = {"pool": "main", "replica": server}
        return LoggedEvent(time, f"replica.{state}", f"server/{server}", "", data)

    happenings = (
        replica(0.0, "ready", 0),
        replica(0.0, "ready", 1),
        replica(40.0, "gone", 0),
        replica(40.0, "pending", 2),
        replica(50.0, "starting", 2),
        replica(80.0, "ready", 2),
    )
    (chart,) = charts({"scaling": None, "fleet": {"pools": {}}}, *happenings)
    lines = {line.name: line.values for line in chart.lines}
    assert lines["ready"] == [2, 2, 1, 1, 1, 1, 2, 2]
    assert lines["starting"] == [0, 0, 1, 1, 1, 1, 0, 0]


def test_machines_cost_together() -> None:
    #        when, creating, idle, configuring, configured, draining, deleting, failed, price
    big = [[0.0, 0, 0, 0, 1, 0, 0, 0, 36.0], [60.0, 0, 0, 0, 2, 0, 0, 0, 72.0]]
    small = [[0.0, 0, 1, 0, 0, 0, 0, 0, 4.0], [60.0, 0, 0, 0, 0, 0, 0, 0, 0.0]]
    fleet = {"pools": {"big": {"sizes": big}, "small": {"sizes": small}}}
    order = LoggedEvent(
        5.0, "fleet.provision", "machine/big-1", "cheap", {"id": "fleet-1", "kind": "big"}
    )
    *kinds, cost = charts({"scaling": None, "fleet": fleet}, order)
    assert [chart.title for chart in kinds] == ["Machines big", "Machines small"]
    assert [len(chart.marks) for chart in kinds] == [1, 0]
    assert kinds[0].marks[0].says == "5 s: fleet-1: provision big-1. cheap"
    assert cost.lines[0].values == [40.0, 40.0, 72.0, 72.0]


@given(st.lists(st.floats(0.0, 100.0), max_size=60))
def test_marks_never_crowd(times: list[float]) -> None:
    marks = thinned([(time_s, "so") for time_s in times], 100.0)
    assert len(marks) <= min(len(times), PLACES + 1)
    assert [mark.x for mark in marks] == sorted(mark.x for mark in marks)
    assert bool(marks) == bool(times)


def test_faults_are_spans() -> None:
    faults = [
        FaultHistory("fault-1", "0", "engine-crash", 30.0, 30.0, ["main-0"], "at 30 s"),
        FaultHistory("fault-2", "1", "slow-machine", 60.0, None, [], "by chance"),
    ]
    first, second = troubles(faults, 120.0)
    assert (first.x, first.width, first.says) == (
        25.0,
        0.0,
        "fault-1 at 30 s: engine-crash of main-0",
    )
    assert (second.x, second.width) == (50.0, 50.0)
    assert second.says == "fault-2 at 1 min until 2 min: slow-machine of nothing"


def test_stairs_end_with_the_run() -> None:
    chart = stairs(("a", "b", ""), [[0.0, 1.0], [10.0, 2.0]], {"x": (1,)}, 40.0)
    assert chart.times == [0.0, 10.0, 10.0, 40.0]
