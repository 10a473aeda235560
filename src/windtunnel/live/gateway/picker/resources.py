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
    selector: Opaque = Field(description="Which pods; not used: `live` has the servers.")
    target_ports: list[TargetPort] = Field(
        min_length=1, max_length=8, description="Each is an endpoint of a pod."
    )
    app_protocol: AnyText | None = Field(default=None, description="Not used.")
    endpoint_picker_ref: Opaque | None = Field(default=None, description="Not used.")


class InferencePool(Manifest):
    """Servers that stand in for each other, behind an endpoint picker."""

    spec: PoolSpec = Field(description="What is wanted.")


class PoolRef(ApiSection):
    group: AnyText | None = Field(default=None, description="Not used.")
    kind: AnyText | None = Field(default=None, description="Not used.")
    name: AnyText = Field(description="The pool that it is about.")


class ObjectiveSpec(ApiSection):
    priority: Annotated[int, Whole(-(2**31), 2**31 - 1)] = Field(
        default=0, description="Higher goes first; below 0 may be shed."
    )
    pool_ref: PoolRef = Field(description="The pool that it is about.")


class InferenceObjective(Manifest):
    """A class of service that requests name in a header."""

    spec: ObjectiveSpec = Field(description="What is wanted.")


KINDS: Final = {
    "InferencePool": ManifestKind(("inference.networking.k8s.io/v1",), InferencePool),
    "InferenceObjective": ManifestKind(
        ("llm-d.ai/v1alpha2", "inference.networking.x-k8s.io/v1alpha2"), InferenceObjective
    ),
}


class PickerResources(NamedTuple):
    """What manifests say of pools and objectives."""

    ports: frozenset[int]
    """That endpoints may have; empty: any."""
    objectives: dict[str, int]
    """Priorities by name."""


def read_resources(paths: Sequence[str]) -> PickerResources:
    """All pools and objectives in files; other kinds beside them are not looked at."""
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
