"""Tells what was decided, with the reason, to whoever listens."""

from typing import Final

from windtunnel.core.telemetry import Event, Plain, Telemetry
from windtunnel.routing.counterfactual import Judgement
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
LOADED: Final = "adapter.loaded"
UNLOADED: Final = "adapter.evicted"


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

    def adapters(self, now_s: float, server: int, journal: list[int]) -> None:
        """What a server has loaded and evicted since it was last asked: pairs of who and what."""
        for place in range(0, len(journal), 2):
            kind, reason = (LOADED, "wanted") if journal[place + 1] else (UNLOADED, "room")
            if self._telemetry.wants(kind):
                data: dict[str, Plain] = {"adapter": self._adapters[journal[place]]}
                self._telemetry.emit(Event(now_s, kind, f"server/{server}", reason, data))
        journal.clear()

    def routed(self, now_s: float, request: Request, judgement: Judgement | None) -> None:
        """Where a request was sent and, when that was looked into, what others would have been."""
        data: dict[str, Plain] = {"server": int(request.server)}
        if judgement is not None:
            data["score"] = judgement.score
            data["regret"] = judgement.regret
            data["others"] = [[server, score] for server, score in judgement.others]
        self.tell(now_s, ROUTED, request, self._policy, **data)

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
