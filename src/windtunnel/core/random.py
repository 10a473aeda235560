"""The one source of randomness: named streams derived from (seed, name).

Every consumer asks for a stream by its own name, so adding a client or a fault never shifts any
other draws, and two policies face the same arrivals. A stream uses only `Random.random()`, whose
sequence Python guarantees, and transforms it here. Each kind of draw except gamma takes a fixed
number of uniforms.
"""

import hashlib
import math
import os
from collections.abc import Callable
from random import Random
from typing import Final

_TURN: Final = 2.0 * math.pi


def fresh_seed() -> int:
    """A new seed for live runs, so that processes do not run in lockstep."""
    return int.from_bytes(os.urandom(8), "big")


class Stream:
    """A repeatable source of random draws that belongs to one consumer."""

    def __init__(self, seed: int, name: str) -> None:
        digest = hashlib.sha256(f"{seed}/{name}".encode()).digest()
        self.name: Final = name
        self._draw: Final[Callable[[], float]] = Random(int.from_bytes(digest[:16], "big")).random

    def uniform(self) -> float:
        """A draw from [0, 1)."""
        return self._draw()

    def between(self, low: float, high: float) -> float:
        return low + (high - low) * self._draw()

    def integer(self, low: int, high: int) -> int:
        """Each of low, low + 1, ..., high is equally likely (to within 2**-53)."""
        return low + int(self._draw() * (high - low + 1))

    def exponential(self, mean: float) -> float:
        return -mean * math.log(1.0 - self._draw())

    def normal(self, mean: float, stddev: float) -> float:
        """By the Box-Muller transform: two uniforms, and nothing that a C library lacks."""
        radius = math.sqrt(-2.0 * math.log(1.0 - self._draw()))
        return mean + stddev * radius * math.cos(_TURN * self._draw())

    def lognormal(self, mean: float, cv: float) -> float:
        """Takes the mean and coefficient of variation of the value itself, not of its logarithm."""
        variance = math.log1p(cv * cv)
        return math.exp(self.normal(math.log(mean) - variance / 2, math.sqrt(variance)))

    def weibull(self, shape: float, scale: float) -> float:
        return scale * math.pow(-math.log(1.0 - self._draw()), 1.0 / shape)

    def gamma(self, shape: float, scale: float) -> float:
        """By Marsaglia and Tsang's rejection method, which takes a varying number of uniforms."""
        if shape < 1.0:
            boost = math.pow(1.0 - self._draw(), 1.0 / shape)
            return boost * self.gamma(shape + 1.0, scale)
        d = shape - 1.0 / 3.0
        c = 1.0 / math.sqrt(9.0 * d)
        while True:
            x = self.normal(0.0, 1.0)
            cube_root = 1.0 + c * x
            v = cube_root * cube_root * cube_root
            if v > 0.0 and math.log(1.0 - self._draw()) < 0.5 * x * x + d - d * v + d * math.log(v):
                return d * v * scale


class Streams:
    """All streams of one run. A name always gives the same stream, which continues where it was."""

    def __init__(self, seed: int) -> None:
        self.seed: Final = seed
        self._streams: Final[dict[str, Stream]] = {}

    def __getitem__(self, name: str) -> Stream:
        stream = self._streams.get(name)
        if stream is None:
            stream = Stream(self.seed, name)
            self._streams[name] = stream
        return stream
