"""The sizes of pools over time, as an autoscaler made them, with its decisions as marks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from windtunnel.core.units import format_duration
from windtunnel.report.page.axes import percent
from windtunnel.report.page.series import Chart, Mark, draw_chart

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from windtunnel.report.decisions import Decided
    from windtunnel.report.page.folder import Series

    Floats = npt.NDArray[np.float64]

MOST_MARKS = 400
LINES = {"wanted": (1,), "ready": (4,), "starting": (2, 3)}
"""Columns of a pool's sizes by the name of the line; who is not placed yet starts, too."""


def fleet_size(series: Series) -> str:
    """How many servers there were, such as `4 servers` or `1 to 6 servers`."""
    fewest, most = int(series.whole["replicas"].min()), int(series.whole["replicas"].max())
    many = f"{most}" if fewest == most else f"{fewest} to {most}"
    return f"{many} server{'' if many == '1' else 's'}"


def scaling_charts(result: dict[str, Any], decisions: list[Decided], end_s: float) -> list[Chart]:
    """A chart for each pool whose size ever changed."""
    scaling = result.get("scaling")  # folders of older versions have none
    if scaling is None or end_s <= 0.0:
        return []
    drawn = []
    for pool, told in scaling["pools"].items():
        sizes = told["sizes"]
        if len(sizes) > 1:
            marks = _marks([one for one in decisions if one.pool == pool], end_s)
            drawn.append(_chart(pool, sizes, marks, end_s))
    return drawn


def _chart(pool: str, sizes: list[list[float]], marks: list[Mark], end_s: float) -> Chart:
    import numpy as np

    starts = [row[0] for row in sizes]
    # A level stays until the next: each has two points, at its start and at its end.
    times = [at_s for pair in zip(starts, [*starts[1:], end_s], strict=True) for at_s in pair]
    lines = {
        name: [sum(row[column] for column in columns) for row in sizes for _ in range(2)]
        for name, columns in LINES.items()
    }
    about = (f"Servers of {pool}", "wanted, ready and starting; marks are decisions", "")
    values = {name: np.array(line) for name, line in lines.items()}
    return draw_chart(about, np.array(times), values, end_s, marks=marks)


def _marks(decisions: list[Decided], end_s: float) -> list[Mark]:
    """Decisions that changed something; of very many, the largest changes."""
    changing = [one for one in decisions if one.changes]
    if len(changing) > MOST_MARKS:
        changing.sort(key=lambda one: (-abs(one.data.target - one.data.current), one.time))
        changing = sorted(changing[:MOST_MARKS], key=lambda one: one.time)
    return [
        Mark(
            percent(one.time / end_s),
            f"{one.data.current} to {one.data.target} at {format_duration(one.time)}: {one.reason}",
        )
        for one in changing
    ]
