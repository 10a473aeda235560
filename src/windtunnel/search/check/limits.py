"""Limits of a check: what a figure may be, or how much it may change, before it is a regression."""

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from windtunnel.analysis.figures import DOLLARS, SECONDS, SHARE, figure, text_of
from windtunnel.core.errors import InputError
from windtunnel.core.units import parse_duration, parse_share

TOTAL_COST = "cost.total"
ATTAINED = "slo.CLASS.attained"
"""Stands for the attainment of every SLO class."""
ATTAINED_PATH = re.compile(r"slo\..+\.attained")
PASSED, FAILED, UNCERTAIN = "passed", "failed", "uncertain"
REGRESSION, UNDECIDED = "regression", "undecided"
"""Verdicts on the whole check, besides `PASSED`."""
ALLOWED = "a value such as 800ms, 99% or 12, or a change such as +5% or -0.5%"
ROUNDING = 1e-9


class FigureLimit(NamedTuple):
    """The maximum or minimum of a figure, or of its change.

    A change is relative to the base's figure; for shares it is in percentage points.
    """

    path: str
    is_most: bool
    value: float
    is_change: bool
    text: str


DEFAULTS = (
    FigureLimit(ATTAINED, is_most=False, value=-0.001, is_change=True, text="-0.1%"),
    FigureLimit(TOTAL_COST, is_most=True, value=0.01, is_change=True, text="+1%"),
)
"""Used when no limits are given."""
WITHOUT_TARGETS = tuple(
    FigureLimit(path, is_most=True, value=0.1, is_change=True, text="+10%")
    for path in ("latency.ttft.p99", "latency.tpot.p99")
)
"""Added to the defaults where no request has a target, since attainment then ignores latency."""


def limits_of(
    max_cost: str | None, min_attainment: str | None, most: Iterable[str], least: Iterable[str]
) -> list[FigureLimit]:
    """The limits given as options; `most` and `least` are written `FIGURE=LIMIT`."""
    found = []
    if min_attainment is not None:
        found.append(limit_of(ATTAINED, min_attainment, "--min-attainment", is_most=False))
    if max_cost is not None:
        found.append(limit_of(TOTAL_COST, max_cost, "--max-cost", is_most=True))
    found += [figure_limit(text, "--max", is_most=True) for text in most]
    found += [figure_limit(text, "--min", is_most=False) for text in least]
    return found


def limit_of(path: str, text: str, option: str, *, is_most: bool) -> FigureLimit:
    """Parses the limit `text` for a figure."""
    where = f"{option} {text}"
    written = text.strip()
    if written[:1] in ("+", "-"):
        if not written.endswith("%"):
            raise InputError("a change is in percent", where=where, allowed=ALLOWED)
        value = _number(parse_share, written, where)
        return FigureLimit(path, is_most, value, is_change=True, text=written)
    unit = figure(path).unit
    parse = {SECONDS: parse_duration, SHARE: parse_share}.get(unit, _plain)
    value = _number(parse, written, where)
    if unit == SHARE and not 0.0 <= value <= 1.0:
        raise InputError(f"{written} is not a share", where=where, allowed="0% to 100%")
    return FigureLimit(path, is_most, value, is_change=False, text=written)


def figure_limit(text: str, option: str, *, is_most: bool) -> FigureLimit:
    """Parses `FIGURE=VALUE` into a limit."""
    path, equals, value = text.partition("=")
    if not equals or not path.strip() or not value.strip():
        allowed = "FIGURE=VALUE, such as latency.ttft.p99=+10%"
        raise InputError(
            "this is not a figure with a limit", where=f"{option} {text}", allowed=allowed
        )
    return limit_of(path.strip(), value, f"{option} {path.strip()}", is_most=is_most)


def _number(parse: Any, text: str, where: str) -> float:
    try:
        value = float(parse(text))
    except InputError as error:
        raise InputError(error.what, where=where, allowed=ALLOWED) from None
    if not math.isfinite(value):
        raise InputError(f"{text!r} is not a number", where=where, allowed=ALLOWED)
    return value


def _plain(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise InputError(f"{text!r} is not a number") from None


def spread(limits: Sequence[FigureLimit], classes: Sequence[str]) -> list[FigureLimit]:
    """Replaces a limit for all SLO classes with one per class."""
    return [
        limit._replace(path=limit.path.replace("CLASS", name))
        for limit in limits
        for name in (classes if limit.path == ATTAINED else [""])
    ]


def judge(
    limit: FigureLimit, metric: Mapping[str, Any], *, has_targets: bool = True
) -> dict[str, Any]:
    """Applies a limit to a compared figure: what is allowed, what was found, and the verdict.

    A measured value is a fact of this traffic, so an absolute limit is decided by the value itself.
    A change may be due to chance: it fails only if its confidence interval excludes zero. A
    requested limit on attainment fails where no request has targets, since nothing could violate
    it.
    """
    base, changed = (side["values"] for side in metric["designs"])
    own = metric["designs"][1]["mean"]
    difference = metric["designs"][1]["difference"]
    if limit.is_change:
        change = _change(metric["unit"], difference, base, changed)
        status = _verdict_of_change(limit, change, difference)
        found = None if change is None else change
    else:
        found = own
        within = own is not None and _within(limit, own)
        status = PASSED if within else FAILED
    found_text = _found_text(limit, metric["unit"], found)
    if not has_targets and ATTAINED_PATH.fullmatch(limit.path):
        status, found, found_text = FAILED, None, "no targets"
    return {
        "path": limit.path,
        "name": metric["name"],
        "limit": _words(limit, metric["unit"]),
        "found": found,
        "found_text": found_text,
        "verdict": status,
    }


def verdict_of(limits: Sequence[str]) -> str:
    """The verdict on the check from those on its limits: one that fails decides it."""
    if FAILED in limits:
        return REGRESSION
    return UNDECIDED if UNCERTAIN in limits else PASSED


def _words(limit: FigureLimit, unit: str) -> str:
    text = limit.text
    if limit.is_change:
        text = text.replace("%", " points") if unit == SHARE else text
    elif _is_bare(text):
        units = {SECONDS: f"{text} s", SHARE: f"{100.0 * limit.value:.10g}%", DOLLARS: f"${text}"}
        text = units.get(unit, f"{text} {unit}".strip())
    return f"{'at most' if limit.is_most else 'at least'} {text}"


def _is_bare(text: str) -> bool:
    """Whether it is a number without a unit."""
    try:
        float(text)
    except ValueError:
        return False
    return True


def unit_notes(limits: Sequence[FigureLimit]) -> list[dict[str, str]]:
    """Notes on times without a unit, which count as seconds, as in scenario files."""
    return [
        {
            "code": "no-unit",
            "says": f"{limit.path}: {limit.text} has no unit and is {limit.text} s; for "
            f"milliseconds, write {limit.text}ms",
        }
        for limit in limits
        if not limit.is_change and figure(limit.path).unit == SECONDS and _is_bare(limit.text)
    ]


def _within(limit: FigureLimit, value: float) -> bool:
    slack = ROUNDING * max(1.0, abs(limit.value))
    return value <= limit.value + slack if limit.is_most else value >= limit.value - slack


def _change(
    unit: str, difference: Mapping[str, Any], base: Sequence[Any], changed: Sequence[Any]
) -> float | None:
    if difference["mean"] is None:
        return None
    if unit == SHARE:
        return float(difference["mean"])
    if difference["ratio"] is not None:
        return float(difference["ratio"]["mean"]) - 1.0
    total, other = math.fsum(base), math.fsum(changed)
    if total == other:
        return 0.0
    return other / total - 1.0 if total else math.copysign(math.inf, other)


def _verdict_of_change(
    limit: FigureLimit, change: float | None, difference: Mapping[str, Any]
) -> str:
    if change is None:
        return FAILED
    if _within(limit, change):
        return PASSED
    ratio = difference["ratio"]
    low, high, same = (
        (difference["low"], difference["high"], 0.0)
        if ratio is None
        else (ratio["low"], ratio["high"], 1.0)
    )
    return UNCERTAIN if low is not None and low <= same <= high else FAILED


def _found_text(limit: FigureLimit, unit: str, found: float | None) -> str:
    if found is None:
        return "no value"
    if not limit.is_change:
        return text_of(unit, found)
    if math.isinf(found):
        return "from none to some"
    return f"{100 * found:+.2f} points" if unit == SHARE else f"{100 * found:+,.1f}%"
