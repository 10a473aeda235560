"""check.md: a check as Markdown, for a pull-request comment."""

import re
from collections.abc import Sequence
from typing import Any

from windtunnel.analysis.comparison import BETTER, WORSE
from windtunnel.analysis.figures import text_of
from windtunnel.report.terminal.searches.check import (
    decision_rows,
    limit_rows,
    outcome_of,
    sign_of,
    traffic_of,
)
from windtunnel.report.terminal.searches.comparison import (
    difference_cell,
    doubts,
    has_intervals,
    shown_metrics,
    title_of,
)

MARKER = "<!-- windtunnel check -->"
"""Marks the comment, so that a workflow can find and replace an earlier one."""
LONGEST_CELL = 200
MARKS = {
    "passed": "\N{WHITE HEAVY CHECK MARK} passed",
    "failed": "\N{CROSS MARK} failed",
    "uncertain": "\N{WARNING SIGN} uncertain",
    BETTER: "**better**",
    WORSE: "**worse**",
}
_SPECIAL = re.compile(r"([\\`*_{}\[\]<>#|~@&!])")


def check_markdown(found: dict[str, Any]) -> str:
    """The comment. Names in it are untrusted: they are escaped, and cannot mention accounts."""
    sign = MARKS[sign_of(found)].partition(" ")[0]
    lines = [
        MARKER,
        f"### {sign} Windtunnel: {_text(title_of(found))}",
        "",
        f"{_text(outcome_of(found))}. {_text(traffic_of(found))}.",
        "",
        *_table(("figure", "limit", "found", "verdict"), limit_rows(found), marked=3),
        "",
        *_table(("decisions", "made", "differ", "first"), decision_rows(found)),
        "",
        "<details><summary>Figures</summary>",
        "",
        *_figures(found),
        "",
        "</details>",
    ]
    said = [f"note: {note['says']}" for note in found["notes"]]
    said += [f"{severity} ({whose}): {says}" for severity, says, whose in doubts(found)]
    if found["settings"]:
        lines += ["", "<details><summary>Settings that differ</summary>", ""]
        rows = [(one["path"], *map(str, one["values"])) for one in found["settings"]]
        names = [design["name"] for design in found["designs"]]
        lines += [*_table(("setting", *names), rows), "", "</details>"]
    if said:
        lines += ["", *(f"- {_text(sentence)}" for sentence in said)]
    return "\n".join(lines) + "\n"


def _figures(found: dict[str, Any]) -> list[str]:
    base, changed = (design["name"] for design in found["designs"])
    interval = "difference, 95%" if has_intervals(found) else "difference"
    rows = []
    for metric in shown_metrics(found):
        first, second = metric["designs"]
        cells = [text_of(metric["unit"], one["mean"]) for one in (first, second)]
        difference = second["difference"]
        between = difference_cell(metric["unit"], difference)
        rows.append((metric["name"], *cells, between, difference["verdict"]))
    return _table(("figure", base, changed, interval, ""), rows, marked=4)


def _table(
    heads: Sequence[str], rows: Sequence[Sequence[str]], marked: int | None = None
) -> list[str]:
    lines = [_row([_text(head) for head in heads]), _row(["---"] * len(heads))]
    for row in rows:
        cells = [
            MARKS.get(cell, cell) if place == marked else _text(cell)
            for place, cell in enumerate(row)
        ]
        lines.append(_row(cells))
    return lines


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _text(text: str) -> str:
    """Text on one line, truncated, without markup or mentions."""
    line = " ".join(text.split())
    short = line if len(line) <= LONGEST_CELL else f"{line[: LONGEST_CELL - 3]}..."
    return _SPECIAL.sub(r"\\\1", short).replace("\\@", "@\N{ZERO WIDTH SPACE}")
