"""Draws values of settings for the fuzzer: numbers as people write them, and choices."""

import math
from collections.abc import Sequence
from typing import Any, TypeVar

from windtunnel.core.random import Stream

T = TypeVar("T")
Values = dict[str, Any]
"""A mapping as a file has it."""


class Dice:
    """Draws of one stream, in the shapes that a scenario needs."""

    def __init__(self, stream: Stream) -> None:
        self._stream = stream

    def chance(self, share: float) -> bool:
        return self._stream.uniform() < share

    def pick(self, *options: T) -> T:
        return options[self._stream.integer(0, len(options) - 1)]

    def some(self, options: Sequence[T]) -> list[T]:
        """At least one of them, in their order."""
        share = self._stream.uniform()
        chosen = [one for one in options if self.chance(share)]
        return chosen or [self.pick(*options)]

    def whole(self, low: int, high: int) -> int:
        return self._stream.integer(low, high)

    def few(self, low: int, high: int) -> int:
        """A whole number; small ones are as likely as large ones are rare."""
        return min(high, int(self.span(max(low, 0) + 0.5, high + 1.0) + 0.5))

    def span(self, low: float, high: float) -> float:
        """A number of two digits, any size between the two as likely as any other."""
        value = math.exp(self._stream.between(math.log(low), math.log(high)))
        return float(f"{value:.2g}")
