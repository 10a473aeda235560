"""Disaggregation: who decides whether a prompt is computed elsewhere, where, and how KV comes."""

from typing import Final

from windtunnel.engine.server import Server
from windtunnel.routing.router import Router
from windtunnel.routing.split import Decider
from windtunnel.twin import story as told
from windtunnel.twin.cluster import Cluster
from windtunnel.twin.handoff import Handoff
from windtunnel.twin.story import Story
from windtunnel.workload.request import Request


class Splitting:
    """Splits requests between a server for the prompt and the one that writes the answer."""

    def __init__(self, decider: Decider, router: Router, handoff: Handoff) -> None:
        self.decider: Final = decider
        self.router: Final = router
        self.handoff: Final = handoff

    def leg_of(
        self,
        request: Request,
        server: Server,
        cluster: Cluster,
        story: Story | None,
        now_s: float,
    ) -> Request | None:
        """The half to send to a prefill server; None: `server` gets the whole request."""
        if server.refusal(request):
            return None
        cached = server.cached_tokens(request)
        if not self.decider.split(request.prompt_tokens, cached):
            return None
        if not self.router.candidates:
            self.handoff.unserved += 1
            return None
        if self.router.reads_signals:
            cluster.look(now_s)
        prefill = self.router.choose(request, now_s)
        if prefill == server.index:
            return None
        if story is not None:
            reason = self.decider.kind
            story.tell(now_s, told.SPLIT, request, reason, prefill=prefill, cached=int(cached))
        return self.handoff.begin(request, prefill, now_s)
