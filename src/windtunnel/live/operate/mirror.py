"""Keeps the gang controllers' view in step with the caches of an API server."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import Any, Final, NamedTuple

from windtunnel.core.errors import MALFORMED, InputError
from windtunnel.gangs.kubernetes.reading import is_older, is_out_of_service, name_of, read
from windtunnel.gangs.kubernetes.takeover import FINALIZERS, is_groves, is_unknown
from windtunnel.gangs.objects import (
    CLIQUE,
    FAILED,
    GANG,
    GROUP,
    NODE,
    POD,
    SET,
    Node,
    Pod,
    PodClique,
    Thing,
)
from windtunnel.gangs.placement.claims import (
    DEVICE_CLAIM,
    STORAGE_CLASS,
    VOLUME,
    VOLUME_CLAIM,
    PodClaims,
)
from windtunnel.gangs.view import View
from windtunnel.live.kubernetes.client import ALL, Client, ObjectSelection
from windtunnel.live.kubernetes.reflector import Reflector
from windtunnel.live.kubernetes.resources import NODES, PODS, SERVICES, Object, Resource
from windtunnel.live.operate.received import Bare, Received, form_of

MANAGED_BY: Final = "app.kubernetes.io/managed-by"
OPERATOR: Final = "grove-operator"
MANAGED: Final = f"{MANAGED_BY}={OPERATOR}"
LEASE: Final = "windtunnel-operator"
"""The leader's Lease among the operators of an installation."""
TOPOLOGY: Final = "ClusterTopologyBinding"
PRIORITY: Final = "PriorityClass"

RESOURCES: Final = {
    SET: Resource("grove.io", "v1alpha1", "podcliquesets", SET),
    GROUP: Resource("grove.io", "v1alpha1", "podcliquescalinggroups", GROUP),
    CLIQUE: Resource("grove.io", "v1alpha1", "podcliques", CLIQUE),
    GANG: Resource("scheduler.grove.io", "v1alpha1", "podgangs", GANG),
    TOPOLOGY: Resource(
        "grove.io", "v1alpha1", "clustertopologybindings", TOPOLOGY, namespaced=False
    ),
    POD: PODS,
    NODE: NODES,
    PRIORITY: Resource("scheduling.k8s.io", "v1", "priorityclasses", PRIORITY, namespaced=False),
    "Service": SERVICES,
    "ServiceAccount": Resource("", "v1", "serviceaccounts", "ServiceAccount"),
    "Secret": Resource("", "v1", "secrets", "Secret"),
    "Role": Resource("rbac.authorization.k8s.io", "v1", "roles", "Role"),
    "RoleBinding": Resource("rbac.authorization.k8s.io", "v1", "rolebindings", "RoleBinding"),
    "HorizontalPodAutoscaler": Resource(
        "autoscaling", "v2", "horizontalpodautoscalers", "HorizontalPodAutoscaler"
    ),
    "ResourceClaim": Resource("resource.k8s.io", "v1", "resourceclaims", "ResourceClaim"),
    "ComputeDomain": Resource("resource.nvidia.com", "v1beta1", "computedomains", "ComputeDomain"),
}
"""The API resource of each kind."""
CLAIMS: Final = {
    VOLUME_CLAIM: Resource("", "v1", "persistentvolumeclaims", VOLUME_CLAIM),
    VOLUME: Resource("", "v1", "persistentvolumes", VOLUME, namespaced=False),
    STORAGE_CLASS: Resource(
        "storage.k8s.io", "v1", "storageclasses", STORAGE_CLASS, namespaced=False
    ),
    DEVICE_CLAIM: RESOURCES["ResourceClaim"],
}
"""What pods claim beside room, which placement looks at."""

OWN_KINDS: Final = (SET, GROUP, CLIQUE, GANG)
OPTIONAL: Final = ("ResourceClaim", "ComputeDomain")
"""Kinds that not every cluster serves."""


class InvalidSet(NamedTuple):
    """A set that the view did not take over, and everything that is wrong with it."""

    received: Received
    says: str


class Mirror:
    """One reflector for each kind, and the view that they fill."""

    def __init__(
        self,
        client: Client,
        now_s: Callable[[], float],
        namespace: str = "",
        *,
        placing: bool,
        gangs: bool = True,
        claims: bool = False,
    ) -> None:
        self.view: Final = View()
        self.claims: Final = PodClaims(self.view)
        """Empty, unless it mirrors `claims`."""
        self.invalid: Final[dict[str, InvalidSet]] = {}
        """By name: the current state of invalid sets; the view has an earlier state, or none."""
        self.groves: Final[dict[tuple[str, str], Received]] = {}
        """By kind and name: objects left behind by Grove's own operator. Sets among them that are
        still to be taken over are not in the view."""
        self.strays: Final[list[Pod]] = []
        """Pods that belonged to a clique and no longer do."""
        self.woken: Final = asyncio.Event()
        self.changes = 0
        self.on_change: Callable[[str, str, Object | None], None] | None = None
        """Called before the view changes, with the kind, the name, and the object or None."""
        self.pod_watchers: Final[list[Callable[[Received | None, Received | None], None]]] = []
        """Called for every pod after the view has changed, also for pods that belong to no gang."""
        self._bound: Final[dict[str, dict[str, None]]] = {}
        """By node: the pods of the view that are bound to it."""
        self._gone_nodes: Final[dict[str, set[str]]] = {}
        """By node that does not exist any more: the uids of the pods that were bound to it."""
        self.unseen_nodes: Final[dict[str, None]] = {}
        """Nodes that pods are bound to and that no list or watch has shown: they come later, or
        were deleted while no operator watched."""
        self._now_s: Final = now_s
        self._namespace: Final = namespace
        self.objects: Final[dict[str, Reflector[Received]]] = {}
        self.attached: Final[dict[str, Reflector[Bare]]] = {}
        for kind, resource in RESOURCES.items():
            if not (gangs or (placing and kind in (POD, NODE))):
                continue
            space = namespace if resource.namespaced else ""
            if kind in (*OWN_KINDS, TOPOLOGY, PRIORITY, POD, NODE):
                chosen = ObjectSelection(space)
                if kind == POD:
                    # Placing pods requires the resources that other pods use on the nodes.
                    chosen = ALL if placing else ObjectSelection(space, MANAGED)
                known = Reflector(client, resource, form_of(kind), chosen)
                self.objects[kind] = known
                known.cache.subscribe(self._handler(kind))
            else:
                bare = Reflector(client, resource, Bare, ObjectSelection(space, MANAGED))
                self.attached[kind] = bare
                bare.cache.subscribe(self._handler(kind))
        for kind, resource in CLAIMS.items() if claims else ():
            chosen = ObjectSelection(namespace if resource.namespaced else "")
            self.objects[kind] = Reflector(client, resource, form_of(kind), chosen)
            self.objects[kind].cache.subscribe(self._handler(kind))

    @property
    def reflectors(self) -> dict[str, Reflector[Any]]:
        return {**self.objects, **self.attached}

    async def leave_out_unserved(self, client: Client) -> list[str]:
        """Drops the optional kinds that this API server does not serve, and returns their names."""
        missing: list[str] = [
            kind
            for kind in OPTIONAL
            if kind in self.attached and not await _is_served(client, RESOURCES[kind])
        ]
        for kind in missing:
            del self.attached[kind]
            if CLAIMS[DEVICE_CLAIM] == RESOURCES[kind]:
                self.objects.pop(DEVICE_CLAIM, None)
        return missing

    @property
    def synced(self) -> bool:
        return all(one.synced.is_set() for one in self.reflectors.values())

    async def wait_synced(self) -> None:
        for one in self.reflectors.values():
            await one.synced.wait()

    def raw(self, kind: str, name: str) -> Received | None:
        """An object as last received."""
        namespace, _, short = name.rpartition("/")
        return self.objects[kind].cache.get(namespace or "default", short)

    def _handler(self, kind: str) -> Callable[[Any, Any], None]:
        def change(before: Any, after: Any) -> None:
            name = name_of((after or before).metadata)
            self._notice(kind, name, after)
            self.take(kind, name, after)
            if kind == POD:
                for watcher in self.pod_watchers:
                    watcher(before, after)

        return change

    def _notice(self, kind: str, name: str, after: Any) -> None:
        self.changes += 1
        self.woken.set()
        if self.on_change is not None:
            self.on_change(kind, name, after)

    def take(self, kind: str, name: str, after: Any) -> None:
        """Takes over an object that was added or changed, or, if None, is gone."""
        if kind in CLAIMS:
            self.claims.take(kind, name, after)
        elif kind == TOPOLOGY:
            self._topology(name, after)
        elif kind == PRIORITY:
            self.view.priorities.pop(name, None)
            if after is not None:
                self.view.priorities[name] = after.value
        elif after is None:
            self.invalid.pop(name, None) if kind == SET else None
            self.groves.pop((kind, name), None)
            known = self.view.find(kind, name)
            if known is not None:
                self._remove(known)
            if kind == NODE and name in self._bound:
                self._lose(name, self.pods_on(name))
        elif kind != POD or (_is_of_clique(after) and self._is_watched(after)):
            self._put(kind, name, after)
        elif (pod := self.view.pods.get(name)) is not None:
            self._remove(pod)
            if not _is_of_clique(after):
                self.strays.append(pod)  # it has lost its owner

    def _is_watched(self, pod: Received) -> bool:
        """Whether a pod belongs in the view. Others count only for the resources they use: those of
        other namespaces, and those without the label, which is restored when they are created
        again."""
        labelled = pod.metadata.labels.get(MANAGED_BY) == OPERATOR
        return labelled and self._namespace in ("", pod.metadata.namespace)

    def _put(self, kind: str, name: str, after: Any) -> None:
        known = self.view.find(kind, name)
        try:
            thing = read(kind, after, self.view, self._now_s())
        except (InputError, *MALFORMED) as error:  # its last readable state stays
            if kind == SET:
                self.reject(name, after, error)
            else:
                self.reflectors[kind].unreadable[after.metadata.key] = _fault_of(error)
            if known is not None and known.uid == after.metadata.uid:
                known.version = after.metadata.resource_version
            return
        if kind == SET:
            self.invalid.pop(name, None)
        if kind in FINALIZERS and self._is_groves(kind, name, after):
            if known is not None and known.uid != after.metadata.uid:
                self.view.remove(known)
            return
        if isinstance(thing, Pod) and thing.node and thing.node not in self.view.nodes:
            if thing.uid in self._gone_nodes.get(thing.node, ()):
                thing.phase = FAILED  # Kubernetes deletes it in a while
            else:
                self.unseen_nodes[thing.node] = None
        if isinstance(thing, Node):
            self._put_node(thing)
            return
        if known is not None and _is_another(known, thing):
            self._remove(known)
        self.view.put(thing)
        if isinstance(thing, Pod) and thing.node:
            self._bound.setdefault(thing.node, {})[name] = None

    def _put_node(self, node: Node) -> None:
        """Puts a node into the view, and reads its pods again where it may change what they are."""
        known = self.view.nodes.get(node.name)
        was_ready, uid = (True, "") if known is None else (known.ready, known.uid)
        dead = is_out_of_service(node) or (known is not None and is_out_of_service(known))
        self.unseen_nodes.pop(node.name, None)
        if node.name in self._gone_nodes:
            del self._gone_nodes[node.name]
            dead = True
        if known is not None and _is_another(known, node):
            self._remove(known)
        self.view.put(node)
        pods = list(self._bound.get(node.name, ()))
        if not dead and was_ready and node.ready:
            is_new = uid != node.uid
            pods = [one for one in pods if is_new and is_older(self.view.pods[one], node)]
        self._read_again(node.name, pods)

    def reject(self, name: str, raw: Received, error: Exception) -> None:
        """Records that a set cannot be read; its condition will say why."""
        found = InvalidSet(raw, _fault_of(error))
        if self.invalid.get(name) != found:
            self.invalid[name] = found
            self.woken.set()

    def _is_groves(self, kind: str, name: str, after: Received) -> bool:
        """Records an object left behind by Grove; whether it is a set still to be taken over."""
        if not is_groves(kind, after):
            self.groves.pop((kind, name), None)
            return False
        self.groves[kind, name] = after
        return kind == SET and is_unknown(after) and after.metadata.deletion_timestamp is None

    def _remove(self, known: Thing) -> None:
        self.view.remove(known)
        if isinstance(known, Pod) and known.node:
            on_node = self._bound.get(known.node, {})  # a pod just bound is not in it yet
            on_node.pop(known.name, None)
            if not on_node:
                self._bound.pop(known.node, None)
                self._gone_nodes.pop(known.node, None)
                self.unseen_nodes.pop(known.node, None)

    def pods_on(self, node: str) -> list[str]:
        """The uids of the pods of the view that are bound to a node."""
        return [self.view.pods[name].uid for name in self._bound.get(node, ())]

    def node_is_gone(self, name: str, pods: Iterable[str]) -> None:
        """Follows that one of the `unseen_nodes` did not exist once these pods (uids) were bound to
        it, as the API server says."""
        if name in self.unseen_nodes:
            self._notice(NODE, name, None)
            self._lose(name, pods)

    def _lose(self, node: str, pods: Iterable[str]) -> None:
        """Reads the pods of a node that is gone again."""
        self.unseen_nodes.pop(node, None)
        self._gone_nodes.setdefault(node, set()).update(pods)
        self._read_again(node, self._bound[node])

    def _read_again(self, node: str, pods: Iterable[str]) -> None:
        for name in list(pods):
            raw = self.raw(POD, name)
            if raw is not None and raw.spec.get("nodeName") == node:
                self._put(POD, name, raw)

    def _topology(self, name: str, after: Received | None) -> None:
        if after is None:
            self.view.levels.pop(name, None)
        else:
            levels = after.spec.get("levels")
            self.view.levels[name] = {
                str(one["domain"]): str(one["key"])
                for one in (levels if isinstance(levels, list) else [])
                if isinstance(one, dict) and "domain" in one and "key" in one
            }
        for set_name, found in list(self.invalid.items()):  # it may make them valid
            self._put(SET, set_name, found.received)


def _fault_of(error: Exception) -> str:
    return str(error) if isinstance(error, InputError) else f"it is malformed: {error!r}"


async def _is_served(client: Client, resource: Resource) -> bool:
    return any(one.name == resource.plural for one in await client.served(resource.api_version))


def _is_of_clique(pod: Received) -> bool:
    owner = pod.metadata.controller
    return owner is not None and owner.kind == CLIQUE


def _is_another(known: Thing, new: Thing) -> bool:
    """Whether an object must be replaced in the view, since a normally fixed part has changed: a
    node's resources, labels or taints, or a clique of Grove's that is taken over."""
    if isinstance(known, Node) and isinstance(new, Node):
        before, after = ((one.capacity, one.labels, one.taints) for one in (known, new))
        return before != after
    if isinstance(known, PodClique) and isinstance(new, PodClique):
        return known.place != new.place
    return isinstance(known, Pod) and known.uid != new.uid
