"""What a generator says of its work for scheduling, checked, and what follows from it.

Each kind of work has a fixed shape of identity. A fault has a code; where a fallback exists the
resolver uses it and reports the fault, otherwise the run stops before anything is scheduled.
"""

from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Final

import msgspec

from windtunnel.admission.events import Correlation, EventKind, EventReporter
from windtunnel.admission.queues.groups import GroupShare
from windtunnel.admission.reasons import Domain
from windtunnel.admission.tasks.admission import LLM_WAIT, SUBMISSION
from windtunnel.core.errors import InputError

ADMITTED_PER_WEIGHT: Final = 2
"""A model's group may have this many tasks running per unit of weight before it yields."""


class WorkKind(StrEnum):
    """Local work needs no model; model work one endpoint; custom work something of its own."""

    LOCAL = "local"
    MODEL = "model"
    CUSTOM_MODEL = "custom_model"


class MetadataFault(StrEnum):
    """What can be wrong with scheduling metadata."""

    UNKNOWN_KIND = "unknown_kind"
    IDENTITY_SHAPE = "identity_shape"
    IDENTITY_KIND = "identity_kind"
    IDENTITY_EMPTY = "identity_empty"
    WEIGHT = "weight"


IDENTITY_PARTS: Final[Mapping[WorkKind, tuple[str, ...]]] = {
    WorkKind.LOCAL: ("local", "name"),
    WorkKind.MODEL: ("model", "provider", "model", "generation kind"),
    WorkKind.CUSTOM_MODEL: ("custom_model", "namespace", "resource", "version"),
}


class SchedulingMetadata(msgspec.Struct, frozen=True):
    """What kind of work this is, its identity, and its share."""

    kind: WorkKind
    identity: tuple[str, ...]
    weight: int = 1


class MetadataError(InputError):
    """Scheduling metadata that cannot be used: a code, a sentence, and perhaps what to use."""

    def __init__(
        self,
        code: MetadataFault,
        what: str,
        *,
        allowed: str,
        fallback: SchedulingMetadata | None = None,
    ) -> None:
        super().__init__(what, where="scheduling metadata", allowed=allowed)
        self.code: Final = code
        self.fallback: Final = fallback


class Resolved(msgspec.Struct, frozen=True):
    """What the scheduler works with: fairness group, resources, and the endpoint if known."""

    group: GroupShare
    amounts: Mapping[str, int]
    request_key: tuple[str, str, Domain] | None
    fell_back: MetadataFault | None = None
    said: str = ""


DEFAULT: Final = SchedulingMetadata(WorkKind.LOCAL, ("local", "default"))


def check_metadata(
    kind: object,
    identity: object,
    weight: object,
    fallback: SchedulingMetadata | None = None,
) -> SchedulingMetadata:
    """Metadata from whatever a generator gave, or a MetadataError."""

    def fault(code: MetadataFault, what: str, allowed: str) -> MetadataError:
        return MetadataError(code, what, allowed=allowed, fallback=fallback)

    kinds = [known.value for known in WorkKind]
    if not isinstance(kind, str) or kind not in kinds:
        what = f"{kind!r} is not a kind of work"
        raise fault(MetadataFault.UNKNOWN_KIND, what, ", ".join(kinds))
    parts = IDENTITY_PARTS[WorkKind(kind)]
    shape = f"({', '.join(parts)})"
    if not isinstance(identity, tuple | list) or len(identity) != len(parts):
        what = f"{identity!r} is not the identity of {kind} work"
        raise fault(MetadataFault.IDENTITY_SHAPE, what, shape)
    for part in identity:
        if not isinstance(part, str) or not part:
            what = f"{part!r} cannot be a part of an identity"
            raise fault(MetadataFault.IDENTITY_EMPTY, what, "text that is not empty")
    if identity[0] != kind:
        what = f"an identity of {kind} work begins with {identity[0]!r}"
        raise fault(MetadataFault.IDENTITY_KIND, what, shape)
    if isinstance(weight, bool) or not isinstance(weight, int) or weight < 1:
        raise fault(MetadataFault.WEIGHT, f"{weight!r} is not a weight", "a whole number from 1")
    return SchedulingMetadata(WorkKind(kind), tuple(identity), weight)


def model_metadata(endpoints: Mapping[str, tuple[str, str, int]], kind: str) -> SchedulingMetadata:
    """Metadata of a generator that uses models, from alias to (provider, model, cap)."""
    if not endpoints:
        raise MetadataError(
            MetadataFault.IDENTITY_SHAPE, "a model generator names no model", allowed="an alias"
        )
    places = {(provider, model) for provider, model, _ in endpoints.values()}
    caps = [cap for _, _, cap in endpoints.values()]
    if len(places) == 1:
        provider, model = next(iter(places))
        return SchedulingMetadata(WorkKind.MODEL, ("model", provider, model, kind), min(caps))
    names = "+".join(sorted(endpoints))
    return SchedulingMetadata(
        WorkKind.CUSTOM_MODEL, ("custom_model", "aliases", names, "1"), sum(caps)
    )


def resolve(
    metadata: SchedulingMetadata | MetadataError | None,
    columns: Sequence[str],
    admitted_most: int,
    priority: int = 0,
) -> Resolved:
    """The group and the resources of a generator that fills these columns."""
    fault: MetadataError | None = None
    if isinstance(metadata, MetadataError):
        if metadata.fallback is None:
            raise metadata
        fault, metadata = metadata, metadata.fallback
    metadata = metadata if metadata is not None else DEFAULT
    amounts = {SUBMISSION: 1}
    admitted_limit = 0
    request_key = None
    if metadata.kind is not WorkKind.LOCAL:
        amounts[LLM_WAIT] = 1
        admitted_limit = min(admitted_most, ADMITTED_PER_WEIGHT * metadata.weight)
    if metadata.kind is WorkKind.MODEL:
        _, provider, model, generation = metadata.identity
        if generation in {domain.value for domain in Domain}:
            amounts[request_resource(provider, model)] = 1
            request_key = (provider, model, Domain(generation))
    key = "/".join((*metadata.identity, *columns))
    return Resolved(
        GroupShare(key, metadata.weight, priority, admitted_limit),
        amounts,
        request_key,
        fault.code if fault else None,
        str(fault) if fault else "",
    )


def report_fallback(reporter: EventReporter, resolved: Resolved, now: float) -> None:
    """Reports that a generator's metadata was replaced, and why."""
    if resolved.fell_back is not None:
        reporter.report(
            now,
            EventKind.TASK_METADATA_FELL_BACK,
            resolved.group.key,
            reason=resolved.fell_back.value,
            correlation=Correlation(resolved.group.key),
            numbers={"said": resolved.said},
        )


def request_resource(provider: str, model: str) -> str:
    """The scheduler's resource that stands for an endpoint's cap."""
    return f"request:{provider}/{model}"


def task_limits(
    in_flight: int, generators: Sequence[tuple[SchedulingMetadata, Resolved]]
) -> dict[str, int]:
    """The limits of all resources that these generators name: an endpoint's least weight holds."""
    limits = {SUBMISSION: in_flight, LLM_WAIT: in_flight}
    for metadata, resolved in generators:
        for name in resolved.amounts:
            if name not in (SUBMISSION, LLM_WAIT):
                limits[name] = min(limits.get(name, metadata.weight), metadata.weight)
    return limits
