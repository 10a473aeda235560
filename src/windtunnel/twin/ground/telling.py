"""Tells what gangs and machines do, with the reason, to whoever listens."""

from typing import Final

from windtunnel.core.telemetry import Event, Plain, Telemetry
from windtunnel.gangs import objects
from windtunnel.gangs.controllers.controller import GROUP_REPLICA_DELETED, SET_REPLICA_DELETED
from windtunnel.twin.ground.ground import Ground
from windtunnel.twin.ground.yard import Yard
from windtunnel.twin.replicas import GONE, PENDING, Replica

TERMINATIONS: Final = (SET_REPLICA_DELETED, GROUP_REPLICA_DELETED)
MOST_NAMES: Final = 64
"""Pods and machines of one replica that are told by name."""


class Telling:
    """Follows the events of clusters and fleet, from the beginning of the run on."""

    def __init__(self, ground: Ground, telemetry: Telemetry) -> None:
        self._ground: Final = ground
        self._telemetry: Final = telemetry
        self._last: Final[dict[str, str]] = {}  # by yard: the last event of it that was told
        self._decided = 0  # by clusters, each with its number as its id

    def follow(self) -> None:
        """From now on the ground is listened to; what it did before the run is nobody's."""
        for yard in self._ground.yards:
            self._last[yard.name] = next(reversed(yard.cluster.view.events), "")
        self._ground.on_round = self.round
        if self._ground.machines is not None:
            self._ground.machines.listen(self.machine)

    def machine(
        self, ground_s: float, kind: str, subject: str, reason: str, data: dict[str, Plain]
    ) -> None:
        if self._telemetry.wants(kind):
            now_s = max(0.0, ground_s - self._ground.offset_s)
            self._telemetry.emit(Event(now_s, kind, subject, reason, data))

    def replica(self, replica: Replica) -> dict[str, Plain]:
        """What a replica stands on: its unit, and pods and machines while it has them."""
        for yard in self._ground.yards:
            unit = yard.units.unit_of(int(replica.server.index))
            if unit is None:
                continue
            data: dict[str, Plain] = {"cluster": yard.name, "unit": unit.key}
            pods = list(unit.pods.values())[:MOST_NAMES]
            if replica.state == PENDING:
                data["gangs"] = list(dict.fromkeys(pod.gang for pod in pods))
            elif replica.state != GONE:
                data["pods"] = [pod.name for pod in pods]
                data["machines"] = list(dict.fromkeys(pod.node for pod in pods if pod.node))
            return data
        return {}

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
            self._decided += 1
            kind = f"gang.{event.reason}"
            if self._telemetry.wants(kind):
                data: dict[str, Plain] = {"id": f"gang-{self._decided}", "cluster": yard.name}
                pools = _pools(yard, event)
                if pools:
                    data["pools"] = pools
                told = Event(now_s, kind, f"{event.kind}/{event.name}", event.message, data)
                self._telemetry.emit(told)


def _pools(yard: Yard, event: objects.Event) -> list[Plain]:
    """The pools that an event of a cluster is about, by the pods of what it names."""
    return list(yard.units.servers.pools_of(event.kind, event.name))
