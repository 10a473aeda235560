"""Corrupts a scenario in a few places; every resulting fault must be reported as a sentence."""

import copy
from typing import Any

from windtunnel.core.random import Streams
from windtunnel.settings.drawing import Dice, Values

NONSENSE: tuple[Any, ...] = (
    None,
    True,
    -1,
    0,
    1,
    -0.5,
    10**30,
    1e300,
    float("nan"),
    float("inf"),
    "",
    "auto",
    "12 parsecs",
    "-3s",
    "1/s",
    "naïve",
    [],
    {},
    [1],
    [[]],
    {"policy": "always"},
    {"a": {"b": []}},
)
MOST_CHANGES = 3


def mangle(document: Values, seed: int) -> Values:
    """A copy with a few values replaced, removed, or duplicated under unknown keys."""
    dice = Dice(Streams(seed)["fuzz.mangle"])
    made = copy.deepcopy(document)
    for _ in range(dice.few(1, MOST_CHANGES)):
        holder = _somewhere(made, dice)
        key = dice.pick(*(holder if isinstance(holder, dict) else range(len(holder))))
        kind = dice.pick("replace", "replace", "drop", "add")
        if kind == "replace":
            holder[key] = copy.deepcopy(dice.pick(*NONSENSE))
        elif kind == "drop":
            del holder[key]
        elif isinstance(holder, dict):
            holder[f"{key}x"] = holder[key]
        else:
            holder.append(copy.deepcopy(holder[key]))
        if not made:
            break
    return made


def _somewhere(document: Values, dice: Dice) -> Any:
    """A random non-empty mapping or list, at any depth."""
    holder: Any = document
    while True:
        below = [
            value
            for value in (holder.values() if isinstance(holder, dict) else holder)
            if isinstance(value, dict | list) and value
        ]
        if not below or dice.chance(0.2):
            return holder
        holder = dice.pick(*below)
