"""A shadow's knowledge of a cluster: replicas, pods, gangs and machines.

Objects come from an operator's event log or from the API server, which is only read. A pool of the
scenario is matched by its name, or its clique's name, with a Deployment, StatefulSet,
LeaderWorkerSet, ModelServing, or a clique or scaling group of Grove.
"""

import asyncio
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple, Protocol

import msgspec

from windtunnel.analysis.shadow.window import ClusterState, ReplicaCount, StateCount
from windtunnel.core.errors import InputError
from windtunnel.core.telemetry import Event
from windtunnel.fleet.kubernetes.objects import POOL
from windtunnel.gangs.objects import GANG, NODE, POD, RUNNING
from windtunnel.gangs.pod_manifest import GROUP_INDEX, GROUP_LABEL, PART_OF, POD_CLIQUE, SET_INDEX
from windtunnel.live.event_log import OPERATOR_STARTED
from windtunnel.live.kubernetes.client import Client, ObjectSelection, open_client
from windtunnel.live.kubernetes.config import ClusterConfig, load_config
from windtunnel.live.kubernetes.errors import KubernetesError, NotFound
from windtunnel.live.operate.mirror import RESOURCES
from windtunnel.live.operate.program import GONE, RECEIVED
from windtunnel.live.shadow.following import FileTail
from windtunnel.scaling.kubernetes.control import TickObservation
from windtunnel.scaling.kubernetes.core import OBSERVED
from windtunnel.scaling.kubernetes.kthena import ENTRY_LABEL, NAME_LABEL
from windtunnel.scaling.kubernetes.snapshots import PoolObservation

LONGEST_LOOK_S: Final = 20.0
MOST_OBJECTS: Final = 1_000_000
GPU_SUFFIXES: Final = ("/gpu", "/tpu", "/neuron")
LEADER_NAME: Final = "leaderworkerset.sigs.k8s.io/name"
LEADER_GROUP: Final = "leaderworkerset.sigs.k8s.io/group-index"
KARPENTER_POOL: Final = "karpenter.sh/nodepool"
TEMPLATE_HASH: Final = "pod-template-hash"

Raw = Mapping[str, Any]
"""An object of the API as plain values."""


class _Member(NamedTuple):
    """The replica that a pod is a part of."""

    of: tuple[str, ...]
    """Names of the workload: any of them may be the name of a pool."""
    replica: str


class ClusterObjects:
    """Pods, gangs and nodes as last seen, and the counts that follow."""

    def __init__(self) -> None:
        self._known: Final[dict[str, dict[str, Raw]]] = {POD: {}, GANG: {}, NODE: {}}
        self._has: Final[dict[str, bool]] = dict.fromkeys(self._known, False)
        self._pools: Final[dict[str, ReplicaCount]] = {}
        """From an autoscaler's observations, which include the requested size."""

    def take(self, kind: str, name: str, raw: Raw | None) -> None:
        """Takes over an object that was seen, or, if None, is gone."""
        objects = self._known.get(kind)
        if objects is None:
            return
        self._has[kind] = True
        if raw is None:
            objects.pop(name, None)
        elif len(objects) < MOST_OBJECTS:
            objects[name] = raw

    def replace(self, kind: str, objects: dict[str, Raw]) -> None:
        """Takes over a complete list of a kind."""
        self._has[kind] = True
        self._known[kind] = objects

    def observed(self, pool: str, seen: PoolObservation) -> None:
        """Takes over an autoscaler's observation of a pool."""
        pods = [pod for pod in seen.pods if not pod.terminating and not pod.ended]
        ready = sum(pod.ready for pod in pods)
        several = max(1, round(len(pods) / seen.size)) if seen.size else 1
        self._pools[pool] = ReplicaCount(seen.size, min(seen.size, ready // several))

    def clear(self) -> None:
        """Forgets everything, because the operator was restarted and lists everything anew."""
        for kind in self._known:
            self._known[kind] = {}
        self._pools.clear()

    def state(self) -> ClusterState:
        """The counts; None for kinds that nothing is known of."""
        pods = [one for one in self._known[POD].values() if not _is_over(one)]
        gangs = self._known[GANG].values()
        running = sum(_status(one).get("phase") == RUNNING for one in gangs)
        return ClusterState(
            {**_replicas(pods), **self._pools},
            StateCount(len(pods), sum(map(_is_ready, pods))) if self._has[POD] else None,
            StateCount(len(gangs), running) if self._has[GANG] else None,
            _machines(self._known[NODE].values()) if self._has[NODE] else None,
        )


def _status(raw: Raw) -> Raw:
    found = raw.get("status")
    return found if isinstance(found, dict) else {}


def _labels(raw: Raw) -> Mapping[str, str]:
    found = raw["metadata"].get("labels")
    return found if isinstance(found, dict) else {}


def _is_over(pod: Raw) -> bool:
    ended = _status(pod).get("phase") in ("Failed", "Succeeded")
    return ended or pod["metadata"].get("deletionTimestamp") is not None


def _is_ready(raw: Raw) -> bool:
    conditions = _status(raw).get("conditions")
    return any(
        isinstance(one, dict) and (one.get("type"), one.get("status")) == ("Ready", "True")
        for one in (conditions if isinstance(conditions, list) else ())
    )


def _replicas(pods: list[Raw]) -> dict[str, ReplicaCount]:
    """By workload: a replica is ready when all of its pods are."""
    found: dict[str, dict[str, bool]] = {}
    for pod in pods:
        for member in _members(pod):
            ready = _is_ready(pod)
            for name in member.of:
                replicas = found.setdefault(name, {})
                replicas[member.replica] = replicas.get(member.replica, True) and ready
    return {
        name: ReplicaCount(len(replicas), sum(replicas.values()))
        for name, replicas in found.items()
    }


def _members(pod: Raw) -> Iterator[_Member]:
    labels, meta = _labels(pod), pod["metadata"]
    name = str(meta.get("name"))
    if POD_CLIQUE in labels:
        set_name, index = labels.get(PART_OF, ""), labels.get(SET_INDEX, "")
        prefix = f"{set_name}-{index}-"
        group = labels.get(GROUP_LABEL, "")
        yield _Member((set_name,), index)
        if group:
            yield _Member((group.removeprefix(prefix),), f"{group}-{labels.get(GROUP_INDEX, '')}")
        else:
            yield _Member((labels[POD_CLIQUE].removeprefix(prefix),), name)
    elif LEADER_NAME in labels:
        yield _Member((labels[LEADER_NAME],), labels.get(LEADER_GROUP, ""))
    elif NAME_LABEL in labels:
        if labels.get(ENTRY_LABEL) == "true":
            yield _Member((labels[NAME_LABEL],), name)
    else:
        for owner in meta.get("ownerReferences") or ():
            if isinstance(owner, dict) and owner.get("controller"):
                whole = str(owner.get("name"))
                yield _Member((whole.removesuffix(f"-{labels.get(TEMPLATE_HASH, '')}"),), name)


def _machines(nodes: Any) -> dict[str, StateCount]:
    """By pool (empty if a node names none); only nodes with accelerators, if there are any."""
    known = list(nodes)
    with_gpus = [one for one in known if _has_accelerators(one)]
    found: dict[str, list[bool]] = {}
    for node in with_gpus or known:
        labels = _labels(node)
        pool = labels.get(POOL) or labels.get(KARPENTER_POOL) or ""
        spec = node.get("spec")
        cordoned = isinstance(spec, dict) and bool(spec.get("unschedulable"))
        found.setdefault(pool, []).append(_is_ready(node) and not cordoned)
    return {pool: StateCount(len(ready), sum(ready)) for pool, ready in sorted(found.items())}


def _has_accelerators(node: Raw) -> bool:
    capacity = _status(node).get("capacity")
    return isinstance(capacity, dict) and any(
        str(name).endswith(GPU_SUFFIXES) and str(amount) != "0" for name, amount in capacity.items()
    )


class ClusterSource(Protocol):
    """The source of a cluster's state."""

    says: str
    """Why the known state may be old or incomplete; empty if it is neither."""
    bad_lines: int

    def look(self) -> ClusterState:
        """The current state."""


class OperatorLog:
    """Follows the event log of an operator."""

    def __init__(self, path: Path) -> None:
        if not path.exists():
            hint = "`operate --log` names it"
            raise InputError("there is no such log of an operator", where=str(path), hint=hint)
        self.says = ""
        self.bad_lines = 0
        self._tail: Final = FileTail(path)
        self._objects: Final = ClusterObjects()

    def look(self) -> ClusterState:
        """Reads everything written since the last call."""
        for raw in self._tail.lines():
            try:
                self._take(msgspec.json.decode(raw, type=Event))
            except (msgspec.MsgspecError, LookupError, TypeError, ValueError, AttributeError):
                self.bad_lines += 1
        return self._objects.state()

    def _take(self, line: Event) -> None:
        if line.kind == OPERATOR_STARTED:
            self._objects.clear()
        elif line.kind in (RECEIVED, GONE):
            kind, _, name = line.subject.partition(" ")
            raw = line.data["object"] if line.kind == RECEIVED else None
            if raw is not None and not isinstance(raw["metadata"], dict):
                raise TypeError(name)
            self._objects.take(kind, name, raw)
        elif line.kind == OBSERVED:
            seen = msgspec.convert(line.data["seen"], TickObservation, str_keys=True)
            for pool, look in seen.pools.items():
                if isinstance(look, PoolObservation):
                    self._objects.observed(pool, look)


class ClusterReader:
    """Lists the pods, gangs and nodes of a cluster, using only the verb `list`."""

    def __init__(self, kubeconfig: Path | None, context: str, namespace: str) -> None:
        self.says = ""
        self.bad_lines = 0
        self._config: Final[ClusterConfig] = load_config(kubeconfig, context)
        self._namespace: Final = namespace
        self._objects: Final = ClusterObjects()

    def look(self) -> ClusterState:
        """The current state, or the last known one if the API server does not answer."""
        self.says = asyncio.run(self._list())
        return self._objects.state()

    async def _list(self) -> str:
        problems = []
        try:
            async with (
                asyncio.timeout(LONGEST_LOOK_S),
                open_client(self._config, name="shadow") as client,
            ):
                for kind in (POD, GANG, NODE):
                    try:
                        self._objects.replace(kind, await self._listed(client, kind))
                    except NotFound:
                        continue  # a cluster without Grove has no gangs
                    except KubernetesError as error:
                        problems.append(str(error))
        except TimeoutError:
            problems.append(f"the API server has not answered within {LONGEST_LOOK_S:g} s")
        return "; ".join(problems)

    async def _listed(self, client: Client, kind: str) -> dict[str, Raw]:
        resource = RESOURCES[kind]
        chosen = ObjectSelection(self._namespace if resource.namespaced else "")
        found = await client.list_all(resource, chosen)
        objects = {}
        for raw in found.items:
            one = msgspec.json.decode(raw)
            meta = one["metadata"]
            objects[f"{meta.get('namespace', '')}/{meta['name']}"] = one
        return objects
