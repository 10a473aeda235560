"""The parts of a PodCliqueSet that cannot change after it was created."""

from typing import Any

from windtunnel.gangs.api.pod_spec import scheduler_of
from windtunnel.gangs.api.set_rules import CLIQUES, GROUPS
from windtunnel.gangs.api.set_spec import (
    TEMPLATE,
    CliqueTemplateSpec,
    GroupTemplateSpec,
    SetManifest,
    SetTemplateSpec,
    TopologySpec,
)
from windtunnel.gangs.templates import ANY_ORDER, MNNVL
from windtunnel.settings.document import KeyPath
from windtunnel.settings.faults import Fault
from windtunnel.settings.fields import shown

MAKE_ANOTHER = "create another set instead"
NOT_PROPAGATED = (
    "its replicas apply only to objects created from now on; scale existing ones directly"
)


def update_faults(old: SetManifest, new: SetManifest) -> list[Fault]:
    """Lists the changes that are refused."""
    before, after = old.spec.template, new.spec.template
    faults = _changed(
        (*TEMPLATE, "cliqueStartupType"),
        before.clique_startup_type or ANY_ORDER,
        after.clique_startup_type or ANY_ORDER,
    )
    for key in ("resource_claim_templates", "resource_sharing"):
        camel = {"resource_claim_templates": "resourceClaimTemplates"}.get(key, "resourceSharing")
        faults += _changed((*TEMPLATE, camel), getattr(before, key), getattr(after, key))
    faults += _topology_faults(
        before.topology_constraint, after.topology_constraint, (*TEMPLATE, "topologyConstraint")
    )
    faults += _mnnvl(old.metadata.annotations, new.metadata.annotations, ("metadata",))
    return faults + _clique_faults(before, after) + _group_faults(before, after)


def _clique_faults(before: SetTemplateSpec, after: SetTemplateSpec) -> list[Fault]:
    old = {clique.name: clique for clique in before.cliques}
    names = [clique.name for clique in after.cliques]
    if sorted(old) != sorted(names):
        gone = [name for name in old if name not in names]
        come = [name for name in names if name not in old]
        said = [
            f"{word} {', '.join(found)}"
            for word, found in (("without", gone), ("with", come))
            if found
        ]
        what = f"the cliques of a set cannot change: now {' and '.join(said)}"
        return [Fault(CLIQUES, what, hint=MAKE_ANOTHER)]
    faults = []
    ordered = (after.clique_startup_type or ANY_ORDER) != ANY_ORDER
    if ordered and list(old) != names:
        what = f"the startup order of the cliques cannot change: {', '.join(old)}"
        faults.append(Fault(CLIQUES, what))
    for number, clique in enumerate(after.cliques):
        faults += _one_clique(old[clique.name], clique, (*CLIQUES, number))
    return faults


def _one_clique(old: CliqueTemplateSpec, new: CliqueTemplateSpec, path: KeyPath) -> list[Fault]:
    inside = (*path, "spec")
    faults = _changed(
        (*inside, "roleName"), old.spec.role_name or old.name, new.spec.role_name or new.name
    )
    minimum = old.counts.minimum
    hint = f"write minAvailable: {minimum}" if new.spec.min_available is None else MAKE_ANOTHER
    faults += _changed((*inside, "minAvailable"), minimum, new.counts.minimum, hint)
    faults += _changed((*inside, "startsAfter"), old.spec.starts_after, new.spec.starts_after)
    faults += _changed(
        (*inside, "podSpec", "schedulerName"),
        scheduler_of(old.spec.pod_spec),
        scheduler_of(new.spec.pod_spec),
    )
    faults += _changed((*path, "resourceSharing"), old.resource_sharing, new.resource_sharing)
    faults += _topology_faults(
        old.topology_constraint, new.topology_constraint, (*path, "topologyConstraint")
    )
    return faults + _mnnvl(old.annotations, new.annotations, path)


def _group_faults(before: SetTemplateSpec, after: SetTemplateSpec) -> list[Fault]:
    old = {group.name: group for group in before.groups}
    groups = after.groups
    if sorted(old) != sorted(group.name for group in groups):
        what = f"the scaling groups of a set cannot change: {', '.join(old) or 'none'}"
        return [Fault(GROUPS, what, hint=MAKE_ANOTHER)]
    faults = []
    for number, group in enumerate(groups):
        faults += _one_group(old[group.name], group, (*GROUPS, number))
    return faults


def _one_group(old: GroupTemplateSpec, new: GroupTemplateSpec, path: KeyPath) -> list[Fault]:
    faults = _changed((*path, "cliqueNames"), old.clique_names, new.clique_names)
    minimum = old.counts.minimum
    faults += _changed((*path, "minAvailable"), minimum, new.counts.minimum)
    faults += _changed((*path, "resourceSharing"), old.resource_sharing, new.resource_sharing)
    faults += _topology_faults(
        old.topology_constraint, new.topology_constraint, (*path, "topologyConstraint")
    )
    return faults + _mnnvl(old.annotations, new.annotations, path)


def _topology_faults(
    old: TopologySpec | None, new: TopologySpec | None, path: KeyPath
) -> list[Fault]:
    """Lists refused changes of a topology constraint. Two repairs are allowed: naming the topology
    of an old packDomain, and respelling it as pack.required."""
    if old is None or new is None:
        return _changed(path, old, new)
    faults = []
    adopts = old.topology_name is None and old.pack is None
    if not adopts:
        faults += _changed((*path, "topologyName"), old.topology_name, new.topology_name)
    faults += _changed((*path, "pack", "required"), old.required, new.required)
    return faults + _changed((*path, "pack", "preferred"), old.preferred, new.preferred)


def _mnnvl(old: dict[str, str] | None, new: dict[str, str] | None, path: KeyPath) -> list[Fault]:
    place = (*path, "annotations", MNNVL)
    return _changed(place, (old or {}).get(MNNVL), (new or {}).get(MNNVL))


def _changed(path: KeyPath, old: Any, new: Any, hint: str = MAKE_ANOTHER) -> list[Fault]:
    if (old or None) == (new or None):
        return []
    plain = isinstance(old, str | int | None) and isinstance(new, str | int | None)
    what = f"it was {shown(old)}, and cannot become {shown(new)}" if plain else "it cannot change"
    return [Fault(path, what, hint=hint)]


def unused_replicas(old: SetManifest, new: SetManifest) -> list[str]:
    """Warns of changes that are allowed but reach no existing object: replicas in templates."""
    before, after = old.spec.template, new.spec.template
    counts = {one.name: one.counts.replicas for one in before.cliques}
    said = [
        f"clique {one.name!r}: {NOT_PROPAGATED}"
        for one in after.cliques
        if one.counts.replicas != counts.get(one.name)
    ]
    groups = {one.name: one.counts.replicas for one in before.groups}
    return said + [
        f"scaling group {group.name!r}: {NOT_PROPAGATED}"
        for group in after.groups
        if group.counts.replicas != groups.get(group.name)
    ]
