"""InferencePool and InferenceObjective, read from manifests of the Gateway API's extension."""

from collections.abc import Sequence
from typing import Annotated, Final, NamedTuple

from pydantic import Field

from windtunnel.settings.document import parse_documents, read_text
from windtunnel.settings.fields import Whole
from windtunnel.settings.manifests import (
    KEYS,
    NOUN,
    AnyText,
    Manifest,
    ManifestKind,
    Opaque,
    is_foreign,
    manifest_of,
)
from windtunnel.settings.section import ApiSection


class TargetPort(ApiSection):
    number: Annotated[int, Whole(1, 65535)] = Field(description="A port that servers listen on.")


class PoolSpec(ApiSection):
    selector: Opaque = Field(description="Not used: `live` lists the servers.")
    target_ports: list[TargetPort] = Field(
        min_length=1, max_length=8, description="Each is an endpoint of a pod."
    )
    app_protocol: AnyText | None = Field(default=None, description="Not used.")
    endpoint_picker_ref: Opaque | None = Field(default=None, description="Not used.")


class InferencePool(Manifest):
    """Interchangeable servers behind an endpoint picker."""

    spec: PoolSpec = Field(description="The desired state.")


class PoolRef(ApiSection):
    group: AnyText | None = Field(default=None, description="Not used.")
    kind: AnyText | None = Field(default=None, description="Not used.")
    name: AnyText = Field(description="The pool it applies to.")


class ObjectiveSpec(ApiSection):
    priority: Annotated[int, Whole(-(2**31), 2**31 - 1)] = Field(
        default=0, description="Higher goes first; below 0 may be shed."
    )
    pool_ref: PoolRef = Field(description="The pool it applies to.")


class InferenceObjective(Manifest):
    """A class of service that requests name in a header."""

    spec: ObjectiveSpec = Field(description="The desired state.")


KINDS: Final = {
    "InferencePool": ManifestKind(("inference.networking.k8s.io/v1",), InferencePool),
    "InferenceObjective": ManifestKind(
        ("llm-d.ai/v1alpha2", "inference.networking.x-k8s.io/v1alpha2"), InferenceObjective
    ),
}


class PickerResources(NamedTuple):
    """The pools and objectives declared in manifests."""

    ports: frozenset[int]
    """Ports that endpoints may have; empty for any."""
    objectives: dict[str, int]
    """Priorities by name."""


def read_resources(paths: Sequence[str]) -> PickerResources:
    """Reads all pools and objectives in files; other kinds are ignored."""
    ports: set[int] = set()
    objectives: dict[str, int] = {}
    for path in paths:
        for document in parse_documents(read_text(path, NOUN), path, NOUN, KEYS):
            if is_foreign(document, KINDS):
                continue
            found = manifest_of(document, KINDS)
            if isinstance(found, InferencePool):
                ports |= {one.number for one in found.spec.target_ports}
            elif isinstance(found, InferenceObjective):
                objectives[found.metadata.name] = found.spec.priority
    return PickerResources(frozenset(ports), objectives)
