"""A cluster in memory that the fleet's controller is driven on: objects with uids and versions,
budgets, a Karpenter, a scheduler; and a controller that may be killed between any two calls."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import msgspec

from windtunnel.fleet.demand.requests import ACCELERATOR, GPU
from windtunnel.fleet.kubernetes.books import ROWS, read_books
from windtunnel.fleet.kubernetes.controller import PodReader, ShardController, ShardIdentity
from windtunnel.fleet.kubernetes.objects import (
    APPLY,
    CLAIM,
    CONFIG_MAP,
    CREATE,
    DELETE,
    EVICT,
    FLEET,
    NODE,
    POD,
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
from windtunnel.fleet.shard import Territory
from windtunnel.gangs.api.pod_spec import requests_of
from windtunnel.gangs.kubernetes.reading import name_of, read
from windtunnel.gangs.placement.constraints import apart_by_host, node_terms
from windtunnel.gangs.view import View
from windtunnel.live.operate.received import Received

Plain = dict[str, Any]
READING = PodReader(node_terms, apart_by_host, requests_of, name_of)
REF = {"group": "test.dev", "kind": "TestNodeClass", "name": "default"}


def fleet_file(
    *, places: int = 3, spot: bool = False, metal: int = 0, shards: list[Plain] | None = None
) -> FleetFile:
    pools: list[Plain] = []
    live: list[Plain] = []
    if places:
        capacity = "spot" if spot else "on-demand"
        pool = {"name": "h200", "accelerator": "h200", "accelerators": 8, "capacity": capacity}
        zones = ["z1"] if shards is None else [one["zones"][0] for one in shards]
        for number, zone in enumerate(zones):
            name = "h200" if number == 0 else f"h200-{zone}"
            one = {**pool, "name": name, "zone": zone, "machines": {"max": places}}
            pools.append({**one, "price_per_hour": 30})
            live.append({"name": name, "node_class": REF, "instance_types": ["p5en.48xlarge"]})
    if metal:
        pools.append({"name": "metal", "accelerator": "h200", "accelerators": 8, "zone": "z1",
                      "machines": {"max": metal}, "price_per_hour": 1})  # fmt: skip
        live.append({"name": "metal", "nodes": {"pool": "metal"}})
    more = {"shards": shards} if shards is not None else {}
    data = {"fleet": {"pools": pools}, "live": {"fleet": {"pools": live, **more}}}
    return FleetFile.read(data)


class Killed(Exception):
    """The controller was killed."""


class FakeApi:
    """Objects by kind and name."""

    def __init__(self) -> None:
        self.objects: dict[str, dict[str, Plain]] = {CLAIM: {}, NODE: {}, POD: {}, CONFIG_MAP: {}}
        self.listeners: list[Callable[[str, str, Received | None, Received | None], None]] = []
        self.version = 0
        self.created: list[str] = []
        self.evicted: list[str] = []
        self.protected: set[str] = set()
        """Pods that a budget keeps."""

    def put(self, kind: str, body: Plain) -> None:
        """Stored anew, or changed."""
        name = body["metadata"]["name"]
        before = self.objects[kind].get(name)
        self.version += 1
        meta = body["metadata"]
        meta.setdefault("uid", f"uid-{kind}-{name}-{self.version}")
        meta["resourceVersion"] = str(self.version)
        self.objects[kind][name] = copy.deepcopy(body)
        self._tell(kind, name, before, body)

    def change(self, kind: str, name: str, **fields: Any) -> None:
        body = copy.deepcopy(self.objects[kind][name])
        merge(body, fields)
        self.put(kind, body)

    def remove(self, kind: str, name: str) -> None:
        self._tell(kind, name, self.objects[kind].pop(name), None)

    def _tell(self, kind: str, name: str, before: Plain | None, after: Plain | None) -> None:
        was, now = received(before), received(after)
        for listener in self.listeners:
            listener(kind, name, was, now)

    def carry_out(self, call: FleetCall) -> ProviderOutcome:
        """As an API server does; guards are checked."""
        objects = self.objects[call.kind]
        known = objects.get(call.name)
        if call.verb in (CREATE, APPLY):
            if known is not None and call.verb == CREATE:
                return (
                    ProviderOutcome.DONE
                    if FLEET in known["metadata"]["labels"]
                    else ProviderOutcome.TAKEN
                )
            if known is None:
                self.created.append(call.name)
            body = copy.deepcopy(call.body)
            if known is not None:
                body["data"] = {**known["data"], **body["data"]}
            self.put(call.kind, body)
            return ProviderOutcome.DONE
        if known is None:
            return ProviderOutcome.DONE if call.verb == DELETE else ProviderOutcome.STALE
        meta = known["metadata"]
        if call.uid != meta["uid"] or (call.version and call.version != meta["resourceVersion"]):
            return ProviderOutcome.STALE
        if call.verb == EVICT:
            if call.name in self.protected:
                return ProviderOutcome.REFUSED
            self.evicted.append(call.name)
            self.remove(POD, call.name)
        elif call.verb == DELETE:
            self.change(call.kind, call.name, metadata={"deletionTimestamp": "now"})
        else:
            self.change(call.kind, call.name, **call.body)
        return ProviderOutcome.DONE


def received(body: Plain | None) -> Received | None:
    return None if body is None else msgspec.convert(body, Received)


def merge(into: Plain, change: Plain) -> None:
    """A merge patch: null removes."""
    for key, value in change.items():
        if value is None:
            into.pop(key, None)
        elif isinstance(value, dict):
            merge(into.setdefault(key, {}), value)
        else:
            into[key] = value


class World:
    """A cluster, its Karpenter and its scheduler, and the controllers of its fleet."""

    def __init__(self, file: FleetFile, shards: list[str] | None = None) -> None:
        self.file = file
        self.api = FakeApi()
        self.now_s = 0.0
        self.calls_left: int | None = None
        """So many calls are made before the next kill; None: no kill."""
        self.kills_after = False
        """Whether the call of a kill is carried out, and only its answer is lost."""
        self.log: list[FleetCall] = []
        self.karpenter = True
        self.launch_s = 12.0
        self._claimed_s: dict[str, float] = {}  # by uid: when Karpenter saw it
        self.no_capacity = False
        self.epoch = 0
        self.names = shards or ["main"]
        self.controllers: dict[str, ShardController] = {}
        self.views: dict[str, View] = {}
        self.coordinator: FleetCoordinator | None = None
        if shards is not None:
            self.start_coordinator()
        self.api.listeners.append(self._shown)
        for name in self.names:
            self.start(name)

    @property
    def controller(self) -> ShardController:
        return self.controllers["main"]

    def _data(self, name: str) -> Plain | None:
        found = self.api.objects[CONFIG_MAP].get(f"windtunnel-fleet-main-{name}")
        return None if found is None else found["data"]

    def store(self, name: str, data: Plain) -> None:
        """A server-side apply of some keys."""
        full = f"windtunnel-fleet-main-{name}"
        body = {"metadata": {"name": full}, "data": {**(self._data(name) or {}), **data}}
        self.api.put(CONFIG_MAP, body)

    def start_coordinator(self) -> None:
        self.coordinator = FleetCoordinator(self._data(COORDINATOR), self.file.live.fleet)
        self.store(COORDINATOR, self.coordinator.data())

    def exchange(self) -> None:
        """Reports one way, instructions the other, as every cycle."""
        if self.coordinator is None:
            return
        for name, controller in self.controllers.items():
            data = self._data(COORDINATOR)
            assert data is not None
            controller.obey(orders_of(data, name), self.now_s)
            self.store(name, {REPORT: report_text(controller.member.report())})
        for name in self.names:
            self.coordinator.report(self._data(name), self.now_s)
        self.store(COORDINATOR, self.coordinator.data())

    def start(self, name: str = "main") -> None:
        """A process begins, with nothing but what the API server has."""
        self.epoch += 1
        books = f"windtunnel-fleet-main-{name}"
        stored = self.api.objects[CONFIG_MAP].get(books)
        spaces: tuple[str, ...] = ()
        territory: Territory | None = None
        for one in self.file.live.fleet.shards:
            if one.name == name:
                spaces = tuple(one.namespaces)
        moved = self._data(COORDINATOR)
        if moved is not None:
            territory = territory_of(moved, name)
        view = self.views[name] = View()
        notes = [
            msgspec.convert(body, Received)
            for kind in (CLAIM, NODE)
            for body in self.api.objects[kind].values()
        ]
        provider = KubernetesProvider(self.file, {}, name, name)
        self.controllers[name] = ShardController(
            self.file,
            provider,
            view,
            READING,
            ShardIdentity(name, next_epoch(self.epoch, notes), books, spaces),
            read_books(None if stored is None else stored["data"], books),
            territory,
        )
        for kind in (CLAIM, NODE, POD):
            for key, body in self.api.objects[kind].items():
                self._tell(name, kind, key, None, received(body))

    def _shown(self, kind: str, name: str, before: Any, after: Any) -> None:
        for shard in self.controllers:
            self._tell(shard, kind, name, before, after)

    def _tell(self, shard: str, kind: str, name: str, before: Any, after: Any) -> None:
        controller, view = self.controllers[shard], self.views[shard]
        if kind == CLAIM:
            controller.provider.claim(name, after)
        elif kind == NODE:
            if after is not None:
                view.put(read(NODE, after, view, self.now_s))
            elif name in view.nodes:
                view.remove(view.nodes[name])
            controller.provider.node(name, after, self.now_s)
        elif kind == POD:
            controller.pod(before, after, self.now_s)

    # Time.

    def run(self, seconds: float) -> None:
        """Everybody acts until nothing is left to do, every five seconds."""
        end_s = self.now_s + seconds
        while self.now_s < end_s:
            self.now_s += 5.0
            self.exchange()
            for _ in range(200):
                if not (self._fleet_acts() | self._others_act()):
                    break
            else:
                raise AssertionError("it does not come to rest")

    def _fleet_acts(self) -> bool:
        acted = False
        for name in self.names:
            try:
                acted = self._acts(self.controllers[name]) or acted
            except Killed:
                self.calls_left = None
                self.start(name)
                acted = True
        return acted

    def _acts(self, controller: ShardController) -> bool:
        calls = controller.step(self.now_s)
        for call in reversed(calls):  # they are made at once: no order is promised
            if self.calls_left is not None:
                self.calls_left -= 1
                if self.calls_left < 0:
                    if self.kills_after:
                        self.api.carry_out(call)
                    raise Killed
            self.log.append(call)
            outcome = self.api.carry_out(call)
            controller.answered(call, outcome, outcome.value, self.now_s)
        return bool(calls)

    def _others_act(self) -> bool:
        before = self.api.version, len(self.api.objects[CLAIM])
        for name, claim in list(self.api.objects[CLAIM].items()):
            self._karpenter(name, claim)
        for name, pod in list(self.api.objects[POD].items()):
            if not pod["spec"].get("nodeName"):
                self._schedule(name, pod)
        return before != (self.api.version, len(self.api.objects[CLAIM]))

    def _karpenter(self, name: str, claim: Plain) -> None:
        node = f"ip-{name}"
        if "deletionTimestamp" in claim["metadata"]:
            if node in self.api.objects[NODE]:
                for pod, body in list(self.api.objects[POD].items()):
                    if body["spec"].get("nodeName") == node:
                        self.api.remove(POD, pod)
                self.api.remove(NODE, node)
            self.api.remove(CLAIM, name)
        elif self.no_capacity:
            status = {"type": "Launched", "status": "False", "reason": "InsufficientCapacity"}
            self.api.change(CLAIM, name, status={"conditions": [status]})
            self.api.remove(CLAIM, name)
        elif self.karpenter and "status" not in claim and self._is_launched(claim):
            labels = {**claim["metadata"]["labels"]}
            self.add_node(node, labels, claim["spec"]["taints"])
            done = [{"type": kind, "status": "True"}
                    for kind in ("Launched", "Registered", "Initialized")]  # fmt: skip
            self.api.change(CLAIM, name, status={"nodeName": node, "conditions": done})

    def _is_launched(self, claim: Plain) -> bool:
        since_s = self._claimed_s.setdefault(claim["metadata"]["uid"], self.now_s)
        return self.now_s >= since_s + self.launch_s

    def add_node(self, name: str, labels: Plain, taints: list[Plain] | None = None) -> None:
        amounts = {GPU: "8", "cpu": "192", "memory": "2Ti", "pods": "110"}
        status = {"allocatable": amounts, "conditions": [{"type": "Ready", "status": "True"}]}
        labels = {ACCELERATOR: "h200", **labels}
        meta = {"name": name, "labels": labels, "annotations": {}}
        self.api.put(NODE, {"metadata": meta, "spec": {"taints": taints or []}, "status": status})

    def _schedule(self, name: str, pod: Plain) -> None:
        for node, body in sorted(self.api.objects[NODE].items()):
            used = sum(
                int(one["spec"]["containers"][0]["resources"]["requests"][GPU])
                for one in self.api.objects[POD].values()
                if one["spec"].get("nodeName") == node
            )
            asked = int(pod["spec"]["containers"][0]["resources"]["requests"][GPU])
            spec = body["spec"]
            if not spec.get("taints") and not spec.get("unschedulable") and used + asked <= 8:
                self.api.change(POD, name, spec={"nodeName": node}, status={"phase": "Running"})
                return
        if "status" not in pod:
            why = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}
            self.api.change(POD, name, status={"conditions": [why]})

    # What tests do.

    def add_pod(self, name: str, gpus: int = 8, namespace: str = "default", **meta: Any) -> None:
        container = {"name": "m", "image": "x", "resources": {"requests": {GPU: str(gpus)}}}
        full = {"name": name, "namespace": namespace, **meta}
        spec = {"containers": [container], "nodeSelector": {ACCELERATOR: "h200"}}
        self.api.put(POD, {"metadata": full, "spec": spec})

    def node_of(self, pod: str) -> str:
        return str(self.api.objects[POD][pod]["spec"].get("nodeName") or "")

    def books(self, shard: str = "main") -> str:
        found = self.api.objects[CONFIG_MAP].get(f"windtunnel-fleet-main-{shard}")
        return "" if found is None else str(found["data"].get(ROWS, ""))

    def states(self, shard: str = "main") -> dict[str, int]:
        """Machines by state, without places in quotas."""
        found: dict[str, int] = {}
        for (_, state), count in self.controllers[shard].counts().items():
            if state != "speculative":
                found[state] = found.get(state, 0) + count
        return found
