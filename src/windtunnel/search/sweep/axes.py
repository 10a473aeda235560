"""Parses `--vary PATH=VALUES`: the values of one setting, as a list or a range.

serving.router.policy=round-robin,least-loaded    each of a list
serving.pools.0.replicas=2..16                    every whole number
serving.pools.0.replicas=2..16:2                  in steps of 2
serving.pools.0.engine.max_num_seqs=16..256:x2    each twice the one before
workload.0.arrivals.rate=10..50/s:10              with a unit
slo.critical.ttft=0.1..2                          any value between, where points are drawn
workload.0.prompt_tokens=100..8000:log            the same, on a log scale
"""

import math
import re
from collections.abc import Sequence
from typing import NamedTuple

from windtunnel.core.errors import InputError, one_line
from windtunnel.search.point import written
from windtunnel.settings.document import Plain, parse_value

OPENING, CLOSING, QUOTES = "[{(", "]})", "\"'"
EXAMPLES = "PATH=A,B,... or PATH=LOW..HIGH, as in serving.pools.0.replicas=2..16"
MOST_LEVELS = 1_000
"""Limit on the values of one setting."""
DIGITS = 6
"""Significant digits of drawn values: more would only make names long."""
WHOLE_STEPS = 1e-9
"""How far the end of a range may be from a step, relative to the step."""
LONGEST_PLACE = 80

_NUMBER = r"[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?"
_RANGE = re.compile(
    rf"(?P<low>{_NUMBER})(?P<unit_low>[^\d.,:\s]*)\s*\.\.\s*"
    rf"(?P<high>{_NUMBER})(?P<unit_high>[^\d.,:\s]*)(?::(?P<step>.+))?"
)
_RANGE_LIKE = re.compile(r"[^,/]*\.\.[^,/]*")
"""Text that looks like a range but is not valid."""
_STEP = re.compile(rf"(?P<times>x?)(?P<number>{_NUMBER})(?P<unit>[^\d.,:\s]*)")


class Axis(NamedTuple):
    """A setting that is varied: its values, or the range they are drawn from."""

    path: str
    levels: tuple[Plain, ...] | None
    """None: any value in the range."""
    low: float = 0.0
    high: float = 0.0
    unit: str = ""
    log: bool = False
    whole: bool = False
    """Whether only integers are drawn."""

    def _place(self, share: float) -> int:
        assert self.levels is not None
        return min(int(share * len(self.levels)), len(self.levels) - 1)

    def at(self, share: float) -> Plain:
        """The value at a position, from 0 to 1."""
        if self.levels is not None:
            return self.levels[self._place(share)]
        high = self.high + 1.0 if self.whole else self.high
        if self.log:
            value = self.low * math.pow(high / self.low, share)
        else:
            value = self.low + (high - self.low) * share
        if self.whole:
            return _with_unit(min(math.floor(value), self.high), self.unit)
        return _with_unit(float(f"{value:.{DIGITS}g}"), self.unit)

    def taken(self, share: float) -> float:
        """The position of the value that `at` returns, which differs for integers and lists.

        From 0 to 1; for a list, by index.
        """
        if self.levels is not None:
            return self._place(share) / max(len(self.levels) - 1, 1)
        if not self.whole:
            return share
        value = float(str(self.at(share)).removesuffix(self.unit))
        if self.log:
            return math.log(value / self.low) / math.log(self.high / self.low)
        return (value - self.low) / (self.high - self.low)

    @property
    def range(self) -> str:
        """The range as written."""
        return f"{self.low:g}..{self.high:g}{self.unit}"


def axes_of(varied: Sequence[str]) -> list[Axis]:
    """Parses the axes of a command line; each path may occur once."""
    axes = [axis_of(text) for text in varied]
    paths = [axis.path for axis in axes]
    for path in paths:
        if paths.count(path) > 1:
            hint = f"give all values at once: --vary {path}=A,B,C"
            raise InputError("this path is varied twice", where=f"--vary {path}", hint=hint)
    if not axes:
        raise InputError("nothing is varied", where="--vary", allowed=EXAMPLES)
    return axes


def axis_of(text: str) -> Axis:
    """Parses one axis."""
    where = f"--vary {one_line(text, LONGEST_PLACE)}"
    path, equals, listed = (part.strip() for part in text.partition("="))
    if not equals or not path:
        what = "there is no path before the '='" if equals else "there is no '=' after the path"
        raise InputError(what, where=where, allowed=EXAMPLES)
    refuse_names(path, where)
    found = _RANGE.fullmatch(listed)
    if found is not None:
        return _range(path, found, where)
    if _RANGE_LIKE.fullmatch(listed):
        raise InputError(f"{listed!r} is not a range of numbers", where=where, allowed=EXAMPLES)
    texts = [value.strip() for value in split_values(listed)]
    if not all(texts):
        what = "there is no value after the '='" if not listed else "a value is empty"
        raise InputError(what, where=where, allowed=EXAMPLES)
    return listed_axis(path, [parse_value(value, where) for value in texts], where)


def listed_axis(path: str, values: Sequence[Plain], where: str) -> Axis:
    """An axis of listed values."""
    refuse_names(path, where)
    names = [written(value) for value in values]
    if len(values) < 2:
        hint = f"--set {path}={names[0]} sets it" if names else None
        raise InputError(
            "a single value cannot be varied", where=where, allowed=EXAMPLES, hint=hint
        )
    for name in names:
        if names.count(name) > 1:
            raise InputError(f"the value {name} is listed twice", where=where)
    return _levels(path, values, where)


def refuse_names(path: str, where: str) -> None:
    if path == "seed":
        what = "every point runs with the same seeds, so the seed cannot be varied"
        raise InputError(what, where=where, hint="--seeds says how many, --seed the first of them")
    if path == "name":
        raise InputError("varying the name changes nothing", where=where, allowed=EXAMPLES)


def _levels(path: str, values: Sequence[Plain], where: str) -> Axis:
    if len(values) > MOST_LEVELS:
        what = f"these are {len(values):,} values"
        raise InputError(what, where=where, allowed=f"up to {MOST_LEVELS:,}", hint="take a step")
    return Axis(path, tuple(values))


def _range(path: str, found: "re.Match[str]", where: str) -> Axis:
    low, high, unit = _ends(found, where)
    step = found["step"]
    if step is None or step.strip() == "log":
        log = step is not None
        if log and low <= 0.0:
            raise InputError(
                "a logarithmic range must begin above 0", where=where, allowed="0.1..10:log"
            )
        whole = _is_whole(found["low"]) and _is_whole(found["high"])
        if log or not whole or high - low >= MOST_LEVELS:
            return Axis(path, None, low, high, unit, log, whole)
        return _steps(path, low, high, 1.0, unit, where)
    parsed = _STEP.fullmatch(step.strip())
    if parsed is None or parsed["unit"] not in ("", unit):
        allowed = "2..16:2 for steps, 2..16:x2 for factors, 2..16:log to draw by factors"
        raise InputError(f"{step.strip()!r} is not a step", where=where, allowed=allowed)
    size = float(parsed["number"])
    if parsed["times"]:
        return _factors(path, low, high, size, unit, where)
    if size <= 0.0:
        raise InputError("a step must be above 0", where=where, allowed="2..16:2")
    return _steps(path, low, high, size, unit, where)


def _ends(found: "re.Match[str]", where: str) -> tuple[float, float, str]:
    low, high = float(found["low"]), float(found["high"])
    unit = found["unit_high"]
    if found["unit_low"] not in ("", unit):
        what = f"the range begins in {found['unit_low']} and ends in {unit or 'no unit'}"
        raise InputError(what, where=where, allowed=f"{found['low']}..{found['high']}{unit}")
    if not low < high:
        what = "the range is empty: it ends where it begins, or before"
        raise InputError(what, where=where, allowed="LOW..HIGH, the lower end first")
    return low, high, unit


def _steps(path: str, low: float, high: float, step: float, unit: str, where: str) -> Axis:
    count = int((high - low) / step + WHOLE_STEPS) + 1
    if count > MOST_LEVELS:
        what = f"these are {count:,} values"
        hint = f"a larger step makes fewer: {low:g}..{high:g}:{(high - low) / 10:g}"
        raise InputError(what, where=where, allowed=f"up to {MOST_LEVELS:,}", hint=hint)
    values = [low + number * step for number in range(count)]
    return _of_numbers(path, values, unit, where)


def _factors(path: str, low: float, high: float, factor: float, unit: str, where: str) -> Axis:
    if factor <= 1.0 or low <= 0.0:
        what = "a range by factors must begin above 0 and have a factor above 1"
        raise InputError(what, where=where, allowed="2..16:x2")
    values = [low]
    while values[-1] * factor <= high * (1.0 + WHOLE_STEPS) and len(values) <= MOST_LEVELS:
        values.append(values[-1] * factor)
    return _of_numbers(path, values, unit, where)


def _of_numbers(path: str, values: list[float], unit: str, where: str) -> Axis:
    if len(values) < 2:
        what = "the range has one value: its step is larger than the range"
        raise InputError(what, where=where, allowed="a smaller step")
    # Rounded to the intended digits: 0.1 + 2 * 0.1 is written 0.3.
    rounded = [float(f"{value:.12g}") for value in values]
    return _levels(path, [_with_unit(value, unit) for value in rounded], where)


def _with_unit(value: float, unit: str) -> Plain:
    number = int(value) if value == int(value) else value
    return f"{number}{unit}" if unit else number


def _is_whole(text: str) -> bool:
    return text.lstrip("+-").isdecimal()


def split_values(text: str) -> list[str]:
    """Splits at commas, except inside brackets and quotes."""
    parts, depth, quote = [""], 0, ""
    for letter in text:
        if quote:
            quote = "" if letter == quote else quote
        elif letter in QUOTES:
            quote = letter
        elif letter in OPENING + CLOSING:
            depth += 1 if letter in OPENING else -1
        elif letter == "," and depth == 0:
            parts.append("")
            continue
        parts[-1] += letter
    return parts
