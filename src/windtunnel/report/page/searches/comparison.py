"""compare.html and check.html: which design is better at what, with confidence intervals; one
offline file each."""

from __future__ import annotations

import math
from typing import Any

import msgspec

from windtunnel.analysis.comparison import (
    ALIKE,
    BETTER,
    ONE_SAMPLE,
    SAME,
    TOO_FEW,
    UNKNOWN,
    UNSEEN,
    WORSE,
)
from windtunnel.analysis.figures import COMPARED_STATS, LOWER, NOTHING, text_of
from windtunnel.report.page.document import document
from windtunnel.report.terminal.layout import seeds_text
from windtunnel.report.terminal.searches.check import (
    decision_rows,
    limit_rows,
    outcome_of,
    traffic_of,
)
from windtunnel.report.terminal.searches.comparison import (
    difference_cell,
    doubts,
    middle_cell,
    shown_metrics,
    title_of,
)

STYLES = ("report.css", "compare.css")
LOOKS = {
    BETTER: "better",
    WORSE: "worse",
    ALIKE: "unseen",
    UNSEEN: "unseen",
    TOO_FEW: "unseen",
    SAME: "unseen",
    ONE_SAMPLE: "unseen",
    UNKNOWN: "unknown",
}
MARKS = {
    BETTER: "\N{CHECK MARK}",
    WORSE: "\N{MULTIPLICATION SIGN}",
    ALIKE: "\N{ALMOST EQUAL TO}",
    UNSEEN: "\N{ALMOST EQUAL TO}",
    TOO_FEW: "?",
    SAME: "=",
    ONE_SAMPLE: "1",
    UNKNOWN: NOTHING,
}
EDGE = 6.0
"""Percent of a chart's width left empty on either side."""
LIMIT_LOOKS = {"passed": "better", "failed": "worse", "uncertain": "unseen"}
LEGENDS_OVER_BLOCKS = (
    "Figures are of one run each, on the same traffic.",
    "Each bar is the 95% confidence interval of a difference. A difference is seen where the "
    "interval excludes zero, the vertical line.",
    "Intervals come from a paired bootstrap over blocks of time; times, rates and costs as ratios.",
)
LONGEST_VALUE = 80
OTHER_TRAFFIC = ("other-traffic", "other-arrivals")
"""Codes of notes about designs that did not get the same requests."""


class DifferenceBar(msgspec.Struct, frozen=True):
    """A design compared with the first, as a picture: an interval, its middle, and a dot per
    seed."""

    design: str
    value: str
    look: str
    mark: str
    verdict: str
    middle_text: str
    ends_text: str
    low: float  # horizontal positions, in percent
    middle: float
    high: float
    dots: list[float]


class MetricCard(msgspec.Struct, frozen=True):
    """A metric: the first design's value, and a bar for each of the others."""

    name: str
    group: str
    better: str
    value: str
    same: float | None  # the position of no difference, in percent
    bars: list[DifferenceBar]


OVER_SEEDS = (
    "Figures are means over seeds, geometric ones of times, rates and costs.",
    "Each bar is the 95% confidence interval of a difference, each dot a seed. A difference is "
    "seen where the interval excludes zero, the vertical line.",
    "Differences are taken seed by seed, since both designs of a pair get the same traffic; times, "
    "rates and costs as ratios.",
)
OF_ONE_RUN = (
    "Figures are of one run each.",
    "Each dot is the difference of two single runs. Seeds change nothing in them, so how much of "
    "it is chance is unknown.",
    "",
)
"""Explanations of the figures, of the bars, and of how differences were taken."""


def comparison_page(comparison: dict[str, Any]) -> str:
    """The page of a comparison, as HTML."""
    return document("compare.html", comparison_values(comparison), styles=STYLES, filters={})


def comparison_values(comparison: dict[str, Any]) -> dict[str, Any]:
    """The values that the template shows."""
    names = [design["name"] for design in comparison["designs"]]
    cards = [_card(metric, names) for metric in shown_metrics(comparison)]
    several = len(comparison["seeds"]) > 1
    figures, bars, how = OVER_SEEDS if several else OF_ONE_RUN
    return {
        "kind": "comparison",
        "title": title_of(comparison),
        "first": names[0],
        "others": names[1:],
        "seeds": seeds_text(comparison["seeds"]),
        "several": several,
        "figures": figures,
        "bars": bars,
        "how": how,
        "other_traffic": any(note["code"] in OTHER_TRAFFIC for note in comparison["notes"]),
        "sentences": [
            _sentence(name, [card.bars[place] for card in cards], cards)
            for place, name in enumerate(names[1:])
        ],
        "groups": list(dict.fromkeys(card.group for card in cards)),
        "cards": cards,
        "notes": [note["says"] for note in comparison["notes"]],
        "doubts": doubts(comparison),
        "settings": [
            (one["path"], [_brief(value) for value in one["values"]])
            for one in comparison["settings"]
        ],
        "designs": comparison["designs"],
        "windtunnel": comparison["windtunnel"],
        "comparisons": sum(len(card.bars) for card in cards),
    }


def _sentence(name: str, bars: list[DifferenceBar], cards: list[MetricCard]) -> str:
    """A sentence about where a design is better and where it is worse."""
    parts = []
    for look, word in (("better", "better at"), ("worse", "worse at")):
        found = [card.name for card, bar in zip(cards, bars, strict=True) if bar.look == look]
        if found:
            parts.append(f"{word} {_listed(found)}")
    if not parts and any(bar.verdict == ONE_SAMPLE for bar in bars):
        return f"{name}: one sample, so differences may be chance."
    if not parts:
        return f"{name}: no difference was seen."
    return f"{name} is {', and '.join(parts)}."


def _listed(names: list[str]) -> str:
    """Metrics, with the statistics of one latency together: `TTFT (mean, p99), goodput`."""
    kinds: dict[str, list[str]] = {}
    for name in names:
        kind, _, figure = name.rpartition(" ")
        whole = figure not in COMPARED_STATS
        kinds.setdefault(name if whole else kind, []).extend([] if whole else [figure])
    return ", ".join(
        f"{kind} ({', '.join(figures)})" if figures else kind for kind, figures in kinds.items()
    )


def _card(metric: dict[str, Any], names: list[str]) -> MetricCard:
    base, *others = metric["designs"]
    places = [_places(base, other) for other in others]
    known = [place for place in places if place is not None]
    low, high = (
        min((min(place) for place in known), default=0.0),
        max((max(place) for place in known), default=0.0),
    )
    low, high = min(low, 0.0), max(high, 0.0)

    def across(place: float) -> float:
        share = (place - low) / (high - low) if high > low else 0.5
        return round(EDGE + (100.0 - 2.0 * EDGE) * share, 2)

    bars = []
    for name, other, place in zip(names[1:], others, places, strict=True):
        verdict = other["difference"]["verdict"]
        at = [across(one) for one in place] if place is not None else [0.0, 0.0, 0.0]
        bars.append(
            DifferenceBar(
                design=name,
                value=text_of(metric["unit"], other["mean"]),
                look=LOOKS[verdict],
                mark=MARKS[verdict],
                verdict=verdict,
                middle_text=middle_cell(metric["unit"], other["difference"]),
                ends_text=difference_cell(metric["unit"], other["difference"]),
                low=at[0],
                middle=at[1],
                high=at[2],
                dots=at[3:],
            )
        )
    return MetricCard(
        name=metric["name"],
        group=metric["group"],
        better="lower is better" if metric["better"] == LOWER else "higher is better",
        value=text_of(metric["unit"], base["mean"]),
        same=across(0.0) if known else None,
        bars=bars,
    )


def _places(base: dict[str, Any], other: dict[str, Any]) -> list[float] | None:
    """Low, middle, high and every seed, on a scale where 0 is no difference."""
    difference = other["difference"]
    if difference["mean"] is None:
        return None
    pairs = list(zip(other["values"], base["values"], strict=True))
    ratio = difference["ratio"]
    found = difference if ratio is None else ratio
    names = ("mean",) * 3 if found["low"] is None else ("low", "mean", "high")
    if ratio is not None:
        ends = [math.log(ratio[name]) for name in names]
        return ends + [math.log(our / their) for our, their in pairs]
    return [difference[name] for name in names] + [a - b for a, b in pairs]


def _brief(value: Any) -> str:
    """The text of a setting in a cell."""
    text = NOTHING if value is None else str(value)
    return text if len(text) <= LONGEST_VALUE else f"{text[: LONGEST_VALUE - 3]}..."


def check_page(found: dict[str, Any]) -> str:
    """The page of a check, as HTML."""
    values = comparison_values(found)
    if found["blocks"] is not None:
        values |= dict(zip(("figures", "bars", "how"), LEGENDS_OVER_BLOCKS, strict=True))
    values |= {
        "kind": "check",
        "traffic": traffic_of(found),
        "outcome": outcome_of(found),
        "limits": [(*row, LIMIT_LOOKS[row[-1]]) for row in limit_rows(found)],
        "decisions": decision_rows(found),
    }
    return document("check.html", values, styles=STYLES, filters={})
