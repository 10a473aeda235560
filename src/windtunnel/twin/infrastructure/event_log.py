"""Logs the events of gangs and machines, each with its reason."""

from typing import Final

from windtunnel.core.telemetry import Event, Plain, Telemetry
from windtunnel.core.vocabulary import TERMINATIONS
from windtunnel.gangs.statuses import ObjectEvent
from windtunnel.twin.infrastructure.cluster import ServingCluster
from windtunnel.twin.infrastructure.infrastructure import Infrastructure
from windtunnel.twin.progress import RECLAIMS, RECYCLES, RunProgress
from windtunnel.twin.servers.replicas import GONE, PENDING, Replica

TAKEN_AWAY: Final = ("fleet.preempt", "fleet.reclaim", "machine.failed")
MOST_NAMES: Final = 64
"""The most pods and machines that are named per replica."""


class InfrastructureLog:
    """Follows the events of clusters and fleet from the start of the run."""

    def __init__(
        self, infrastructure: Infrastructure, telemetry: Telemetry, progress: RunProgress
    ) -> None:
        self._infrastructure: Final = infrastructure
        self._progress: Final = progress
        self._telemetry: Final = telemetry
        self._last: Final[dict[str, str]] = {}  # by cluster: its last logged event
        self._decided = 0  # decisions of clusters; the number is the decision's id

    def follow(self) -> None:
        """Logs from now on; events before the run are not part of it."""
        for serving_cluster in self._infrastructure.serving_clusters:
            self._last[serving_cluster.name] = next(
                reversed(serving_cluster.cluster.view.events), ""
            )
        self._infrastructure.on_round = self.round
        if self._infrastructure.machines is not None:
            self._infrastructure.machines.listen(self.machine)

    def machine(
        self, now_s: float, kind: str, subject: str, reason: str, data: dict[str, Plain]
    ) -> None:
        if kind in TAKEN_AWAY:
            self._progress.note(RECLAIMS, subject.removeprefix("machine/"), reason, now_s)
        if self._telemetry.wants(kind):
            self._telemetry.emit(Event(now_s, kind, subject, reason, data))

    def replica(self, replica: Replica) -> dict[str, Plain]:
        """The backing of a replica: its unit, and its pods and machines while it has them."""
        for serving_cluster in self._infrastructure.serving_clusters:
            unit = serving_cluster.units.unit_of(int(replica.server.index))
            if unit is None:
                continue
            data: dict[str, Plain] = {"cluster": serving_cluster.name, "unit": unit.key}
            pods = list(unit.pods.values())[:MOST_NAMES]
            if replica.state == PENDING:
                data["gangs"] = list(dict.fromkeys(pod.gang for pod in pods))
            elif replica.state != GONE:
                data["pods"] = [pod.name for pod in pods]
                data["machines"] = list(dict.fromkeys(pod.node for pod in pods if pod.node))
            return data
        return {}

    def round(self, now_s: float) -> None:
        for serving_cluster in self._infrastructure.serving_clusters:
            self._events(serving_cluster, now_s)

    def _events(self, serving_cluster: ServingCluster, now_s: float) -> None:
        """Logs the events since the last call, oldest first."""
        events, last = serving_cluster.cluster.view.events, self._last.get(serving_cluster.name, "")
        if not events or next(reversed(events)) == last:
            return
        fresh = []
        for key in reversed(events):
            if key == last:
                break
            fresh.append(events[key])
        self._last[serving_cluster.name] = next(reversed(events))
        for event in reversed(fresh):
            if event.reason in TERMINATIONS:
                self._infrastructure.terminations += 1
                # The key ends in the number of the gang and of its incarnation.
                number = event.key.rsplit("/", 2)[-2]
                why = serving_cluster.cluster.recycle_cause(event.name) or event.message
                self._progress.note(RECYCLES, f"{event.name}-{number}", why, now_s)
            self._decided += 1
            kind = f"gang.{event.reason}"
            if self._telemetry.wants(kind):
                data: dict[str, Plain] = {
                    "id": f"gang-{self._decided}",
                    "cluster": serving_cluster.name,
                }
                pools = _pools(serving_cluster, event)
                if pools:
                    data["pools"] = pools
                logged = Event(now_s, kind, f"{event.kind}/{event.name}", event.message, data)
                self._telemetry.emit(logged)


def _pools(serving_cluster: ServingCluster, event: ObjectEvent) -> list[Plain]:
    """The pools that a cluster event is about, by the pods of the object that it names."""
    return list(serving_cluster.units.servers.pools_of(event.kind, event.name))
