"""The invariants of a simulation, checked at every event."""

import math
from collections.abc import Callable
from typing import Final

from windtunnel.admission.gateway.driver import GatewayDriver
from windtunnel.core.invariants import Invariant, InvariantChecker
from windtunnel.core.signals import Signals
from windtunnel.core.system.interrupts import breathe
from windtunnel.engine.server import Server
from windtunnel.twin.requests.service import Service
from windtunnel.twin.results.recorder import UNFINISHED
from windtunnel.twin.servers.cluster import Cluster
from windtunnel.twin.servers.replicas import DRAINING, READY, STATES, Replica
from windtunnel.twin.simulation import Simulation
from windtunnel.workload.request import AT_GATEWAY, ON_THE_WAY, SPLIT

LISTS_EVERY: Final = 8
"""One in this many full checks walks the lists of free blocks, which are as long as a cache."""
FEW: Final = 8
"""Up to this many requests, prefixes or tickets are counted one by one after every event; larger
numbers are left to the next full check."""
FEW_REPLICAS: Final = 256
"""Up to this many replicas are all checked when one of them changes state."""
SERVERS_PER_BREATH: Final = 1_024
INFINITY: Final = math.inf


class RunChecker:
    """Checks a run after every event: what the event changed and, from time to time, everything.

    A full check follows after as many events as there are servers and requests, and after the last
    event: the cost per event is then the same in a small run and in a large one.
    """

    def __init__(self, simulation: Simulation, checker: InvariantChecker[Simulation]) -> None:
        self._simulation: Final = simulation
        self._checker: Final = checker
        self._changes: Final = simulation.cluster.follow_changes()
        self._whole_at = 0

    def check(self, context: Callable[[], str]) -> None:
        """Checks the run after an event; raises InvariantBroken."""
        simulation = self._simulation
        changes = self._changes
        changes.count(simulation.servers)
        if simulation.events >= self._whole_at:
            self.check_whole(context)
            inside = simulation.recorder.arrived - simulation.recorder.ended
            self._whole_at = simulation.events + len(simulation.servers) + inside
            changes.looks += 1
        else:
            self._checker.run_changed(simulation, context)
        changes.moves = simulation.cluster.moves
        changes.clear()

    def check_whole(self, context: Callable[[], str]) -> None:
        """Checks everything; raises InvariantBroken."""
        self._checker.run(self._simulation, context)

    def stop(self) -> None:
        """Ends the tracking of changes; the next check is the last, and a full one."""
        self._simulation.cluster.changes = None


def _changed(simulation: Simulation) -> list[Server]:
    """The servers that changed since the last check."""
    changes = simulation.cluster.changes
    assert changes is not None
    return [simulation.servers[number] for number in changes.servers]


def _requests_are_conserved(simulation: Simulation) -> str | None:
    recorder = simulation.recorder
    inside = len(simulation.requests.in_flight) - simulation.requests.legs
    for server in simulation.servers:
        inside += server.load
    if recorder.count(UNFINISHED):
        inside = 0  # the run is over: all remaining requests have been counted as unfinished
    if recorder.arrived == recorder.ended + inside:
        return None
    return f"{recorder.arrived} arrived, {recorder.ended} ended, {inside} inside"


def _requests_stay_conserved(simulation: Simulation) -> str | None:
    changes, recorder = simulation.cluster.changes, simulation.recorder
    assert changes is not None
    inside = len(simulation.requests.in_flight) - simulation.requests.legs + changes.load
    if recorder.arrived == recorder.ended + inside:
        return None
    return _requests_are_conserved(simulation)


def _traffic_is_counted(simulation: Simulation) -> str | None:
    taken, arrived = simulation.traffic.taken, simulation.recorder.arrived
    return None if taken == arrived else f"{taken} made, {arrived} arrived"


def _blocks_are_conserved(simulation: Simulation) -> str | None:
    changes = simulation.cluster.changes
    walked = changes is None or changes.looks % LISTS_EVERY == 0
    for server in simulation.servers:
        if server.index % SERVERS_PER_BREATH == 0:
            breathe()
        fault = _block_fault(server, walked)
        if fault is not None:
            return fault
    return None


def _blocks_stay_conserved(simulation: Simulation) -> str | None:
    for server in _changed(simulation):
        if server.running.count <= FEW and server.pool.chains <= FEW:
            fault = _block_fault(server, False)  # noqa: FBT003
            if fault is not None:
                return fault
    return None


def _block_fault(server: Server, walked: bool) -> str | None:  # noqa: FBT001
    pool = server.pool
    free = pool.recount()[0] if walked else int(pool.free)
    held = server.blocks_held()
    if free == pool.free and free + held + pool.leaked == pool.blocks:
        return None
    counted = f"{free} listed free, {pool.free} counted free, {held} held, {pool.leaked} leaked"
    return f"server {server.index}: {counted}, {pool.blocks} in all"


def _no_server_sleeps_on_work(simulation: Simulation) -> str | None:
    return _sleeper(simulation.servers)


def _no_changed_server_sleeps(simulation: Simulation) -> str | None:
    return _sleeper(_changed(simulation))


def _sleeper(servers: list[Server]) -> str | None:
    for server in servers:
        if not server.load or server.wake_s != INFINITY:
            continue
        if not (server.queued == server.load and server.holds_apart):
            return f"server {server.index} has {server.load} requests and no next event"
    return None


def _agenda_is_in_order(simulation: Simulation) -> str | None:
    return simulation.cluster.agenda.fault() or simulation.control.fault()


def _changed_servers_are_on_time(simulation: Simulation) -> str | None:
    for server in _changed(simulation):
        noted_s = server.appointment.wake_s
        if server.wake_s != noted_s:
            return f"server {server.index} acts at {server.wake_s} s, noted is {noted_s} s"
    return simulation.control.fault()


def _limits_are_kept(simulation: Simulation) -> str | None:
    for server in simulation.servers:
        fault = _limit_fault(server)
        if fault is None and server.tiers is not None:
            fault = server.tiers.fault()
        if fault is not None:
            return f"server {server.index} has {fault}"
    return None


def _limits_stay_kept(simulation: Simulation) -> str | None:
    for server in _changed(simulation):
        fault = _limit_fault(server)
        if fault is not None:
            return f"server {server.index} has {fault}"
    return None


def _limit_fault(server: Server) -> str | None:
    if server.running.count > server.limits.max_num_seqs:
        return f"{server.running.count} requests that run"
    return server.slots.fault() if server.slots is not None else None


def _gateways_agree(simulation: Simulation) -> str | None:
    if simulation.recorder.count(UNFINISHED):
        return None
    for model, service in enumerate(simulation.services):
        if service.gateway is not None:
            fault = _gateway_fault(simulation, model, service.gateway.driver)
            if fault is not None:
                return fault
    return None


def _gateway_fault(simulation: Simulation, model: int, driver: GatewayDriver) -> str | None:
    gateway = driver.gateway
    fault = driver.check()
    if fault is not None:
        return fault
    elsewhere = [one for one in simulation.requests.in_flight.requests() if one.model == model]
    waiting = sum(request.place == AT_GATEWAY for request in elsewhere)
    sent = len(elsewhere) - waiting + _at_servers(simulation, model)
    if (gateway.queued, gateway.in_flight) == (waiting, sent):
        return None
    books = f"{gateway.queued} queued and {gateway.in_flight} in flight"
    return f"the gateway has {books}, the run {waiting} and {sent}"


def _gateways_still_agree(simulation: Simulation) -> str | None:
    in_flight = simulation.requests.in_flight
    for model, service in enumerate(simulation.services):
        if service.gateway is None:
            continue
        driver = service.gateway.driver
        if driver.gateway.queued <= FEW:
            fault = driver.check()
            if fault is not None:
                return fault
        waiting = in_flight.queued[model] - len(service.unplaced)
        if driver.gateway.queued != waiting:
            return _gateway_fault(simulation, model, driver)
        if len(simulation.services) == 1:
            changes = simulation.cluster.changes
            assert changes is not None
            at_servers = changes.load - simulation.requests.legs
            if driver.gateway.in_flight != len(in_flight) - waiting + at_servers:
                return _gateway_fault(simulation, model, driver)
    return None


def _in_flight_is_exact(simulation: Simulation) -> str | None:
    if simulation.recorder.count(UNFINISHED):
        return None
    fault = simulation.requests.in_flight.fault()
    if fault is not None:
        return fault
    counts = [int(server.load) for server in simulation.servers]
    for request in simulation.requests.in_flight.requests():
        if request.place in (ON_THE_WAY, SPLIT):
            counts[request.server] += 1
        if request.place == SPLIT:
            assert simulation.requests.splitting is not None
            leg = simulation.requests.splitting.handoff.splits[request.id].leg
            counts[leg.server] += leg.planned is not None  # on its way there
    for replica in simulation.cluster.replicas:
        server = replica.server.index
        known = simulation.services[replica.pool.model].signals.in_flight[server]
        if counts[server] != known:
            return f"server {server} has {counts[server]} requests, or will, and {known} counted"
    return None


def _in_flight_stays_exact(simulation: Simulation) -> str | None:
    splitting = simulation.requests.splitting
    for server in _changed(simulation):
        number = int(server.index)
        linked = simulation.requests.in_flight.linked(number)
        if len(linked) > FEW:
            continue
        count = int(server.load)
        for request in linked:
            count += request.server == number
            if request.place == SPLIT:
                assert splitting is not None
                leg = splitting.handoff.splits[request.id].leg
                count += leg.server == number and leg.planned is not None  # on its way there
        model = simulation.cluster.replicas[number].pool.model
        known = simulation.services[model].signals.in_flight[number]
        if count != known:
            return f"server {number} has {count} requests, or will, and {known} counted"
    return None


def _replicas_are_counted(simulation: Simulation) -> str | None:
    cluster = simulation.cluster
    for pool in cluster.pools:
        counts = [0] * len(STATES)
        paid_s = 0.0
        for replica in pool.replicas:
            counts[replica.state] += 1
            paid_s += replica.paid_s(simulation.now_s)
        if counts != pool.counts:
            return f"pool {pool.name} has {counts} replicas by state and counts {pool.counts}"
        counted_s = pool.paid_s(simulation.now_s)
        if not math.isclose(paid_s, counted_s, rel_tol=1e-9, abs_tol=1e-6):
            return f"pool {pool.name} pays for {counted_s} s, its replicas for {paid_s} s"
    drains = sum(pool.counts[DRAINING] for pool in cluster.pools)
    return None if drains == cluster.draining else f"{drains} drain, {cluster.draining} counted"


def _replicas_stay_counted(simulation: Simulation) -> str | None:
    return _replicas_are_counted(simulation) if _has_moved(simulation) else None


def _at_servers(simulation: Simulation, model: int) -> int:
    """The number of requests for a model at servers, without legs of split requests."""
    if len(simulation.services) == 1:
        return sum(server.load for server in simulation.servers) - simulation.requests.legs
    own = [one.server for one in simulation.cluster.replicas if one.pool.model == model]
    return sum(one.parent is None for server in own for one in server.unfinished())


def _only_ready_servers_are_chosen(simulation: Simulation) -> str | None:
    for model, service in enumerate(simulation.services):
        fault = _choice_fault(simulation.cluster, model, service)
        if fault is not None:
            return fault
    return None


def _changed_servers_were_chosen(simulation: Simulation) -> str | None:
    for server in _changed(simulation):
        replica = simulation.cluster.replicas[server.index]
        fault = _outcast(replica, simulation.services[replica.pool.model].signals)
        if fault is not None:
            return fault
    if _has_moved(simulation):
        return _only_ready_servers_are_chosen(simulation)
    return None


def _outcast(replica: Replica, signals: Signals) -> str | None:
    """Describes a server that has requests although it should have none."""
    if replica.state in (READY, DRAINING):
        return None
    server = replica.server
    if not (server.load or server.holds_apart or signals.in_flight[server.index]):
        return None
    return f"server {server.index} is {STATES[replica.state]} and has requests"


def _has_moved(simulation: Simulation) -> bool:
    """Whether a replica was added or changed state since the last check; only with few replicas."""
    cluster = simulation.cluster
    assert cluster.changes is not None
    return len(cluster.replicas) <= FEW_REPLICAS and cluster.changes.moves != cluster.moves


def _choice_fault(cluster: Cluster, model: int, service: Service) -> str | None:
    own = [one for one in cluster.replicas if one.pool.model == model]
    ready = [int(one.server.index) for one in own if one.state == READY]
    seen = [number for number in ready if number not in service.roster.hidden]
    answering = [number for number in seen if cluster.replicas[number].pool.decodes]
    known = [int(server.index) for server in service.roster.ready]
    signals = service.signals
    told = answering if service.is_outdated else signals.answering  # or before the next choice
    if (known, told) != (ready, answering):
        return f"{ready} are ready, {known} are asked and {signals.answering} answer"
    if service.router.candidates != answering and not service.is_outdated:
        return f"{answering} answer, the router chooses among {service.router.candidates}"
    for replica in own:
        fault = _outcast(replica, signals)
        if fault is not None:
            return fault
    return None


def _requests_keep_to_their_model(simulation: Simulation) -> str | None:
    if len(simulation.services) == 1:
        return None
    for replica in simulation.cluster.replicas:
        fault = _stranger(replica)
        if fault is not None:
            return fault
    return None


def _changed_servers_keep_to_their_model(simulation: Simulation) -> str | None:
    if len(simulation.services) == 1:
        return None
    for server in _changed(simulation):
        if server.load <= FEW:
            fault = _stranger(simulation.cluster.replicas[server.index])
            if fault is not None:
                return fault
    return None


def _stranger(replica: Replica) -> str | None:
    for request in replica.server.unfinished():
        if request.model != replica.pool.model:
            where = f"server {replica.server.index} of model {replica.pool.model}"
            return f"request {request.id} for model {request.model} is at {where}"
    return None


def _nobody_waits_in_vain(simulation: Simulation) -> str | None:
    over = simulation.recorder.count(UNFINISHED) > 0
    for service in simulation.services:
        line, signals = service.unplaced, service.signals
        if len(line) != signals.unplaced and not over:
            return f"{len(line)} wait for a server, {signals.unplaced} counted"
        if line and signals.answering:
            return f"{len(line)} wait for a server, and {signals.answering} are ready"
    if simulation.cluster.vacated:
        return f"servers {simulation.cluster.vacated} drain, and were not checked for their end"
    return None


def _sessions_are_conserved(simulation: Simulation) -> str | None:
    return simulation.traffic.sessions.fault()


INVARIANTS = (
    Invariant(
        "requests-conserved",
        "every request that arrived has ended or is in exactly one place",
        _requests_are_conserved,
        _requests_stay_conserved,
    ),
    Invariant(
        "traffic-counted",
        "every generated request has arrived",
        _traffic_is_counted,
        _traffic_is_counted,
    ),
    Invariant(
        "blocks-conserved",
        "every KV block is free, held by requests or leaked",
        _blocks_are_conserved,
        _blocks_stay_conserved,
    ),
    Invariant(
        "work-conserving",
        "a server with requests has a next event, unless they wait for blocks held for transfers",
        _no_server_sleeps_on_work,
        _no_changed_server_sleeps,
    ),
    Invariant(
        "agenda-ordered",
        "the server that acts next is first on the agenda",
        _agenda_is_in_order,
        _changed_servers_are_on_time,
    ),
    Invariant(
        "sessions-conserved",
        "every session is live or has ended in exactly one way",
        _sessions_are_conserved,
        _sessions_are_conserved,
    ),
    Invariant(
        "gateway-agrees",
        "the gateway knows exactly the requests that are queued there or were admitted",
        _gateways_agree,
        _gateways_still_agree,
    ),
    Invariant(
        "in-flight-exact",
        "the number of requests sent to each server and not ended is known exactly",
        _in_flight_is_exact,
        _in_flight_stays_exact,
    ),
    Invariant(
        "replicas-counted",
        "every replica is in one state and paid for from its start-up until it is gone",
        _replicas_are_counted,
        _replicas_stay_counted,
    ),
    Invariant(
        "ready-chosen",
        "only ready servers are chosen; others have no requests or finish theirs",
        _only_ready_servers_are_chosen,
        _changed_servers_were_chosen,
    ),
    Invariant(
        "model-kept",
        "a request is only at servers of its own model",
        _requests_keep_to_their_model,
        _changed_servers_keep_to_their_model,
    ),
    Invariant(
        "line-moves",
        "an admitted request waits for a server only while none is ready",
        _nobody_waits_in_vain,
        _nobody_waits_in_vain,
    ),
    Invariant(
        "limits-kept",
        "no server runs more than max_num_seqs requests, or has more adapters than slots or "
        "more in a tier than fits",
        _limits_are_kept,
        _limits_stay_kept,
    ),
)
