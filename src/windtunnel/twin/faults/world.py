"""The effects that a fault can have on a run: the whole interface between faults and simulation."""

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Final, TypeVar

from windtunnel.core.loop import SkewedClock
from windtunnel.core.random import Stream
from windtunnel.core.vocabulary import ENGINE_CRASHED
from windtunnel.twin.servers.replicas import DRAINING, GONE, PENDING, READY, Pool, Replica
from windtunnel.twin.servers.signal_faults import SignalFaults

if TYPE_CHECKING:
    from windtunnel.twin.faults.schedule import FaultSchedule
    from windtunnel.twin.infrastructure.faults import MachineFaults
    from windtunnel.twin.infrastructure.infrastructure import Infrastructure
    from windtunnel.twin.servers.autoscaling import Autoscaling
    from windtunnel.twin.servers.cluster import Cluster
    from windtunnel.twin.servers.lifecycle import Lifecycle

SLOWEST: Final = 1_000.0
"""The largest slowdown of a server by all faults together, so that its next step still ends."""

ROUTERS: Final = "routers"
GATEWAY: Final = "gateway"
AUTOSCALER: Final = "autoscaler"
GANGS: Final = "gangs"
FLEET: Final = "fleet"


Value = TypeVar("Value")


class RateLimit:
    """Servers that refuse a share of their requests."""

    def __init__(self, servers: list[int], share: float, stream: Stream) -> None:
        self.servers: Final = dict.fromkeys(servers)
        self.share: Final = share
        self.stream: Final = stream


class RateLimits:
    """All rate limits in force."""

    def __init__(self) -> None:
        self._now: Final[list[RateLimit]] = []

    def set(self, limit: RateLimit, *, on: bool) -> None:
        _set(self._now, limit, on=on)

    def refuse(self, server: int) -> bool:
        """Whether a server refuses the request being sent to it."""
        for limit in self._now:
            if server in limit.servers and limit.stream.uniform() < limit.share:
                return True
        return False


def _set(values: list[Value], value: Value, *, on: bool) -> None:
    """Adds an effect that begins, or removes one that ends."""
    if on:
        values.append(value)
    else:
        values.remove(value)


class World:
    """A run, as faults see and change it. Overlapping effects add up until each has ended."""

    def __init__(
        self,
        cluster: "Cluster",
        lifecycle: "Lifecycle",
        autoscaling: "Autoscaling | None",
        infrastructure: "Infrastructure | None",
        machines: "MachineFaults | None",
        schedule: "FaultSchedule",
    ) -> None:
        self._cluster: Final = cluster
        self._lifecycle: Final = lifecycle
        self._autoscaling: Final = autoscaling
        self._infrastructure: Final = infrastructure
        self._machines: Final = machines
        self._schedule: Final = schedule
        self._slowdowns: Final[dict[int, list[float]]] = {}  # factors by server
        self._lags: Final[dict[str, list[float]]] = {ROUTERS: [], AUTOSCALER: []}
        self.rate_limits: Final = RateLimits()

    def later(self, time_s: float, do: Callable[[float], None], *, helps: bool) -> None:
        """Schedules `do`; `helps` says whether it may help queued requests."""
        self._schedule.plan(time_s, do, helps=helps)

    # Servers

    def servers(self, pool: str | None, *, ready_only: bool = False) -> list[Replica]:
        """Ready and draining servers of one pool or all pools, by number."""
        states = (READY,) if ready_only else (READY, DRAINING)
        pools = [one for one in self._cluster.pools if pool in (None, one.name)]
        return [one for own in pools for one in own.here if one.state in states]

    @property
    def has_pods(self) -> bool:
        """Whether servers are pods of a cluster, which restarts them by itself."""
        return self._infrastructure is not None

    def crash(self, servers: list[Replica], now_s: float) -> None:
        """Crashes engines at once; others start in their place."""
        lifecycle = self._lifecycle
        if self._infrastructure is not None:  # the cluster restarts the pods
            for one in servers:
                self._infrastructure.crash(one, now_s)
            return
        lifecycle.shun(servers)
        for one in servers:
            if one.state != GONE:  # a draining server may have ended along with another
                lifecycle.lose(one, now_s, ENGINE_CRASHED)
        for one in servers:
            lifecycle.fill(one.pool, now_s, ENGINE_CRASHED)

    def lose(self, server: Replica, now_s: float) -> Replica | None:
        """Crashes an engine; returns a pending server in its place, if the pool still needs one."""
        if server.state == GONE:
            return None
        pool: Pool = server.pool
        self._lifecycle.lose(server, now_s, ENGINE_CRASHED)
        if pool.coming_or_ready >= pool.target:
            return None
        return self._lifecycle.ask(pool, now_s, ENGINE_CRASHED)

    def start(self, server: Replica, now_s: float) -> float | None:
        """Starts a pending server; returns when it will be ready, or None if it is no longer
        needed."""
        if server.state != PENDING:
            return None
        self._lifecycle.place(server, now_s, ENGINE_CRASHED)
        assert server.planned is not None
        return server.planned.time_s

    def crash_pods(self, servers: list[Replica], now_s: float) -> list[tuple[str, str]]:
        """Makes pods crash after every start from now on; returns their pools and cliques."""
        backing = self._infrastructure
        assert backing is not None
        crashing = [(one.pool.name, backing.crash_loop(one, now_s)) for one in servers]
        return [(pool, clique) for pool, clique in crashing if clique is not None]

    def mend_pods(self, cliques: list[tuple[str, str]], now_s: float) -> None:
        """Ends the crash loops of these cliques."""
        assert self._infrastructure is not None
        for pool, clique in cliques:
            self._infrastructure.mend(pool, clique, now_s)

    def slow(self, servers: list[Replica], factor: float, now_s: float, *, on: bool) -> None:
        """Makes steps `factor` times longer; the factors of one server multiply."""
        for one in servers:
            factors = self._slowdowns.setdefault(int(one.server.index), [])
            _set(factors, factor, on=on)
            slowness = 1.0
            for each in factors:
                slowness = min(slowness * each, SLOWEST)
            if one.state != GONE:
                self._cluster.slow_down(one.server, slowness, now_s)

    def leak(self, server: Replica, blocks: int, now_s: float) -> int:
        """Makes KV blocks unusable and ends requests that no longer fit; returns how many
        leaked."""
        if server.state not in (READY, DRAINING):
            return 0
        leaked = self._cluster.leak(server.server, blocks, now_s)
        if leaked:
            self._lifecycle.inside.shed(server.server)
        return leaked

    def can_leak(self, server: Replica) -> bool:
        """Whether it runs and has blocks that have not leaked."""
        blocks = server.server.pool
        return server.state in (READY, DRAINING) and blocks.leaked < blocks.blocks

    # Metrics and visibility

    def hide(self, servers: list[Replica], *, on: bool) -> None:
        """Hides these servers from routers and gateways."""
        for one in servers:
            if on:
                self._lifecycle.hide(one)
            else:
                self._lifecycle.show(one)

    def readers(self, named: Iterable[str]) -> list[str]:
        """The named readers of metrics that exist."""
        return [one for one in named if one == ROUTERS or self._autoscaling is not None]

    def blank_metrics(self, readers: list[str], *, on: bool) -> None:
        """Withholds all metrics from readers."""
        by = 1 if on else -1
        for reader in readers:
            if reader == ROUTERS:
                for model in self._signal_faults():
                    model.dark += by
            elif self._autoscaling is not None:
                self._autoscaling.dark += by

    def blank_servers(self, readers: list[str], servers: list[Replica], *, on: bool) -> None:
        """Withholds the metrics of these servers from readers."""
        for one in servers:
            for reader in readers:
                if reader == ROUTERS:
                    missed = self._cluster.rosters[one.pool.model].signals.missed
                else:
                    assert self._autoscaling is not None
                    missed = self._autoscaling.missed
                number = int(one.server.index)
                missed[number] = missed.get(number, 0) + (1 if on else -1)
                if not missed[number]:
                    del missed[number]

    def delay_metrics(self, readers: list[str], lag_s: float, *, on: bool) -> None:
        """Delays the metrics of readers by the sum of all lags."""
        for reader in readers:
            _set(self._lags[reader], lag_s, on=on)
            total_s = sum(self._lags[reader])
            if reader == ROUTERS:
                models = zip(self._signal_faults(), self._cluster.rosters, strict=True)
                for signal_faults, roster in models:
                    signal_faults.late_by(total_s, roster.signals)
            elif self._autoscaling is not None:
                self._autoscaling.lag_s = total_s

    def _signal_faults(self) -> list[SignalFaults]:
        """The signal faults of all models, in order."""
        found = []
        for roster in self._cluster.rosters:
            if roster.signal_faults is None:
                roster.signal_faults = SignalFaults()
            found.append(roster.signal_faults)
        return found

    # Controllers

    def skew_clock(self, controller: str, by_s: float, now_s: float, *, on: bool) -> None:
        """Skews the clock of a controller by this much more."""
        for clock in self._clocks(controller):
            clock.ahead_s += by_s if on else -by_s
        if controller == GATEWAY:
            self._lifecycle.inside.wake_gateway()
        elif self._infrastructure is not None:
            self._infrastructure.wake(now_s)

    def _clocks(self, controller: str) -> list[SkewedClock]:
        if controller == AUTOSCALER:
            assert self._autoscaling is not None, "refused when it is loaded"
            return [self._autoscaling.clock]
        if controller == GATEWAY:
            return self._lifecycle.inside.gateway_clocks()
        assert self._infrastructure is not None, "refused when it is loaded"
        return self._infrastructure.clocks(of_machines=controller == FLEET)

    def stop_autoscaler(self, *, on: bool) -> None:
        """Stops the autoscaler: it takes no snapshots, loses its state, and misses snapshots in
        transit."""
        assert self._autoscaling is not None, "refused when it is loaded"
        if on:
            self._autoscaling.loop.stop()
        else:
            self._autoscaling.loop.start()

    def stop_gateway(self, *, on: bool) -> None:
        """Stops the gateway: it drops all requests, and has lost its state when it is back."""
        self._lifecycle.inside.stop_gateway(on)

    def restart(self, controller: str, now_s: float) -> None:
        """Restarts the gang or fleet controllers, without downtime."""
        assert self._infrastructure is not None, "refused when it is loaded"
        assert controller in (GANGS, FLEET)
        if controller == GANGS:
            self._infrastructure.restart_gangs(now_s)
        else:
            self._infrastructure.restart_fleet(now_s)

    # Machines

    @property
    def machines(self) -> "MachineFaults":
        """Loses, reclaims and withholds machines of the fleet."""
        assert self._machines is not None, "refused when it is loaded"
        return self._machines
