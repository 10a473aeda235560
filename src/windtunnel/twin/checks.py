"""What must hold of a simulation at every event, by name."""

from windtunnel.core.invariants import Invariant
from windtunnel.twin.places import AT_THE_DOOR
from windtunnel.twin.recorder import UNFINISHED
from windtunnel.twin.simulation import Simulation


def _requests_are_conserved(simulation: Simulation) -> str | None:
    recorder = simulation.recorder
    at_servers = sum(server.load for server in simulation.servers) - simulation.legs
    inside = len(simulation.elsewhere) + at_servers
    if recorder.outcomes[UNFINISHED]:
        inside = 0  # the run is over: whatever was inside has been counted as unfinished
    if recorder.arrived == recorder.ended + inside:
        return None
    return f"{recorder.arrived} arrived, {recorder.ended} ended, {inside} inside"


def _traffic_is_counted(simulation: Simulation) -> str | None:
    taken, arrived = simulation.traffic.taken, simulation.recorder.arrived
    return None if taken == arrived else f"{taken} made, {arrived} arrived"


def _blocks_are_conserved(simulation: Simulation) -> str | None:
    for server in simulation.servers:
        free, _ = server.pool.recount()
        held = server.blocks_held()
        if free != server.pool.free or free + held != server.pool.blocks:
            counted = f"{free} listed free, {server.pool.free} counted free, {held} held"
            return f"server {server.index}: {counted}, {server.pool.blocks} in all"
    return None


def _no_server_sleeps_on_work(simulation: Simulation) -> str | None:
    for server in simulation.servers:
        waits_for_blocks = server.queued == server.load and server.holds_apart
        if server.load and server.wake_s == float("inf") and not waits_for_blocks:
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


def _gateway_agrees(simulation: Simulation) -> str | None:
    door = simulation.door
    if door is None or simulation.recorder.outcomes[UNFINISHED]:
        return None
    gateway = door.gateway
    fault = gateway.check()
    if fault is not None:
        return fault
    elsewhere = simulation.elsewhere.values()
    waiting = sum(request.place == AT_THE_DOOR for request in elsewhere)
    at_servers = sum(server.load for server in simulation.servers) - simulation.legs
    sent = len(elsewhere) - waiting + at_servers
    if (gateway.waiting, gateway.in_flight, door.known) == (waiting, sent, waiting + sent):
        return None
    books = f"{gateway.waiting} waiting and {gateway.in_flight} in flight of {door.known} known"
    return f"the gateway has {books}, the run {waiting} and {sent}"


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
        "blocks-conserved", "every KV block is free or held by requests", _blocks_are_conserved
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
        "whoever waits at the gateway or was let in is known to it, and nobody else",
        _gateway_agrees,
    ),
    Invariant(
        "limits-kept",
        "no server runs more than max_num_seqs requests, or has more adapters than slots or "
        "more in a tier than fits",
        _limits_are_kept,
    ),
)
