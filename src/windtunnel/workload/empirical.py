"""Reads files of observed lengths: a number a line, or a number and how often it came."""

from pathlib import Path

from windtunnel.core.errors import InputError
from windtunnel.workload.traces.lines import Lines
from windtunnel.workload.traces.notes import TraceNotes, seconds, whole

MOST_VALUES = 1_000_000
LARGEST_VALUE = 10**7


def read_lengths(path: str) -> tuple[list[int], list[float]]:
    """The values of a file and the weight of each; whatever is wrong with it is an InputError.

    A line is `VALUE` or `VALUE,WEIGHT`. Blank lines, lines after a '#', and a first line of names
    are passed over.
    """
    notes = TraceNotes(path)
    lines = Lines(Path(path), notes)
    weights: dict[int, float] = {}
    read = 0
    for text in lines.texts():
        line = text.strip()
        if not line or line.startswith("#"):
            continue
        try:
            value, weight = _fields(line)
        except ValueError as error:
            if not read and _is_header(line):
                read += 1
                continue
            raise notes.fault(str(error), lines.number) from None
        read += 1
        weights[value] = weights.get(value, 0.0) + weight
        if len(weights) > MOST_VALUES:
            raise notes.fault(f"there are more than {MOST_VALUES} different values", lines.number)
    if not any(weights.values()):
        raise InputError("there is no value in the file that may be drawn", where=path)
    values = sorted(weights)
    return values, [weights[value] for value in values]


def _fields(line: str) -> tuple[int, float]:
    first, comma, second = line.partition(",")
    value = whole(first.strip())
    if not 1 <= value <= LARGEST_VALUE:
        raise ValueError(f"the value is {value}, not 1 to {LARGEST_VALUE}")
    weight = seconds(second.strip()) if comma else 1.0
    if weight < 0 or weight > 1e15:
        raise ValueError(f"the weight is {weight:g}, not 0 or more")
    return value, weight


def _is_header(line: str) -> bool:
    return line[0].isalpha() and line.lower() not in ("nan", "inf", "infinity")
