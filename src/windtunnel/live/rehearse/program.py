"""A rehearsal: `operate` and `gateway` as processes, on a cluster with simulated nodes.

The run begins when all initial servers take requests. All times in the result count from then, as
in a simulation.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
import signal
import sys
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple, Protocol

import msgspec
import yaml

from windtunnel.analysis.rehearsal import MeasuredDelays
from windtunnel.core.clock import unix_s
from windtunnel.core.errors import InputError, WindtunnelError
from windtunnel.core.statistics.distribution import Distribution
from windtunnel.core.telemetry import Event
from windtunnel.core.telemetry import Plain as PlainData
from windtunnel.gangs import names
from windtunnel.gangs.api.resolve import full_name
from windtunnel.gangs.objects import Node
from windtunnel.gangs.servers import PoolPods
from windtunnel.gangs.view import View
from windtunnel.live.gateway.facts import JOINED
from windtunnel.live.kubernetes.client import Client, open_client
from windtunnel.live.kubernetes.config import load_config
from windtunnel.live.kubernetes.errors import KubernetesError, NotFound
from windtunnel.live.kubernetes.resources import NAMESPACES, NODES, Meta, Plain
from windtunnel.live.observe.observer import Observer, SendOptions
from windtunnel.live.observe.prompts import TOKENS, PromptWriter
from windtunnel.live.observe.tally import ClassTargets, ObservationTally
from windtunnel.live.operate.mirror import Mirror
from windtunnel.live.rehearse import cluster
from windtunnel.live.rehearse.cluster import RehearsalObjects
from windtunnel.live.rehearse.kubelets import Kubelets, PodPace
from windtunnel.live.rehearse.servers import BuildServer, EmulatedServers, PodAddresses
from windtunnel.live.wire.client import Endpoint, open_session
from windtunnel.live.wire.keys import Keys
from windtunnel.workload.traffic import Traffic

SETTLE_S: Final = 60.0
"""Time limit until all initial servers are ready."""
START_S: Final = 60.0
"""Time limit until a program reports that it listens."""
STOP_S: Final = 20.0
LOOK_S: Final = 0.05
LAST_LOG_S: Final = 1.5
"""Time for programs to write their last decisions."""
ROUND_TRIPS: Final = 9
LONGEST_SAID: Final = 300
MODEL_CRASH: Final = "engine-crash"
MACHINE_LOSSES: Final = ("machine-loss", "rack-loss", "zone-loss")
RESTART: Final = "controller-restart"
PLAYED_FAULTS: Final = (MODEL_CRASH, *MACHINE_LOSSES, RESTART)


class PlayedFault(NamedTuple):
    """A fault to inject: its time, kind and targets."""

    at_s: float
    kind: str
    subjects: Sequence[str]
    """Names of servers or machines; none for a restart."""


class RunPace(PodPace, Protocol):
    """Pod timings that are zero until the run begins."""

    def begin(self) -> None: ...


class JoiningNode(NamedTuple):
    """A machine that joins the cluster during the run."""

    at_s: float
    node: Node


class PlayedChanges(NamedTuple):
    """External changes to servers and machines."""

    faults: Sequence[PlayedFault] = ()
    joins: Sequence[JoiningNode] = ()
    node_lost_after_s: float = 0.0
    """From the failure of a machine until its node is deleted."""


class PlayedGateway(NamedTuple):
    """The configuration of the gateway."""

    sections: Mapping[str, Any]
    """`serving` and `slo`."""
    attempts: int
    slots: Mapping[str, int]
    """By pool: requests that a server runs at once."""


class PlayedTraffic(NamedTuple):
    """The requests and their latency targets."""

    models: Sequence[str]
    """By number in the traffic."""
    traffic: Traffic
    targets: Mapping[str, ClassTargets]
    duration_s: float | None
    """When the run ends, as in a simulation; None if it ends with the last request."""


class Rehearsal(NamedTuple):
    """The plan of a rehearsal."""

    objects: RehearsalObjects
    replicas: Mapping[str, int]
    """By pool: servers when the run begins."""
    pace: RunPace
    build: BuildServer
    port: int
    """The port of every server."""
    gateway: PlayedGateway
    requests: PlayedTraffic
    changes: PlayedChanges


class LiveRun(NamedTuple):
    """The result: events of all programs, request figures, and measured delays."""

    events: list[Event]
    figures: dict[str, Any]
    seconds: float
    delays: MeasuredDelays
    start: dict[str, dict[str, str]]
    """In the form of `start_of`."""


class ProgramFailed(WindtunnelError):
    """A program of the rehearsal ended, or did not reach the expected state."""


Say = Callable[[str], None]


async def rehearse(
    rehearsal: Rehearsal, kubeconfig: Path, namespace: str, folder: Path, say: Say
) -> LiveRun:
    """Plays a scenario on a cluster, in a namespace that is deleted at the end."""
    config = load_config(kubeconfig, "")
    async with open_client(config, name="rehearse") as client:
        stage = _Stage(rehearsal, client, namespace, folder)
        try:
            return await stage.run(kubeconfig, say)
        finally:
            await stage.remove()


class _Stage:
    """One rehearsal on its cluster."""

    def __init__(self, rehearsal: Rehearsal, client: Client, namespace: str, folder: Path) -> None:
        self._plan: Final = rehearsal
        self._client: Final = client
        self._space: Final = namespace
        self._folder: Final = folder
        self._addresses: Final = PodAddresses()
        self._mirror: Final = Mirror(client, unix_s, namespace, placing=True)
        self._kubelets: Final = Kubelets(client, namespace, rehearsal.pace)
        pools = [_in_namespace(one, namespace) for one in rehearsal.objects.pools]
        self._servers: Final = EmulatedServers(
            self._mirror.view, pools, rehearsal.build, rehearsal.port, self._addresses
        )
        self._kubelets.address_of = lambda meta: self._addresses.of(meta.uid)
        self._kubelets.holds = self._holds
        self._servers.released = self._kubelets.look
        self._servers.changed = self._servers_changed
        self._gateway: asyncio.subprocess.Process | None = None
        self._operate: asyncio.subprocess.Process | None = None
        self._began_s = 0.0
        self._late: Final = Distribution()

    def _holds(self, meta: Meta) -> bool:
        return self._servers.holds(full_name(meta.name, meta.namespace))

    def _now_s(self) -> float:
        return unix_s() - self._began_s

    async def run(self, kubeconfig: Path, say: Say) -> LiveRun:
        plan = self._plan
        say("creating nodes and sets on the API server")
        await cluster.create(self._client, self._space, plan.objects)
        trip_s = await self._round_trip_s()
        async with contextlib.AsyncExitStack() as stack:
            await stack.enter_async_context(self._playing())
            say("starting the operator")
            await stack.enter_async_context(self._operator(kubeconfig))
            async with asyncio.timeout(SETTLE_S):
                await cluster.scale(self._client, self._space, plan.objects.sizes)
            await self._until(self._is_settled, self._unsettled)
            say("starting the gateway")
            urls = await stack.enter_async_context(self._gateway_process())
            await self._until_served(urls.admin)
            say("sending requests")
            start = start_of(self._mirror.view)
            tally, seconds, lag_s = await self._play(urls)
        say("comparing with the simulation")
        late = self._late
        delays = MeasuredDelays(trip_s, late.mean(), late.quantile(0.99), lag_s)
        return LiveRun(self._events(), tally.figures(seconds), seconds, delays, start)

    async def _round_trip_s(self) -> float:
        """The median time to read one object."""
        loop = asyncio.get_running_loop()
        times = []
        for _ in range(ROUND_TRIPS):
            began_s = loop.time()
            await self._client.get(NAMESPACES, "", self._space, Plain)
            times.append(loop.time() - began_s)
        return sorted(times)[ROUND_TRIPS // 2]

    # Simulated parts.

    @contextlib.asynccontextmanager
    async def _playing(self) -> AsyncIterator[None]:
        """Runs the kubelets and servers, which follow the cluster."""
        await self._mirror.leave_out_unserved(self._client)
        tasks = [
            asyncio.create_task(one)
            for one in (
                *(known.run() for known in self._mirror.reflectors.values()),
                self._kubelets.run(),
                self._follow(),
            )
        ]
        try:
            yield
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            await self._servers.close()

    async def _follow(self) -> None:
        await self._mirror.wait_synced()
        while True:
            self._mirror.woken.clear()
            self._servers.look()
            await self._mirror.woken.wait()

    def _is_settled(self) -> bool:
        return self._servers.ready() == {k: n for k, n in self._plan.replicas.items() if n}

    def _unsettled(self) -> str:
        wanted, found = sum(self._plan.replicas.values()), sum(self._servers.ready().values())
        gangs = [one for one in self._mirror.view.gangs.values() if one.why_pending]
        why = "".join(f"; {names.short(one.name)}: {one.why_pending}" for one in gangs[:3])
        said = self._last_said("operate")
        return f"{found} of {wanted} servers got ready{why}{f'; operate: {said}' if said else ''}"

    async def _until(self, holds: Callable[[], bool], says: Callable[[], str]) -> None:
        try:
            async with asyncio.timeout(SETTLE_S):
                while not holds():
                    await asyncio.sleep(LOOK_S)
        except TimeoutError:
            raise ProgramFailed(
                f"the cluster did not settle within {SETTLE_S:g} s: {says()}",
                hint=f"the logs of the programs are in {self._folder}",
            ) from None

    # Programs.

    @contextlib.asynccontextmanager
    async def _process(
        self, name: str, *words: str
    ) -> AsyncIterator[tuple[asyncio.subprocess.Process, str]]:
        """Runs a command of Windtunnel; yields its process and the line it prints when ready."""
        with (self._folder / f"{name}.stderr").open("wb") as errors:
            process = await asyncio.create_subprocess_exec(
                sys.executable, "-m", "windtunnel", *words,
                stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE, stderr=errors,
            )  # fmt: skip
        assert process.stdout is not None
        try:
            try:
                async with asyncio.timeout(START_S):
                    line = (await process.stdout.readline()).decode()
            except TimeoutError:
                line = ""
            if not line:
                raise self._failed(name)
            yield process, line
            if process.returncode is not None:
                raise self._failed(name)
        finally:
            await _end(process)

    def _failed(self, name: str) -> ProgramFailed:
        what = f"`windtunnel {name}` failed: {self._last_said(name)}"
        return ProgramFailed(what, where=str(self._folder / f"{name}.stderr"))

    def _last_said(self, name: str) -> str:
        """The last line of a program's log."""
        text = (self._folder / f"{name}.stderr").read_text(errors="replace")
        last = "".join(text.strip().splitlines()[-1:])
        with contextlib.suppress(msgspec.DecodeError):
            last = str(msgspec.json.decode(last).get("message", last))
        return last[:LONGEST_SAID]

    @contextlib.asynccontextmanager
    async def _operator(self, kubeconfig: Path) -> AsyncIterator[None]:
        words = ["operate", "--place", "--metrics-port", "0", "--init-image", "none"]
        words += ["--kubeconfig", str(kubeconfig), "--namespace", self._space]
        words += ["--lease-namespace", self._space, "--log", str(self._folder / "operator.jsonl")]
        if self._plan.objects.autoscalers:
            words.append("--autoscale")
        async with self._process("operate", *words) as (process, _):
            self._operate = process
            try:
                yield
            finally:
                self._operate = None

    @contextlib.asynccontextmanager
    async def _gateway_process(self) -> AsyncIterator[_GatewayUrls]:
        self._write_gateway()
        path = str(self._folder / "gateway.yaml")
        async with self._process("gateway", "gateway", path) as (process, line):
            found = re.search(r"listening on (\S+): .*/servers on (\S+)", line)
            assert found is not None, line
            self._gateway = process
            try:
                yield _GatewayUrls(found[1], found[2])
            finally:
                self._gateway = None

    def _write_gateway(self) -> None:
        """Writes the gateway's configuration: the scenario's policies, and the current servers."""
        (self._folder / "none").touch()
        live = {
            "listen": "127.0.0.1:0",
            "admin": "127.0.0.1:0",
            "servers": [
                {"url": url, "slots": self._plan.gateway.slots[self._servers.pool_of(url)]}
                for url in self._servers.urls()
            ],
            "servers_file": "none",
            "log": "gateway.jsonl",
            "trace": None,
            "health": {"interval": "500ms", "ramp": "0s"},
            "retries": {"attempts": self._plan.gateway.attempts, "budget": 1.0},
            "no_server_ttl": "24h",
            "drain": "1s",
        }
        text = yaml.safe_dump({**self._plan.gateway.sections, "live": live}, sort_keys=False)
        path = self._folder / "gateway.yaml"
        fresh = path.with_suffix(".new")
        fresh.write_text(text)
        fresh.replace(path)

    def _servers_changed(self) -> None:
        if self._gateway is not None and self._gateway.returncode is None:
            self._write_gateway()
            self._gateway.send_signal(signal.SIGHUP)

    async def _until_served(self, admin: str) -> None:
        """Waits until the gateway has found every server healthy."""
        wanted = set(self._servers.urls())
        async with open_session(5.0, name="rehearse") as session:
            async with asyncio.timeout(START_S):
                while True:
                    async with session.get(f"{admin}/servers") as reply:
                        found = await reply.json()
                    if wanted <= {one["server"] for one in found if one["available"]}:
                        return
                    await asyncio.sleep(LOOK_S)

    # The run.

    async def _watch_clock(self) -> None:
        """Measures the lag of the event loop, which a busy machine adds to every latency."""
        loop = asyncio.get_running_loop()
        while True:
            due_s = loop.time() + LOOK_S
            await asyncio.sleep(LOOK_S)
            self._late.add(loop.time() - due_s)

    async def _play(self, urls: _GatewayUrls) -> tuple[ObservationTally, float, float]:
        plan = self._plan
        sent = plan.requests
        tally = ObservationTally(sent.targets)
        # Prompts of token ids have exactly the lengths of the simulation.
        writer = PromptWriter(TOKENS, salt="rehearsal")
        async with open_session(name="rehearse") as session:
            server = Endpoint(session, f"{urls.clients}/v1", Keys({}))
            options = SendOptions(sent.models[0], names_class=True, models=sent.models)
            observer = Observer(sent.traffic, server, writer, options, tally.add)
            queue: dict[str, PlainData] = {"url": f"{urls.admin}/metrics"}
            for name, spec in plan.objects.autoscalers.items():
                await cluster.autoscale(self._client, self._space, name, {**spec, "queue": queue})
            self._began_s = unix_s()
            self._servers.now_s = self._now_s
            self._servers.events.clear()
            self._servers.reason = ""
            plan.pace.begin()
            async with asyncio.TaskGroup() as tasks:
                beside = [tasks.create_task(one) for one in self._beside(observer)]
                await observer.run()
                if sent.duration_s is not None:  # the last request may have ended earlier
                    await asyncio.sleep(max(sent.duration_s - self._now_s(), 0.0))
                seconds = self._now_s()
                for task in beside:
                    task.cancel()
        await asyncio.sleep(LAST_LOG_S)
        lag_s = tally.lag.mean() if tally.lag.count else 0.0
        return tally, seconds, lag_s

    def _beside(self, observer: Observer) -> Iterator[Any]:
        """The tasks that run while requests are sent."""
        changes = self._plan.changes
        yield self._watch_clock()
        yield from (self._inject(fault) for fault in changes.faults)
        yield from (self._join(one) for one in changes.joins)
        if self._plan.requests.duration_s is not None:
            yield self._stop(observer, self._plan.requests.duration_s)

    async def _stop(self, observer: Observer, at_s: float) -> None:
        await self._wait_until(at_s)
        observer.stop()

    async def _wait_until(self, at_s: float) -> None:
        await asyncio.sleep(max(at_s - self._now_s(), 0.0))

    async def _join(self, joining: JoiningNode) -> None:
        await self._wait_until(joining.at_s)
        self._kubelets.revive(joining.node.name)
        await cluster.add_nodes(self._client, [joining.node])

    async def _inject(self, fault: PlayedFault) -> None:
        await self._wait_until(fault.at_s)
        if fault.kind == MODEL_CRASH:
            for label in fault.subjects:
                await self._crash(label)
        elif fault.kind == RESTART:
            # It drops its caches, releases its Lease, and starts over.
            assert self._operate is not None
            self._operate.send_signal(signal.SIGHUP)
        else:
            for machine in fault.subjects:
                await self._kubelets.fail_node(machine)
            await asyncio.sleep(self._plan.changes.node_lost_after_s)
            for machine in fault.subjects:
                await self._kubelets.remove_node(machine)

    async def _crash(self, label: str) -> None:
        """Crashes the containers of a server's first pod, which ends the server."""
        unit = self._servers.unit_of(label)
        started = [] if unit is None else sorted(unit.pods)
        for name in started[:1]:
            await self._kubelets.crash(names.namespace(name), names.short(name))

    # Afterwards.

    def _events(self) -> list[Event]:
        """The events of the operator, the gateway and the servers, oldest first."""
        found = [*self._servers.events]
        found += [
            msgspec.structs.replace(line, time=line.time - self._began_s)
            for line in _lines(self._folder / "operator.jsonl")
        ]
        started_s = 0.0
        labels: dict[str, str] = {}
        for line in _lines(self._folder / "gateway.jsonl"):
            if line.kind == "gateway.started":
                started_s = float(line.data["started"])
            elif line.kind == JOINED:
                labels[line.subject] = self._servers.labels.get(str(line.data["name"]), "")
            data = dict(line.data)
            if "server" in data:
                data["server"] = labels.get(f"server/{data['server']}", "")
            subject = labels.get(line.subject, line.subject)
            at_s = line.time + started_s - self._began_s
            found.append(msgspec.structs.replace(line, time=at_s, subject=subject, data=data))
        return sorted((one for one in found if one.time >= 0.0), key=lambda one: one.time)

    async def remove(self) -> None:
        """Removes everything that a cluster should not keep after the rehearsal."""
        with contextlib.suppress(KubernetesError):
            await self._client.delete(NAMESPACES, "", self._space)
        joined = [one.node for one in self._plan.changes.joins]
        for node in (*self._plan.objects.nodes, *joined):
            with contextlib.suppress(NotFound, KubernetesError):
                await self._client.delete(NODES, "", node.name)


def start_of(view: View) -> dict[str, dict[str, str]]:
    """The gangs of a cluster with their pods and their machines, without random names."""
    gangs = {}
    machines = {}
    for gang in view.gangs.values():
        pods = [view.pods[name] for group in gang.groups for name in group.pods]
        cliques = sorted(f"{names.short(pod.clique)}-{pod.index}" for pod in pods)
        gangs[names.short(gang.name)] = ", ".join(cliques)
        machines[names.short(gang.name)] = ", ".join(sorted(dict.fromkeys(p.node for p in pods)))
    return {"gangs and their pods": gangs, "machines of gangs": machines}


class _GatewayUrls(NamedTuple):
    clients: str
    admin: str


async def _end(process: asyncio.subprocess.Process) -> None:
    """Sends SIGTERM, then SIGKILL if the process does not end."""
    if process.returncode is None:
        process.terminate()
    try:
        async with asyncio.timeout(STOP_S):
            await process.communicate()
    except TimeoutError:
        process.kill()
        await process.communicate()


def _lines(path: Path) -> Iterator[Event]:
    """The lines of a log; the last line of a program that was killed may be incomplete."""
    if not path.is_file():
        raise InputError("the program wrote no log", where=str(path))
    for raw in path.read_bytes().splitlines(keepends=True):
        if raw.endswith(b"\n"):
            line = msgspec.json.decode(raw, type=Event)
            yield Event(line.time, line.kind, line.subject, line.reason, line.data)


def _in_namespace(pods: PoolPods, namespace: str) -> PoolPods:
    return PoolPods(
        pods.pool, full_name(pods.set_name, namespace), pods.kind, pods.name, pods.slots
    )
