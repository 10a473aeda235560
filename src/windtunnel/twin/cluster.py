"""The servers of a run and who of them acts next.

A server changes through here alone, because whatever changes it may change when it acts next, and
its place on the agenda must follow.
"""

from typing import Final

from windtunnel.core.agenda import Actor, Agenda
from windtunnel.core.signals import Signals
from windtunnel.engine.server import Server
from windtunnel.routing.look import look_at
from windtunnel.routing.transfer import Link
from windtunnel.workload.request import Request


class Cluster:
    """Servers, the link between them when there is one, and what a control plane sees of them."""

    def __init__(
        self, servers: list[Server], answering: list[int], link: Link | None, staleness_s: float
    ) -> None:
        self.servers: Final = servers
        self.link: Final = link
        self.signals: Final = Signals(
            [int(server.limits.max_num_seqs) for server in servers], staleness_s, answering
        )
        actors: list[Actor] = [*servers]
        if link is not None:
            actors.append(link)
        self.agenda: Final = Agenda(actors)

    def look(self, now_s: float) -> None:
        """Asks every server how it is, when that was last done long enough ago."""
        if self.signals.stale(now_s):
            look_at(self.servers, self.signals, now_s)

    def submit(self, request: Request, server: Server, now_s: float) -> None:
        wake_s = server.wake_s
        server.submit(request, now_s)
        if server.wake_s != wake_s:
            self.agenda.moved(server)

    def advance(self, server: Server, now_s: float) -> None:
        server.advance(now_s)
        self.agenda.moved(server)

    def cancel(self, request: Request, now_s: float) -> None:
        server = self.servers[request.server]
        server.cancel(request, now_s)
        self.agenda.moved(server)

    def reserve(self, request: Request, tokens: int, now_s: float) -> int:
        """Tokens that must be moved to the request's server; -1: its blocks are short."""
        server = self.servers[request.server]
        missing = server.reserve(request, tokens, now_s)
        self.agenda.moved(server)
        return missing

    def adopt(self, request: Request, kept: Request, now_s: float) -> None:
        """Moves a request to the server where the blocks of its prompt are kept."""
        self.signals.ended(request.server)
        request.server = kept.server
        self.signals.sent(request.server)
        server = self.servers[request.server]
        server.adopt(request, kept, now_s)
        self.agenda.moved(server)

    def submit_arrived(self, request: Request, now_s: float) -> None:
        server = self.servers[request.server]
        server.submit_arrived(request, now_s)
        self.agenda.moved(server)

    def let_go(self, request: Request, now_s: float) -> None:
        server = self.servers[request.server]
        server.let_go(request, now_s)
        self.agenda.moved(server)
