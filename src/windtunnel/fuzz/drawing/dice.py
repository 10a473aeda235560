"""What a drawer throws: numbers that people write, choices, and whole features on or off."""

import math
from collections.abc import Sequence
from typing import Any, TypeVar

from windtunnel.core.random import Stream, Streams

T = TypeVar("T")
Section = dict[str, Any]
"""A mapping as a file has it."""

DENSITIES = (0.15, 0.3, 0.5, 0.7, 0.9)


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


class Swarm:
    """Which features a scenario has.

    Each seed has its own density, so that some scenarios have few features and some nearly all:
    rare ones then meet each other. A feature's fate depends on its name and the seed alone, so
    that a new one changes nobody else's.
    """

    def __init__(self, streams: Streams) -> None:
        self._streams = streams
        density = Dice(streams["fuzz.density"])
        self._density = density.pick(*DENSITIES)

    def has(self, feature: str) -> bool:
        """Always the same answer for one feature."""
        fate = Stream(self._streams.seed, f"fuzz.feature.{feature}")
        return fate.uniform() < self._density

    def dice(self, section: str) -> Dice:
        return Dice(self._streams[f"fuzz.{section}"])
