"""The status written to objects: the fields that others read, and the controller's memory."""

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from windtunnel.core.kubernetes import stamp, stamp_or_none
from windtunnel.gangs import names
from windtunnel.gangs.kubernetes.status_fields import (
    CliqueFields,
    GangFields,
    GroupFields,
    PartProgress,
    ReplicaProgress,
    SetFields,
    SetProgress,
    StatusFields,
)
from windtunnel.gangs.objects import PodClique, PodCliqueSet, PodGang, ScalingGroup, Thing
from windtunnel.gangs.pod_manifest import GROUP_LABEL, PART_OF, POD_CLIQUE
from windtunnel.gangs.statuses import CliqueStatus, Condition, GroupStatus, SetStatus, Status
from windtunnel.gangs.view import View
from windtunnel.settings.manifests import ConditionFields

MANAGED: Final = "app.kubernetes.io/managed-by=grove-operator"

Json = dict[str, Any]


def published(
    view: View,
    thing: Thing,
    status: Status | None,
    conditions: Mapping[str, Condition],
    gang: Mapping[str, Any],
    generation: int,
) -> Json:
    """Returns the whole status of an object; parts not given (`status`, fields of `gang`) stay as
    they are."""
    if isinstance(thing, PodClique):
        written = thing.status if status is None else status
        assert isinstance(written, CliqueStatus)
        made: StatusFields = _clique(view, thing, written, generation)
    elif isinstance(thing, ScalingGroup):
        written = thing.status if status is None else status
        assert isinstance(written, GroupStatus)
        made = _group(view, thing, written, generation)
    elif isinstance(thing, PodCliqueSet):
        written = thing.status if status is None else status
        assert isinstance(written, SetStatus)
        made = _set(thing, written)
    else:
        assert isinstance(thing, PodGang), thing.kind
        known = {name: getattr(thing, name) for name in ("phase", "placement_score", "why_pending")}
        made = GangFields(**{**known, **gang})
    made.conditions = [_condition(one, generation) for _, one in sorted(conditions.items())]
    found: Json = msgspec.to_builtins(made, str_keys=True)
    return found


def _condition(known: Condition, generation: int) -> ConditionFields:
    since = stamp(known.since_s)
    return ConditionFields(known.type, known.status, known.reason, since, known.message, generation)


def _remembered(status: Status) -> Json:
    found: Json = msgspec.to_builtins(status, str_keys=True)
    return found


def selector(set_name: str, label: str = "", value: str = "") -> str:
    """Returns a label selector for the pods of a set, or of one part of it."""
    found = f"{MANAGED},{PART_OF}={names.short(set_name)}"
    return f"{found},{label}={names.short(value)}" if label else found


def _clique(view: View, clique: PodClique, status: CliqueStatus, generation: int) -> CliqueFields:
    owner = view.sets.get(clique.set_name)
    revision = "" if owner is None else owner.status.revision
    progress = None
    if status.update_started_s >= 0.0:
        progress = PartProgress(
            stamp(status.update_started_s),
            stamp_or_none(status.update_ended_s),
            revision,
            clique.template.hash,
        )
    return CliqueFields(
        observed_generation=generation,
        replicas=status.replicas,
        updated_replicas=status.updated,
        windtunnel=_remembered(status),
        ready_replicas=status.ready,
        scheduled_replicas=status.scheduled,
        schedule_gated_replicas=status.gated,
        hpa_pod_selector="" if clique.group else selector(clique.set_name, POD_CLIQUE, clique.name),
        current_pod_clique_set_generation_hash=revision if _is_new(owner, clique) else "",
        current_pod_template_hash=clique.template.hash,
        update_progress=progress,
    )


def _group(view: View, group: ScalingGroup, status: GroupStatus, generation: int) -> GroupFields:
    progress = None
    owner = view.sets.get(group.set_name)
    if status.update_started_s >= 0.0:
        members = [one for replica in group.cliques.values() for one in replica.values()]
        progress = PartProgress(
            stamp(status.update_started_s),
            stamp_or_none(status.update_ended_s),
            "" if owner is None else owner.status.revision,
            updated_pod_cliques_count=sum(_is_new(owner, one) for one in members),
            total_pod_cliques_count=len(members),
        )
    return GroupFields(
        observed_generation=generation,
        replicas=status.replicas,
        updated_replicas=status.updated,
        windtunnel=_remembered(status),
        available_replicas=status.available,
        scheduled_replicas=status.scheduled,
        selector=selector(group.set_name, GROUP_LABEL, group.name),
        current_pod_clique_set_generation_hash=status.revision,
        update_progress=progress,
    )


def _is_new(owner: PodCliqueSet | None, clique: PodClique) -> bool:
    """Whether all pods of a clique are made from the newest template."""
    template = None if owner is None else owner.spec.roles.get(clique.role)
    status = clique.status
    return (
        template is not None
        and template.hash == clique.template.hash
        and status.updated == status.replicas
    )


def _set(owner: PodCliqueSet, status: SetStatus) -> SetFields:
    progress = None
    if status.update_started_s >= 0.0:
        groups = [one for part in owner.parts.values() for one in part.groups.values()]
        cliques = [one for part in owner.parts.values() for one in part.cliques.values()]
        cliques += [one for group in groups for r in group.cliques.values() for one in r.values()]
        progress = SetProgress(
            stamp(status.update_started_s),
            stamp_or_none(status.update_ended_s),
            sum(_is_new(owner, one) for one in cliques),
            len(cliques),
            sum(one.status.revision == status.revision for one in groups),
            len(groups),
            [
                ReplicaProgress(
                    stamp(status.turned_s.get(replica, status.update_started_s)), None, replica
                )
                for replica in status.turns
            ],
        )
    return SetFields(
        observed_generation=status.observed_generation,
        replicas=status.replicas,
        updated_replicas=status.updated,
        windtunnel=_remembered(status),
        available_replicas=status.available,
        hpa_pod_selector=selector(owner.name),
        current_generation_hash=status.revision,
        update_progress=progress,
    )
