"""Kinds of the API, and the cached part of an object: only the fields that its type declares.

A kind is a `Resource`; the type of its objects is a subclass of `Object` that declares the fields
that are needed, and everything else (managed fields above all) is skipped during decoding:

    SETS = Resource("grove.io", "v1alpha1", "podcliquesets", "PodCliqueSet")

    class PodCliqueSet(Object, rename="camel", kw_only=True):
        spec: dict[str, Any] = {}
"""

from datetime import UTC, datetime
from sys import intern
from typing import Any, Final, NamedTuple
from urllib.parse import quote

import msgspec
from msgspec.structs import force_setattr

from windtunnel.core.errors import InputError

Plain = dict[str, Any]
"""A whole object as plain JSON values."""
Key = tuple[str, str]
"""Namespace and name; the namespace of a cluster-scoped object is empty."""


class Resource(NamedTuple):
    """A kind as the API server serves it; the core group is empty."""

    group: str
    version: str
    plural: str
    kind: str
    namespaced: bool = True

    @property
    def api_version(self) -> str:
        return f"{self.group}/{self.version}" if self.group else self.version

    def collection(self, namespace: str = "") -> str:
        """The path of all objects, or of those in a namespace."""
        root = f"/apis/{self.group}/{self.version}" if self.group else f"/api/{self.version}"
        if self.namespaced and namespace:
            return f"{root}/namespaces/{quote(namespace, safe='')}/{self.plural}"
        return f"{root}/{self.plural}"

    def path(self, namespace: str, name: str, subresource: str = "") -> str:
        """The path of one object."""
        if not name or name in (".", "..") or (self.namespaced and not namespace):
            raise InputError(
                f"a {self.kind} cannot be addressed by {namespace!r} and {name!r}",
                allowed="a namespace and a name" if self.namespaced else "a name",
            )
        path = f"{self.collection(namespace)}/{quote(name, safe='')}"
        return f"{path}/{subresource}" if subresource else path


NAMESPACES: Final = Resource("", "v1", "namespaces", "Namespace", namespaced=False)
NODES: Final = Resource("", "v1", "nodes", "Node", namespaced=False)
PODS: Final = Resource("", "v1", "pods", "Pod")
SERVICES: Final = Resource("", "v1", "services", "Service")
CONFIG_MAPS: Final = Resource("", "v1", "configmaps", "ConfigMap")
EVENTS: Final = Resource("events.k8s.io", "v1", "events", "Event")
ENDPOINT_SLICES: Final = Resource("discovery.k8s.io", "v1", "endpointslices", "EndpointSlice")
INFERENCE_POOLS: Final = Resource(
    "inference.networking.k8s.io", "v1", "inferencepools", "InferencePool"
)
"""From the Gateway API's inference extension."""
LEASES: Final = Resource("coordination.k8s.io", "v1", "leases", "Lease")
NODE_CLAIMS: Final = Resource("karpenter.sh", "v1", "nodeclaims", "NodeClaim", namespaced=False)
"""From Karpenter."""
CRDS: Final = Resource(
    "apiextensions.k8s.io",
    "v1",
    "customresourcedefinitions",
    "CustomResourceDefinition",
    namespaced=False,
)


class ServedKind(msgspec.Struct, frozen=True):
    """A resource that an API server serves; subresources are `plural/subresource`."""

    name: str = ""
    kind: str = ""


class OwnerReference(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """An object that owns this one; the garbage collector follows it."""

    api_version: str = ""
    kind: str = ""
    name: str = ""
    uid: str = ""
    controller: bool = False
    block_owner_deletion: bool = False

    def __post_init__(self) -> None:
        for field in ("api_version", "kind", "name", "uid"):
            force_setattr(self, field, intern(getattr(self, field)))


class Meta(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """The metadata that controllers read."""

    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    generation: int = 0
    creation_timestamp: str | None = None
    deletion_timestamp: str | None = None
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}
    owner_references: list[OwnerReference] = []
    finalizers: list[str] = []

    def __post_init__(self) -> None:
        """Interns labels, which thousands of objects share."""
        force_setattr(self, "namespace", intern(self.namespace))
        if self.labels:
            shared = {intern(key): intern(value) for key, value in self.labels.items()}
            force_setattr(self, "labels", shared)

    @property
    def key(self) -> Key:
        return self.namespace, self.name

    @property
    def controller(self) -> OwnerReference | None:
        """The one owner that controls the object."""
        for owner in self.owner_references:
            if owner.controller:
                return owner
        return None


class Object(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """Any object, with its metadata only. Subclasses declare the fields that they read."""

    metadata: Meta


class PodSpec(msgspec.Struct, frozen=True, rename="camel"):
    node_name: str = ""


class PodCondition(msgspec.Struct, frozen=True):
    type: str = ""
    status: str = ""


class PodStatus(msgspec.Struct, frozen=True, rename="camel"):
    phase: str = ""
    pod_ip: str = msgspec.field(name="podIP", default="")
    conditions: list[PodCondition] | None = None


class ServingPod(Object, frozen=True, rename="camel", kw_only=True):
    """A pod as its clients see it: where it is, and whether it is ready."""

    spec: PodSpec = PodSpec()
    status: PodStatus = PodStatus()

    @property
    def is_ready(self) -> bool:
        conditions = self.status.conditions or ()
        return any(one.type == "Ready" and one.status == "True" for one in conditions)

    @property
    def is_terminating(self) -> bool:
        return self.metadata.deletion_timestamp is not None


class Unstructured(Object, frozen=True, rename="camel", kw_only=True):
    """An object with the fields most kinds have, as plain JSON values. Its kind is not included."""

    spec: dict[str, Any] = {}
    status: dict[str, Any] = {}
    data: dict[str, Any] = {}


def owner_reference(resource: Resource, owner: Meta) -> dict[str, Any]:
    """The owner reference that makes `owner` the controller of an object, for its metadata."""
    return {
        "apiVersion": resource.api_version,
        "kind": resource.kind,
        "name": owner.name,
        "uid": owner.uid,
        "controller": True,
        "blockOwnerDeletion": True,
    }


def micro_time(unix_s: float) -> str:
    """A time in the API's format, to the microsecond."""
    return datetime.fromtimestamp(unix_s, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
