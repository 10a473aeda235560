"""All decisions of a gateway: facts and the time in, actions with reasons out, no I/O.

The driver reports facts (a request arrived, a server failed, a scrape was read), then carries out
the actions that `take` returns until there are no more. `next_s` is when `tick` is due. Facts and
decisions can be recorded; a new object with the same settings, given the same facts, makes the same
decisions, which `windtunnel audit` verifies.
"""

import math
from collections.abc import Sequence
from typing import Final

from windtunnel.admission.gateway.driver import GatewayDriver
from windtunnel.admission.gateway.gateway import Allowance
from windtunnel.admission.gateway.policies import build_gateway
from windtunnel.admission.gateway.tickets import ADMIT, EVICT, REJECT, GatewayDecision, Ticket
from windtunnel.core import vocabulary
from windtunnel.core.random import Streams
from windtunnel.core.signals import Signals
from windtunnel.core.telemetry import Plain, Record
from windtunnel.live.gateway.caches import PrefixCaches
from windtunnel.live.gateway.facts import (
    ANSWERED,
    ARRIVED,
    BOTH,
    CACHE_SIZE,
    CACHE_TOLD,
    DRAINING,
    FAILED,
    HEALTHY,
    JOINED,
    OBSERVED,
    PREFILL,
    PREFILLED,
    REFUSE,
    SEND,
    STOP,
    TENANT,
    TICK,
    UNDRAINED,
    UNHEALTHY,
    UNOBSERVED,
    GatewayAction,
    ModelCard,
    Policies,
    RequestArrival,
    arrival_data,
)
from windtunnel.routing.availability import Availability, RetryBudget
from windtunnel.routing.build import RouterInputs, build_router
from windtunnel.routing.custom import RequestLabels
from windtunnel.routing.prefixes import CacheJournal
from windtunnel.routing.router import NO_SERVER_READY, NoServer, Routed, Router, SplitDecider
from windtunnel.workload.request import NEVER, PrefixChain, Request

QUEUED: Final = 0
UNPLACED: Final = 1  # admitted while no server could take it
SENT: Final = 2

HOLDS_STATE: Final = "the server has the conversation"
NO_SERVER: Final = "no-server"
SERVER_FAILED: Final = "server-failed"


class LiveServer:
    """A server as the decisions see it. Its number is never reused."""

    __slots__ = ("availability", "in_flight", "listed", "models", "name", "observed_s", "role")

    def __init__(self, name: str, role: str, availability: Availability) -> None:
        self.name: Final = name
        self.role: Final = role
        self.availability: Final = availability
        self.models: tuple[ModelCard, ...] = ()
        self.listed: frozenset[str] = frozenset()  # names of its models and adapters
        self.observed_s = -math.inf  # time of the last load report
        self.in_flight = 0

    @property
    def gone(self) -> bool:
        """Whether it was drained, has no request in flight, and is no longer checked or does not
        answer."""
        state = self.availability
        return state.draining and not state.healthy and not self.in_flight


class LiveRequest:
    """A request, from its arrival to its end."""

    __slots__ = ("among", "holder", "plane", "record", "state", "tried", "unplaced_s")

    def __init__(self, record: Request, plane: "ModelPlane", arrival: RequestArrival) -> None:
        self.record: Final = record
        self.plane: Final = plane
        self.holder: Final = arrival.holder
        self.among: Final = arrival.among
        self.state = QUEUED
        self.tried: list[int] = []
        self.unplaced_s = 0.0


class ModelPlane:
    """The control plane of one base model: admission, and routing among its servers."""

    def __init__(
        self, name: str, policies: Policies, pools: list[str], adapters: list[str]
    ) -> None:
        self.name: Final = name
        self.signals: Final = Signals([], policies.router.staleness_s, [])
        self.caches: Final = PrefixCaches()
        self.candidates: list[int] = []
        self.prefillers: list[int] = []
        self.unplaced: Final[dict[int, LiveRequest]] = {}
        labels = RequestLabels([one.name for one in policies.classes], policies.tenants, adapters)
        inputs = RouterInputs(
            self.signals, CacheJournal(self.caches), pools, labels, policies.folder
        )
        stream = Streams(policies.seed)[f"router.{name}"]
        self.router: Final[Router] = build_router(policies.router, [], inputs, stream)
        stream = Streams(policies.seed)[f"prefill.{name}"]
        self.prefill_router: Final[Router] = build_router(policies.router, [], inputs, stream)
        priorities = sorted({one.priority for one in policies.classes}, reverse=True)
        gateway = build_gateway(
            policies.admission, policies.tenants, priorities, policies.router.staleness_s
        )
        self.driver: Final = GatewayDriver(gateway, self.signals)

    def join(self, slots: int) -> None:
        """Adds a server; server numbers are shared by all models."""
        self.signals.join(slots)
        self.caches.join()


class GatewayCore:
    """The models, servers and requests of one gateway."""

    def __init__(self, policies: Policies, record: Record | None = None) -> None:
        self.policies: Final = policies
        self.servers: Final[list[LiveServer]] = []
        self.planes: Final[dict[str, ModelPlane]] = {}
        self.requests: Final[dict[int, LiveRequest]] = {}
        admission = policies.admission
        self.has_allowances: Final = bool(admission.budgets) or admission.policy == "token-bucket"
        """Whether any tenant is limited to a rate or a share."""
        self.splits = False  # whether a server of role `prefill` has joined
        self.retries = 0
        self._record: Final = record
        self._pools: Final[list[str]] = []
        self._adapters: Final[list[str]] = []
        self._names: Final[dict[str, tuple[ModelPlane, int]]] = {}  # by the name clients use
        self._budget: Final = RetryBudget(policies.retry_share)
        split = policies.split
        self._decider: Final = SplitDecider(split.decider, split.prefix_threshold)
        self._actions: Final[list[GatewayAction]] = []
        self._taken = 0

    # Servers.

    def join(self, name: str, slots: int, now_s: float, role: str = BOTH) -> int:
        """Adds a server, which is not healthy yet; returns its number."""
        subject = f"server/{len(self.servers)}"
        self._fact(now_s, JOINED, subject, name=name, slots=slots, role=role)
        policies = self.policies
        availability = Availability(slots, policies.breaker, policies.ramp_s)
        self.servers.append(LiveServer(name, role, availability))
        self.splits = self.splits or role == PREFILL
        self._pools.append(name)
        for plane in self.planes.values():
            plane.join(slots)
        return len(self.servers) - 1

    def healthy(self, server: int, models: Sequence[ModelCard], now_s: float) -> None:
        """Marks a server ready, with these models; also called when its models have changed."""
        data: list[Plain] = [[card.name, card.parent] for card in models]
        self._fact(now_s, HEALTHY, f"server/{server}", models=data)
        one = self.servers[server]
        was = one.availability.healthy
        one.models = tuple(models)
        one.listed = frozenset(card.name for card in models)
        self._know(one.models)
        if not was:
            others = any(other.availability.healthy for other in self.servers)
            one.availability.became_healthy(now_s, ramp=others)
        self._reconsider(now_s)

    def unhealthy(self, server: int, reason: str, now_s: float) -> None:
        self._fact(now_s, UNHEALTHY, f"server/{server}", reason)
        self.servers[server].availability.healthy = False
        for plane in self.planes.values():
            plane.caches.lost(server)
        self._reconsider(now_s)

    def drain(self, server: int, now_s: float) -> None:
        """Sends the server no more requests; its requests in flight continue."""
        self._fact(now_s, DRAINING, f"server/{server}")
        self.servers[server].availability.draining = True
        self._reconsider(now_s)

    def undrain(self, server: int, now_s: float) -> None:
        self._fact(now_s, UNDRAINED, f"server/{server}")
        self.servers[server].availability.draining = False
        self._reconsider(now_s)

    def observe(
        self, server: int, load: tuple[int, int, float], adapters: Sequence[str], now_s: float
    ) -> None:
        """Records a scrape: requests waiting and running, and the share of KV blocks in use."""
        waiting, running, kv_used = load
        data: list[Plain] = [waiting, running, kv_used, list(adapters)]
        self._fact(now_s, OBSERVED, f"server/{server}", load=data)
        self.servers[server].observed_s = now_s
        numbers = [self._adapters.index(name) for name in adapters if name in self._adapters]
        for plane in self._planes_of(server):
            plane.signals.observe_adapters(server, numbers, now_s)
        self._take_load(server, waiting, running, kv_used, now_s)

    def unobserved(self, server: int, now_s: float) -> None:
        """Estimates a server's load without metrics: it runs what it was sent, up to its slots."""
        self._fact(now_s, UNOBSERVED, f"server/{server}")
        one = self.servers[server]
        running = min(one.in_flight, one.availability.slots)
        self._take_load(server, one.in_flight - running, running, 0.0, now_s)

    def _take_load(
        self, server: int, waiting: int, running: int, kv_used: float, now_s: float
    ) -> None:
        for plane in self._planes_of(server):
            plane.signals.observe_load(server, waiting, running, kv_used, now_s)
            plane.signals.refreshed(now_s)
            if plane.driver.gateway.queued:
                plane.driver.tick(now_s)
            self._obey(plane, now_s)

    def cache_size(self, server: int, tokens: int, now_s: float) -> None:
        """Sets the number of tokens that a server's KV cache holds."""
        self._fact(now_s, CACHE_SIZE, f"server/{server}", tokens=tokens)
        for plane in self._planes_of(server):
            plane.caches.set_capacity(server, tokens)

    def cache_told(
        self,
        server: int,
        stored: list[tuple[int, int]],
        removed: list[int],
        now_s: float,
        *,
        cleared: bool,
    ) -> None:
        """Records the prefixes that a server reports as stored or removed."""
        if self._record is not None:
            kept: list[Plain] = [[key, end] for key, end in stored]
            gone: list[Plain] = [*removed]
            data: dict[str, Plain] = {"cleared": cleared, "stored": kept, "removed": gone}
            self._record(now_s, CACHE_TOLD, f"server/{server}", "", data)
        for plane in self._planes_of(server):
            plane.caches.told(server, stored, removed, cleared=cleared)

    def add_tenant(self, name: str, now_s: float) -> None:
        """Adds a tenant that the configuration did not have at the start."""
        self._fact(now_s, TENANT, "gateway", name=name)
        self.policies.tenants.append(name)

    # Requests.

    def knows(self, model: str) -> bool:
        return model in self._names

    def base_of(self, model: str) -> str:
        """The base model of an adapter, or the model itself."""
        return self._names[model][0].name

    def models(self) -> list[ModelCard]:
        """The models that clients can use now, each once, sorted by name."""
        found = {
            card.name: card
            for one in self.servers
            if one.availability.healthy and not one.availability.draining
            for card in one.models
        }
        return [found[name] for name in sorted(found)]

    def least_busy(self, among: Sequence[int] | None, now_s: float) -> int | None:
        """The available server with the fewest requests, for a request that any can answer."""
        able = [
            (self.servers[number].in_flight, number)
            for number in (range(len(self.servers)) if among is None else among)
            if self.servers[number].availability.allows(0, now_s)
        ]
        return min(able)[1] if able else None

    def queued(self, model: str) -> int:
        """Requests queued for a model and its adapters."""
        plane, _ = self._names[model]
        return plane.driver.gateway.queued + len(plane.unplaced)

    def allowances(self, model: str, tenant: int, now_s: float) -> list[Allowance]:
        """What a tenant may still request from a model."""
        plane, _ = self._names[model]
        return plane.driver.gateway.allowances(tenant, plane.signals, now_s)

    def arrive(self, arrival: RequestArrival, now_s: float) -> None:
        """Takes a new request to admission; its model must be known (`knows`)."""
        if self._record is not None:
            data = arrival_data(arrival)
            self._record(now_s, ARRIVED, f"request/{arrival.id}", "", data)
        plane, adapter = self._names[arrival.model]
        class_ = self.policies.classes[arrival.slo]
        prefix = None
        prompt_tokens = arrival.prompt_tokens
        if arrival.prefix_keys:
            prefix = PrefixChain(arrival.prefix_keys, arrival.prefix_ends)
            prompt_tokens = max(prompt_tokens, prefix.ends[-1] + 1)
        record = Request(
            arrival.id,
            now_s,
            prompt_tokens,
            arrival.output_tokens,
            class_.priority,
            0,
            prefix,
        )
        record.slo, record.tenant, record.adapter = arrival.slo, arrival.tenant, adapter
        record.session = arrival.session
        self.requests[arrival.id] = LiveRequest(record, plane, arrival)
        self._budget.arrived()
        target_s = NEVER if class_.ttft_s == math.inf else now_s + class_.ttft_s
        ticket = Ticket(
            arrival.id, arrival.tenant, class_.priority, arrival.prompt_tokens, target_s
        )
        plane.driver.arrive(ticket, now_s)
        self._obey(plane, now_s)

    def answered(self, request: int, now_s: float, *, good: bool) -> None:
        """Records that the server has begun to answer: from now on the request is not retried.

        `good`: the response is not a server fault.
        """
        if self._record is not None:
            self._record(now_s, ANSWERED, f"request/{request}", "", {"good": good})
        breaker = self.servers[self.requests[request].record.server].availability.breaker
        was = breaker.state
        if good:
            breaker.succeeded()
        else:
            breaker.failed(now_s)
        if breaker.state != was:
            self._reconsider(now_s)

    def failed(self, request: int, reason: str, now_s: float, *, again: bool, faulty: bool) -> None:
        """Records that the server did not answer, or that another server may do better.

        `again`: the request may be retried; `faulty`: the failure counts against the server.
        """
        self._fact(now_s, FAILED, f"request/{request}", reason, again=again, faulty=faulty)
        one = self.requests[request]
        server = int(one.record.server)
        one.tried.append(server)
        if faulty:
            self.servers[server].availability.breaker.failed(now_s)
        self._leave_prefill(one)
        self._leave_server(one)
        self._reconsider(now_s)
        if again and len(one.tried) < self.policies.attempts and self._budget.take():
            self.retries += 1
            self._place(one, now_s)
        else:
            self._refuse(one, SERVER_FAILED, len(one.tried), self.policies.attempts, now_s)
        self._obey(one.plane, now_s)

    def prefilled(self, request: int, now_s: float, *, good: bool) -> None:
        """Records that the prefill server has computed the prompt, or failed to."""
        self._fact(now_s, PREFILLED, f"request/{request}", good=good)
        one = self.requests[request]
        breaker = self.servers[one.record.prefill_server].availability.breaker
        if good:
            breaker.succeeded()
        else:
            breaker.failed(now_s)
        self._leave_prefill(one)
        self._reconsider(now_s)
        self._obey(one.plane, now_s)

    def ended(
        self, request: int, outcome: str, now_s: float, ttft_s: float = -1.0, tpot_s: float = 0.0
    ) -> None:
        """Records the end of a request: completed, abandoned by its client, or cut off.

        A time to first token below 0 means that there was no token. Does nothing for a refused
        request.
        """
        one = self.requests.pop(request, None)
        if one is None:
            return
        self._fact(
            now_s, vocabulary.ENDED, f"request/{request}", outcome, ttft_s=ttft_s, tpot_s=tpot_s
        )
        plane = one.plane
        if one.state == QUEUED:
            plane.driver.leave(request, now_s)
        else:
            if one.state == SENT:
                if ttft_s >= 0.0:
                    plane.signals.observe_latency(one.record.server, ttft_s, tpot_s)
                self._leave_prefill(one)
                self._leave_server(one)
            else:
                del plane.unplaced[request]
            plane.driver.ended(request, now_s)
        self._reconsider_if_capped(one, now_s)
        self._obey(plane, now_s)

    # Time.

    @property
    def next_s(self) -> float:
        """When `tick` is due for requests; `server_next_s` gives it for servers."""
        soonest = math.inf
        for plane in self.planes.values():
            soonest = min(soonest, plane.driver.next_s)
            for one in plane.unplaced.values():  # in order of time
                soonest = min(soonest, one.unplaced_s + self.policies.unplaced_ttl_s)
                break
        return soonest

    def server_next_s(self, now_s: float) -> float:
        """When a server may become available through the passage of time alone."""
        times = [one.availability.next_s(now_s) for one in self.servers]
        return min(times, default=math.inf)

    def tick(self, now_s: float) -> None:
        self._fact(now_s, TICK, "gateway")
        for server in self.servers:
            server.availability.breaker.tick(now_s)
        self._reconsider(now_s)
        for plane in self.planes.values():
            ttl_s = self.policies.unplaced_ttl_s
            late = [one for one in plane.unplaced.values() if now_s - one.unplaced_s >= ttl_s]
            for one in late:
                del plane.unplaced[int(one.record.id)]
                self._refuse(one, NO_SERVER, now_s - one.unplaced_s, ttl_s, now_s)
            plane.driver.tick(now_s)
            self._obey(plane, now_s)

    def take(self) -> GatewayAction | None:
        """The next action to carry out; None if there are no more for now."""
        if self._taken < len(self._actions):
            action = self._actions[self._taken]
            self._taken += 1
            return action
        self._actions.clear()
        self._taken = 0
        return None

    def check(self) -> str | None:
        """An inconsistency in the counters once every action was taken; None if there is none."""
        sent = [0] * len(self.servers)
        for one in self.requests.values():
            if one.state == SENT:
                sent[one.record.server] += 1
                if one.record.prefill_server >= 0:
                    sent[one.record.prefill_server] += 1
        for number, server in enumerate(self.servers):
            if server.in_flight != sent[number]:
                return f"{server.name} has {server.in_flight} in flight, counted {sent[number]}"
        for plane in self.planes.values():
            fault = plane.driver.check()
            if fault is not None:
                return f"{plane.name}: {fault}"
        return None

    # Consequences of facts.

    def _know(self, models: Sequence[ModelCard]) -> None:
        """Adds planes for new base models, and the names of new adapters."""
        for card in models:
            base = card.parent or card.name
            if base not in self.planes:
                plane = ModelPlane(base, self.policies, self._pools, self._adapters)
                for server in self.servers:
                    plane.join(server.availability.slots)
                self.planes[base] = plane
                self._names[base] = (plane, -1)
            if card.parent and card.name not in self._names:
                self._adapters.append(card.name)
                self._names[card.name] = (self.planes[base], len(self._adapters) - 1)

    def _planes_of(self, server: int) -> list[ModelPlane]:
        bases = dict.fromkeys(card.parent or card.name for card in self.servers[server].models)
        return [self.planes[base] for base in bases]

    def _reconsider(self, now_s: float) -> None:
        """Updates the candidates after servers have come, gone, or may be tried again."""
        for plane in self.planes.values():
            both = [
                number
                for number, one in enumerate(self.servers)
                if one.availability.allows(one.in_flight, now_s) and self._has(one, plane)
            ]
            able = [number for number in both if self.servers[number].role != PREFILL]
            apart = [number for number in both if self.servers[number].role == PREFILL]
            if apart != plane.prefillers:
                plane.prefillers = apart
                plane.prefill_router.set_candidates(apart)
            if not able:
                able = self._least_bad(plane)
            if able != plane.candidates:
                plane.candidates = able
                plane.router.set_candidates(able)
                plane.signals.answer(able)
                self._place_unplaced(plane, now_s)
                plane.driver.tick(now_s)
                self._obey(plane, now_s)

    def _place_unplaced(self, plane: ModelPlane, now_s: float) -> None:
        while plane.unplaced and plane.candidates:
            self._place(plane.unplaced.pop(next(iter(plane.unplaced))), now_s)

    @staticmethod
    def _has(one: LiveServer, plane: ModelPlane) -> bool:
        return any((card.parent or card.name) == plane.name for card in one.models)

    def _least_bad(self, plane: ModelPlane) -> list[int]:
        """If every breaker is open: the server whose open time ends first, to be tried now."""
        found = [
            (one.availability.breaker.until_s, number)
            for number, one in enumerate(self.servers)
            if one.availability.healthy and not one.availability.draining and one.role != PREFILL
            if self._has(one, plane) and one.availability.breaker.until_s != math.inf
        ]
        if not found:
            return []
        until_s, number = min(found)
        self.servers[number].availability.breaker.tick(until_s)
        return [number]

    def _reconsider_if_capped(self, one: LiveRequest, now_s: float) -> None:
        server = int(one.record.server)
        if server >= 0 and self.servers[server].availability.cap(now_s) != math.inf:
            self._reconsider(now_s)

    def _obey(self, plane: ModelPlane, now_s: float) -> None:
        decision = plane.driver.take()
        while decision is not None:
            self._carry_out(decision, now_s)
            decision = plane.driver.take()

    def _carry_out(self, decision: GatewayDecision, now_s: float) -> None:
        number = decision.ticket.id
        assert isinstance(number, int)
        one = self.requests[number]
        kind, reason = decision.kind, str(decision.reason)
        self._decided(
            now_s,
            vocabulary.GATEWAY_DECISIONS[kind],
            number,
            reason,
            seen=decision.seen,
            limit=decision.limit,
        )
        if kind == ADMIT:
            one.record.admitted_s = now_s
            self._place(one, now_s)
        elif kind == REJECT:
            del self.requests[number]
            self._act(REFUSE, number, -1, reason, decision.seen, decision.limit)
        elif kind == EVICT:
            self._act(STOP, number, int(one.record.server), reason, decision.seen, decision.limit)

    def _place(self, one: LiveRequest, now_s: float) -> None:
        """Sends an admitted request to a server, if possible to one not tried before."""
        plane, record = one.plane, one.record
        choice: Routed | NoServer
        if not one.tried and one.holder < 0 and not one.among and record.adapter < 0:
            choice = plane.router.choose(record, now_s)
        else:
            choice = self._choose_among(one, now_s)
        number = int(record.id)
        if isinstance(choice, NoServer):
            if one.tried or one.among:
                self._refuse(one, NO_SERVER, len(one.tried), self.policies.attempts, now_s)
                return
            one.state = UNPLACED
            one.unplaced_s = now_s
            plane.unplaced[number] = one
            return
        server = int(choice.server)
        one.state = SENT
        record.server = server
        record.sent_s = now_s
        live = self.servers[server]
        live.in_flight += 1
        plane.signals.sent(server, int(record.prompt_tokens))
        self._decided(now_s, vocabulary.ROUTED, number, choice.reason, server=server)
        action = self._act(
            SEND, number, server, choice.reason, len(one.tried), self.policies.attempts
        )
        action.prefill = self._split(one, now_s)
        if record.prefix is not None:
            plane.caches.sent(server, record.prefix)
        if not live.availability.allows(live.in_flight, now_s):
            self._reconsider(now_s)

    def _choose_among(self, one: LiveRequest, now_s: float) -> Routed | NoServer:
        """Routes a request that not every candidate may take, or that prefers one server."""
        router, candidates = one.plane.router, one.plane.candidates
        allowed = [n for n in candidates if n in one.among] if one.among else candidates
        if not allowed:
            return NoServer(NO_SERVER_READY)
        if one.record.adapter >= 0:
            adapter = self._adapters[one.record.adapter]
            allowed = [n for n in allowed if adapter in self.servers[n].listed] or allowed
        others = [n for n in allowed if n not in one.tried] or allowed
        if one.holder in others:
            return Routed(one.holder, HOLDS_STATE)
        if others == candidates:
            return router.choose(one.record, now_s)
        router.set_candidates(others)
        choice = router.choose(one.record, now_s)
        router.set_candidates(candidates)
        return choice

    def _split(self, one: LiveRequest, now_s: float) -> int:
        """The server that computes the prompt for the chosen server; -1 if it does so itself."""
        plane, record = one.plane, one.record
        if not plane.prefillers:
            return -1
        cached = plane.caches.cached_tokens(int(record.server), record.prefix)
        decision = self._decider.decide(record.prompt_tokens, cached)
        if not decision.split:
            return -1
        choice = plane.prefill_router.choose(record, now_s)
        if isinstance(choice, NoServer):
            return -1
        prefill = int(choice.server)
        record.prefill_server = prefill
        self.servers[prefill].in_flight += 1
        plane.signals.sent(prefill, int(record.prompt_tokens))
        if record.prefix is not None:
            plane.caches.sent(prefill, record.prefix)
        self._decided(
            now_s,
            vocabulary.SPLIT,
            int(record.id),
            decision.reason,
            prefill=prefill,
            cached=cached,
            why=choice.reason,
        )
        return prefill

    def _leave_prefill(self, one: LiveRequest) -> None:
        prefill = int(one.record.prefill_server)
        if prefill >= 0:
            one.record.prefill_server = -1
            self.servers[prefill].in_flight -= 1
            one.plane.signals.ended(prefill, int(one.record.prompt_tokens))

    def _leave_server(self, one: LiveRequest) -> None:
        server = int(one.record.server)
        self.servers[server].in_flight -= 1
        one.plane.signals.ended(server, int(one.record.prompt_tokens))

    def _refuse(
        self, one: LiveRequest, reason: str, seen: float, limit: float, now_s: float
    ) -> None:
        """Refuses an admitted request that no server will answer."""
        number = int(one.record.id)
        del self.requests[number]
        self._decided(now_s, vocabulary.REJECTED, number, reason, seen=seen, limit=limit)
        self._act(REFUSE, number, -1, reason, seen, limit)
        one.plane.driver.ended(number, now_s)

    def _act(
        self, kind: int, request: int, server: int, reason: str, seen: float, limit: float
    ) -> GatewayAction:
        action = GatewayAction(kind, request, server, reason, seen, limit)
        self._actions.append(action)
        return action

    def _fact(self, now_s: float, kind: str, subject: str, reason: str = "", **data: Plain) -> None:
        if self._record is not None:
            self._record(now_s, kind, subject, reason, data)

    def _decided(self, now_s: float, kind: str, request: int, reason: str, **data: Plain) -> None:
        if self._record is not None:
            self._record(now_s, kind, f"request/{request}", reason, data)
