"""The suite's report: one offline HTML file with a bar for each schedule."""

from pathlib import Path

import msgspec

from benchmarks.idle.table import brief
from benchmarks.idle.verdicts import Row, reported_effective

TITLE = "Idle suite"
TEMPLATE = Path(__file__).with_name("page.html")
LEADS = {
    False: ("Virtual time", "Exact and the same each time: what the policy alone loses."),
    True: (
        "Real time",
        "Fake models that sleep, on this machine: what scheduling costs on top. Timers are late; "
        "unscheduled sleepers served the part called bare.",
    ),
}


class Bar(msgspec.Struct, frozen=True):
    """One segment of a bar, in thousandths of the capacity."""

    kind: str
    x: float
    width: float
    y: int
    height: int


class Line(msgspec.Struct, frozen=True):
    """A case as shown on the page."""

    name: str
    bars: list[Bar]
    said: str
    served: str
    bare: str
    per_s: str
    others: str
    burst: str
    age_p50: str
    age_p95: str
    wait: str
    faults: list[str]


def page(runs: list[tuple[bool, list[Row]]]) -> str:
    """The report of one or two runs of the suite, each in virtual or real time."""
    from jinja2 import Environment, StrictUndefined

    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True)
    parts = [
        {
            "heading": LEADS[is_real][0],
            "lead": LEADS[is_real][1],
            "lines": [_line(row, is_real=is_real) for row in rows],
        }
        for is_real, rows in runs
    ]
    every = [row for _, rows in runs for row in rows]
    met = sum(1 for row in every if not row.faults)
    template = environment.from_string(TEMPLATE.read_text(encoding="utf-8"))
    return template.render(title=TITLE, parts=parts, met=met, total=len(every))


def _line(row: Row, *, is_real: bool) -> Line:
    got, theirs = row.measured, row.case.reported
    bars = _bars(got.effective, got.utilisation, got.starved, y=0, height=15)
    said = f"{row.case.name}: models served {got.effective:.1%} of the capacity"
    others = "-"
    if theirs is not None:
        served = reported_effective(row.case)
        bars += _bars(served, theirs.utilisation, theirs.starved, y=18, height=8)
        said += f"; the others reported {served:.1%}"
        others = f"{theirs.per_s if is_real else theirs.policy_per_s:.0f}"
    return Line(
        row.case.name,
        bars,
        said,
        f"{got.effective:.1%}",
        f"{got.bare:.1%}",
        f"{got.per_s:.0f}" if got.per_s >= 10 else f"{got.per_s:.2f}",
        others,
        f"{got.burstiness:.2f}",
        brief(got.queue_age_s_p50),
        brief(got.queue_age_s_p95),
        brief(got.leased_wait_s),
        row.faults,
    )


def _bars(served: float, used: float, starved: float, *, y: int, height: int) -> list[Bar]:
    bars, x = [], 0.0
    held = max(0.0, used - served)
    horizon = max(0.0, 1.0 - served - held - starved)
    for kind, part in zip(
        ("served", "held", "starved", "horizon"), (served, held, starved, horizon), strict=True
    ):
        if part > 0.0005:
            bars.append(Bar(kind, round(1000 * x, 1), round(1000 * part, 1), y, height))
        x += part
    return bars
