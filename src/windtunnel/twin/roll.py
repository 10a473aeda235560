"""Tells of replicas as they come and go, to whoever listens: who, why, and what each stands on."""

from collections.abc import Callable
from typing import Final

from windtunnel.core.telemetry import Event, Plain, Telemetry
from windtunnel.twin.replicas import STATES, Replica

KINDS: Final = tuple([f"replica.{state}" for state in STATES])
BEGINNING: Final = "the run begins"


class Roll:
    """The replicas of one run, by what is told of them."""

    def __init__(self, telemetry: Telemetry) -> None:
        self._telemetry: Final = telemetry
        self.footing: Callable[[Replica], dict[str, Plain]] = _nothing
        """What a replica stands on, as data; nothing where it is only a number."""

    def replica(self, now_s: float, replica: Replica, reason: str) -> None:
        """A replica is in another state."""
        kind = KINDS[replica.state]
        if self._telemetry.wants(kind):
            data: dict[str, Plain] = {"pool": replica.pool.name, "replica": replica.number}
            data.update(self.footing(replica))
            subject = f"server/{replica.server.index}"
            self._telemetry.emit(Event(now_s, kind, subject, reason, data))


def _nothing(_: Replica) -> dict[str, Plain]:
    return {}
