"""Draws values of settings for the fuzzer: numbers in readable form, and choices."""

import math
import types
from collections.abc import Iterable, Sequence
from typing import Annotated, Any, Literal, TypeVar, Union, get_args, get_origin

from windtunnel.core.random import Stream
from windtunnel.settings.fields import Duration, Flag, Leaf, Number, Whole
from windtunnel.settings.section import Section

T = TypeVar("T")
Values = dict[str, Any]
"""A mapping as written in a file."""


class Dice:
    """Draws from one stream in the forms that a scenario needs."""

    def __init__(self, stream: Stream) -> None:
        self._stream = stream

    def chance(self, share: float) -> bool:
        return self._stream.uniform() < share

    def pick(self, *options: T) -> T:
        return options[self._stream.integer(0, len(options) - 1)]

    def some(self, options: Sequence[T]) -> list[T]:
        """A random selection of at least one option, in the given order."""
        share = self._stream.uniform()
        chosen = [one for one in options if self.chance(share)]
        return chosen or [self.pick(*options)]

    def whole(self, low: int, high: int) -> int:
        return self._stream.integer(low, high)

    def few(self, low: int, high: int) -> int:
        """A whole number drawn log-uniformly, so that small ones are common."""
        return min(high, int(self.span(max(low, 0) + 0.5, high + 1.0) + 0.5))

    def span(self, low: float, high: float) -> float:
        """A log-uniform number between the bounds, rounded to two digits."""
        value = math.exp(self._stream.between(math.log(low), math.log(high)))
        return float(f"{value:.2g}")


def draw_section(dice: Dice, section: type[Section], names: Iterable[str]) -> Values:
    """Draws values for some of these fields of a section, from their declarations.

    A literal is one of the allowed words; a number is around its default and within its range.
    Fields without such a declaration, or without a default to draw around, are left out.
    """
    drawn: Values = {}
    for name in names:
        field = section.model_fields[name]
        mark = next((one for one in field.metadata if isinstance(one, Leaf)), None)
        value = _around(dice, mark or field.annotation, field.default)
        if value is not None and dice.chance(0.5):
            drawn[field.alias or name] = value
    return drawn


def _around(dice: Dice, declared: Any, default: object) -> object:
    """A value for a declared leaf or annotation; None if none can be drawn."""
    if isinstance(declared, Flag):
        return dice.chance(0.5)
    if get_origin(declared) is Literal:
        return dice.pick(*get_args(declared))
    if get_origin(declared) is Annotated:
        leaves = [mark for mark in get_args(declared)[1:] if isinstance(mark, Leaf)]
        return _around(dice, leaves[0], default) if leaves else None
    if get_origin(declared) in (Union, types.UnionType):
        found = (_around(dice, one, default) for one in get_args(declared))
        return next((value for value in found if value is not None), None)
    if not isinstance(declared, Whole | Number | Duration) or not isinstance(default, int | float):
        return None
    value = min(max(default * dice.span(0.2, 5.0), declared.low), declared.high)
    if isinstance(declared, Whole):
        return round(value)
    return default if declared.above and value == declared.low else value
