"""Reads files of observed lengths: a length per line, optionally with its weight."""

from pathlib import Path
from typing import Any

import msgspec

from windtunnel.core.errors import InputError
from windtunnel.workload.traces.lines import Lines
from windtunnel.workload.traces.notes import TraceNotes, seconds, whole

MOST_VALUES = 1_000_000
LARGEST_VALUE = 10**7
LARGEST_WEIGHT = 1e15
WEIGHTS = ("weight", "weights", "count", "counts", "probability", "share", "frequency")
"""Accepted names for the column of weights, so that no other column is taken for it."""


def read_lengths(path: str) -> tuple[list[int], list[float]]:
    """Returns the distinct lengths of a file in ascending order, and the weight of each.

    A line is `TOKENS` or `TOKENS,WEIGHT`, or JSON: `[TOKENS, WEIGHT]` or an object with `tokens`
    and `weight`. Blank lines, lines that start with '#', and a header line are skipped. Anything
    wrong with the file raises an InputError.
    """
    notes = TraceNotes(path)
    lines = Lines(Path(path), notes)
    weights: dict[int, float] = {}
    first = True
    for text in lines.texts():
        line = text.strip()
        if not line or line.startswith("#"):
            continue
        try:
            if first and _is_header(line):
                _check_header(line)
            else:
                value, weight = _of_json(line) if line[0] in "[{" else _of_text(line)
                weights[value] = weights.get(value, 0.0) + weight
        except ValueError as error:
            raise notes.fault(str(error), lines.number) from None
        first = False
        if len(weights) > MOST_VALUES:
            raise notes.fault(f"there are more than {MOST_VALUES} different values", lines.number)
    if not any(weights.values()):
        raise InputError("the file has no value with a weight above 0", where=path)
    values = sorted(weights)
    return values, [weights[value] for value in values]


def _of_text(line: str) -> tuple[int, float]:
    first, comma, second = line.partition(",")
    return _checked(whole(first.strip()), seconds(second.strip()) if comma else 1.0)


def _of_json(line: str) -> tuple[int, float]:
    try:
        item: Any = msgspec.json.decode(line)
    except (ValueError, RecursionError):
        raise ValueError("the line is not JSON, perhaps truncated") from None
    if isinstance(item, dict) and "tokens" in item and item.keys() <= {"tokens", "weight"}:
        item = [item["tokens"], item.get("weight", 1.0)]
    if not isinstance(item, list) or len(item) not in (1, 2):
        raise ValueError("the line is not a length, or a length and its weight")
    value, weight = (*item, 1.0)[:2]
    if isinstance(value, bool) or not isinstance(value, int):
        raise ValueError(f"the value is {str(value)[:60]!r}, not a whole number")  # noqa: TRY004
    if isinstance(weight, bool) or not isinstance(weight, int | float):
        raise ValueError(f"the weight is {str(weight)[:60]!r}, not a number")  # noqa: TRY004
    return _checked(value, float(weight))


def _checked(value: int, weight: float) -> tuple[int, float]:
    if not 1 <= value <= LARGEST_VALUE:
        raise ValueError(f"the value is {value}, not 1 to {LARGEST_VALUE}")
    if not 0 <= weight <= LARGEST_WEIGHT:
        raise ValueError(f"the weight is {weight:g}, not 0 to {LARGEST_WEIGHT:g}")
    return value, weight


def _is_header(line: str) -> bool:
    return line[0].isalpha() and line.lower() not in ("nan", "inf", "infinity")


def _check_header(line: str) -> None:
    """Rejects a file whose second column is not weights, since draws from it would be wrong."""
    names = [name.strip().strip('"').lower() for name in line.split(",")]
    if len(names) > 2:
        what = f"the file has {len(names)} columns; only a length and its weight are allowed"
        raise ValueError(what)
    if names[0] in WEIGHTS:
        raise ValueError(f"{names[0]!r} is a name for weights, but lengths come first")
    if len(names) == 2 and names[1] not in WEIGHTS:
        raise ValueError(f"{names[1][:60]!r} is not a name for weights ({', '.join(WEIGHTS)})")
