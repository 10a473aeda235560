"""A cluster whose objects are stored as JSON alone: what a controller sees was written and read.

It takes the place of the simulated API server of `World`, so that the same can happen to both.
"""

import copy
from typing import Any

import msgspec

from tests.gangs.manifests import load
from tests.gangs.world import World
from windtunnel.core.kubernetes import stamp
from windtunnel.gangs.commands import Command, Scale
from windtunnel.gangs.controllers.controller import Controller
from windtunnel.gangs.kubernetes.calls import CREATE, DELETE, EVENT, ApiCall, Translator
from windtunnel.gangs.kubernetes.reading import name_of, read
from windtunnel.gangs.objects import POD, SET, Node, Pod, Thing
from windtunnel.gangs.templates import SetSpec
from windtunnel.gangs.view import View


class Owner(msgspec.Struct, rename="camel"):
    uid: str
    kind: str = ""
    name: str = ""
    controller: bool = False


class Meta(msgspec.Struct, rename="camel", kw_only=True):
    name: str
    namespace: str = "default"
    uid: str = ""
    resource_version: str = ""
    generation: int = 1
    creation_timestamp: str | None = None
    deletion_timestamp: str | None = None
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}
    owner_references: list[Owner] = []
    finalizers: list[str] = []

    @property
    def controller(self) -> Owner | None:
        return next((one for one in self.owner_references if one.controller), None)


class Raw(msgspec.Struct):
    """An object as it is received."""

    metadata: Meta
    spec: dict[str, Any] = {}
    status: dict[str, Any] = {}


def received(manifest: dict[str, Any]) -> Raw:
    return msgspec.json.decode(msgspec.json.encode(manifest), type=Raw)


def merged(old: Any, patch: Any) -> Any:
    """A JSON merge patch, as RFC 7396 has it."""
    if not isinstance(patch, dict):
        return patch
    made = dict(old) if isinstance(old, dict) else {}
    for key, value in patch.items():
        if value is None:
            made.pop(key, None)
        else:
            made[key] = merged(made.get(key), value)
    return made


class StoredServer:
    """Objects as JSON, and a view that is read from them."""

    def __init__(self, manifests: tuple[dict[str, Any], ...] = ()) -> None:
        self.view = View()
        self.objects: dict[tuple[str, str], dict[str, Any]] = {}
        self._manifests = {load(one).sets[0].name: one for one in manifests if one["kind"] == SET}
        self._issued = 0
        self._now_s = 0.0

    def raw(self, kind: str, name: str) -> Raw | None:
        found = self.objects.get((kind, name))
        return None if found is None else received(found)

    def list_all(self) -> None:
        """A view that knows nothing but what is stored."""
        levels, nodes = self.view.levels, self.view.nodes
        self.view = View()
        self.view.levels.update(levels)
        for node in nodes.values():
            self.view.put(node.snapshot())
        for kind, name in self.objects:
            self._show(kind, name)

    def _show(self, kind: str, name: str) -> None:
        raw = self.raw(kind, name)
        if raw is not None:
            assert name_of(raw.metadata) == name
            self.view.put(read(kind, raw, self.view, self._now_s))
            return
        thing = self.view.find(kind, name)
        if thing is not None:
            self.view.remove(thing)

    def _write(self, kind: str, name: str, stored: dict[str, Any]) -> None:
        self._issued += 1
        stored["metadata"]["resourceVersion"] = str(self._issued)
        self.objects[kind, name] = stored
        self._show(kind, name)

    def _create(self, kind: str, name: str, body: dict[str, Any], now_s: float) -> None:
        stored: dict[str, Any] = copy.deepcopy(body)
        self._issued += 1
        more = {"uid": f"uid-{self._issued}", "generation": 1, "creationTimestamp": stamp(now_s)}
        stored["metadata"].update(more)
        self._write(kind, name, stored)

    # What people and the cluster do.

    def add_node(self, node: Node, now_s: float) -> None:
        node.uid, node.created_s = f"uid-{node.name}", now_s
        self.view.put(node)

    def add_set(self, name: str, spec: SetSpec, now_s: float) -> None:
        del spec
        self._create(SET, name, self._manifests[name], now_s)

    def put(self, kind: str, name: str, manifest: dict[str, Any]) -> None:
        """Somebody creates an object."""
        self._create(kind, name, manifest, self._now_s)

    def change(self, kind: str, name: str, patch: dict[str, Any]) -> None:
        """Somebody changes the spec of an object."""
        stored = merged(self.objects[kind, name], patch)
        stored["metadata"]["generation"] += 1
        self._write(kind, name, stored)

    def apply_manifest(self, name: str, manifest: dict[str, Any]) -> None:
        stored = copy.deepcopy(self.objects[SET, name])
        stored["spec"] = copy.deepcopy(manifest["spec"])
        stored["metadata"]["generation"] += 1
        self._write(SET, name, stored)

    def follow(self, pod: Pod, now_s: float) -> None:
        """What the cluster did to a pod of the view is stored, and read again."""
        self._now_s = now_s
        stored = copy.deepcopy(self.objects[POD, pod.name])
        stored["spec"]["nodeName"] = pod.node
        ready = {"type": "Ready", "status": "True" if pod.ready else "False"}
        bound = {"type": "PodScheduled", "status": "True"}
        if pod.ready:
            ready["lastTransitionTime"] = stamp(pod.ready_s)
        if pod.node:
            bound["lastTransitionTime"] = stamp(pod.scheduled_s)
        stored["status"] = {
            "phase": pod.phase,
            "conditions": [ready, bound],
            "containerStatuses": [{"ready": pod.ready, "started": pod.started}],
        }
        before = fields(pod)
        self._write(POD, pod.name, stored)
        assert fields(self.view.pods[pod.name]) == {**before, "version": str(self._issued)}

    def delete_pod(self, pod: Pod, now_s: float) -> None:
        if pod.terminating:
            return
        if not pod.node:
            self._remove(POD, pod.name)
            return
        stored = copy.deepcopy(self.objects[POD, pod.name])
        grace_s = stored["spec"]["terminationGracePeriodSeconds"]
        stored["metadata"]["deletionTimestamp"] = stamp(now_s + grace_s)
        self._now_s = now_s
        self._write(POD, pod.name, stored)
        assert self.view.pods[pod.name].deleted_s == now_s

    def remove_pod(self, pod: Pod) -> None:
        self._remove(POD, pod.name)

    def _remove(self, kind: str, name: str) -> None:
        del self.objects[kind, name]
        self._show(kind, name)

    # What controllers want.

    def apply(self, command: Command, now_s: float) -> bool:
        self._now_s = now_s
        if isinstance(command, Scale):
            self.change(command.kind, command.name, {"spec": {"replicas": command.replicas}})
            return True
        calls, refused = Translator(self.view, self.raw, "initc:1").calls([command])
        return not refused and all(self._carry_out(one, now_s) for one in calls)

    def _carry_out(self, call: ApiCall, now_s: float) -> bool:
        if call.verb == EVENT:
            return True
        key = (call.kind, call.name)
        stored = self.objects.get(key)
        if call.verb == CREATE:
            if stored is not None:
                return False
            assert call.body is not None
            self._create(call.kind, call.name, call.body, now_s)
            return True
        if stored is None or stored["metadata"]["uid"] != call.uid:
            return False
        if call.version and stored["metadata"]["resourceVersion"] != call.version:
            return False
        if call.verb == DELETE:
            self._delete(call.kind, call.name, now_s)
            return True
        changed = merged(stored, call.body)
        if call.verb == "status":
            assert changed["spec"] == stored["spec"]
        elif changed["spec"] != stored["spec"]:
            changed["metadata"]["generation"] += 1
        self._write(call.kind, call.name, changed)
        return True

    def _delete(self, kind: str, name: str, now_s: float) -> None:
        """What it owns goes first."""
        if kind == POD:
            self.delete_pod(self.view.pods[name], now_s)
            return
        uid = self.objects[kind, name]["metadata"]["uid"]
        owned = [
            key
            for key, one in self.objects.items()
            if any(owner["uid"] == uid for owner in one["metadata"].get("ownerReferences", []))
        ]
        for below in owned:
            if below in self.objects:
                self._delete(*below, now_s)
        self._remove(kind, name)


NOT_COMPARED = ("counts", "turn", "template", "place", "places", "pod_index", "tally")


def fields(thing: Thing) -> dict[str, Any]:
    """All that an object is, as plain values."""
    found = {}
    for name in dir(thing):
        if not name.startswith("_") and name not in NOT_COMPARED:
            value = getattr(thing, name)
            if not callable(value):
                found[name] = value
    return found


class StoredWorld(World):
    """`World` on objects that are stored as JSON."""

    def __init__(self, nodes: int, *manifests: dict[str, Any], gangs: bool = True) -> None:
        self.stored = StoredServer(manifests)
        super().__init__(nodes, *manifests, gangs=gangs, server=self.stored)  # type: ignore[arg-type]

    def crash(self) -> None:
        self.controller.close()
        self.stored.list_all()
        self.view = self.stored.view
        self.controller = Controller(self.view)

    def apply(self, manifest: dict[str, Any]) -> None:
        self.stored.apply_manifest(load(manifest).sets[0].name, manifest)

    def _follow(self, before: dict[str, tuple[Any, ...]]) -> None:
        for name, pod in list(self.view.pods.items()):
            if before.get(name) != _seen(pod):
                self.stored.follow(pod, self.now_s)

    def _schedule(self) -> int:
        before = {name: _seen(pod) for name, pod in self.view.pods.items()}
        count = super()._schedule()
        self._follow(before)
        return count

    def _start(self) -> int:
        before = {name: _seen(pod) for name, pod in self.view.pods.items()}
        count = super()._start()
        self._follow(before)
        return count


def _seen(pod: Pod) -> tuple[Any, ...]:
    return (pod.node, pod.ready, pod.phase, pod.started)
