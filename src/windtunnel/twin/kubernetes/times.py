"""How long things take on a cluster: each time is drawn from a stream of its own name."""

from typing import Final

from windtunnel.core.random import Stream, Streams

CONSTANT: Final = "constant"
UNIFORM: Final = "uniform"
EXPONENTIAL: Final = "exponential"
LOGNORMAL: Final = "lognormal"
NORMAL: Final = "normal"


class PodDelay:
    """A time that varies.

    `spread` is the half width of `uniform`, the cv of `lognormal`, the standard deviation of
    `normal`, which is never below 0.
    """

    def __init__(self, mean_s: float, kind: str = CONSTANT, spread: float = 0.0) -> None:
        assert mean_s >= 0.0
        assert kind in (CONSTANT, UNIFORM, EXPONENTIAL, LOGNORMAL, NORMAL)
        self.mean_s: Final = mean_s
        self.kind: Final = kind
        self.spread: Final = spread

    def draw_s(self, stream: Stream) -> float:
        if self.kind == CONSTANT or self.mean_s == 0.0:
            return self.mean_s
        if self.kind == UNIFORM:
            return max(0.0, stream.between(self.mean_s - self.spread, self.mean_s + self.spread))
        if self.kind == EXPONENTIAL:
            return stream.exponential(self.mean_s)
        if self.kind == NORMAL:
            return max(0.0, stream.normal(self.mean_s, self.spread))
        return stream.lognormal(self.mean_s, self.spread)


class PodTimes:
    """The life of a pod in five times, and how a cluster looks after its machines."""

    def __init__(
        self,
        *,
        scheduling: PodDelay | None = None,
        image_pull: PodDelay | None = None,
        startup: PodDelay | None = None,
        readiness: PodDelay | None = None,
        ending: PodDelay | None = None,
        crash_after_s: float = 5.0,
        node_lost_after_s: float = 40.0,
        evict_after_s: float = 300.0,
        force_after_s: float = float("inf"),
    ) -> None:
        self.scheduling: Final = scheduling or PodDelay(0.1)
        """From a change that may let somebody in to the pass that looks at it."""
        self.image_pull: Final = image_pull or PodDelay(10.0)
        """The first pod of an image on a node; later ones find it there."""
        self.startup: Final = startup or PodDelay(1.0)
        """From the image to the start of containers."""
        self.readiness: Final = readiness or PodDelay(5.0)
        """From the start of containers until they are ready: the loading of a model."""
        self.ending: Final = ending or PodDelay(2.0)
        """From a deletion until the pod is gone; its grace period is the most."""
        self.crash_after_s: Final = crash_after_s
        """How long containers run that crash again and again."""
        self.node_lost_after_s: Final = node_lost_after_s
        """Until pods of a machine that has failed count as not ready."""
        self.evict_after_s: Final = evict_after_s
        """Until they are deleted, to be replaced elsewhere."""
        self.force_after_s: Final = force_after_s
        """Until one that cannot end is forgotten by force. By default nobody does that."""


class ClusterDice:
    """Draws of the times, each from the stream of its name."""

    def __init__(self, times: PodTimes, streams: Streams) -> None:
        self.times: Final = times
        self._scheduling: Final = streams["gangs.scheduling"]
        self._image_pull: Final = streams["gangs.image_pull"]
        self._startup: Final = streams["gangs.startup"]
        self._readiness: Final = streams["gangs.readiness"]
        self._ending: Final = streams["gangs.ending"]

    def scheduling_s(self) -> float:
        return self.times.scheduling.draw_s(self._scheduling)

    def image_pull_s(self) -> float:
        return self.times.image_pull.draw_s(self._image_pull)

    def startup_s(self) -> float:
        return self.times.startup.draw_s(self._startup)

    def readiness_s(self) -> float:
        return self.times.readiness.draw_s(self._readiness)

    def ending_s(self) -> float:
        return self.times.ending.draw_s(self._ending)
