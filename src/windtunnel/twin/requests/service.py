"""The service of one model: its gateway, its routers, and requests without a server."""

from collections.abc import Callable
from typing import Final, NamedTuple

from windtunnel.engine.views import probe
from windtunnel.routing.counterfactual import Counterfactual, Judgement
from windtunnel.routing.router import Router
from windtunnel.twin.requests.gateway import SimGateway
from windtunnel.twin.servers.cluster import Cluster, Roster
from windtunnel.workload.request import Request


class Routers(NamedTuple):
    """The routers of one model."""

    decode: Router
    prefill: list[Router | None]
    """By site; None where prompts are computed on the decode servers."""


class Service:
    """The gateway and routers in front of one model's servers. Models share none of it."""

    def __init__(
        self,
        roster: Roster,
        start: Callable[[], Routers],
        counterfactual: Counterfactual | None,
        gateway: SimGateway | None,
    ) -> None:
        self.roster: Final = roster
        self.signals: Final = roster.signals
        self._start: Final = start  # builds routers without state
        router, prefill_routers = start()
        self.router = router
        self.prefill_routers = prefill_routers
        self.counterfactual: Final = counterfactual
        self.gateway: Final = gateway  # None: every request is admitted at once
        self.unplaced: Final[dict[int, Request]] = {}  # admitted while no server was ready
        self.is_outdated = False  # servers have changed, and routers do not know yet
        routers = [router, *[one for one in prefill_routers if one is not None]]
        self._is_eager: Final = (
            gateway is not None
            or counterfactual is not None
            or any(one.follows_changes for one in routers)
        )

    def restart(self, cluster: Cluster, model: int, now_s: float) -> None:
        """Restarts gateway and routers without their state; every request that they knew has
        ended."""
        self.router, self.prefill_routers = self._start()
        self.servers_changed(cluster, model)
        if self.gateway is not None:
            self.gateway.restart(now_s)

    def servers_changed(self, cluster: Cluster, model: int) -> None:
        """Marks a change of servers: routers learn of it now, or before the next choice.

        This keeps a change cheap, however many servers there are.
        """
        self.is_outdated = True
        if self._is_eager:
            self.update(cluster, model)

    def update(self, cluster: Cluster, model: int) -> None:
        """Updates the candidates of the model's routers, all at once since they share a journal."""
        if not self.is_outdated:
            return
        self.is_outdated = False
        servers = cluster.decoders(model)
        self.signals.answer(servers)
        self.router.set_candidates(servers)
        if self.counterfactual is not None:
            self.counterfactual.set_candidates(servers)
        for site, router in enumerate(self.prefill_routers):
            if router is not None:
                router.set_candidates(cluster.prefillers(model, site))

    def probe(self, router: Router, now_s: float) -> None:
        """Probes servers for a router that is about to decide by their load."""
        if router.reads_signals and router.candidates:
            self.roster.probe(now_s)

    def judge(self, request: Request, server: int, now_s: float) -> Judgement | None:
        """The regret of sending a request to this server, where a run measures it."""
        if self.counterfactual is None:
            return None
        probe(self.roster.ready, self.counterfactual.signals, now_s)
        return self.counterfactual.judge(request, server, now_s)

    def gone(self, server: int) -> None:
        """Forgets a server that will never answer again."""
        self.router.gone(server)
        if self.counterfactual is not None:
            self.counterfactual.gone(server)
        for router in self.prefill_routers:
            if router is not None:
                router.gone(server)


def waiting_for_servers(services: list[Service]) -> int:
    """The number of admitted requests that still have no server."""
    return sum([len(one.unplaced) for one in services])


def waiting_outside(services: list[Service]) -> int:
    """The number of requests queued at gateways."""
    gateways = [one.gateway for one in services if one.gateway is not None]
    return sum([one.driver.gateway.queued for one in gateways])
