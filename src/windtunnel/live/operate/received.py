"""Objects as the caches keep them: only the parts that controllers read.

A cluster has tens of thousands of pods, and most of a pod is for its kubelet: environment, probes,
mounts. That part is skipped during decoding; it is neither kept nor logged.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, Final, TypedDict, cast

import msgspec

from windtunnel.gangs.objects import NODE, POD
from windtunnel.live.kubernetes.resources import Object

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


class _Container(TypedDict, total=False):
    name: Any
    args: Any
    resources: Any
    restartPolicy: Any


class _PodSpec(TypedDict, total=False):
    affinity: Any
    containers: list[_Container] | None
    hostname: Any
    initContainers: list[_Container] | None
    nodeName: Any
    nodeSelector: Any
    overhead: Any
    preemptionPolicy: Any
    priority: Any
    priorityClassName: Any
    schedulerName: Any
    schedulingGates: Any
    terminationGracePeriodSeconds: Any
    tolerations: Any


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
    """Shares equal parts of specs: the pods of a clique have most of their spec in common."""
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
FORMS: Final = {POD: ReceivedPod, NODE: ReceivedNode}


def form_of(kind: str) -> type[Received]:
    """The type that objects of a kind are decoded into."""
    return FORMS.get(kind, Received)
