"""The suite's figures as a table on a terminal."""

from rich.console import Console
from rich.table import Table

from benchmarks.idle.verdicts import Row, reported_effective

HEADS = (
    "case",
    "gen/s",
    "others",
    "effective",
    "others",
    "bare",
    "used",
    "starved",
    "horizon",
    "burst",
    "queue age p50 / p95",
    "leased wait",
    "CPU each",
    "",
)


def show(rows: list[Row], *, is_real: bool) -> None:
    table = Table(title="real time" if is_real else "virtual time", pad_edge=False)
    for number, head in enumerate(HEADS):
        table.add_column(head, justify="left" if number in (0, len(HEADS) - 1) else "right")
    for row in rows:
        table.add_row(*_cells(row, is_real=is_real))
    console = Console()
    console.print(table)
    for row in rows:
        for fault in row.faults:
            console.print(f"{row.case.name}: {fault}", markup=False, highlight=False)


def _cells(row: Row, *, is_real: bool) -> list[str]:
    got, theirs = row.measured, row.case.reported
    others = others_effective = "-"
    if theirs is not None:
        others = f"{theirs.per_s if is_real else theirs.policy_per_s:.0f}"
        others_effective = f"{reported_effective(row.case):.1%}"
    return [
        row.case.name,
        f"{got.per_s:.0f}" if got.per_s >= 10 else f"{got.per_s:.2f}",
        others,
        f"{got.effective:.1%}",
        others_effective,
        f"{got.bare:.1%}",
        f"{got.utilisation:.1%}",
        f"{got.starved:.1%}",
        f"{got.horizon:.1%}",
        f"{got.burstiness:.2f}",
        f"{brief(got.queue_age_s_p50)} / {brief(got.queue_age_s_p95)}",
        brief(got.leased_wait_s),
        brief(got.cpu_s / got.generations) if is_real else "-",
        "MISSED" if row.faults else "met",
    ]


def brief(seconds: float) -> str:
    """Seconds, milliseconds or microseconds, with three digits."""
    if seconds < 5e-8:
        return "0"
    if seconds >= 1:
        return f"{seconds:.3g} s"
    return f"{seconds * 1e3:.3g} ms" if seconds >= 1e-3 else f"{seconds * 1e6:.0f} us"
