"""The event log of a run: decisions with their reasons, for the sinks that want them."""

from collections.abc import Callable
from typing import Final

from windtunnel.core import vocabulary
from windtunnel.core.telemetry import Event, Plain, Telemetry
from windtunnel.engine.server import Server
from windtunnel.routing.counterfactual import Judgement
from windtunnel.twin.servers.replicas import Replica
from windtunnel.workload.request import UNSET, Request


class EventLog:
    """The events of requests and servers. A run without sinks has no log and builds no event."""

    def __init__(self, telemetry: Telemetry, policy: str, adapters: list[str]) -> None:
        self._telemetry: Final = telemetry
        self._policy: Final = policy  # of the router
        self._adapters: Final = adapters  # names by number

    def add(self, now_s: float, kind: str, request: Request, reason: str, **data: Plain) -> None:
        if self._telemetry.wants(kind):
            event = Event(now_s, kind, f"request/{request.id}", reason, data)
            self._telemetry.emit(event)

    def adapters(self, now_s: float, server: Server) -> None:
        """Logs the adapters that a server has loaded and evicted since the last call."""
        assert server.slots is not None
        journal = server.slots.journal
        assert journal is not None
        for place in range(0, len(journal), 2):
            kind, reason = (
                (vocabulary.LOADED, "wanted")
                if journal[place + 1]
                else (vocabulary.UNLOADED, "room")
            )
            if self._telemetry.wants(kind):
                data: dict[str, Plain] = {"adapter": self._adapters[journal[place]]}
                self._telemetry.emit(Event(now_s, kind, f"server/{server.index}", reason, data))
        journal.clear()

    def fetched(self, now_s: float, server: Server) -> None:
        """Logs the requests that began to wait for KV from slower tiers since the last call."""
        assert server.tiers is not None
        loads = server.tiers.journal
        assert loads is not None
        for load in loads:
            tokens = int(load.blocks) * int(server.limits.block_size)
            reason = "cached" if tokens else "on its way"
            wait_s = load.ready_s - load.begun_s
            self.add(now_s, vocabulary.FETCHED, load.request, reason, tokens=tokens, wait_s=wait_s)
        loads.clear()

    def routed(
        self,
        now_s: float,
        request: Request,
        reason: str,
        scores: list[tuple[int, float]],
        judgement: Judgement | None,
    ) -> None:
        """Logs where a request was sent and, with a counterfactual, how other servers scored.

        `scores` are the router's for each server; empty when it does not compare them.
        """
        data: dict[str, Plain] = {"server": int(request.server), "why": reason}
        for server, score in scores:
            if server == request.server:
                data["score"] = score
        if judgement is not None:
            data["fresh_score"] = judgement.score
            data["regret"] = judgement.regret
            data["others"] = [[server, score] for server, score in judgement.others]
        self.add(now_s, vocabulary.ROUTED, request, self._policy, **data)

    def moved(self, now_s: float, request: Request) -> None:
        """Logs that the KV of a split request is on its decoding server."""
        stayed = request.transfer_end_s == UNSET
        took_s = None if stayed else request.transfer_end_s - request.transfer_start_s
        self.add(now_s, vocabulary.MOVED, request, "stayed" if stayed else "", took_s=took_s)

    def stepped(self, now_s: float, server: Server) -> None:
        """Logs what a server did apart from its steps."""
        if server.slots is not None and server.slots.journal:
            self.adapters(now_s, server)
        if server.tiers is not None and server.tiers.journal:
            self.fetched(now_s, server)

    def ended(self, now_s: float, request: Request, outcome: str) -> None:
        self.add(
            now_s,
            vocabulary.ENDED,
            request,
            request.reason,
            outcome=outcome,
            server=int(request.server) if request.server >= 0 else None,
            waited_s=request.scheduled_s - request.arrived_s
            if request.scheduled_s != UNSET
            else None,
            preemptions=int(request.preemptions),
        )


class ReplicaLog:
    """The events of replicas: one for each change of state."""

    def __init__(self, telemetry: Telemetry) -> None:
        self._telemetry: Final = telemetry
        self.placement: Callable[[Replica], dict[str, Plain]] = _no_placement
        """The pods and machines of a replica, as data; empty when it has none."""

    def add(self, now_s: float, replica: Replica, reason: str) -> None:
        """Logs a replica's change of state."""
        kind = vocabulary.REPLICA_KINDS[replica.state]
        if self._telemetry.wants(kind):
            data: dict[str, Plain] = {"pool": replica.pool.name, "replica": replica.number}
            data.update(self.placement(replica))
            subject = f"server/{replica.server.index}"
            self._telemetry.emit(Event(now_s, kind, subject, reason, data))


def _no_placement(_: Replica) -> dict[str, Plain]:
    return {}
