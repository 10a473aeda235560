"""The servers of a run, and which acts next.

Servers are changed only through this module, because any change may change when a server acts next,
and its position on the agenda must follow.
"""

from typing import Final

from mypy_extensions import i64

from windtunnel.core.loop import Actor, Agenda
from windtunnel.core.signals import LoadListener, Signals
from windtunnel.engine.overheads import Overheads
from windtunnel.engine.server import Server
from windtunnel.engine.views import probe
from windtunnel.twin.requests.kv_link import KvNetwork
from windtunnel.twin.results.accounts import Owners
from windtunnel.twin.servers.replicas import DRAINING, READY, STARTING, Pool, Replica
from windtunnel.twin.servers.signal_faults import SignalFaults
from windtunnel.workload.request import Request

LAST_TURN: Final = 1 << 40
"""The turn of an actor that goes after all servers at the same instant."""


class Roster:
    """The servers of one model that get requests now, and the control plane's view of them.

    Each model has its own control plane, which probes only the model's servers.
    """

    def __init__(self, staleness_s: float) -> None:
        self.ready: Final[list[Server]] = []  # by number
        self.signals: Final = Signals([], staleness_s, [])
        self.hidden: Final[dict[int, int]] = {}  # ready servers: how many faults hide each
        self.signal_faults: SignalFaults | None = None  # since the first fault of metrics

    def probe(self, now_s: float) -> None:
        """Probes every server's load if the last probe is old enough."""
        if self.signals.stale(now_s):
            if self.signal_faults is None:
                probe(self.ready, self.signals, now_s)
            else:
                self.signal_faults.probe(self.ready, self.signals, now_s)

    def visible(self) -> list[Server]:
        """The servers that routers can choose."""
        if not self.hidden:
            return self.ready
        return [one for one in self.ready if int(one.index) not in self.hidden]

    def enter(self, server: Server) -> None:
        place = len(self.ready)
        while place > 0 and self.ready[place - 1].index > server.index:
            place -= 1
        self.ready.insert(place, server)


class ServerChanges(LoadListener):
    """The servers that changed since the last check, in a run that is checked as it goes."""

    def __init__(self) -> None:
        self.servers: Final[list[int]] = []  # each once
        self.load = 0  # of all servers, as last counted
        self.looks = 0  # full checks
        self.moves = 0  # state changes of replicas that were checked
        self._loads: Final[list[int]] = []  # by server, as last counted
        self._has: Final[list[bool]] = []  # by server: whether it is listed

    def moved(self, server: i64) -> None:
        """Records a server that changed, or whose requests in flight changed."""
        while len(self._has) <= server:
            self._has.append(False)
            self._loads.append(0)
        if not self._has[server]:
            self._has[server] = True
            self.servers.append(int(server))

    def count(self, servers: list[Server]) -> None:
        """Counts the requests at the changed servers."""
        for number in self.servers:
            load = int(servers[number].load)
            self.load += load - self._loads[number]
            self._loads[number] = load

    def clear(self) -> None:
        """Forgets the changes after they were checked."""
        for number in self.servers:
            self._has[number] = False
        self.servers.clear()


class Cluster:
    """Servers by model, and the network that moves KV between them, if any.

    Lists by server have an entry for every server that ever existed: numbers are never reused.
    """

    def __init__(
        self, pools: list[Pool], network: KvNetwork | None, staleness_s: float, models: int = 1
    ) -> None:
        self.pools: Final = pools
        self.network: Final = network
        self.servers: Final[list[Server]] = []
        self.replicas: Final[list[Replica]] = []  # by server
        self.overheads: Final[list[Overheads]] = []  # by server
        self.owners: Final = Owners([pool.name for pool in pools])
        self.rosters: Final = [Roster(staleness_s) for _ in range(models)]
        self.draining = 0
        self.changes: ServerChanges | None = None  # in a run that is checked as it goes
        self.vacated: Final[list[int]] = []  # draining servers that may have nothing left to do
        self.granting: Final[list[Server]] = []  # servers whose waiting requests were granted room
        self._journals = False
        self.agenda: Final = Agenda([network if network is not None else Actor(LAST_TURN)])

    def add(self, pool: Pool) -> Replica:
        """Adds a server, which gets no requests yet."""
        for roster in self.rosters:  # numbers are unique over all models
            roster.signals.join(int(pool.limits.max_num_seqs))
        server = Server(len(self.servers), pool.limits, pool.step_time, pool.token_gaps)
        server.token_overhead_s = pool.overheads.accumulating_s
        replica = Replica(server, pool, len(pool.replicas))
        self.owners.add(self.pools.index(pool), replica.number)
        self.servers.append(server)
        self.replicas.append(replica)
        self.overheads.append(pool.overheads)
        self.agenda.add(server)
        if self._journals:
            _keep_journals(server)
        pool.join(replica)
        return replica

    def keep_journals(self) -> None:
        """Makes servers journal what they load, evict and fetch from now on, for the event log."""
        self._journals = True
        for server in self.servers:
            _keep_journals(server)

    def follow_changes(self) -> ServerChanges:
        """Tracks from now on which servers change."""
        changes = ServerChanges()
        for roster in self.rosters:
            roster.signals.listen(changes)
        self.changes = changes
        return changes

    def begin_with(self, pool: Pool, replicas: int) -> None:
        """Adds servers that are ready when the run begins."""
        pool.target = replicas
        for _ in range(replicas):
            replica = self.add(pool)
            pool.move(replica, STARTING, 0.0)
            pool.move(replica, READY, 0.0)
            self.rosters[pool.model].ready.append(replica.server)
        self.rosters[pool.model].signals.answer(self.decoders(pool.model))

    def decoders(self, model: int) -> list[int]:
        """The servers that currently answer requests for a model."""
        ready = self.rosters[model].visible()
        return [int(one.index) for one in ready if self.replicas[one.index].pool.decodes]

    def prefillers(self, model: int, site: int) -> list[int]:
        """The model's servers at a site that compute prompts now: role `prefill` or `both`."""
        pools = [(self.replicas[one.index].pool, one) for one in self.rosters[model].visible()]
        return [int(one.index) for pool, one in pools if pool.prefills and pool.site == site]

    @property
    def moves(self) -> int:
        """How often a replica was added or changed state."""
        return sum([int(pool.moves) for pool in self.pools])

    @property
    def starting(self) -> int:
        return sum([pool.counts[STARTING] for pool in self.pools])

    def observe_latency(self, request: Request) -> None:
        """Adds the times of a completed request to its server's report at the next probe."""
        gaps = request.output_tokens - 1
        tpot_s = 0.0
        if gaps > 0:
            tpot_s = (request.finished_s - request.first_token_s) / float(gaps)
        signals = self.rosters[request.model].signals
        signals.observe_latency(request.server, request.first_token_s - request.sent_s, tpot_s)

    def left(self, server: int) -> None:
        """Notes that something has left a server: a draining one may have nothing else to do."""
        if self.draining and self.replicas[server].state == DRAINING:
            self.vacated.append(server)

    def submit(self, request: Request, server: Server, now_s: float) -> None:
        wake_s = server.wake_s
        server.submit(request, now_s)
        if server.wake_s != wake_s:
            self.agenda.moved(server)
        if self.changes is not None:
            self.changes.moved(server.index)

    def advance(self, server: Server, now_s: float) -> None:
        server.advance(now_s)
        self._changed(server)
        if self.draining:
            self.left(server.index)

    def cancel(self, request: Request, now_s: float) -> None:
        server = self.servers[request.server]
        server.cancel(request, now_s)
        self._changed(server)
        self.left(server.index)

    def leak(self, server: Server, blocks: int, now_s: float) -> int:
        """Makes KV blocks of a server unusable; returns how many."""
        leaked = server.leak(blocks, now_s)
        self._moved(server)
        return int(leaked)

    def slow_down(self, server: Server, factor: float, now_s: float) -> None:
        """Slows a server from the next step that it plans."""
        server.slow_down(factor, now_s)
        self._moved(server)

    def crash(self, server: Server, now_s: float) -> None:
        """Ends a server that no longer has any requests."""
        server.crash(now_s)
        self._moved(server)

    def reserve(self, request: Request, tokens: int, now_s: float) -> int:
        """Reserves blocks; returns the tokens to move to the request's server, or -1 without enough
        blocks."""
        server = self.servers[request.server]
        missing = server.reserve(request, tokens, now_s)
        self._moved(server)
        return missing

    def await_room(self, request: Request, tokens: int) -> None:
        """Queues a request at its server until there are blocks for its prompt."""
        server = self.servers[request.server]
        server.await_room(request, tokens)
        self._moved(server)

    def forgo(self, request: Request, now_s: float) -> None:
        """Withdraws a request that awaits room."""
        server = self.servers[request.server]
        server.forgo(request, now_s)
        self._changed(server)

    def _moved(self, server: Server) -> None:
        """Updates the agenda after a server changed."""
        self.agenda.moved(server)
        if self.changes is not None:
            self.changes.moved(server.index)

    def _changed(self, server: Server) -> None:
        """Updates the agenda after a server changed; freed blocks may have been granted."""
        self.agenda.moved(server)
        if self.changes is not None:
            self.changes.moved(server.index)
        if server.granted:
            self.granting.append(server)

    def adopt(self, request: Request, kept: Request, now_s: float) -> None:
        """Moves a request to the server that keeps the blocks of its prompt."""
        signals = self.rosters[request.model].signals
        signals.ended(request.server, request.prompt_tokens)
        self.left(request.server)
        request.server = kept.server
        signals.sent(request.server, request.prompt_tokens)
        server = self.servers[request.server]
        server.adopt(request, kept, now_s)
        self._moved(server)

    def submit_arrived(self, request: Request, now_s: float) -> None:
        server = self.servers[request.server]
        server.submit_arrived(request, now_s)
        self._moved(server)

    def let_go(self, request: Request, now_s: float) -> None:
        server = self.servers[request.server]
        server.let_go(request, now_s)
        self._changed(server)
        self.left(server.index)


def _keep_journals(server: Server) -> None:
    if server.slots is not None:
        server.slots.journal = []
    if server.tiers is not None:
        server.tiers.journal = []
