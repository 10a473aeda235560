"""Tells what was decided, with the reason, to whoever listens."""

from typing import Final

from windtunnel.core.telemetry import Event, Plain, Telemetry
from windtunnel.engine.server import Server
from windtunnel.routing.counterfactual import Judgement
from windtunnel.twin.roll import KINDS as REPLICAS
from windtunnel.workload.request import UNSET, Request

ADMITTED: Final = "request.admitted"
QUEUED: Final = "request.queued"
REJECTED: Final = "request.rejected"
EVICTED: Final = "request.evicted"
VERDICTS: Final = (ADMITTED, QUEUED, REJECTED, EVICTED)
ROUTED: Final = "request.routed"
SPLIT: Final = "request.split"
MOVED: Final = "request.moved"
ENDED: Final = "request.ended"
FETCHED: Final = "request.fetched"
LOADED: Final = "adapter.loaded"
UNLOADED: Final = "adapter.evicted"
REDIRECTED: Final = "request.redirected"
RETRIED: Final = "request.retried"
RESIZED: Final = "scaling.decided"
KEPT: Final = "scaling.kept"
FAULT_BEGAN: Final = "fault.began"
FAULT_ENDED: Final = "fault.ended"
APPLIED: Final = "scaling.applied"
SUPERSEDED: Final = "scaling.superseded"
KINDS: Final = (
    *VERDICTS,
    ROUTED,
    SPLIT,
    MOVED,
    ENDED,
    FETCHED,
    LOADED,
    UNLOADED,
    REDIRECTED,
    RETRIED,
    RESIZED,
    KEPT,
    FAULT_BEGAN,
    FAULT_ENDED,
    APPLIED,
    SUPERSEDED,
    *REPLICAS,
)


class Story:
    """Events of one run. A run that nobody listens to has none, and builds no event."""

    def __init__(self, telemetry: Telemetry, policy: str, adapters: list[str]) -> None:
        self._telemetry: Final = telemetry
        self._policy: Final = policy  # of the router
        self._adapters: Final = adapters  # names by number

    def tell(self, now_s: float, kind: str, request: Request, reason: str, **data: Plain) -> None:
        if self._telemetry.wants(kind):
            event = Event(now_s, kind, f"request/{request.id}", reason, data)
            self._telemetry.emit(event)

    def adapters(self, now_s: float, server: Server) -> None:
        """What a server has loaded and evicted since it was last asked: pairs of who and what."""
        assert server.slots is not None
        journal = server.slots.journal
        assert journal is not None
        for place in range(0, len(journal), 2):
            kind, reason = (LOADED, "wanted") if journal[place + 1] else (UNLOADED, "room")
            if self._telemetry.wants(kind):
                data: dict[str, Plain] = {"adapter": self._adapters[journal[place]]}
                self._telemetry.emit(Event(now_s, kind, f"server/{server.index}", reason, data))
        journal.clear()

    def fetched(self, now_s: float, server: Server) -> None:
        """Which requests of a server wait for KV from slower tiers since it was last asked."""
        assert server.tiers is not None
        loads = server.tiers.journal
        assert loads is not None
        for load in loads:
            tokens = int(load.blocks) * int(server.limits.block_size)
            reason = "cached" if tokens else "on its way"
            wait_s = load.ready_s - load.begun_s
            self.tell(now_s, FETCHED, load.request, reason, tokens=tokens, wait_s=wait_s)
        loads.clear()

    def routed(
        self,
        now_s: float,
        request: Request,
        opinions: list[tuple[int, float]],
        judgement: Judgement | None,
    ) -> None:
        """Where a request was sent and, when that was looked into, what others would have been.

        `opinions` are what the router thought of each server; none when it does not compare them.
        """
        data: dict[str, Plain] = {"server": int(request.server)}
        for server, score in opinions:
            if server == request.server:
                data["score"] = score
        if judgement is not None:
            data["fresh_score"] = judgement.score
            data["regret"] = judgement.regret
            data["others"] = [[server, score] for server, score in judgement.others]
        self.tell(now_s, ROUTED, request, self._policy, **data)

    def moved(self, now_s: float, request: Request) -> None:
        """The KV of a split request is where its answer is made."""
        stayed = request.transfer_end_s == UNSET
        took_s = None if stayed else request.transfer_end_s - request.transfer_start_s
        self.tell(now_s, MOVED, request, "stayed" if stayed else "", took_s=took_s)

    def stepped(self, now_s: float, server: Server) -> None:
        """What a server has decided by itself, beside its steps."""
        if server.slots is not None and server.slots.journal:
            self.adapters(now_s, server)
        if server.tiers is not None and server.tiers.journal:
            self.fetched(now_s, server)

    def ended(self, now_s: float, request: Request, outcome: str) -> None:
        self.tell(
            now_s,
            ENDED,
            request,
            request.reason,
            outcome=outcome,
            server=int(request.server) if request.server >= 0 else None,
            waited_s=request.scheduled_s - request.arrived_s
            if request.scheduled_s != UNSET
            else None,
            preemptions=int(request.preemptions),
        )
