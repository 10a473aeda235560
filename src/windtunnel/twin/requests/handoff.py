"""Requests whose prompt is computed on one server and whose answer is generated on another.

The prefill half is a request of its own, the leg, which ends with its first token and keeps its
blocks. When it has ended, blocks are reserved on the decoding server, which queues requests that it
has no room for; what that server has not cached is moved over the link; then the leg's blocks are
freed and the whole request is decoded, its first token coming from the decoding server.

Servers that do both could deadlock, each waiting for blocks of the other while full of prompts for
it. Therefore, where the server that computed a prompt can also decode and the other has no room,
the request stays.
"""

from typing import Final

from mypy_extensions import i64

from windtunnel.core.statistics.distribution import Distribution
from windtunnel.twin.requests.kv_link import KvNetwork
from windtunnel.twin.requests.links import Transfer
from windtunnel.twin.servers.cluster import Cluster
from windtunnel.workload.request import RESERVED, WANTING, Request


class Split:
    """A split request on its way from one server to the other."""

    def __init__(self, request: Request, leg: Request) -> None:
        self.request: Final = request
        self.leg: Final = leg
        self.prefilled = False
        self.transfer: Transfer | None = None


class Handoff:
    """All split requests between their arrival and the start of their decoding."""

    def __init__(
        self,
        cluster: Cluster,
        network: KvNetwork,
        bytes_per_token: list[float],
        layers: list[int] | None,
    ) -> None:
        self._cluster: Final = cluster
        self._network: Final = network
        self._bytes_per_token: Final = bytes_per_token  # by model
        self._layers: Final = layers  # by model, if each layer moves as soon as it is computed
        self.splits: Final[dict[int, Split]] = {}
        self.room: Final = Distribution()  # seconds from the end of a prefill to the reservation
        self.transfer: Final = Distribution()  # seconds from reservation to arrival
        self.begun: i64 = 0
        self.waited: i64 = 0  # requests that waited for room on the decoding server
        self.unserved: i64 = 0  # prefilled on the decoding server: no prefill server was ready
        self.stayed: i64 = 0  # decoded where the prompt was computed: no room elsewhere
        self.moved_tokens: i64 = 0
        self.present_tokens: i64 = 0  # cached on the decoding server, so not moved

    def begin(self, request: Request, prefill_server: int, now_s: float) -> Request:
        """Creates the leg to send to the prefill server."""
        leg = Request(
            request.id,
            request.arrived_s,
            request.prompt_tokens,
            1,
            request.priority,
            request.source,
            request.prefix,
        )
        leg.parent = request
        leg.keeps_blocks = True
        leg.adapter = request.adapter
        leg.model = request.model
        leg.server = prefill_server
        leg.sent_s = now_s
        request.prefill_server = prefill_server
        self.splits[request.id] = Split(request, leg)
        self.begun += 1
        return leg

    def prefilled(self, leg: Request, now_s: float) -> bool:
        """Handles the end of a leg; returns whether the request goes on: not if the leg can never
        run."""
        split = self.splits[leg.id]
        request = split.request
        if leg.dropped:
            request.reason = leg.reason
            del self.splits[leg.id]
            return False
        split.prefilled = True
        request.prefilled_s = now_s
        self.note(request)
        self.move(request, now_s)
        return True

    def note(self, request: Request) -> None:
        """Copies what is known of the leg to the whole request."""
        leg = self.splits[request.id].leg
        request.scheduled_s = leg.scheduled_s
        request.preemptions = leg.preemptions
        request.pauses = leg.pauses

    def move(self, request: Request, now_s: float) -> None:
        """Reserves blocks and starts the transfer, or queues the request until there are some."""
        split = self.splits[request.id]
        tokens = int(request.prompt_tokens) - 1
        missing = self._cluster.reserve(request, tokens, now_s)
        if missing >= 0:
            self._start(split, missing, now_s)
        elif self._can_stay(split):
            self._stay(split, now_s)
        else:
            self.waited += 1
            self._cluster.await_room(request, tokens)

    def granted(self, request: Request, now_s: float) -> bool:
        """Starts the transfer once the decoding server has reserved the awaited blocks.

        Returns whether they are still needed: the request may have been withdrawn in the same
        instant.
        """
        split = self.splits.get(request.id)
        if split is None or split.request is not request or request.stage != RESERVED:
            return False
        missing = request.prompt_tokens - 1 - request.prefix_hit_tokens
        self._start(split, max(0, missing), now_s)
        return True

    def _start(self, split: Split, missing: i64, now_s: float) -> None:
        """Transfers what the decoding server has not cached; its blocks are reserved there."""
        request = split.request
        tokens = request.prompt_tokens - 1
        request.prefix_hit_tokens = split.leg.prefix_hit_tokens
        self.moved_tokens += missing
        self.present_tokens += tokens - missing
        request.transfer_start_s = now_s
        self.room.add(now_s - request.prefilled_s)
        if missing == 0:
            self.arrived(request, now_s)
            return
        self._start_transfer(split, float(missing) * self._bytes_per_token[request.model], now_s)

    def _start_transfer(self, split: Split, size: float, now_s: float) -> None:
        request, leg = split.request, split.leg
        network = self._network
        site = int(self._cluster.replicas[leg.server].pool.site)
        split.transfer = network.start(request, size, int(leg.server), site, now_s)
        if self._layers is not None and request.prefilled_s == now_s:
            last_layer = size / float(self._layers[request.model])
            network.shift(split.transfer, leg.scheduled_s, now_s, last_layer)
        self._cluster.agenda.moved(network)

    def _can_stay(self, split: Split) -> bool:
        server = split.leg.server
        decodes = self._cluster.replicas[server].pool.decodes
        return decodes and not self._cluster.servers[server].refusal(split.request)

    def _stay(self, split: Split, now_s: float) -> None:
        request = split.request
        del self.splits[request.id]
        self.stayed += 1
        request.sent_s = now_s
        self._cluster.adopt(request, split.leg, now_s)
        request.prefix_hit_tokens = split.leg.prefix_hit_tokens
        self._cluster.submit_arrived(request, now_s)

    def arrived(self, request: Request, now_s: float) -> None:
        """Frees the prefill server's copy and starts decoding, once the KV has arrived."""
        split = self.splits.pop(request.id)
        request.transfer_end_s = request.sent_s = now_s
        self.transfer.add(now_s - request.transfer_start_s)
        self._cluster.let_go(split.leg, now_s)
        self._cluster.submit_arrived(request, now_s)

    def abandon(self, request: Request, now_s: float) -> Request | None:
        """Undoes a handoff; returns the leg if it must still be taken off its server."""
        self.note(request)
        split = self.splits.pop(request.id)
        if split.transfer is not None:
            self._network.abandon(split.transfer, now_s)
            self._cluster.agenda.moved(self._network)
        if request.stage == RESERVED:
            self._cluster.let_go(request, now_s)
        elif request.stage == WANTING:
            self._cluster.forgo(request, now_s)
        if split.prefilled:
            self._cluster.let_go(split.leg, now_s)
            return None
        return split.leg
