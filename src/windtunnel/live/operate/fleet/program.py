"""The fleet on an API server: feeds caches and responses to its controllers, makes their calls.

Nothing is decided here. Each shard has its own Lease, so that several processes can share the
shards of a fleet; the process that holds it reads the shard's books, and decides until it loses it.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Coroutine, Iterable, Iterator, Sequence
from typing import Any, Final, NamedTuple

from windtunnel.core.errors import InputError
from windtunnel.core.loop import INFINITY
from windtunnel.fleet.kubernetes.books import ROWS, read_books
from windtunnel.fleet.kubernetes.controller import (
    FleetDecision,
    PodReader,
    ShardController,
    ShardIdentity,
)
from windtunnel.fleet.kubernetes.objects import (
    APPLY,
    CLAIM,
    CREATE,
    DELETE,
    EVICT,
    FLEET,
    MACHINE,
    POOL,
    FleetCall,
    ProviderOutcome,
    next_epoch,
)
from windtunnel.fleet.kubernetes.provider import KubernetesProvider
from windtunnel.fleet.kubernetes.settings import FleetFile
from windtunnel.fleet.kubernetes.sharding import (
    COORDINATOR,
    REPORT,
    FleetCoordinator,
    orders_of,
    report_text,
    territory_of,
)
from windtunnel.fleet.planner.actions import ACTIONS
from windtunnel.fleet.shard import Territory
from windtunnel.gangs.api.pod_spec import requests_of
from windtunnel.gangs.kubernetes.reading import name_of
from windtunnel.gangs.objects import NODE, POD
from windtunnel.gangs.placement.constraints import apart_by_host, node_terms
from windtunnel.live.kubernetes.client import Client, ObjectSelection
from windtunnel.live.kubernetes.errors import (
    AlreadyExists,
    Conflict,
    KubernetesError,
    NotFound,
    NotLeader,
    TooManyRequests,
)
from windtunnel.live.kubernetes.events import NORMAL, WARNING, EventRecorder, Subject
from windtunnel.live.kubernetes.leader import LeaderElector
from windtunnel.live.kubernetes.reflector import Reflector
from windtunnel.live.kubernetes.resources import (
    CONFIG_MAPS,
    NODE_CLAIMS,
    NODES,
    PODS,
    Meta,
    Plain,
    Unstructured,
)
from windtunnel.live.operate.fleet.file import prices_of
from windtunnel.live.operate.mirror import Mirror
from windtunnel.live.operate.received import Received
from windtunnel.live.system import unwrapped

NAME: Final = "windtunnel-fleet"
"""Prefix of its Leases, ConfigMaps and events, before the names of the fleet and the shard."""
ONLY_SHARD: Final = "main"
READING: Final = PodReader(node_terms, apart_by_host, requests_of, name_of)
WARNINGS: Final = ("short", "no_kind", "failed", "unsaved")
TERM_EPOCHS: Final = 1 << 20
"""How often a controller may be rebuilt in one term."""
AGAIN_S: Final = 2.0
PATIENCE_S: Final = 30.0
LOOK_S: Final = 0.5

fleet_log: Final = logging.getLogger("windtunnel.operator.fleet")

OnDecision = Callable[[float, str, FleetDecision], None]


class FleetPlace(NamedTuple):
    """Where a fleet keeps its Leases and books, and the identity of this process."""

    namespace: str
    identity: str
    dry_run: bool = False


class FleetProgram:
    """The shards of a fleet, as far as this process runs them."""

    def __init__(
        self,
        file: FleetFile,
        client: Client,
        mirror: Mirror,
        place: FleetPlace,
        now_s: Callable[[], float],
    ) -> None:
        self.reflectors: Final[dict[str, Reflector[Received]]] = {}
        live = file.live.fleet
        if any(one.node_class is not None for one in live.pools):
            chosen = ObjectSelection(labels=f"{FLEET}={live.name}")
            self.reflectors[CLAIM] = Reflector(client, NODE_CLAIMS, Received, chosen)
        self._pools: Final = {one.name for one in live.pools if one.node_class is not None}
        self.on_decision: OnDecision | None = None
        names = [one.name for one in live.shards]
        self.shards: Final = [
            ShardProcess(self, file, client, mirror, place, now_s, name)
            for name in (names or [ONLY_SHARD])
        ]
        self.coordinator: Final = (
            CoordinatorProcess(file, client, place, now_s, self.shards) if names else None
        )

    async def run(self) -> None:
        """Runs until cancelled. The mirror's caches are already filled; its own are filled here."""
        async with asyncio.TaskGroup() as tasks:
            for cache in self.reflectors.values():
                tasks.create_task(cache.run())
            for kind, cache in self.reflectors.items():
                await self._filled(kind, cache)
                self._note_strays(cache)
            for one in self.shards:
                tasks.create_task(one.run())
            if self.coordinator is not None:
                tasks.create_task(self.coordinator.run())

    def _note_strays(self, claims: Reflector[Received]) -> None:
        """Warns about NodeClaims whose pool is no longer in the file: nothing manages them."""
        for claim in _by_name(claims.cache):
            pool = claim.metadata.labels.get(POOL, "")
            if pool not in self._pools:
                fleet_log.warning(
                    "NodeClaim %s is left alone: pool %r is not in the file with a node_class;"
                    " put it back, or delete the NodeClaim",
                    claim.metadata.name,
                    pool,
                )

    async def _filled(self, kind: str, cache: Reflector[Received]) -> None:
        """Waits until a cache is filled; the first error is logged at once, then every so often."""
        waited_s, has_told = 0.0, False
        while not cache.synced.is_set():
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(LOOK_S):
                    await cache.synced.wait()
                    return
            waited_s += LOOK_S
            error = cache.last_error
            if waited_s < PATIENCE_S and (has_told or error is None):
                continue
            waited_s, has_told = 0.0, True
            why = "no answer yet" if error is None else str(error)
            hint = " (is Karpenter installed?)" if isinstance(error, NotFound) else ""
            fleet_log.warning("waiting for %s: %s%s", kind, why, hint)


class LeasedProcess:
    """Work that one process does at a time: the holder of its Lease."""

    def __init__(self, client: Client, place: FleetPlace, fleet: str, name: str) -> None:
        self.name: Final = name
        self._client: Final = client
        self._place: Final = place
        self._fleet: Final = fleet
        self.object_name: Final = f"{NAME}-{fleet}-{name}"
        """The name of its Lease and its ConfigMap."""
        self.elector: Final = LeaderElector(
            client, place.namespace, self.object_name, place.identity
        )
        self.fault = ""
        """Why the stored state cannot be read; empty if it can."""

    async def lead(
        self, work: Callable[[Client, EventRecorder], Coroutine[Any, Any, None]]
    ) -> None:
        """Takes part in the election, and works while leading, until cancelled."""
        electing = asyncio.create_task(self.elector.run())
        try:
            await self.elector.lead(lambda: self._term(work), fleet_log)
        finally:
            electing.cancel()
            await asyncio.wait([electing])

    async def _term(
        self, work: Callable[[Client, EventRecorder], Coroutine[Any, Any, None]]
    ) -> None:
        writer = self._client.fenced(self.elector)
        recorder = EventRecorder(writer, NAME, self._place.identity)
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(recorder.run())
            await self.persist(lambda: work(writer, recorder), recorder)

    async def persist(
        self, work: Callable[[], Coroutine[Any, Any, None]], recorder: EventRecorder | None
    ) -> None:
        """Works until cancelled. If the stored state cannot be read, nothing is guessed: it reports
        that and decides nothing until the state is repaired, while the rest of the process
        continues."""
        while True:
            try:
                with unwrapped():
                    await work()
            except InputError as error:
                self._note_fault(str(error), recorder)
                await asyncio.sleep(AGAIN_S)

    def _note_fault(self, says: str, recorder: EventRecorder | None) -> None:
        """Sets why the stored state cannot be read, empty if it can; logs each change once."""
        if says and says != self.fault:
            fleet_log.error("%s: %s", self.object_name, says)
        elif self.fault and not says:
            fleet_log.info("%s: the stored state can be read again", self.object_name)
        self.fault = says
        if says and recorder is not None:
            space = self._place.namespace
            about = Subject("v1", "ConfigMap", space, self.object_name, "")
            recorder.record(about, WARNING, "FleetStateUnreadable", "Read", says)

    async def stored(self, name: str) -> dict[str, Any] | None:
        """A ConfigMap of the fleet, read from the API server and not a cache; None if missing."""
        full = f"{NAME}-{self._fleet}-{name}"
        while True:
            try:
                found = await self._client.get(
                    CONFIG_MAPS, self._place.namespace, full, Unstructured
                )
            except NotFound:
                return None
            except KubernetesError as error:
                fleet_log.warning("%s: %s", self.object_name, error)
                await asyncio.sleep(AGAIN_S)
            else:
                return found.data

    async def store(self, writer: Client, data: dict[str, str], manager: str) -> None:
        """Writes keys of its own ConfigMap; those of other managers stay."""
        meta = {"namespace": self._place.namespace, "name": self.object_name}
        body = {"metadata": meta, "data": data}
        await writer.apply(CONFIG_MAPS, body, Plain, manager=f"{NAME}-{manager}", force=True)


class CoordinatorProcess(LeasedProcess):
    """Moves machines between the shards of a fleet."""

    def __init__(
        self,
        file: FleetFile,
        client: Client,
        place: FleetPlace,
        now_s: Callable[[], float],
        shards: Sequence[LeasedProcess],
    ) -> None:
        super().__init__(client, place, file.live.fleet.name, COORDINATOR)
        self._file: Final = file
        self._now_s: Final = now_s
        self._shards: Final = shards

    async def run(self) -> None:
        if not self._place.dry_run:
            await self.lead(self._coordinate)

    async def _coordinate(self, writer: Client, recorder: EventRecorder) -> None:
        live = self._file.live.fleet
        coordinator = FleetCoordinator(await self.stored(COORDINATOR), live)
        self._note_fault("", recorder)
        known: dict[str, str] = {}
        while True:
            data = coordinator.data()
            if data != known:
                try:
                    await self.store(writer, data, COORDINATOR)
                    known = data
                except NotLeader:
                    raise
                except KubernetesError as error:
                    fleet_log.warning("%s: %s", self.object_name, error)
            await asyncio.sleep(self._file.fleet.cycle_s)
            fault = ""
            for shard in self._shards:
                try:
                    coordinator.report(await self.stored(shard.name), self._now_s())
                except InputError as error:
                    fault = str(error)
            self._note_fault(fault, recorder)


class ShardProcess(LeasedProcess):
    """One shard."""

    def __init__(
        self,
        program: FleetProgram,
        file: FleetFile,
        client: Client,
        mirror: Mirror,
        place: FleetPlace,
        now_s: Callable[[], float],
        name: str,
    ) -> None:
        super().__init__(client, place, file.live.fleet.name, name)
        self._program: Final = program
        self._file: Final = file
        self._mirror: Final = mirror
        self._now_s: Final = now_s
        self.controller: ShardController | None = None
        self._woken: Final = asyncio.Event()
        self._builds = 0
        self.counts: Final[dict[tuple[str, str, str], int]] = {}
        """Calls by verb, kind and outcome."""
        self._said: Final[dict[str, str]] = {}
        mirror.pod_watchers.append(self._pod)
        mirror.objects[NODE].cache.subscribe(self._node)
        if CLAIM in program.reflectors:
            program.reflectors[CLAIM].cache.subscribe(self._claim)

    # Observations.

    def _pod(self, before: Received | None, after: Received | None) -> None:
        if self.controller is not None:
            self.controller.pod(before, after, self._now_s())
            self._woken.set()

    def _node(self, before: Received | None, after: Received | None) -> None:
        one = after or before
        if self.controller is not None and one is not None:
            self.controller.provider.node(one.metadata.name, after, self._now_s())
            self._woken.set()

    def _claim(self, before: Received | None, after: Received | None) -> None:
        one = after or before
        if self.controller is not None and one is not None:
            self.controller.provider.claim(one.metadata.name, after)
            self._woken.set()

    # Terms.

    async def run(self) -> None:
        """Decides while leading, or in a dry run."""
        if self._place.dry_run:
            await self.persist(lambda: self._decide(None, None), None)
        else:
            await self.lead(self._write)

    async def _write(self, writer: Client, recorder: EventRecorder) -> None:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._decide(writer, recorder))
            if self._file.live.fleet.shards:
                tasks.create_task(self._exchange(writer, recorder))

    async def _exchange(self, writer: Client, recorder: EventRecorder) -> None:
        """Reports to the coordinator and follows its orders, once per cycle."""
        reported = ""
        while True:
            await asyncio.sleep(self._file.fleet.cycle_s)
            controller = self.controller
            if controller is None:
                continue
            data = await self.stored(COORDINATOR)
            if data is not None:
                try:
                    controller.obey(orders_of(data, self.name), self._now_s())
                    self._note_fault("", recorder)
                except InputError as error:
                    self._note_fault(str(error), recorder)
                self._woken.set()
            text = report_text(controller.member.report())
            if text != reported:
                try:
                    await self.store(writer, {REPORT: text}, REPORT)
                    reported = text
                except NotLeader:
                    raise
                except KubernetesError as error:
                    fleet_log.warning("%s: %s", self.object_name, error)

    async def _decide(self, writer: Client | None, recorder: EventRecorder | None) -> None:
        """Starts from the state on the API server alone, and decides until cancelled."""
        controller = await self._build()
        self._note_fault("", recorder)
        try:
            async with asyncio.TaskGroup() as calling:
                while True:
                    self._woken.clear()
                    calls = controller.step(self._now_s())
                    self._report(controller, recorder)
                    if writer is not None:
                        for call in calls:
                            calling.create_task(self._carry_out(writer, controller, call))
                    await self._wait(controller.next_s())
        finally:
            self.controller = None
            controller.demand.close()

    async def _wait(self, until_s: float) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(
                None if until_s == INFINITY else max(until_s - self._now_s(), 0.0)
            ):
                await self._woken.wait()

    async def _build(self) -> ShardController:
        stored = await self.stored(self.name)
        territory = await self._territory()
        mirror, place = self._mirror, self._place
        self._builds += 1
        claims = _by_name(self._program.reflectors[CLAIM].cache if self._claims() else ())
        nodes = _by_name(mirror.objects[NODE].cache)
        least = (self.elector.epoch + 1) * TERM_EPOCHS + self._builds
        epoch = next_epoch(least, [*claims, *nodes])
        keys = [key for levels in mirror.view.levels.values() for key in levels.values()]
        spaces: tuple[str, ...] = ()
        for one in self._file.live.fleet.shards:
            if one.name == self.name:
                spaces = tuple(one.namespaces)
        controller = ShardController(
            self._file,
            KubernetesProvider(self._file, prices_of(self._file), self.name, self.name, keys),
            mirror.view,
            READING,
            ShardIdentity(self.name, epoch, self.object_name, spaces),
            read_books(stored, f"ConfigMap {place.namespace}/{self.object_name}"),
            territory,
        )
        controller.shard.executor.dry_run = place.dry_run
        self.controller = controller
        for claim in claims:
            self._claim(None, claim)
        for node in nodes:
            self._node(None, node)
        for pod in _by_name(mirror.objects[POD].cache):
            self._pod(None, pod)
        return controller

    def _claims(self) -> bool:
        return CLAIM in self._program.reflectors

    async def _territory(self) -> Territory | None:
        """The shard's machines according to the coordinator's books; None for all."""
        for one in self._file.live.fleet.shards:
            if one.name == self.name and self._place.dry_run:
                return Territory(one.zones)
        if not self._file.live.fleet.shards:
            return None
        data = await self.stored(COORDINATOR)
        while data is None:
            await asyncio.sleep(AGAIN_S)
            data = await self.stored(COORDINATOR)
        return territory_of(data, self.name)

    # Calls.

    async def _carry_out(
        self, writer: Client, controller: ShardController, call: FleetCall
    ) -> None:
        """Makes a call beside others: no two are for the same machine, except evictions."""
        outcome, says = await self._answer(writer, call)
        key = (call.verb, call.kind, outcome.value)
        self.counts[key] = self.counts.get(key, 0) + 1
        if outcome in (ProviderOutcome.FAILED, ProviderOutcome.TAKEN):
            self._warn(call, says)
        controller.answered(call, outcome, says, self._now_s())
        self._woken.set()

    async def _answer(self, writer: Client, call: FleetCall) -> tuple[ProviderOutcome, str]:
        try:
            return await self._call(writer, call)
        except NotLeader:
            raise
        except NotFound as error:
            is_done = call.verb in (DELETE, EVICT)
            return (ProviderOutcome.DONE if is_done else ProviderOutcome.STALE), str(error)
        except TooManyRequests as error:
            return ProviderOutcome.REFUSED if call.verb == EVICT else ProviderOutcome.FAILED, str(
                error
            )
        except Conflict as error:
            return (ProviderOutcome.DONE if call.verb == EVICT else ProviderOutcome.STALE), str(
                error
            )
        except KubernetesError as error:
            return ProviderOutcome.FAILED, str(error)

    async def _call(self, writer: Client, call: FleetCall) -> tuple[ProviderOutcome, str]:
        if call.verb == APPLY:
            await self.store(writer, call.body["data"], ROWS)
        elif call.verb == CREATE:
            return await self._create(writer, call)
        elif call.verb == EVICT:
            await writer.evict(Meta(namespace=call.namespace, name=call.name, uid=call.uid))
        elif call.verb == DELETE:
            await writer.delete(NODE_CLAIMS, "", call.name, uid=call.uid, version=call.version)
        else:
            guards = {"uid": call.uid, "resourceVersion": call.version}
            body = {**call.body, "metadata": {**call.body.get("metadata", {}), **guards}}
            resource = NODE_CLAIMS if call.kind == CLAIM else NODES
            made = await writer.patch(resource, "", call.name, body, Received)
            self._cache(call.kind).written(made)
        return ProviderOutcome.DONE, ""

    async def _create(self, writer: Client, call: FleetCall) -> tuple[ProviderOutcome, str]:
        """Creates a NodeClaim; if the name is taken, it may be our own with a lost response."""
        cache = self._cache(CLAIM)
        try:
            cache.written(await writer.create(NODE_CLAIMS, call.body, Received))
        except AlreadyExists:
            found = await writer.get(NODE_CLAIMS, "", call.name, Received)
            labels, own = found.metadata.labels, call.body["metadata"]["labels"]
            if any(labels.get(key) != own[key] for key in (FLEET, MACHINE)):
                return (
                    ProviderOutcome.TAKEN,
                    f"a NodeClaim {call.name} exists that is not of this fleet",
                )
            cache.written(found)
            if found.metadata.deletion_timestamp is not None:
                return ProviderOutcome.STALE, "the previous NodeClaim is still being deleted"
        return ProviderOutcome.DONE, ""

    def _cache(self, kind: str) -> Any:
        if kind == CLAIM:
            return self._program.reflectors[CLAIM].cache
        return self._mirror.objects[NODE].cache

    # Logs and events.

    def _warn(self, call: FleetCall, says: str) -> None:
        """Logs each failure once, however often the call is retried."""
        what = f"{call.verb} {call.kind} {call.name}"
        if self._said.get(what) != says:
            if len(self._said) > 1000:
                self._said.clear()
            self._said[what] = says
            fleet_log.warning("%s: %s: %s", self.object_name, what, says)

    def _report(self, controller: ShardController, recorder: EventRecorder | None) -> None:
        decisions, controller.decisions = controller.decisions, []
        for one in decisions:
            level = logging.WARNING if one.word in WARNINGS else logging.INFO
            parts = [f"machine {one.machine}"] if one.machine else []
            parts += [f"need {one.need}"] if one.need else []
            parts += [f"pod {one.pod}"] if one.pod else []
            about, why = ", ".join(parts), f": {one.reason}" if one.reason else ""
            is_order = one.word in ACTIONS
            prefix = "would " if self._place.dry_run and is_order else ""
            fleet_log.log(level, "%s: %s%s %s%s", self.object_name, prefix, one.word, about, why)
            if self._program.on_decision is not None:
                self._program.on_decision(self._now_s(), self.name, one)
            if recorder is not None and one.reason:
                kind = WARNING if one.word in WARNINGS else NORMAL
                for subject in self._subjects(one):
                    reason = "Fleet" + one.word.title().replace("_", "")
                    recorder.record(subject, kind, reason, "Decide", f"{about}: {one.reason}")

    def _subjects(self, one: FleetDecision) -> Iterator[Subject]:
        """The pod that needed the machine, and the machine."""
        pod = self._mirror.raw(POD, one.pod) if one.pod else None
        if pod is not None:
            yield Subject.of(PODS, pod.metadata)
        if one.machine.startswith("node/"):
            node = self._mirror.objects[NODE].cache.get("", one.machine.removeprefix("node/"))
            if node is not None:
                yield Subject.of(NODES, node.metadata)
        elif one.machine and self._claims():
            claim = self._program.reflectors[CLAIM].cache.get("", one.machine)
            if claim is not None:
                yield Subject.of(NODE_CLAIMS, claim.metadata)


def _by_name(cache: Iterable[Received]) -> list[Received]:
    return sorted(cache, key=lambda one: one.metadata.key)
