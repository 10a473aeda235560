"""Selects the features of a drawn scenario."""

from windtunnel.core.random import Stream, Streams
from windtunnel.settings.drawing import Dice

DENSITIES = (0.15, 0.3, 0.5, 0.7, 0.9)


class Swarm:
    """Features that are on or off in a scenario.

    Each seed has its own density, so that some scenarios have few features and some nearly all:
    rare combinations then occur. Whether a feature is on depends only on its name and the seed, so
    that a new feature changes no other.
    """

    def __init__(self, streams: Streams) -> None:
        self._streams = streams
        density = Dice(streams["fuzz.density"])
        self._density = density.pick(*DENSITIES)

    def has(self, feature: str) -> bool:
        """Whether the scenario has a feature; always the same answer for the same feature."""
        chance = Stream(self._streams.seed, f"fuzz.feature.{feature}")
        return chance.uniform() < self._density

    def dice(self, section: str) -> Dice:
        return Dice(self._streams[f"fuzz.{section}"])
