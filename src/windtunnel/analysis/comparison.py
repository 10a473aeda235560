"""Compares designs: differences over seeds, with 95 % confidence intervals."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from windtunnel.analysis.figures import (
    COMPARED_STATS,
    DOLLARS,
    FIGURES,
    GROUPS,
    LOWER,
    PER_S,
    SECONDS,
    SHARE,
    TOKENS_PER_S,
    has_target,
    value_at,
)
from windtunnel.core.statistics.intervals import (
    Interval,
    mean_interval,
    paired_interval,
    paired_ratio,
    ratio_interval,
)

BETTER, WORSE, UNSEEN, SAME, UNKNOWN = (
    "better",
    "worse",
    "no difference seen",
    "the same",
    "not comparable",
)
ALIKE = "about the same"
TOO_FEW = "too few seeds to tell"
ONE_SAMPLE = "one sample"
VERDICTS = (BETTER, WORSE, ALIKE, UNSEEN, TOO_FEW, SAME, ONE_SAMPLE, UNKNOWN)

RATIOS = (SECONDS, DOLLARS, PER_S, TOKENS_PER_S)
"""Units of figures that vary by factors, and are compared as ratios."""

SMALLEST_EFFECT = 0.01
"""For times, rates and costs: a smaller relative difference does not matter, however certain it
is."""
SMALLEST_SHARE = 0.001
"""The same for shares, a tenth of a point: from 99.9 % to 99 % means ten times as many late
requests."""

WIDEST_SHARE = 1.0
"""An interval whose end is more than the whole range of a share from its middle says nothing."""


class ComparedFigure(NamedTuple):
    """A figure to compare: its path, name, group and unit, and which direction is better."""

    path: str
    name: str
    group: str
    unit: str
    better: str


def _metrics_of(classes: Sequence[str]) -> list[ComparedFigure]:
    """The figures to compare, by group; some of them for every SLO class."""
    found = []
    for one in FIGURES:
        if not one.group:
            continue
        names = classes if "CLASS" in one.path else [""]
        for name in names:
            path = one.path.replace("CLASS", name)
            label = f"{name} {one.label}".strip()
            if one.stats:
                pairs = [(f"{path}.{stat}", f"{one.label} {stat}") for stat in COMPARED_STATS]
            else:
                pairs = [(path, label)]
            found += [
                ComparedFigure(*pair, one.group, one.unit, one.better or LOWER) for pair in pairs
            ]
    return sorted(found, key=lambda metric: GROUPS.index(metric.group))


Figures = Mapping[str, Any]
"""The figures kept of a run."""


def figures_of(result: dict[str, Any]) -> dict[str, Any]:
    """The parts of a result that a comparison keeps.

    A class without targets has no SLO attainment.
    """
    metrics = _metrics_of([name for name, slo in result["slo"].items() if has_target(slo)])
    figures = {metric.path: _value(result, metric.path) for metric in metrics}
    gravest = result["trust"]["findings"][0]
    return {
        "figures": figures,
        "classes": list(result["slo"]),
        "arrived": result["requests"]["arrived"],
        "trust": {"verdict": gravest["severity"], "says": gravest["says"]},
    }


def _value(result: Mapping[str, Any], path: str) -> Any:
    """The value at a path; the name of an SLO class may contain dots."""
    part, _, rest = path.partition(".")
    name, _, key = rest.rpartition(".")
    return result[part][name][key] if part == "slo" else value_at(result, path)


def compared(
    runs: Sequence[Sequence[Figures]],
    chance: Sequence[bool],
    also: Sequence[ComparedFigure] = (),
) -> list[dict[str, Any]]:
    """Every figure of every design, and how it differs from that of the first.

    `runs` are the figures of each design by seed; `chance` says which designs depend on the seed.
    `also` are figures to compare besides the usual ones.
    """
    classes = list(dict.fromkeys(name for own in runs for name in own[0]["classes"]))
    usual = _metrics_of(classes)
    paths = {metric.path for metric in usual}
    return [
        _metric(metric, runs, chance)
        for metric in (*usual, *(one for one in also if one.path not in paths))
    ]


def _metric(
    metric: ComparedFigure, runs: Sequence[Sequence[Figures]], chance: Sequence[bool]
) -> dict[str, Any]:
    values = [[run["figures"].get(metric.path) for run in own] for own in runs]
    # For all designs or none, so that the means compared are of the same kind.
    known = [one for own in values for one in own if one is not None]
    spreads = metric.unit in RATIOS and min(known, default=0.0) > 0.0
    return {
        **metric._asdict(),
        "designs": [
            {
                "values": own,
                **ends(_own_interval(metric.unit, own, spreads=spreads), sure=varies),
                "difference": _against(
                    metric,
                    own,
                    values[0],
                    spreads=spreads,
                    one_sample=not (varies or chance[0]),
                )
                if place
                else None,
            }
            for place, (own, varies) in enumerate(zip(values, chance, strict=True))
        ],
    }


def in_unit(difference: Mapping[str, Any], base: float | None) -> dict[str, float | None]:
    """A difference with its interval in the figure's unit, for a table beside the means.

    The mean of a figure that varies by factors is a geometric mean, so the difference of two means
    is not the mean of the differences: it is derived from the ratio, which also decides the
    verdict.
    """
    ratio, names = difference["ratio"], ("mean", "low", "high")
    if ratio is None or base is None:
        return {name: difference[name] for name in names}
    return {name: None if ratio[name] is None else base * (ratio[name] - 1.0) for name in names}


def _own_interval(unit: str, values: list[float | None], *, spreads: bool) -> Interval | None:
    """The mean and interval of a design on its own."""
    whole = _all_known(values)
    if whole is None:
        return None
    if len(whole) == 1:
        return Interval(*whole * 3)
    if spreads:
        return ratio_interval(whole)
    return mean_interval(whole).within(0.0, 1.0) if unit == SHARE else mean_interval(whole)


def _against(
    metric: ComparedFigure,
    values: list[float | None],
    base: list[float | None],
    *,
    spreads: bool,
    one_sample: bool,
) -> dict[str, Any]:
    """The difference between a design and the first."""
    ours, theirs = _all_known(values), _all_known(base)
    if ours is None or theirs is None:
        return {"verdict": UNKNOWN, **ends(None), "ratio": None}
    if one_sample:
        return _one_difference(ours[0], theirs[0], spreads=spreads)
    return _difference(metric, ours, theirs, spreads=spreads)


def _one_difference(our: float, their: float, *, spreads: bool) -> dict[str, Any]:
    """The difference between two single runs; how much of it is chance is unknown."""
    middle = our - their
    ratio = Interval(*[our / their] * 3) if spreads else None
    return {
        "verdict": SAME if our == their else ONE_SAMPLE,
        **ends(Interval(middle, middle, middle), sure=False),
        "ratio": None if ratio is None else ends(ratio, sure=False),
    }


def _difference(
    metric: ComparedFigure, ours: list[float], theirs: list[float], *, spreads: bool
) -> dict[str, Any]:
    """Ours minus theirs; times, rates and costs also as a ratio, which then decides.

    These vary by factors: one slow seed among five would make an interval of differences reach
    below the lowest possible time.
    """
    interval = paired_interval(ours, theirs)
    ratio = paired_ratio(ours, theirs) if spreads else None
    found = judged(metric.unit, metric.better, interval, ratio)
    if found["verdict"] == UNSEEN and _is_too_wide(metric.unit, interval, ratio):
        found["verdict"] = TOO_FEW
    return found


def _is_too_wide(unit: str, interval: Interval, ratio: Interval | None) -> bool:
    if ratio is not None:
        return ratio.is_too_wide
    return unit == SHARE and interval.high - interval.middle > WIDEST_SHARE


def judged(unit: str, better: str, interval: Interval, ratio: Interval | None) -> dict[str, Any]:
    """A difference with its verdict, as plain data; a ratio, if there is one, decides."""
    if ratio is not None:
        found = verdict(better, ratio, 1.0, SMALLEST_EFFECT)
        return {"verdict": found, **ends(interval), "ratio": ends(ratio)}
    if unit == SHARE:
        interval = interval.within(-1.0, 1.0)
    found = verdict(better, interval, 0.0, SMALLEST_SHARE if unit == SHARE else 0.0)
    return {"verdict": found, **ends(interval), "ratio": None}


def verdict(better: str, interval: Interval, same: float, smallest: float) -> str:
    """The verdict on ours compared with theirs; `same` is the value at which neither is better.

    A certain difference below the smallest that matters counts as none.
    """
    if interval.low == interval.high == same:
        return SAME
    if interval.holds(same):
        return UNSEEN
    if abs(interval.middle - same) < smallest:
        return ALIKE
    return BETTER if (interval.middle < same) == (better == LOWER) else WORSE


def _all_known(values: list[float | None]) -> list[float] | None:
    known = [value for value in values if value is not None]
    return known if len(known) == len(values) else None


def ends(interval: Interval | None, *, sure: bool = True) -> dict[str, float | None]:
    """An interval as plain data; only its middle unless it is `sure`."""
    middle, low, high = interval if interval is not None else (None, None, None)
    return {"mean": middle, "low": low if sure else None, "high": high if sure else None}
