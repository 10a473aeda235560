"""Chart geometry: positions in percent of the width, ticks, paths.

Charts are as wide as the page allows, and their text does not shrink with them, so horizontal
positions are percentages; heights are pixels.
"""

import math
from collections.abc import Iterable, Sequence

import msgspec

from windtunnel.core.units import format_count, format_duration

TIME_STEPS_S = tuple(
    step * unit
    for unit, steps in (
        (1e-3, (1, 2, 5, 10, 20, 50, 100, 200, 500)),
        (1.0, (1, 2, 5, 10, 15, 30)),
        (60.0, (1, 2, 5, 10, 15, 30)),
        (3600.0, (1, 2, 3, 6, 12)),
        (86400.0, (1, 2, 7, 14, 30, 90, 365)),
    )
    for step in steps
)
MOST_TIME_TICKS = 6
ROOM_FOR_A_LABEL = 16.0
"""Minimum distance of labels, in percent of a small chart's width."""
LONGEST_IN_SECONDS = 600.0
"""Longer times are shown in minutes or hours."""
ACROSS = 1000.0
"""The width of the path coordinate system, whatever its size on the screen."""


class Tick(msgspec.Struct, frozen=True):
    """A mark on an axis: its position (percent across or pixels down), text and text alignment."""

    at: float
    label: str
    anchor: str = "middle"


def percent(share: float) -> float:
    return round(100.0 * share, 3)


def anchor_at(share: float) -> str:
    """The text alignment that keeps a label within its chart."""
    return "start" if share < 0.04 else "end" if share > 0.96 else "middle"


def time_ticks(end_s: float) -> list[Tick]:
    """Ticks at round times, from 0 on."""
    if end_s <= 0.0:
        return [Tick(0.0, "0", "start")]
    steps = (step for step in TIME_STEPS_S if end_s / step <= MOST_TIME_TICKS)
    step = next(steps, TIME_STEPS_S[-1])
    ticks = []
    for number in range(int(end_s / step + 1e-9) + 1):
        at_s = number * step
        label = "0" if number == 0 else format_duration(at_s)
        ticks.append(Tick(percent(at_s / end_s), label, anchor_at(at_s / end_s)))
    return ticks


def round_up(value: float) -> float:
    """The next of 1, 2, 4, 6, 8 times a power of ten: the top of an axis with a round middle."""
    if value <= 0.0:
        return 1.0
    power = 10.0 ** math.floor(math.log10(value))
    return next(
        step * power for step in (1.0, 2.0, 4.0, 6.0, 8.0, 10.0) if step * power >= value * 0.999
    )


def reach_of(highest: float, unit: str) -> float:
    """The top of an axis for values up to `highest`; long times are whole minutes or hours."""
    if unit == " s" and highest >= LONGEST_IN_SECONDS:
        size = 60.0 if highest < 36000.0 else 3600.0
        return round_up(highest / size) * size
    return round_up(highest)


def height_ticks(top: float, height: float, unit: str) -> list[Tick]:
    """Ticks at zero, half and the top of the axis."""
    return [
        Tick(round(height * (1.0 - share), 1), label_of(top * share, unit))
        for share in (0.0, 0.5, 1.0)
    ]


def label_of(value: float, unit: str) -> str:
    """A short text for a value with its unit."""
    if unit == "%":
        return f"{100.0 * value:.0f}%"
    if unit == " s" and value >= LONGEST_IN_SECONDS:
        return brief(value)
    digits = 0 if value >= 10.0 or value == round(value) else 1 if value >= 1.0 else 2
    if 1000 <= value < 100_000 and value == round(value):
        number = f"{value:,.0f}"
    else:
        number = format_count(value) if value >= 1000 else f"{value:.{digits}f}"
    return f"{number}{unit}"


def brief(seconds: float) -> str:
    """A duration in one unit, for a narrow place."""
    if seconds < 59.9995:
        return format_duration(seconds)
    for unit, size, most in (("s", 1.0, LONGEST_IN_SECONDS), ("min", 60.0, 36000.0)):
        if seconds < most:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds / 3600.0:.1f} h".replace(".0 h", " h")


class LogScale:
    """A logarithmic axis from `low` to `high` that starts at `start` of the width."""

    def __init__(self, low: float, high: float, start: float = 0.0) -> None:
        self._low = math.log(low)
        self._span = math.log(high) - self._low
        self._start = start
        self.low, self.high = low, high

    def at(self, value: float) -> float:
        """The horizontal position of a value, as a share of the width, within the axis."""
        share = (math.log(max(value, 1e-300)) - self._low) / self._span
        return self._start + (1.0 - self._start) * min(max(share, 0.0), 1.0)

    def ticks(self) -> list[Tick]:
        """Powers of ten; with 3, or 2 and 5, times them on a shorter axis; even steps on a very
        short one."""
        powers = range(math.floor(math.log10(self.low)), math.ceil(math.log10(self.high)) + 1)
        values: list[float] = []
        for factors in ((1.0,), (1.0, 3.0), (1.0, 2.0, 5.0)):
            values = [f * 10.0**power for power in powers for f in factors]
            values = [value for value in values if self.low <= value <= self.high]
            if len(values) >= 3:
                break
        if len(values) < 3:
            step = round_up((self.high - self.low) / 4.0)
            first = math.ceil(self.low / step)
            values = [n * step for n in range(first, first + 6) if n * step <= self.high]
        kept: list[float] = []
        for value in values:
            if not kept or percent(self.at(value) - self.at(kept[-1])) >= ROOM_FOR_A_LABEL:
                kept.append(value)
        labels = [brief(value) for value in kept]
        if len(set(labels)) < len(labels):
            labels = [format_duration(value) for value in kept]
        return [
            Tick(percent(self.at(value)), label, anchor_at(self.at(value)))
            for value, label in zip(kept, labels, strict=True)
        ]


def path(points: Iterable[tuple[float, float]]) -> str:
    """An SVG path through points, each a share of the width and of the height from the top.

    The path has a gap where a height is NaN; a point between two gaps is a dot.
    """
    return "".join(_line(run) for run in _unbroken(points))


def area(points: Iterable[tuple[float, float]]) -> str:
    """The same line, closed along the bottom."""
    return "".join(
        f"{_line(run)}L{ACROSS * run[-1][0]:.5g} 100L{ACROSS * run[0][0]:.5g} 100Z"
        for run in _unbroken(points)
    )


def _unbroken(points: Iterable[tuple[float, float]]) -> list[list[tuple[float, float]]]:
    runs: list[list[tuple[float, float]]] = [[]]
    for point in points:
        if not math.isnan(point[1]):
            runs[-1].append(point)
        elif runs[-1]:
            runs.append([])
    return [run for run in runs if run]


def _line(points: Sequence[tuple[float, float]]) -> str:
    steps = [f"{ACROSS * x:.5g} {100.0 * y:.4g}" for x, y in points]
    return "M" + "L".join(steps if len(steps) > 1 else steps * 2)
