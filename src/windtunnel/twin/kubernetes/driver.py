"""Runs the gang controllers on a simulated cluster, in virtual time.

The controller reads a cache and returns commands; the cluster carries them out and moves pods. With
a `delay_s` the cache lags behind the API server by that much.
"""

from collections.abc import Callable, Sequence
from typing import Final, Protocol

from windtunnel.core.errors import NoFixedPoint
from windtunnel.core.invariants import InvariantChecker
from windtunnel.core.loop import Component, SkewedClock
from windtunnel.gangs.commands import Command
from windtunnel.gangs.view import View
from windtunnel.twin.kubernetes.api_server import Watch
from windtunnel.twin.kubernetes.checks import CLUSTER_INVARIANTS
from windtunnel.twin.kubernetes.cluster import SimCluster

MOST_ROUNDS: Final = 1_000
"""The most reconcile rounds at one instant: more means that the controller never settles."""
MOST_EVENTS: Final = 1_000_000
"""The most events at one instant, each of which caused another."""


class GangController(Protocol):
    """Level-triggered: each call returns everything to do now; `next_s` is when to call again."""

    def next_s(self) -> float: ...

    def reconcile(self, now_s: float) -> Sequence[Command]: ...

    def refused(self, command: Command) -> None: ...

    def close(self) -> None: ...


class Driver(Component):
    """One cluster and its controller, which can be stopped and restarted at any command."""

    def __init__(
        self,
        cluster: SimCluster,
        start: Callable[[View], GangController],
        *,
        check: bool = False,
        delay_s: float = 0.0,
    ) -> None:
        self.cluster: Final = cluster
        self._start: Final = start
        self._delay_s: Final = delay_s
        self.clock: Final = SkewedClock()
        self._watch: Watch | None = self._list()
        self.controller: GangController = start(self._cache())
        self._checker: Final = InvariantChecker(CLUSTER_INVARIANTS) if check else None

    def next_s(self) -> float:
        """Time of the next event; infinity: none is pending."""
        due_s = min(self.cluster.next_s(), self.clock.when(self.controller.next_s()))
        return due_s if self._watch is None else min(due_s, self._watch.next_s())

    def advance(self, now_s: float) -> None:
        """Does everything that is due by now, and follows up on changes from outside."""
        self.settle(now_s)
        for _ in range(MOST_EVENTS):
            self.cluster.advance(now_s)
            self.settle(now_s)
            if self._checker is not None:
                self._checker.run(self.cluster, f"at {now_s} s")
            if self.next_s() > now_s:
                return
        raise NoFixedPoint(f"{MOST_EVENTS:,} events of pods and gangs")

    def _list(self) -> Watch | None:
        """A separate, initially complete cache where there is a delay; otherwise None."""
        return Watch(self.cluster.server, View(), self._delay_s) if self._delay_s else None

    def _cache(self) -> View:
        return self.cluster.view if self._watch is None else self._watch.cache

    def restart(self) -> None:
        """Restarts the controller without its memory, from what is stored."""
        self.controller.close()
        if self._watch is not None:
            self._watch.close()
        self.cluster.server.read_statuses_back()
        self._watch = self._list()
        self.controller = self._start(self._cache())

    def settle(self, now_s: float) -> int:
        """Reconciles until there is nothing to do at this time; returns the number of commands."""
        total = 0
        for _ in range(MOST_ROUNDS):
            if self._watch is not None:
                self._watch.advance(now_s)
            wanted = self.controller.reconcile(self.clock.read(now_s))
            if not wanted:
                return total
            total += len(wanted)
            for command in self.cluster.apply(wanted, now_s):
                self.controller.refused(command)
        verbs = ", ".join(f"{command.verb} {command.kind} {command.name}" for command in wanted[:3])
        raise NoFixedPoint(f"{MOST_ROUNDS:,} rounds of the controller of gangs ({verbs}, ...)")
