"""Scheduling of one kind of work: its fairness group, and the resources that it needs."""

from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Final, NamedTuple

from windtunnel.admission.queues.groups import GroupShare
from windtunnel.admission.reasons import Domain
from windtunnel.admission.tasks.admission import LLM_WAIT, SUBMISSION

ADMITTED_PER_WEIGHT: Final = 2
"""A model's group may have this many tasks running per unit of weight before it yields."""


class WorkKind(StrEnum):
    """Local work needs no model, model work one endpoint, custom work some of its own."""

    LOCAL = "local"
    MODEL = "model"
    CUSTOM_MODEL = "custom_model"


class SchedulingMetadata(NamedTuple):
    """The kind of some work, its identity, and its weight.

    The identity of model work is ("model", provider, model, domain).
    """

    kind: WorkKind
    identity: tuple[str, ...]
    weight: int = 1


class Resolved(NamedTuple):
    """The scheduler's input: fairness group, resources, and the endpoint if known."""

    group: GroupShare
    amounts: Mapping[str, int]
    request_key: tuple[str, str, Domain] | None


def resolve(metadata: SchedulingMetadata, columns: Sequence[str], admitted_most: int) -> Resolved:
    """Returns the group and the resources of work that fills these columns."""
    amounts = {SUBMISSION: 1}
    admitted_limit = 0
    request_key = None
    if metadata.kind is not WorkKind.LOCAL:
        amounts[LLM_WAIT] = 1
        admitted_limit = min(admitted_most, ADMITTED_PER_WEIGHT * metadata.weight)
    if metadata.kind is WorkKind.MODEL:
        _, provider, model, generation = metadata.identity
        if generation in {domain.value for domain in Domain}:
            amounts[f"request:{provider}/{model}"] = 1
            request_key = (provider, model, Domain(generation))
    key = "/".join((*metadata.identity, *columns))
    group = GroupShare(key, metadata.weight, admitted_limit=admitted_limit)
    return Resolved(group, amounts, request_key)


def task_limits(
    in_flight: int, generators: Sequence[tuple[SchedulingMetadata, Resolved]]
) -> dict[str, int]:
    """Returns the limits of all resources that these generators name; of an endpoint's weights, the
    smallest applies."""
    limits = {SUBMISSION: in_flight, LLM_WAIT: in_flight}
    for metadata, resolved in generators:
        for name in resolved.amounts:
            if name not in (SUBMISSION, LLM_WAIT):
                limits[name] = min(limits.get(name, metadata.weight), metadata.weight)
    return limits
