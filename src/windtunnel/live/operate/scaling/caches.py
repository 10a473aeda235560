"""The autoscaler's view of an API server: autoscaling objects, kinds with a scale, pods."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from functools import partial
from typing import Final

import msgspec

from windtunnel.core.kubernetes import seconds_of
from windtunnel.live.kubernetes.client import Client, ObjectSelection
from windtunnel.live.kubernetes.reflector import Reflector
from windtunnel.live.kubernetes.resources import PODS, Resource, ServingPod
from windtunnel.live.operate.received import Received
from windtunnel.scaling.kubernetes import kthena
from windtunnel.scaling.kubernetes.autoscaler import AUTOSCALER, GROUP
from windtunnel.scaling.kubernetes.plan import ObjectName, TargetKey
from windtunnel.scaling.kubernetes.snapshots import PodView

UNSERVED_S: Final = 15.0
"""A kind that was not served is looked up again after this."""

AUTOSCALERS: Final = Resource(GROUP, "v1alpha1", "autoscalers", AUTOSCALER)
HPAS: Final = Resource("autoscaling", "v2", "horizontalpodautoscalers", "HorizontalPodAutoscaler")
KTHENA: Final = tuple(
    Resource(group, kthena.VERSION, plural, kind)
    for group in kthena.GROUPS
    for plural, kind in (
        ("autoscalingpolicies", kthena.POLICY),
        ("autoscalingpolicybindings", kthena.BINDING),
    )
)


_POD: Final = msgspec.json.Decoder(ServingPod)


def _key(resource: Resource) -> str:
    return f"{resource.kind}.{resource.group}"


class ScalingCaches:
    """The objects that request autoscaling, and the HPAs that conflict with them."""

    def __init__(self, client: Client, namespace: str = "") -> None:
        self.woken: Final = asyncio.Event()
        self._changed: dict[ObjectName, Reflector[Received]] = {}
        self._hpas_changed = True
        self._client: Final = client
        self._namespace: Final = namespace
        self.reflectors: Final[dict[str, Reflector[Received]]] = {}
        for resource in (AUTOSCALERS, HPAS):
            self._add(resource)

    def _add(self, resource: Resource) -> None:
        made = Reflector(self._client, resource, Received, ObjectSelection(self._namespace))
        made.cache.subscribe(partial(self._note, made))
        self.reflectors[_key(resource)] = made

    async def add_served(self) -> list[str]:
        """Adds Kthena's kinds that this cluster serves; returns those it does not."""
        missing = []
        for resource in KTHENA:
            kinds = await self._client.served(resource.api_version)
            if any(one.name == resource.plural for one in kinds):
                self._add(resource)
            else:
                missing.append(f"{resource.kind}.{resource.group}")
        return missing

    def _note(
        self, of: Reflector[Received], before: Received | None, after: Received | None
    ) -> None:
        changed = after or before
        assert changed is not None
        if of.resource == HPAS:
            if before is not None and after is not None and before.spec == after.spec:
                return
            self._hpas_changed = True
        else:
            resource = of.resource
            named = ObjectName(resource.api_version, resource.kind, *changed.metadata.key)
            self._changed[named] = of
        self.woken.set()

    def written(self, resource: Resource, answer: Received) -> None:
        """Takes over the response to our own write, which a watch shows later."""
        self.reflectors[_key(resource)].cache.written(answer)

    def mark_all(self) -> None:
        """Marks all objects as changed, for a new operator."""
        self._changed.clear()
        for one in self.reflectors.values():
            for held in one.cache:
                self._note(one, None, held)
        self._hpas_changed = True

    def take_changed(self) -> Iterator[tuple[ObjectName, Resource, Received | None]]:
        """The autoscaling objects changed since the last call; None for a deleted one."""
        changed, self._changed = self._changed, {}
        for named, of in changed.items():
            yield named, of.resource, of.cache.get(named.namespace, named.name)

    def take_hpas_changed(self) -> bool:
        """Whether HPAs were added, deleted or edited since the last call."""
        changed, self._hpas_changed = self._hpas_changed, False
        return changed

    def hpa_targets(self) -> dict[TargetKey, str]:
        """By target: the HPA that scales it."""
        found = {}
        for hpa in self.reflectors[_key(HPAS)].cache:
            target = hpa.spec.get("scaleTargetRef")
            if isinstance(target, dict):
                key = (str(target.get("kind")), hpa.metadata.namespace, str(target.get("name")))
                found[key] = f"{HPAS.kind} {hpa.metadata.name}"
        return found


class ScaleKinds:
    """The API resources of kinds with a scale."""

    def __init__(self, client: Client, now_s: Callable[[], float]) -> None:
        self._client: Final = client
        self._now_s: Final = now_s
        self._known: Final[dict[tuple[str, str], tuple[float, Resource | str]]] = {}

    async def find(self, named: ObjectName) -> Resource | str:
        """The API resource of a kind with a scale, or a message if there is none."""
        key = (named.api_version, named.kind)
        found = self._known.get(key)
        now_s = self._now_s()
        if found is None or (isinstance(found[1], str) and now_s > found[0] + UNSERVED_S):
            kinds = await self._client.served(named.api_version)
            names = {one.name for one in kinds}
            plural = next(
                (one.name for one in kinds if one.kind == named.kind and "/" not in one.name), ""
            )
            made: Resource | str
            if not plural:
                made = f"the cluster does not serve {named.kind} of {named.api_version}"
            elif f"{plural}/scale" not in names:
                made = f"{named.kind} of {named.api_version} has no scale"
            else:
                group, _, version = named.api_version.rpartition("/")
                made = Resource(group, version, plural, named.kind)
            found = self._known[key] = (now_s, made)
        return found[1]


async def pods_of(client: Client, chosen: ObjectSelection) -> list[PodView]:
    """The pods in a namespace that match a selector."""
    listed = await client.list_all(PODS, chosen)
    return [_pod_view(_POD.decode(raw)) for raw in listed.items]


def _pod_view(pod: ServingPod) -> PodView:
    meta, status = pod.metadata, pod.status
    return PodView(
        meta.uid,
        meta.name,
        seconds_of(meta.creation_timestamp),
        status.pod_ip,
        meta.labels,
        bound=bool(pod.spec.node_name),
        ready=pod.is_ready and status.phase == "Running",
        terminating=pod.is_terminating,
        ended=status.phase in ("Failed", "Succeeded"),
    )
