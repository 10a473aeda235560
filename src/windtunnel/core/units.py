"""Parses and formats quantities as people write them: `250ms`, `40/s`, `80GiB`, `25GB/s`.

Inside the program a duration is in seconds, a rate per second, a size in bytes, all plain numbers.
A bare number is already in that unit. An error quotes the text and shows valid examples.
"""

import math
import re

from windtunnel.core.errors import InputError

DURATION_UNITS = {
    "ns": 1e-9,
    "us": 1e-6,
    "ms": 1e-3,
    "s": 1.0,
    "m": 60.0,
    "min": 60.0,
    "h": 3600.0,
    "d": 86400.0,
}
RATE_UNITS = {"s": 1.0, "m": 1 / 60.0, "min": 1 / 60.0, "h": 1 / 3600.0, "d": 1 / 86400.0}
SIZE_UNITS = {
    "B": 1,
    **{
        prefix + "B": 1000**power for power, prefix in enumerate(("k", "M", "G", "T", "P"), start=1)
    },
    **{
        prefix + "iB": 1024**power
        for power, prefix in enumerate(("K", "M", "G", "T", "P"), start=1)
    },
    "KB": 1000,
}

_QUANTITY = re.compile(
    r"\s*(?P<number>[+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d+)?)\s*(?P<unit>[A-Za-zµ/%]*)\s*", re.I
)
_DURATION_PARTS = re.compile(r"(\d+(?:\.\d+)?)\s*(ns|us|µs|ms|min|s|m|h|d)\s*")
_LONGEST_TEXT = 64


UNIT_SECONDS = {"s": 1.0, "min": 60.0, "h": 3600.0}


def parse_duration(value: str | float) -> float:
    """Seconds from `250ms`, `1h30m`, or a bare number of seconds."""
    if isinstance(value, str):
        text = value.strip().removeprefix("+")
        parts = _DURATION_PARTS.findall(text)
        if len(parts) > 1 and _DURATION_PARTS.sub("", text) == "" and len(text) <= _LONGEST_TEXT:
            return math.fsum(
                float(number) * DURATION_UNITS[unit.replace("µ", "u")] for number, unit in parts
            )
    return _parse(
        value, DURATION_UNITS, "a duration", "250ms, 30s, 5m, 4h, 1h30m or a number of seconds"
    )


def parse_rate(value: str | float) -> float:
    """Events per second from `40/s`, `2400/min`, or a bare number per second."""
    units = {"/" + unit: factor for unit, factor in RATE_UNITS.items()}
    return _parse(value, units, "a rate", "40/s, 2400/min, 5/h or a number per second")


def parse_size(value: str | float) -> int:
    """Bytes from `80GiB`, `16GB`, or a bare number of bytes."""
    size = _parse(value, SIZE_UNITS, "a size", "80GiB, 16GB, 512MiB or a number of bytes")
    return round(size)


def parse_bandwidth(value: str | float) -> float:
    """Bytes per second from `25GB/s`, or a bare number of bytes per second."""
    units = {unit + "/s": float(factor) for unit, factor in SIZE_UNITS.items()}
    return _parse(value, units, "a bandwidth", "25GB/s, 900MiB/s or a number of bytes per second")


def parse_share(value: str | float) -> float:
    """A fraction from `5%` or `0.05`."""
    share = _parse(value, {"%": 0.01}, "a share", "5%, or a fraction such as 0.05")
    return float(f"{share:.15g}") if isinstance(value, str) else share  # 7% is 0.07, exactly


def _parse(
    value: str | float, units: dict[str, float] | dict[str, int], noun: str, allowed: str
) -> float:
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise InputError(f"{value!r} is not {noun}", allowed=allowed)
    if not isinstance(value, str):
        if not math.isfinite(value):
            raise InputError(f"{value!r} is not {noun}", allowed=allowed)
        return value
    match = _QUANTITY.fullmatch(value) if len(value) <= _LONGEST_TEXT else None
    if match is None:
        quoted = value if len(value) <= _LONGEST_TEXT else value[:_LONGEST_TEXT] + "..."
        raise InputError(f"{quoted!r} is not {noun}", allowed=allowed)
    number, unit = float(match["number"]), match["unit"].replace("µ", "u")
    if unit and unit not in units:
        known = ", ".join(units)
        raise InputError(
            f"{value!r} is not {noun}: unknown unit {unit!r}, known are {known}", allowed=allowed
        )
    amount = number * units[unit] if unit else number
    if not math.isfinite(amount):
        raise InputError(f"{value!r} is not {noun}: too large", allowed=allowed)
    return amount


def counted(count: float, noun: str) -> str:
    """A count with its noun: `1 run`, `2 runs`."""
    shown = f"{int(count):,}" if count == int(count) else f"{count:,.6g}"
    return f"{shown} {noun}{'' if count == 1 else 's'}"


def format_duration(seconds: float, *, even: bool = False) -> str:
    """Formats with three significant digits in the best unit: `1.25 s`, `480 us`, `2 h 30 min`.

    `even` keeps trailing zeros, for columns of times: `7.00 s`.
    """
    if not math.isfinite(seconds):
        return "never" if seconds > 0 else str(seconds)
    size = abs(seconds)
    if size >= 59.9995:
        sign, whole = ("-" if seconds < 0 else ""), round(size)
        days, rest = divmod(whole, 86400)
        hours, rest = divmod(rest, 3600)
        minutes, secs = divmod(rest, 60)
        parts = [(days, "d"), (hours, "h"), (minutes, "min"), (secs, "s")]
        shown = [f"{amount} {unit}" for amount, unit in parts if amount][:2]
        return sign + " ".join(shown)
    if size == 0:
        return "0 s"
    for unit, factor in (("s", 1.0), ("ms", 1e-3), ("us", 1e-6)):
        if size >= 0.9995 * factor:
            return f"{_three_digits(seconds / factor, even=even)} {unit}"
    return f"{_three_digits(seconds / 1e-9, even=even)} ns"


def duration_cell(seconds: float) -> str:
    """Formats for a table column: a single unit, so that times can be compared at a glance."""
    for limit, unit in ((60, ""), (1_000, "s"), (36_000, "min")):
        if seconds < limit:
            if not unit:
                return format_duration(seconds, even=True)
            return f"{seconds / UNIT_SECONDS[unit]:.0f} {unit}"
    return f"{seconds / UNIT_SECONDS['h']:.1f} h"


def format_rate(per_second: float) -> str:
    """Formats as `40/s`; below one per second, per minute or per hour."""
    for unit, factor in (("s", 1.0), ("min", 60.0), ("h", 3600.0)):
        if abs(per_second) * factor >= 0.9995 or unit == "h" or per_second == 0:
            return f"{_three_digits(per_second * factor)}/{unit}"
    raise AssertionError("the hour takes every rate")


def format_size(size_bytes: float) -> str:
    """Formats in binary units with three significant digits: `79.6 GiB`."""
    for unit in ("PiB", "TiB", "GiB", "MiB", "KiB"):
        if abs(size_bytes) >= 0.9995 * SIZE_UNITS[unit]:
            return f"{_three_digits(size_bytes / SIZE_UNITS[unit])} {unit}"
    return f"{size_bytes:.0f} B"


def format_count(number: float) -> str:
    """Formats a large count for a narrow column: `1.25 M`."""
    for unit, factor in (("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if abs(number) >= 0.9995 * factor:
            return f"{_three_digits(number / factor)} {unit}"
    return f"{number:.0f}"


def _three_digits(number: float, *, even: bool = False) -> str:
    digits = 2 if abs(number) < 9.995 else 1 if abs(number) < 99.95 else 0
    text = f"{number:.{digits}f}"
    return text.rstrip("0").rstrip(".") if "." in text and not even else text
