"""Charts of the layers below requests: servers of pools, pods and gangs, machines, cost."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from windtunnel.analysis.explain.history import SHORT, STATES, ControlHistory
from windtunnel.report.page.marks import DecisionMark, of_others, of_scaling, thinned
from windtunnel.report.page.series import Chart, draw_chart

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from windtunnel.analysis.run_folder import Series

    Floats = npt.NDArray[np.float64]

Columns = dict[str, tuple[int, ...]]
"""The columns of the rows that are summed, by line name."""

AN_HOUR_S = 3600.0
SERVERS: Columns = {"wanted": (1,), "ready": (4,), "starting": (2, 3)}
"""Columns of a pool's sizes by line name; pending servers count as starting."""
SERVERS_WITHOUT_TARGET: Columns = {"ready": (3,), "starting": (1, 2), "draining": (4,)}
"""The same if no autoscaler sets a target."""
PODS: Columns = {"waiting": (1,), "gangs waiting": (5,), "ready": (3,)}
MACHINES: Columns = {"in a cluster": (3, 4, 5), "creating": (1,), "idle": (2,)}
PRICE = 8
"""The column of machine sizes with the dollars per hour of the machines that are paid for."""
SAID_OF_GANGS = ("gang.Scheduled",)
"""Events about gangs that need no mark, since all is well."""


def fleet_size(series: Series) -> str:
    """The number of servers over time, such as `4 servers` or `1 to 6 servers`."""
    fewest, most = int(series.whole["replicas"].min()), int(series.whole["replicas"].max())
    many = f"{most}" if fewest == most else f"{fewest} to {most}"
    return f"{many} server{'' if many == '1' else 's'}"


def layer_charts(
    result: dict[str, Any], history: ControlHistory, series: Series, end_s: float
) -> list[Chart]:
    """A chart for each pool, cluster and kind of machine that ever changed, and for the cost."""
    if end_s <= 0.0:
        return []
    return [
        *_pools(result, history, end_s),
        *_clusters(result, history, end_s),
        *_kinds(result, history, end_s),
        *_cost(result, series, end_s),
    ]


def _pools(result: dict[str, Any], history: ControlHistory, end_s: float) -> list[Chart]:
    scaling = result.get("scaling")  # folders of older versions have none
    drawn = []
    for pool in history.pools() if scaling is None else scaling["pools"]:
        if scaling is None:
            rows, columns = _sizes(history, pool), SERVERS_WITHOUT_TARGET
        else:
            rows, columns = scaling["pools"][pool]["sizes"], SERVERS
        if len(rows) > 1:
            marks = thinned(of_scaling(history.by_pool.get(pool, [])), end_s)
            about = (f"Servers of {pool}", ", ".join(columns), "")
            drawn.append(stairs(about, rows, columns, end_s, marks))
    return drawn


def _sizes(history: ControlHistory, pool: str) -> list[list[float]]:
    """The number of a pool's servers in each state, after every change."""
    moves = sorted(
        (time_s, life.server, STATES.index(state))
        for life in history.lives
        if life.pool == pool
        for state, time_s in life.since.items()
    )
    counts, was = [0.0] * len(STATES), dict[int, int]()
    rows: list[list[float]] = []
    for time_s, server, state in moves:
        if server in was:
            counts[was[server]] -= 1
        counts[state] += 1
        was[server] = state
        if rows and rows[-1][0] == time_s:
            rows.pop()
        rows.append([time_s, *counts[:-1]])
    return rows


def _clusters(result: dict[str, Any], history: ControlHistory, end_s: float) -> list[Chart]:
    clusters = (result.get("gangs") or {"clusters": {}})["clusters"]
    drawn = []
    for cluster, found in clusters.items():
        rows = found["sizes"]
        if len(rows) > 1:
            said = [
                one
                for one in history.happenings
                if one.kind.startswith("gang.")
                and one.kind not in SAID_OF_GANGS
                and one.data.get("cluster") == cluster
            ]
            marks = thinned(of_others(said), end_s)
            name = "Pods and gangs" if len(clusters) == 1 else f"Pods in {cluster}"
            about = (name, "on a machine or not", "")
            drawn.append(stairs(about, rows, PODS, end_s, marks))
    return drawn


def _kinds(result: dict[str, Any], history: ControlHistory, end_s: float) -> list[Chart]:
    kinds = (result.get("fleet") or {"pools": {}})["pools"]
    drawn = []
    for kind, found in kinds.items():
        rows = found["sizes"]
        if len(rows) > 1:
            said = [
                one
                for one in history.happenings
                if (one.kind.startswith("fleet.") and one.data.get("kind") == kind)
                or (one.kind == SHORT and len(kinds) == 1)
                or (one.kind == "machine.failed" and one.data.get("kind") == kind)
            ]
            marks = thinned(of_others(said), end_s)
            about = (f"Machines {kind}", "by state", "")
            drawn.append(stairs(about, rows, MACHINES, end_s, marks))
    return drawn


def _cost(result: dict[str, Any], series: Series, end_s: float) -> list[Chart]:
    """Dollars per hour: of the machines of a fleet, else of the accelerators of servers."""
    import numpy as np

    about = ("Cost", "dollars an hour", " $/h")
    fleet = result.get("fleet")
    if fleet is not None:
        rows = _summed([found["sizes"] for found in fleet["pools"].values()])
        return [stairs(about, rows, {"cost": (1,)}, end_s)] if len(rows) > 1 else []
    interval = np.maximum(series.whole["interval"], 1e-12)
    rate = series.whole["cost"] * AN_HOUR_S / interval
    if not rate.any() or len(set(np.round(rate, 6).tolist())) == 1:
        return []  # nothing is known, or nothing changes
    return [draw_chart(about, series.times, {"cost": rate}, end_s)]


def _summed(kinds: list[list[list[float]]]) -> list[list[float]]:
    """The total price of all kinds of machines, after every change."""
    changes = sorted(
        (row[0], number, row[PRICE]) for number, rows in enumerate(kinds) for row in rows
    )
    now = [0.0] * len(kinds)
    rows: list[list[float]] = []
    for time_s, number, price in changes:
        now[number] = price
        if rows and rows[-1][0] == time_s:
            rows.pop()
        rows.append([time_s, sum(now)])
    return rows


def stairs(
    about: tuple[str, str, str],
    rows: list[list[float]],
    columns: Columns,
    end_s: float,
    marks: list[DecisionMark] | None = None,
) -> Chart:
    """A step chart: each level has two points, at its start and at its end."""
    import numpy as np

    starts = [row[0] for row in rows]
    times = [at_s for pair in zip(starts, [*starts[1:], end_s], strict=True) for at_s in pair]
    lines = {
        name: np.array([sum(row[place] for place in places) for row in rows for _ in range(2)])
        for name, places in columns.items()
    }
    return draw_chart(about, np.array(times), lines, end_s, marks=marks)
