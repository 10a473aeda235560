"""An emulated server for the pods of each replica: it listens, drains and dies as they do.

Which pods form one server, and what happens to it, is decided by `gangs.servers`, as in a
simulation.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple, Protocol

from windtunnel.core.telemetry import Event, Plain
from windtunnel.core.vocabulary import REPLICA_KINDS, RUN_BEGINS
from windtunnel.gangs import names
from windtunnel.gangs.objects import CLIQUE, Pod
from windtunnel.gangs.servers import (
    ASK,
    DRAIN,
    DRAINING,
    DROP,
    FORGET,
    GONE,
    LOAD,
    LOSE,
    NO_GRACE_LEFT,
    NO_SERVER,
    PENDING,
    READY,
    STARTING,
    PodUnit,
    PoolPods,
    ServerMove,
    ServerPods,
)
from windtunnel.gangs.view import View
from windtunnel.live.serving import listen, serve

LOOK_S: Final = 0.05
"""How often a draining server is checked."""
SUBNET: Final = "127.77"
"""Every pod has its own loopback address, which Linux provides without configuration."""
MOST_ADDRESSES: Final = 250 * 250


class Intake(Protocol):
    """The state of an emulated server while it runs."""

    in_flight: int


class BuiltServer(NamedTuple):
    """The web application of an emulated server, and its load."""

    app: Any
    intake: Intake


BuildServer = Callable[[str, asyncio.AbstractEventLoop], BuiltServer]
"""Builds a server of a pool."""


class PodAddresses:
    """Assigns an address to each pod, never the same twice."""

    def __init__(self) -> None:
        self._known: Final[dict[str, str]] = {}

    def of(self, uid: str) -> str:
        if uid not in self._known:
            number = len(self._known) % MOST_ADDRESSES
            self._known[uid] = f"{SUBNET}.{number // 250}.{number % 250 + 1}"
        return self._known[uid]


class _Server:
    """The server of one unit."""

    def __init__(self, label: str) -> None:
        self.label: Final = label
        self.state = PENDING
        self.url = ""
        self.stop: Final = asyncio.Event()
        self.kill: Final = asyncio.Event()
        self.intake: Intake | None = None


class EmulatedServers:
    """Runs the servers of a view's pods."""

    def __init__(
        self,
        view: View,
        pools: Sequence[PoolPods],
        build: BuildServer,
        port: int,
        addresses: PodAddresses,
    ) -> None:
        self._units: Final = ServerPods(view, pools)
        self._build: Final = build
        self.port: Final = port
        self._addresses: Final = addresses
        self._servers: Final[dict[str, _Server]] = {}  # by unit
        self._asked: Final[dict[str, int]] = {}  # by pool: servers so far
        self._tasks: Final[set[asyncio.Task[None]]] = set()
        self._running: Final[set[asyncio.Task[None]]] = set()
        self._pools: Final[dict[str, str]] = {}  # by address
        self.labels: Final[dict[str, str]] = {}
        """By address: the server's label."""
        self.events: Final[list[Event]] = []
        """Changes of servers, as events of a simulation; times are those of `now_s`."""
        self.now_s: Callable[[], float] = asyncio.get_running_loop().time
        self.reason = RUN_BEGINS
        self.changed: Callable[[], None] = _nothing
        """Called when the list of servers that take requests has changed."""
        self.released: Callable[[], None] = _nothing
        """Called when pods that waited for their server may end."""

    def urls(self) -> list[str]:
        """The addresses of the servers that take requests."""
        return [one.url for one in self._servers.values() if one.state == READY]

    def pool_of(self, url: str) -> str:
        """The pool of a server that has taken requests."""
        return self._pools[url]

    def ready(self) -> dict[str, int]:
        """By pool: the number of servers that take requests."""
        counts: dict[str, int] = {}
        for key, one in self._servers.items():
            if one.state == READY:
                pool = self._units.units[key].of.pool
                counts[pool] = counts.get(pool, 0) + 1
        return counts

    def unit_of(self, label: str) -> PodUnit | None:
        """The pods of a server."""
        for key, one in self._servers.items():
            if one.label == label:
                return self._units.units[key]
        return None

    def holds(self, pod: str) -> bool:
        """Whether a terminating pod waits for its server."""
        unit = self._units.unit_of(pod)
        return unit is not None and self._state(unit) in (READY, DRAINING)

    def look(self) -> None:
        """Follows changes of pods and nodes."""
        for unit in (self._units.changed() or {}).values():
            self._follow(unit)

    async def close(self) -> None:
        for one in self._servers.values():
            one.kill.set()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, *self._running, return_exceptions=True)

    def _state(self, unit: PodUnit) -> int:
        server = self._servers.get(unit.key)
        return NO_SERVER if server is None else server.state

    def _follow(self, unit: PodUnit) -> None:
        move = unit.next_move(self._state(unit))
        while move is not None:
            self._carry_out(unit, move)
            if move.kind == DROP:
                return
            move = unit.next_move(self._state(unit))

    def _carry_out(self, unit: PodUnit, move: ServerMove) -> None:
        if move.kind == ASK:
            self._servers[unit.key] = _Server(self._label(unit))
            self._record(unit, PENDING, self.reason)
            return
        if move.kind == DROP:
            self._units.drop(unit)
            return
        server = self._servers[unit.key]
        if move.kind == FORGET:
            del self._servers[unit.key]
            self.released()
        elif move.kind == LOSE:
            self._end(unit, server, move.why, at_once=True)
        elif move.kind == DRAIN:
            self._drain(unit, server, move.why)
        elif move.kind == LOAD:
            self._record(unit, STARTING, "placed")
        else:
            self._serve(unit, server)

    def _label(self, unit: PodUnit) -> str:
        """A label as in a simulation, where the pods of a clique have other names."""
        pool = unit.of.pool
        number = self._asked.get(pool, 0)
        self._asked[pool] = number + 1
        return f"{pool}/{number}" if unit.of.kind == CLIQUE else names.short(unit.key)

    def _serve(self, unit: PodUnit, server: _Server) -> None:
        pod = _first(unit)
        built = self._build(unit.of.pool, asyncio.get_running_loop())
        bound = listen(self._addresses.of(pod.uid), self.port)
        server.intake = built.intake
        host = bound.getsockname()[0]
        server.url = f"http://{host}:{self.port}"
        self.labels[server.url] = server.label
        self._pools[server.url] = unit.of.pool

        async def run() -> None:
            with bound:
                await serve(
                    lambda _: built.app, bound, lambda _: None, server.stop, kill=server.kill
                )

        self._start(self._running, run())
        self._record(unit, READY, "")
        self.changed()

    def _drain(self, unit: PodUnit, server: _Server, why: str) -> None:
        if server.state != READY:
            self._end(unit, server, why, at_once=True)
            return
        self._record(unit, DRAINING, why)
        self.changed()
        self._start(self._tasks, self._wait_for(unit, server))

    async def _wait_for(self, unit: PodUnit, server: _Server) -> None:
        """Waits until a draining server is idle, or its pods' grace period is over."""
        from windtunnel.core.clock import unix_s

        await asyncio.sleep(LOOK_S)
        while server.state == DRAINING:
            assert server.intake is not None
            if not server.intake.in_flight:
                self._end(unit, server, "", at_once=False)
            elif unix_s() >= unit.over_s():
                self._end(unit, server, NO_GRACE_LEFT, at_once=True)
            else:
                await asyncio.sleep(LOOK_S)
                continue
            self._follow(unit)

    def _end(self, unit: PodUnit, server: _Server, why: str, *, at_once: bool) -> None:
        (server.kill if at_once else server.stop).set()
        was_ready = server.state == READY
        self._record(unit, GONE, why)
        if was_ready:
            self.changed()

    def _record(self, unit: PodUnit, state: int, why: str) -> None:
        server = self._servers[unit.key]
        server.state = state
        nodes = sorted({pod.node for pod in unit.pods.values() if pod.node})
        data: dict[str, Plain] = {"pool": unit.of.pool, "machines": list(nodes)}
        kind = REPLICA_KINDS[state]
        self.events.append(Event(self.now_s(), kind, server.label, why, data))

    def _start(self, tasks: set[asyncio.Task[None]], work: Any) -> None:
        task = asyncio.get_running_loop().create_task(work)
        tasks.add(task)
        task.add_done_callback(tasks.discard)


def _first(unit: PodUnit) -> Pod:
    """The pod that answers requests: the first one of the first role."""
    roles = [role for role, _ in unit.of.slots]
    return min(unit.pods.values(), key=lambda pod: (roles.index(pod.template.name), pod.name))


def _nothing() -> None:
    """No listener."""
