"""Terminal output of a sensitivity study: a bar per setting, and its confidence."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from rich.console import Console
from rich.text import Text

from windtunnel.analysis.figures import NOTHING, SHARE, figure, text_of
from windtunnel.report.terminal.layout import print_fitting, say, say_indented, table_of
from windtunnel.report.terminal.searches.sweep import short_names
from windtunnel.search.sensitivity import MORRIS
from windtunnel.search.sweep.folder import PAGE

BAR_COLUMNS = 24
FULL, EMPTY = "\N{FULL BLOCK}", "\N{LIGHT SHADE}"


class SettingRow(NamedTuple):
    """The row of a setting."""

    name: str
    path: str
    values: str
    share: float
    """Relative to the longest bar."""
    reach: tuple[float, float]
    """Both ends of the bar's interval, on the same scale."""
    weight: str
    confidence: str
    further: str


def rows_of(study: Mapping[str, Any]) -> list[SettingRow]:
    """All settings, the most influential first."""
    morris, unit = study["method"] == MORRIS, study["metric"]["unit"]
    weight, sure = ("mu_star", "confidence") if morris else ("total", "total_confidence")
    longest = max((one[weight] + one[sure] for one in study["settings"]), default=0.0) or 1.0
    names = short_names([one["path"] for one in study["settings"]])
    found = []
    for one, name in zip(study["settings"], names, strict=True):
        ends = (max(one[weight] - one[sure], 0.0), one[weight] + one[sure])
        if morris:
            texts = (
                *_moved(unit, one[weight], one[sure]),
                _way(one),
            )
        else:
            texts = (
                f"{max(one[weight], 0.0):.0%}",
                f"{100.0 * one[sure]:.0f}",
                f"{max(one['first'], 0.0):.0%} ±{100.0 * one['first_confidence']:.0f}",
            )
        share = max(one[weight], 0.0) / longest
        reach = (ends[0] / longest, ends[1] / longest)
        found.append(SettingRow(name, one["path"], one["values"], share, reach, *texts))
    return found


def _moved(unit: str, by: float, sure: float) -> tuple[str, str]:
    """How far a figure moves, and the half width of its interval: shares move by points."""
    if unit == SHARE:
        return f"{100.0 * by:.1f}", f"{100.0 * sure:.1f} points"
    return text_of(unit, by), text_of(unit, sure)


def _way(one: Mapping[str, Any]) -> str:
    """The direction of the effect, and whether it depends on the values of this and other
    settings."""
    mu, mu_star = one["mu"], one["mu_star"]
    if mu_star == 0.0:
        return "no effect"
    way = "up" if mu > 0.0 else "down"
    if abs(mu) < 0.5 * mu_star:
        way = "either way"
    words = [way] if one["ordered"] else []
    if one["sigma"] > mu_star:
        words.append("depends")
    return ", ".join(words) or NOTHING


WIDEST_SHARE = 0.2
"""Half width of a Sobol index's interval above which the number of samples is too low."""


def heads_of(study: Mapping[str, Any]) -> tuple[str, str]:
    """The heads of the two columns of figures."""
    return ("moves it by", "which way") if study["method"] == MORRIS else ("with others", "alone")


def legend_of(study: Mapping[str, Any]) -> str:
    """What the bars mean."""
    name = figure(study["metric"]["name"]).label
    if study["method"] == MORRIS:
        return (
            f"Bars: how far a setting moves {name} across its range, on average; 'depends' where "
            "it does so differently from place to place (Morris' mu*, mu and sigma)."
        )
    return (
        f"Bars: the share of the variance of {name} that a setting explains, with others or "
        "alone (Sobol's total and first-order indices)."
    )


def doubt_of(study: Mapping[str, Any]) -> str | None:
    """A sentence if even the most influential setting may have no effect, or if shares are
    imprecise."""
    weight, sure = ("mu_star", "confidence")
    if study["method"] != MORRIS:
        weight, sure = ("total", "total_confidence")
    first = study["settings"][0]
    if study["low"] == study["high"]:
        return "Nothing that was varied changes it."
    more, few = 4 * study["samples"], f"{study['samples']} samples are too few"
    if first[sure] >= first[weight]:
        return f"{few}: try --samples {more}."
    widest = max(one[sure] for one in study["settings"])
    if study["method"] != MORRIS and widest > WIDEST_SHARE:
        return f"{few}: shares are known to \N{PLUS-MINUS SIGN}{widest:.2f}; try --samples {more}."
    return None


def headline_of(study: Mapping[str, Any]) -> str:
    """The figure, and its range."""
    unit = study["metric"]["unit"]
    low, mean, high = (text_of(unit, study[name]) for name in ("low", "mean", "high"))
    return f"{figure(study['metric']['name']).label}: {low} to {high}, {mean} on average"


def show(study: Mapping[str, Any], folder: Path | None, console: Console) -> None:
    """Prints the bars, and where the page is."""
    count = f"{study['points']} points, {study['runs']} runs"
    console.print(Text.assemble((headline_of(study), "bold"), (f"  {count}", "dim")))
    console.print()
    weight, further = heads_of(study)
    longest = max((row.share for row in rows_of(study)), default=0.0) or 1.0
    tables = []
    for columns, whole in ((BAR_COLUMNS, True), (BAR_COLUMNS // 2, True), (0, True), (0, False)):
        heads = ["setting"] + [""] * bool(columns) + [weight, further][: 1 + whole]
        rows = []
        for row in rows_of(study):
            full = round(columns * row.share / longest)
            bar = [Text(FULL * full + EMPTY * (columns - full), "cyan")] if columns else []
            number = f"{row.weight} ±{row.confidence}"
            rows.append([row.name, *bar, number, *([row.further] if whole else [])])
        words = 2 if columns else 1
        tables.append(table_of(heads, rows, words=words, left=[-1] if whole else []))
    print_fitting(console, tables)
    console.print()
    for sentence in (legend_of(study), doubt_of(study)):
        if sentence is not None:
            say_indented(console, sentence)
    if folder is not None:
        say(console, f"open {folder / PAGE}")
