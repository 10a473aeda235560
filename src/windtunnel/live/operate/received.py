"""Objects as the caches keep them: only the parts that controllers read.

A cluster has tens of thousands of pods, and most of a pod is for its kubelet: environment, probes,
mounts. That part is skipped during decoding; it is neither kept nor logged. Where whole objects are
logged, the values of environment variables are left out: they may be secrets.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, Final, TypedDict, cast

import msgspec

from windtunnel.gangs.objects import NODE, POD
from windtunnel.gangs.placement.claims import STORAGE_CLASS
from windtunnel.live.kubernetes.resources import Object

HIDDEN: Final = "(not logged)"
WHOLE_MANIFEST: Final = "kubectl.kubernetes.io/last-applied-configuration"
"""kubectl's annotation with the whole object as text."""
SHARED_PARTS: Final = 4096
"""Distinct parts of pod specs that are shared, by recency; others are held more than once."""


class Received(Object, frozen=True, kw_only=True):
    """An object with everything that controllers read of it."""

    spec: dict[str, Any] = msgspec.field(default_factory=dict)
    status: dict[str, Any] = msgspec.field(default_factory=dict)
    value: int = 0
    """The value of a PriorityClass."""


class Bare(Object, frozen=True, kw_only=True):
    """An object of which only the metadata is kept: the content of a Secret must not be held."""

    @property
    def spec(self) -> dict[str, Any]:
        return {}

    @property
    def status(self) -> dict[str, Any]:
        return {}


class ReceivedStorageClass(Object, frozen=True, rename="camel", kw_only=True):
    """How volumes are made."""

    provisioner: str = ""
    volume_binding_mode: str = ""
    allowed_topologies: list[dict[str, Any]] | None = None

    @property
    def spec(self) -> dict[str, Any]:
        return {
            "provisioner": self.provisioner,
            "volumeBindingMode": self.volume_binding_mode,
            "allowedTopologies": self.allowed_topologies,
        }

    @property
    def status(self) -> dict[str, Any]:
        return {}


class _Port(TypedDict, total=False):
    containerPort: Any
    hostIP: Any
    hostPort: Any
    protocol: Any


class _Container(TypedDict, total=False):
    name: Any
    args: Any
    ports: list[_Port] | None
    resources: Any
    restartPolicy: Any


class _Volume(TypedDict, total=False):
    name: Any
    ephemeral: Any
    persistentVolumeClaim: Any


class _PodSpec(TypedDict, total=False):
    affinity: Any
    containers: list[_Container] | None
    hostNetwork: Any
    hostname: Any
    initContainers: list[_Container] | None
    nodeName: Any
    nodeSelector: Any
    overhead: Any
    preemptionPolicy: Any
    priority: Any
    priorityClassName: Any
    resourceClaims: Any
    schedulerName: Any
    schedulingGates: Any
    terminationGracePeriodSeconds: Any
    tolerations: Any
    volumes: list[_Volume] | None


class _ContainerStatus(TypedDict, total=False):
    lastState: Any
    ready: Any
    started: Any
    state: Any


class _PodCondition(TypedDict, total=False):
    lastTransitionTime: Any
    reason: Any
    status: Any
    type: Any


class _PodStatus(TypedDict, total=False):
    conditions: list[_PodCondition] | None
    containerStatuses: list[_ContainerStatus] | None
    phase: Any


class _NodeStatus(TypedDict, total=False):
    """The status of a node, without its images."""

    allocatable: Any
    conditions: Any


@lru_cache(maxsize=SHARED_PARTS)
def _decoded(part: bytes) -> Any:
    return msgspec.json.decode(part)


def _share_parts(pod: Received) -> None:
    """Shares equal parts of specs: the pods of a clique have most of their spec in common. Of the
    volumes only claims are kept: no other volume restricts where a pod can go."""
    volumes = pod.spec.pop("volumes", None)
    claims = [one for one in volumes or [] if len(one) > 1]
    if claims:
        pod.spec["volumes"] = claims
    for key, part in pod.spec.items():
        if isinstance(part, dict | list):
            pod.spec[key] = _decoded(msgspec.json.encode(part))


ReceivedPod: Final = cast(
    "type[Received]",
    msgspec.defstruct(
        "ReceivedPod",
        [
            ("spec", _PodSpec, msgspec.field(default_factory=dict)),
            ("status", _PodStatus, msgspec.field(default_factory=dict)),
        ],
        bases=(Received,),
        namespace={"__post_init__": _share_parts},
        frozen=True,
        kw_only=True,
    ),
)


ReceivedNode: Final = cast(
    "type[Received]",
    msgspec.defstruct(
        "ReceivedNode",
        [("status", _NodeStatus, msgspec.field(default_factory=dict))],
        bases=(Received,),
        frozen=True,
        kw_only=True,
    ),
)
FORMS: Final = {
    POD: ReceivedPod,
    NODE: ReceivedNode,
    STORAGE_CLASS: cast("type[Received]", ReceivedStorageClass),
}


def form_of(kind: str) -> type[Received]:
    """The type that objects of a kind are decoded into."""
    return FORMS.get(kind, Received)


def redacted(value: Any) -> Any:
    """A copy of plain values without potential secrets."""
    if isinstance(value, dict):
        return {key: _field(key, one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [redacted(one) for one in value]
    return value


def _field(key: Any, value: Any) -> Any:
    if key == WHOLE_MANIFEST:
        return HIDDEN
    if key == "env" and isinstance(value, list | tuple):
        return [_variable(one) for one in value]
    return redacted(value)


def _variable(one: Any) -> Any:
    """Redacts a variable's value; references to Secrets and fields stay: they are only names."""
    if isinstance(one, dict) and "value" in one:
        return {**one, "value": HIDDEN}
    return redacted(one)
