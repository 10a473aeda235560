"""What must hold of a simulation at every event, by name."""

import math
from typing import Final

from windtunnel.admission.gateway.driver import GatewayDriver
from windtunnel.core.interrupts import breathe
from windtunnel.core.invariants import Invariant
from windtunnel.twin.requests.service import Service
from windtunnel.twin.results.recorder import UNFINISHED
from windtunnel.twin.servers.cluster import Cluster
from windtunnel.twin.servers.replicas import DRAINING, READY, STATES
from windtunnel.twin.simulation import Simulation
from windtunnel.workload.request import AT_GATEWAY, ON_THE_WAY, SPLIT

EVERYTHING_EVERY: Final = 64
"""Of so many events, one has every server looked at as if it had changed."""
LISTS_EVERY: Final = 8
"""Of so many events, one has the lists of free blocks walked, which are as long as a cache is."""
SERVERS_PER_BREATH: Final = 1_024
INFINITY: Final = math.inf
UNSEEN: Final = (-1, -1, -1, -1, 0.0)


def _requests_are_conserved(simulation: Simulation) -> str | None:
    recorder = simulation.recorder
    inside = len(simulation.requests.in_flight) - simulation.requests.legs
    for server in simulation.servers:
        inside += server.load
    if recorder.outcomes[UNFINISHED]:
        inside = 0  # the run is over: whatever was inside has been counted as unfinished
    if recorder.arrived == recorder.ended + inside:
        return None
    return f"{recorder.arrived} arrived, {recorder.ended} ended, {inside} inside"


def _traffic_is_counted(simulation: Simulation) -> str | None:
    taken, arrived = simulation.traffic.taken, simulation.recorder.arrived
    return None if taken == arrived else f"{taken} made, {arrived} arrived"


def _blocks_are_conserved(simulation: Simulation) -> str | None:
    """Counts the blocks of servers that changed since they were counted, and now and then of all.

    To count them takes as long as a server has requests; an event is about one server or two. To
    walk its list of free blocks takes longer still, and is done less often.
    """
    marks = simulation.cluster.marks
    all_of_them = simulation.events % EVERYTHING_EVERY == 0
    while len(marks) < len(simulation.servers):
        marks.append(UNSEEN)
    for server in simulation.servers:
        if server.index % SERVERS_PER_BREATH == 0:
            breathe()
        mark = marks[server.index]
        if (
            mark[4] == server.wake_s
            and mark[0] == server.load
            and mark[1] == server.pool.free
            and mark[2] == server.running.count
            and mark[3] == server.queued
            and not all_of_them
        ):
            continue
        walked = simulation.events % LISTS_EVERY == 0 or mark == UNSEEN
        marks[server.index] = (
            int(server.load),
            int(server.pool.free),
            int(server.running.count),
            int(server.queued),
            float(server.wake_s),
        )
        free = server.pool.recount()[0] if walked else int(server.pool.free)
        held = server.blocks_held()
        leaked = server.pool.leaked
        if free != server.pool.free or free + held + leaked != server.pool.blocks:
            counted = f"{free} listed free, {server.pool.free} counted free, {held} held"
            counted += f", {leaked} leaked"
            return f"server {server.index}: {counted}, {server.pool.blocks} in all"
    return None


def _no_server_sleeps_on_work(simulation: Simulation) -> str | None:
    for server in simulation.servers:
        if not server.load or server.wake_s != INFINITY:
            continue
        if not (server.queued == server.load and server.holds_apart):
            return f"server {server.index} has {server.load} requests and no next event"
    return None


def _limits_are_kept(simulation: Simulation) -> str | None:
    for server in simulation.servers:
        if server.running.count > server.limits.max_num_seqs:
            return f"server {server.index} runs {server.running.count} requests"
        fault = server.slots.fault() if server.slots is not None else None
        if fault is not None:
            return f"server {server.index} has {fault}"
        fault = server.tiers.fault() if server.tiers is not None else None
        if fault is not None:
            return f"server {server.index} has {fault}"
    return None


def _gateways_agree(simulation: Simulation) -> str | None:
    if simulation.recorder.outcomes[UNFINISHED]:
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
    elsewhere = [
        one for one in simulation.requests.in_flight.requests.values() if one.model == model
    ]
    waiting = sum(request.place == AT_GATEWAY for request in elsewhere)
    sent = len(elsewhere) - waiting + _at_servers(simulation, model)
    if (gateway.queued, gateway.in_flight) == (waiting, sent):
        return None
    books = f"{gateway.queued} queued and {gateway.in_flight} in flight"
    return f"the gateway has {books}, the run {waiting} and {sent}"


def _in_flight_is_exact(simulation: Simulation) -> str | None:
    if simulation.recorder.outcomes[UNFINISHED]:
        return None
    fault = simulation.requests.in_flight.fault()
    if fault is not None:
        return fault
    counts = [int(server.load) for server in simulation.servers]
    for request in simulation.requests.in_flight.requests.values():
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


def _at_servers(simulation: Simulation, model: int) -> int:
    """Whole requests for a model that servers have."""
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


def _choice_fault(cluster: Cluster, model: int, service: Service) -> str | None:
    own = [one for one in cluster.replicas if one.pool.model == model]
    ready = [int(one.server.index) for one in own if one.state == READY]
    seen = [number for number in ready if number not in service.roster.hidden]
    answering = [number for number in seen if cluster.replicas[number].pool.decodes]
    known = [int(server.index) for server in service.roster.ready]
    signals = service.signals
    told = answering if service.is_outdated else signals.answering  # else before the next choice
    if (known, told) != (ready, answering):
        return f"{ready} are ready, {known} are asked and {signals.answering} answer"
    if service.router.candidates != answering and not service.is_outdated:
        return f"{answering} answer, the router chooses among {service.router.candidates}"
    for replica in own:
        server = replica.server
        busy = server.load or server.holds_apart or signals.in_flight[server.index]
        if busy and replica.state not in (READY, DRAINING):
            return f"server {server.index} is {STATES[replica.state]} and has requests"
    return None


def _requests_keep_to_their_model(simulation: Simulation) -> str | None:
    if len(simulation.services) == 1:
        return None
    for replica in simulation.cluster.replicas:
        for request in replica.server.unfinished():
            if request.model != replica.pool.model:
                where = f"server {replica.server.index} of model {replica.pool.model}"
                return f"request {request.id} for model {request.model} is at {where}"
    return None


def _nobody_waits_in_vain(simulation: Simulation) -> str | None:
    over = simulation.recorder.outcomes[UNFINISHED] > 0
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
    ),
    Invariant("traffic-counted", "every request that was made has arrived", _traffic_is_counted),
    Invariant(
        "blocks-conserved",
        "every KV block is free, held by requests or leaked",
        _blocks_are_conserved,
    ),
    Invariant(
        "work-conserving",
        "a server with requests has a next event, unless they wait for blocks held for transfers",
        _no_server_sleeps_on_work,
    ),
    Invariant(
        "sessions-conserved",
        "every session is live or has ended, and in one way",
        _sessions_are_conserved,
    ),
    Invariant(
        "gateway-agrees",
        "the gateway knows exactly the requests that are queued there or were admitted",
        _gateways_agree,
    ),
    Invariant(
        "in-flight-exact",
        "of every server it is known how many requests were sent there and have not ended",
        _in_flight_is_exact,
    ),
    Invariant(
        "replicas-counted",
        "every replica is in one state and paid for from its start-up until it is gone",
        _replicas_are_counted,
    ),
    Invariant(
        "ready-chosen",
        "those servers are chosen among that are ready; others have no request or finish theirs",
        _only_ready_servers_are_chosen,
    ),
    Invariant(
        "model-kept",
        "a request is only ever at a server of the model that it is for",
        _requests_keep_to_their_model,
    ),
    Invariant(
        "line-moves",
        "an admitted request waits for a server only while none is ready",
        _nobody_waits_in_vain,
    ),
    Invariant(
        "limits-kept",
        "no server runs more than max_num_seqs requests, or has more adapters than slots or "
        "more in a tier than fits",
        _limits_are_kept,
    ),
)
