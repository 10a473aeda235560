"""A rehearsal beside its simulation, as text."""

from collections.abc import Iterator
from pathlib import Path

from windtunnel.analysis.rehearsal import DIFFERS, RehearsalComparison, RehearsalFinding
from windtunnel.core.units import format_duration

MARKS = {"same": " ", "explained": "~", "differs": "!"}


def shown(found: RehearsalComparison, name: str, folder: Path | None) -> Iterator[str]:
    """Lines of text: what was compared, then what differs, then what was not rehearsed."""
    yield f"{name}: rehearsed on a real API server, beside its simulation"
    yield ""
    heads = ("", "", "simulated", "rehearsed", "")
    rows = [heads, *(_row(one) for one in found.findings)]
    widths = [max(len(row[column]) for row in rows) for column in range(4)]
    about = ""
    for number, row in enumerate(rows):
        subject = "" if number == 0 else found.findings[number - 1].about
        if subject != about:
            about = subject
            yield about
        cells = [row[0].ljust(widths[0]), row[1].ljust(widths[1])]
        cells += [row[2].rjust(widths[2]), row[3].rjust(widths[3]), row[4]]
        yield "  ".join(cells).rstrip()
    yield ""
    for note in found.notes:
        yield f"note: {note}"
    different = sum(one.verdict == DIFFERS for one in found.findings)
    compared = len(found.findings)
    if different:
        yield f"{different} of {compared} findings differ (!)"
    else:
        yield f"all {compared} findings are the same, or explained by what was measured (~)"
    if folder is not None:
        yield f"logs and rehearsal.json are in {folder}"


def _row(one: RehearsalFinding) -> tuple[str, str, str, str, str]:
    times = one.about == "latency" or one.about in ("gangs", "servers", "scaling")
    cells = [
        _cell(value, is_time=times and isinstance(value, float))
        for value in (one.simulated, one.rehearsed)
    ]
    return f"  {MARKS[one.verdict]}", one.what, *cells, one.why  # type: ignore[return-value]


def _cell(value: float | str | None, *, is_time: bool) -> str:
    if value is None:
        return "-"
    if is_time:
        assert isinstance(value, float)
        return format_duration(value)
    return f"{100 * value:.1f}%" if isinstance(value, float) else str(value)
