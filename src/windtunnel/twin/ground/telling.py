"""Tells what gangs and machines do, with the reason, to whoever listens."""

from typing import Final

from windtunnel.core.telemetry import Event, Telemetry
from windtunnel.gangs.controller import GROUP_REPLICA_DELETED, SET_REPLICA_DELETED
from windtunnel.twin.ground.ground import Ground
from windtunnel.twin.ground.yard import Yard

TERMINATIONS: Final = (SET_REPLICA_DELETED, GROUP_REPLICA_DELETED)


class Telling:
    """Follows the events of clusters and fleet, from the beginning of the run on."""

    def __init__(self, ground: Ground, telemetry: Telemetry) -> None:
        self._ground: Final = ground
        self._telemetry: Final = telemetry
        self._last: Final[dict[str, str]] = {}  # by yard: the last event of it that was told

    def follow(self) -> None:
        """From now on the ground is listened to; what it did before the run is nobody's."""
        for yard in self._ground.yards:
            self._last[yard.name] = next(reversed(yard.cluster.view.events), "")
        self._ground.on_round = self.round
        if self._ground.machines is not None:
            self._ground.machines.told = self.machine

    def machine(self, ground_s: float, kind: str, subject: str, reason: str) -> None:
        if self._telemetry.wants(kind):
            now_s = max(0.0, ground_s - self._ground.offset_s)
            self._telemetry.emit(Event(now_s, kind, f"machine/{subject}", reason))

    def round(self, now_s: float) -> None:
        for yard in self._ground.yards:
            self._events(yard, now_s)

    def _events(self, yard: Yard, now_s: float) -> None:
        """Those that came since the last time, oldest first."""
        events, last = yard.cluster.view.events, self._last.get(yard.name, "")
        if not events or next(reversed(events)) == last:
            return
        fresh = []
        for key in reversed(events):
            if key == last:
                break
            fresh.append(events[key])
        self._last[yard.name] = next(reversed(events))
        for event in reversed(fresh):
            self._ground.terminations += event.reason in TERMINATIONS
            kind = f"gang.{event.reason}"
            if self._telemetry.wants(kind):
                told = Event(now_s, kind, f"{event.kind}/{event.name}", event.message)
                self._telemetry.emit(told)
