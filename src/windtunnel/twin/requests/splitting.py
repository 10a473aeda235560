"""Disaggregation: sends the prefill of a request to a different server from the one that
decodes."""

from typing import Final

from windtunnel.core import vocabulary
from windtunnel.engine.server import Server
from windtunnel.routing.router import NoServer, SplitDecider
from windtunnel.twin.requests.handoff import Handoff
from windtunnel.twin.requests.service import Service
from windtunnel.twin.results.event_log import EventLog
from windtunnel.twin.servers.cluster import Cluster
from windtunnel.workload.request import Request


class Splitting:
    """Splits requests between a prefill and a decode server."""

    def __init__(self, decider: SplitDecider, handoff: Handoff) -> None:
        self.decider: Final = decider
        self.handoff: Final = handoff

    def leg_of(
        self,
        request: Request,
        service: Service,
        server: Server,
        cluster: Cluster,
        event_log: EventLog | None,
        now_s: float,
    ) -> Request | None:
        """The prefill half of a request; None when `server` gets the whole request."""
        # Prompts are computed in the cluster where they are decoded: KV never leaves it.
        router = service.prefill_routers[cluster.replicas[server.index].pool.site]
        if router is None or server.refusal(request):
            return None
        cached = server.cached_tokens(request)
        decision = self.decider.decide(request.prompt_tokens, cached)
        if not decision.split:
            return None
        service.probe(router, now_s)
        routed = router.choose(request, now_s)
        if isinstance(routed, NoServer):
            self.handoff.unserved += 1
            return None
        prefill = int(routed.server)
        if prefill == server.index:
            return None
        if event_log is not None:
            event_log.add(
                now_s,
                vocabulary.SPLIT,
                request,
                decision.reason,
                prefill=prefill,
                cached=int(cached),
                why=routed.reason,
            )
        return self.handoff.begin(request, prefill, now_s)
