"""The parts of a PodCliqueSet that cannot change after it was created."""

from collections.abc import Iterator
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
    old_order, order = (one.clique_startup_type or ANY_ORDER for one in (before, after))
    old_claims, claims = (one.resource_claim_templates for one in (before, after))
    faults = [
        *_changed((*TEMPLATE, "cliqueStartupType"), old_order, order),
        *_changed((*TEMPLATE, "resourceClaimTemplates"), old_claims, claims),
        *_changed((*TEMPLATE, "resourceSharing"), before.resource_sharing, after.resource_sharing),
    ]
    faults += _topology_faults(
        before.topology_constraint, after.topology_constraint, (*TEMPLATE, "topologyConstraint")
    )
    faults += _mnnvl(old.metadata.annotations, new.metadata.annotations, ("metadata",))
    return [*faults, *_clique_faults(before, after), *_group_faults(before, after)]


def _clique_faults(before: SetTemplateSpec, after: SetTemplateSpec) -> Iterator[Fault]:
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
        yield Fault(CLIQUES, what, hint=MAKE_ANOTHER)
        return
    ordered = (after.clique_startup_type or ANY_ORDER) != ANY_ORDER
    if ordered and list(old) != names:
        what = f"the startup order of the cliques cannot change: {', '.join(old)}"
        yield Fault(CLIQUES, what)
    for number, clique in enumerate(after.cliques):
        yield from _one_clique(old[clique.name], clique, (*CLIQUES, number))


def _one_clique(old: CliqueTemplateSpec, new: CliqueTemplateSpec, path: KeyPath) -> Iterator[Fault]:
    inside = (*path, "spec")
    yield from _changed(
        (*inside, "roleName"), old.spec.role_name or old.name, new.spec.role_name or new.name
    )
    minimum = old.counts.minimum
    hint = f"write minAvailable: {minimum}" if new.spec.min_available is None else MAKE_ANOTHER
    yield from _changed((*inside, "minAvailable"), minimum, new.counts.minimum, hint)
    yield from _changed((*inside, "startsAfter"), old.spec.starts_after, new.spec.starts_after)
    yield from _changed(
        (*inside, "podSpec", "schedulerName"),
        scheduler_of(old.spec.pod_spec),
        scheduler_of(new.spec.pod_spec),
    )
    yield from _part_faults(old, new, path)


def _group_faults(before: SetTemplateSpec, after: SetTemplateSpec) -> Iterator[Fault]:
    old = {group.name: group for group in before.groups}
    groups = after.groups
    if sorted(old) != sorted(group.name for group in groups):
        what = f"the scaling groups of a set cannot change: {', '.join(old) or 'none'}"
        yield Fault(GROUPS, what, hint=MAKE_ANOTHER)
        return
    for number, group in enumerate(groups):
        yield from _one_group(old[group.name], group, (*GROUPS, number))


def _one_group(old: GroupTemplateSpec, new: GroupTemplateSpec, path: KeyPath) -> Iterator[Fault]:
    yield from _changed((*path, "cliqueNames"), old.clique_names, new.clique_names)
    minimum = old.counts.minimum
    yield from _changed((*path, "minAvailable"), minimum, new.counts.minimum)
    yield from _part_faults(old, new, path)


def _part_faults(
    old: CliqueTemplateSpec | GroupTemplateSpec,
    new: CliqueTemplateSpec | GroupTemplateSpec,
    path: KeyPath,
) -> Iterator[Fault]:
    """Lists the refused changes that cliques and scaling groups have in common."""
    yield from _changed((*path, "resourceSharing"), old.resource_sharing, new.resource_sharing)
    yield from _topology_faults(
        old.topology_constraint, new.topology_constraint, (*path, "topologyConstraint")
    )
    yield from _mnnvl(old.annotations, new.annotations, path)


def _topology_faults(
    old: TopologySpec | None, new: TopologySpec | None, path: KeyPath
) -> Iterator[Fault]:
    """Lists refused changes of a topology constraint. Two repairs are allowed: naming the topology
    of an old packDomain, and respelling it as pack.required."""
    if old is None or new is None:
        yield from _changed(path, old, new)
        return
    adopts = old.topology_name is None and old.pack is None
    if not adopts:
        yield from _changed((*path, "topologyName"), old.topology_name, new.topology_name)
    yield from _changed((*path, "pack", "required"), old.required, new.required)
    yield from _changed((*path, "pack", "preferred"), old.preferred, new.preferred)


def _mnnvl(
    old: dict[str, str] | None, new: dict[str, str] | None, path: KeyPath
) -> Iterator[Fault]:
    place = (*path, "annotations", MNNVL)
    yield from _changed(place, (old or {}).get(MNNVL), (new or {}).get(MNNVL))


def _changed(path: KeyPath, old: Any, new: Any, hint: str = MAKE_ANOTHER) -> Iterator[Fault]:
    if (old or None) == (new or None):
        return
    plain = isinstance(old, str | int | None) and isinstance(new, str | int | None)
    what = f"it was {shown(old)}, and cannot become {shown(new)}" if plain else "it cannot change"
    yield Fault(path, what, hint=hint)


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
