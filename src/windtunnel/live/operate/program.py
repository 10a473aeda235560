"""The operator as a process: caches, leader election, probes, metrics, logs, orderly stop."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import os
import signal
import socket
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec

from windtunnel.core.clock import monotonic_s, unix_s
from windtunnel.core.errors import InputError
from windtunnel.core.system.extras import need
from windtunnel.gangs.kubernetes.calls import EVENT, STATUS, ApiCall
from windtunnel.live.admin import admin_app, serve_admin
from windtunnel.live.event_log import EventLogFile
from windtunnel.live.kubernetes.client import Client, open_client
from windtunnel.live.kubernetes.config import load_config
from windtunnel.live.kubernetes.errors import KubernetesError, NotFound
from windtunnel.live.kubernetes.events import EventRecorder
from windtunnel.live.kubernetes.leader import LeaderElector
from windtunnel.live.kubernetes.reflector import Reflector
from windtunnel.live.kubernetes.resources import Object
from windtunnel.live.metrics import counter, gauge, registry_of
from windtunnel.live.operate.gangs import GangOperator
from windtunnel.live.operate.mirror import LEASE, Mirror
from windtunnel.live.operate.received import redacted
from windtunnel.live.operate.writer import CallAnswer, Writer
from windtunnel.live.rotation import LOG_LIMITS
from windtunnel.live.serving import listen, url_of
from windtunnel.live.system import run_until_stopped, settle_memory, unwrapped

if TYPE_CHECKING:  # parts that do not run are not loaded: a restart is half a second faster
    from windtunnel.fleet.kubernetes.controller import FleetDecision
    from windtunnel.fleet.kubernetes.settings import FleetFile
    from windtunnel.live.operate.fleet.program import FleetProgram
    from windtunnel.live.operate.scaling.caches import ScalingCaches
    from windtunnel.live.operate.scaling.canary import CanaryOptions
    from windtunnel.live.operate.scaling.operator import ScalingOperator
    from windtunnel.live.operate.scaling.sources import PrometheusServer
    from windtunnel.live.operate.webhooks import Webhooks
    from windtunnel.scaling.decision import Decision
    from windtunnel.scaling.kubernetes.plan import ObjectName

FLUSH_S: Final = 1.0
AWAY_S: Final = 2.0
PATIENCE_S: Final = 5.0
REPEAT_S: Final = 60.0
"""Delays before it is logged, first and again, that caches are not filled."""
RECEIVED: Final = "object.received"
GONE: Final = "object.gone"
DECIDED: Final = "gangs.decided"

operator_log: Final = logging.getLogger("windtunnel.operator")


LOOPBACK: Final = "127.0.0.1"


def usual_host(environment: Mapping[str, str]) -> str:
    """All addresses in a pod, loopback elsewhere."""
    return "0.0.0.0" if environment.get("KUBERNETES_SERVICE_HOST") else LOOPBACK  # noqa: S104


class OperatorOptions(NamedTuple):
    """The options of an operator."""

    kubeconfig: Path | None = None
    context: str = ""
    namespace: str = ""
    """Empty for all namespaces."""
    lease_namespace: str = ""
    """Empty for the namespace of the kubeconfig or service account."""
    host: str = LOOPBACK
    """The address of its ports; probes and Prometheus reach a pod from other machines."""
    metrics_port: int = 9445
    init_image: str = ""
    log: Path | None = None
    dry_run: bool = False
    gangs: bool = True
    """Whether the gang controllers run; without them, Grove's kinds need not be installed."""
    placing: bool = False
    """Whether pods of `schedulerName: windtunnel` are placed."""
    scaling: bool = False
    """Whether Autoscalers and Kthena's policies are reconciled."""
    prometheus: PrometheusServer | None = None
    canary: CanaryOptions | None = None
    """How changed policies are checked; if None, policies that require a check are not applied."""
    fleet: FleetFile | None = None
    """The pools of machines; if None, machines are not managed."""
    webhook_port: int | None = None
    """The port of the webhooks; if None, there are none."""


class LiveClock:
    """Seconds since 1970 by a clock that cannot be set: read once, then advanced monotonically."""

    def __init__(self) -> None:
        self._began_s: Final = unix_s() - monotonic_s()

    def __call__(self) -> float:
        return round(self._began_s + monotonic_s(), 6)


class OperatorProgram:
    """One operator."""

    def __init__(self, options: OperatorOptions) -> None:
        self.options: Final = options
        self.now_s: Final = LiveClock()
        self.identity: Final = f"{socket.gethostname()}-{os.urandom(8).hex()}"
        self.mirror: Mirror | None = None
        self.writer: Writer | None = None
        self.elector: LeaderElector | None = None
        self.loop: GangOperator | None = None
        self.scaling: ScalingOperator | None = None
        self._scaling_caches: ScalingCaches | None = None
        self.fleet: FleetProgram | None = None
        self.webhooks: Webhooks | None = None
        self.client: Client | None = None
        self.decided = 0
        """Calls of gangs and decisions of autoscalers, in the terms that have ended."""
        self.stopping = False
        self.admin_url = ""
        self._waits_because: KubernetesError | None = None
        self._reloaded: Final = asyncio.Event()
        self._log_file: EventLogFile | None = None
        if options.log is not None:
            head = {"init_image": options.init_image, "dry_run": options.dry_run}
            self._log_file = EventLogFile(
                options.log, head, "operator", LOG_LIMITS, records_anew=True
            )

    async def run(self, stop: asyncio.Event, ready: Callable[[OperatorProgram], None]) -> None:
        """Runs until asked to stop. The lease is released when the last write has ended.

        SIGHUP releases it, too, reads the kubeconfig again and starts over.
        """
        options = self.options
        if options.webhook_port is not None:
            need("cryptography", "--webhook-port", "kubernetes")
        self._config = load_config(options.kubeconfig, options.context)
        bound = listen(options.host, options.metrics_port)
        self.admin_url = url_of(bound)
        app = admin_app(self._registry(), self.why_not_ready)
        loop = asyncio.get_running_loop()
        if hasattr(signal, "SIGHUP"):
            loop.add_signal_handler(signal.SIGHUP, self._on_hangup)
        try:
            if self._log_file is not None:
                self._log_file.open()
            async with serve_admin(app, bound):
                ready(self)
                while not stop.is_set():
                    self._reloaded.clear()
                    async with open_client(self._config, name="operator") as client:
                        self.client = client
                        await self._work(client, stop)
        finally:
            if hasattr(signal, "SIGHUP"):
                loop.remove_signal_handler(signal.SIGHUP)
            if self._log_file is not None:
                self._log_file.close()

    def _on_hangup(self) -> None:
        try:
            self._config = load_config(self.options.kubeconfig, self.options.context)
        except InputError as error:
            operator_log.error("the kubeconfig was not reloaded: %s", error)
            return
        operator_log.info("the kubeconfig was reloaded")
        self._reloaded.set()

    async def _work(self, client: Client, stop: asyncio.Event) -> None:
        """Works with one configuration, until it is replaced or the operator is stopped."""
        gc.unfreeze()
        async with contextlib.AsyncExitStack() as stack:
            if self.options.webhook_port is not None and not self.options.dry_run:
                from windtunnel.live.operate.webhooks import Webhooks

                self.webhooks = Webhooks(client, self._home(client), self._levels, self.now_s)
                bound = listen(self.options.host, self.options.webhook_port)
                await stack.enter_async_context(self.webhooks.serve(bound))
            await self._run_all(client, stop)

    def _home(self, client: Client) -> str:
        return self.options.lease_namespace or client.namespace

    def _levels(self) -> dict[str, dict[str, str]]:
        return {} if self.mirror is None else self.mirror.view.levels

    async def _run_all(self, client: Client, stop: asyncio.Event) -> None:
        tasks = [asyncio.create_task(one) for one in self._background(client)]
        leading = asyncio.create_task(self._lead(client))
        ends = [asyncio.create_task(one.wait()) for one in (stop, self._reloaded)]
        try:
            done, _ = await asyncio.wait(
                [*ends, leading, *tasks], return_when=asyncio.FIRST_COMPLETED
            )
            with unwrapped():
                for task in done:
                    task.result()
        finally:
            self.stopping = stop.is_set() or not self._reloaded.is_set()
            for task in (leading, *reversed(tasks), *ends):
                task.cancel()
                await asyncio.wait([task])  # a failed task must not prevent the rest

    def _background(self, client: Client) -> Iterable[Any]:
        """The background tasks beside the controllers; the first is stopped last."""
        options = self.options
        whole = options.placing or options.fleet is not None
        self.mirror = Mirror(
            client,
            self.now_s,
            options.namespace,
            placing=whole,
            gangs=options.gangs,
            claims=options.placing and options.gangs,
        )
        self.mirror.on_change = self._received if self._log_file is not None else None
        self.elector = LeaderElector(client, self._home(client), LEASE, self.identity)
        self._installation = f"{self._home(client)}/{LEASE}"
        if options.scaling:
            from windtunnel.live.operate.scaling.caches import ScalingCaches

            self._scaling_caches = ScalingCaches(client, options.namespace)
        if options.fleet is not None:
            from windtunnel.live.operate.fleet.program import FleetPlace, FleetProgram

            place = FleetPlace(self._home(client), self.identity, options.dry_run)
            self.fleet = FleetProgram(options.fleet, client, self.mirror, place, self.now_s)
            self.fleet.on_decision = self._fleet_decided
        yield self._flush()
        if self.webhooks is not None:
            yield self.webhooks.run()
        if not options.dry_run:
            yield self.elector.run()

    async def _lead(self, client: Client) -> None:
        """Fills the caches, and decides while this process is the leader."""
        mirror, elector = self.mirror, self.elector
        assert mirror is not None
        assert elector is not None
        missing = await self._unserved(mirror, client)
        if missing:
            operator_log.info("not served by this cluster, and not used: %s", ", ".join(missing))
        async with asyncio.TaskGroup() as tasks:
            for one in self.reflectors.values():
                tasks.create_task(one.run())
            for one in self.reflectors.values():
                await one.synced.wait()
            operator_log.info("caches are filled: %d sets", len(mirror.view.sets))
            settle_memory()
            if self.fleet is not None:
                tasks.create_task(self.fleet.run())
            if self.options.dry_run:
                await self._operate(client, None, None)
            writer = client.fenced(elector)
            self.writer = Writer(writer, mirror)
            recorder = EventRecorder(writer, LEASE, self.identity)
            recording = tasks.create_task(recorder.run())
            try:
                await elector.lead(
                    lambda: self._operate(client, self.writer, recorder), operator_log
                )
            finally:
                recording.cancel()

    async def _unserved(self, mirror: Mirror, client: Client) -> list[str]:
        """The kinds that the cluster does not serve; waits while the API server is unavailable."""
        while True:
            try:
                missing = await mirror.leave_out_unserved(client)
                if self._scaling_caches is not None:
                    missing += await self._scaling_caches.add_served()
            except KubernetesError as error:
                self._waits_because = error
                await asyncio.sleep(AWAY_S)
            else:
                self._waits_because = None
                return missing

    async def _operate(
        self, client: Client, writer: Writer | None, recorder: EventRecorder | None
    ) -> None:
        fenced = None if writer is None else writer.client
        with unwrapped():
            async with asyncio.TaskGroup() as tasks:
                if self.options.gangs:
                    tasks.create_task(self._run_gangs(writer, recorder))
                if self._scaling_caches is not None:
                    scale = self._scale(self._scaling_caches, client, fenced, recorder)
                    tasks.create_task(scale)
                await asyncio.Event().wait()  # the fleet has its own Leases

    async def _run_gangs(self, writer: Writer | None, recorder: EventRecorder | None) -> None:
        assert self.mirror is not None
        placement = None
        if self.options.placing:
            from windtunnel.live.operate.placement import Placement

            fenced = None if writer is None else writer.client
            placement = Placement(self.mirror, fenced, self.now_s)
        image = self.options.init_image
        self.loop = GangOperator(self.mirror, writer, recorder, self.now_s, image, placement)
        self.loop.on_decision = self._decided
        self.loop.on_failure = self._failed
        try:
            await self.loop.run()
        finally:
            self.decided += self.loop.decided
            self.loop.close()

    async def _scale(
        self,
        caches: ScalingCaches,
        reader: Client,
        writer: Client | None,
        recorder: EventRecorder | None,
    ) -> None:
        from windtunnel.live.operate.scaling.operator import ScalingOperator, ScalingOptions
        from windtunnel.live.operate.scaling.sources import open_sources

        record = None if self._log_file is None else self._log_file.record
        options = ScalingOptions(self._installation, self.options.canary, record)
        async with open_sources(self.options.prometheus) as sources:
            self.scaling = ScalingOperator(
                caches, reader, writer, recorder, sources, self.now_s, options
            )
            self.scaling.on_decision = self._scaled
            try:
                await self.scaling.run()
            finally:
                self.decided += self.scaling.decided
                self.scaling = None  # another leader publishes its own decisions

    @property
    def reflectors(self) -> dict[str, Reflector[Any]]:
        """All caches, by kind."""
        gangs = {} if self.mirror is None else self.mirror.reflectors
        return {**gangs, **(self._scaling_caches.reflectors if self._scaling_caches else {})}

    # Readiness, logs and metrics.

    def why_not_ready(self) -> str:
        """Why the process is not ready; empty if it is. Standbys with full caches are ready too."""
        if self.stopping:
            return "stopping"
        if self.mirror is None:
            return "starting"
        caches = {**self.reflectors, **({} if self.fleet is None else self.fleet.reflectors)}
        waiting = [kind for kind, one in caches.items() if not one.synced.is_set()]
        if waiting:
            return f"not listed yet: {', '.join(waiting)}"
        return "" if self.webhooks is None or self.webhooks.reached else self.webhooks.why_not

    async def _flush(self) -> None:
        log_s = self.now_s() + PATIENCE_S
        while True:
            await asyncio.sleep(FLUSH_S)
            self._flush_log()
            if self.now_s() >= log_s:
                log_s = self.now_s() + REPEAT_S
                self._log_waiting()

    def _flush_log(self) -> None:
        """Flushes the log; a full log is replaced by one that begins with the current state."""
        log, core = self._log_file, None if self.scaling is None else self.scaling.core
        if log is None:
            return
        log.flush()
        if log.is_full and (core is None or not core.awaits_outcomes):
            log.begin_anew()
            if core is not None:
                core.log_anew(self.now_s())

    def _log_waiting(self) -> None:
        """Logs what the caches wait for: an API server that does not answer, or missing kinds."""
        for kind, one in self.reflectors.items():
            if not one.synced.is_set():
                error = self._waits_because or one.last_error
                why = "no answer yet" if error is None else str(error)
                hint = " (`windtunnel operate crds` prints its kinds)"
                more = hint if isinstance(error, NotFound) else ""
                operator_log.warning("waiting for %s: %s%s", kind, why, more)
                return

    def _received(self, kind: str, name: str, after: Object | None) -> None:
        assert self._log_file is not None
        data = {} if after is None else {"object": redacted(msgspec.to_builtins(after))}
        word = GONE if after is None else RECEIVED
        self._log_file.record(self.now_s(), word, f"{kind} {name}", "", data)

    def _decided(self, now_s: float, calls: Sequence[ApiCall]) -> None:
        for call in calls:
            if call.verb == EVENT:
                self._log_event(now_s, call)
                continue
            why = next((getattr(one, "why", "") for one in call.commands), "")
            if self._log_file is not None:
                data: dict[str, Any] = {"uid": call.uid, "version": call.version}
                data["body"] = redacted(call.body)
                subject = f"{call.verb} {call.kind} {call.name}"
                self._log_file.record(now_s, DECIDED, subject, why, data)
            if self.options.dry_run:
                operator_log.info("would %s %s %s", _act(call), call.kind, call.name)

    def _log_event(self, now_s: float, call: ApiCall) -> None:
        """Logs an object's event once, in the form of a simulation's log."""
        event = call.commands[0].event  # type: ignore[attr-defined]
        assert self.mirror is not None
        if self._log_file is not None and event.key not in self.mirror.view.events:
            subject = f"{event.kind}/{event.name}"
            self._log_file.record(now_s, f"gang.{event.reason}", subject, event.message, {})

    def _scaled(self, named: ObjectName, decision: Decision) -> None:
        from windtunnel.live.operate.scaling.operator import scaling_log

        if self.options.dry_run and decision.changes:
            scaling_log.info(
                "%s: would scale %s from %d to %d: %s",
                named, decision.variant, decision.current, decision.target, decision.reason,
            )  # fmt: skip

    def _fleet_decided(self, now_s: float, shard: str, one: FleetDecision) -> None:
        if self._log_file is not None:
            data: dict[str, Any] = {"shard": shard, "need": one.need, "pod": one.pod}
            subject = f"machine/{one.machine}" if one.machine else f"need/{one.need}"
            self._log_file.record(now_s, f"fleet.{one.word}", subject, one.reason, data)

    def _failed(self, call: ApiCall, answer: CallAnswer) -> None:
        operator_log.warning("%s %s %s: %s", _act(call), call.kind, call.name, answer.says)

    def _registry(self) -> Any:
        collects: list[Callable[[], Iterable[Any]]] = [lambda: operator_families(self)]
        if self.options.scaling:
            from windtunnel.live.operate.scaling.metrics import scaling_families

            collects.append(lambda: scaling_families(self.scaling, self.now_s()))
        if self.options.fleet is not None:
            from windtunnel.live.operate.fleet.metrics import fleet_families

            collects.append(lambda: fleet_families(self.fleet))
        return registry_of(*collects)


def _act(call: ApiCall) -> str:
    return "write the status of" if call.verb == STATUS else call.verb


def operator_families(program: OperatorProgram) -> Iterable[Any]:
    """All metrics of the process with their current values."""
    elector, mirror, loop = program.elector, program.mirror, program.loop
    leads = elector is not None and elector.led.is_set()
    name = "windtunnel_operator_"
    yield gauge(f"{name}leader", "1 on the leader.", float(leads))
    if loop is not None:
        yield counter(f"{name}passes", "Reconcile passes.", loop.passes)
    calls = {} if program.writer is None else program.writer.counts
    says = "Calls to the API server."
    yield counter(f"{name}calls", says, calls.items(), "verb", "kind", "outcome")
    if program.webhooks is not None:
        says = "1 while the API server can reach the webhooks."
        yield gauge(f"{name}webhooks_reached", says, float(not program.webhooks.why_not))
        reviews, says = program.webhooks.counts.items(), "Reviews by the webhooks."
        yield counter(f"{name}reviews", says, reviews, "webhook", "outcome")
    if program.client is not None:
        says = "Requests to the API server, reads included."
        yield counter(f"{name}requests", says, program.client.requests_sent)
        says = "Requests that the API server answered with 429."
        yield counter(f"{name}requests_shed", says, program.client.requests_shed)
    if mirror is None:
        return
    caches = program.reflectors.items()
    sizes = [(kind, len(one.cache)) for kind, one in caches]
    yield gauge(f"{name}objects", "Objects in the caches.", sizes, "kind")
    now_s = monotonic_s()
    ages = [(kind, one.age_s(now_s)) for kind, one in caches if one.synced.is_set()]
    says = "Time since the API server last sent anything about a kind."
    yield gauge(f"{name}cache_age_seconds", says, ages, "kind")
    yield gauge(f"{name}invalid_sets", "Invalid sets.", len(mirror.invalid))


def run_operator(
    options: OperatorOptions, ready: Callable[[OperatorProgram], None]
) -> OperatorProgram:
    """Runs an operator until Ctrl-C or SIGTERM."""
    program = OperatorProgram(options)

    async def main(stop: asyncio.Event) -> None:
        await program.run(stop, ready)

    run_until_stopped(main)
    return program
