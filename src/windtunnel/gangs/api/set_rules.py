"""The rules of a PodCliqueSet that involve more than one value, each with its error message."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from windtunnel.core.errors import nearest
from windtunnel.gangs.api.pod_spec import pod_spec_faults, scheduler_of
from windtunnel.gangs.api.set_spec import (
    TEMPLATE,
    CliqueTemplateSpec,
    Counts,
    GroupTemplateSpec,
    ScaleSpec,
    SetManifest,
    SetTemplateSpec,
)
from windtunnel.gangs.api.sharing_rules import sharing_faults
from windtunnel.gangs.api.topology_rules import Levels, topology_faults
from windtunnel.gangs.controllers.startup import cycle_in
from windtunnel.gangs.templates import EXPLICIT, MNNVL, ON_DELETE
from windtunnel.settings.document import KeyPath
from windtunnel.settings.faults import Fault
from windtunnel.settings.fields import shown
from windtunnel.settings.manifests import DNS_LABEL

NAME_BUDGET = 45
"""Longest total length of a set's, a group's and a clique's name that keeps pod names within 63
characters."""

CLIQUES: KeyPath = (*TEMPLATE, "cliques")
GROUPS: KeyPath = (*TEMPLATE, "podCliqueScalingGroups")


def set_faults(
    spec: SetManifest,
    levels: Levels | None = None,
    *,
    new: bool = True,
    pods_checked: bool = False,
) -> list[Fault]:
    """Lists the faults of a set that is `new` or has changed.

    `levels` are the cluster's topologies by name, or None if they are not known.
    """
    template = spec.spec.template
    faults = list(_name_faults(spec))
    for number, clique in enumerate(template.cliques):
        path = (*CLIQUES, number)
        faults += _clique_faults(clique, path, template)
        if not pods_checked:
            faults += pod_spec_faults(clique.spec.pod_spec, (*path, "spec", "podSpec"), new=new)
    for number, group in enumerate(template.groups):
        faults += _group_faults(group, (*GROUPS, number), template)
    faults += _unique_faults(template)
    faults += _startup_faults(template)
    faults += _scheduler_faults(template)
    faults += _rolling_faults(spec)
    faults += _mnnvl_faults(spec)
    faults += sharing_faults(template)
    faults += topology_faults(template, levels, new=new)
    return faults


def warnings_of(spec: SetManifest) -> list[str]:
    """Lists warnings: settings that are allowed but may not do what their author expects."""
    said = []
    for clique in spec.spec.template.cliques:
        where = f"clique {clique.name!r}"
        if "restartPolicy" in clique.spec.pod_spec:
            said.append(f"{where}: restartPolicy is ignored: the pods of a gang always restart")
        if clique.spec.replicas == 0:
            said.append(f"{where}: replicas 0 is read as 1; scale it to zero after it was created")
        if clique.spec.starts_after and spec.spec.template.clique_startup_type != EXPLICIT:
            said.append(f"{where}: startsAfter is used with {EXPLICIT} only")
        said += [f"{where}: {what}" for what in _without_limit(clique.spec.pod_spec)]
        if "schedulingGates" in clique.spec.pod_spec:
            said.append(f"{where}: its own scheduling gates are kept, and ours is added to them")
    for group in spec.spec.template.groups:
        scale = group.scale_config
        if scale is not None and scale.max_replicas < group.counts.replicas:
            what = f"maxReplicas {scale.max_replicas} is below replicas {group.counts.replicas}"
            said.append(f"scaling group {group.name!r}: {what}: an autoscaler would shrink it")
    if spec.status is not None:
        said.append("status is written by controllers; that of the file is ignored")
    return said


def _without_limit(pod: Mapping[str, Any]) -> list[str]:
    """Lists devices that are requested without a limit: an API server refuses such pods."""
    said = []
    for container in [*(pod.get("containers") or []), *(pod.get("initContainers") or [])]:
        asked = container.get("resources") or {}
        for resource in asked.get("requests") or {}:
            device = "/" in resource and ".kubernetes.io/" not in f".{resource}"
            if device and resource not in (asked.get("limits") or {}):
                what = f"container {container['name']!r} requests {resource} without a limit"
                said.append(f"{what}, which Kubernetes refuses; add it to the limits")
    return said


def _name_faults(spec: SetManifest) -> Iterator[Fault]:
    """Checks the length of names, and names that would collide: `g-0-c` beside the `c` of a group
    `g`."""
    name, template = spec.metadata.name, spec.spec.template
    groups = template.groups
    inside = {role: group.name for group in groups for role in group.clique_names}
    if "." in name:
        what = f"{shown(name)} has a dot, and host names of pods begin with it"
        yield Fault(("metadata", "name"), what, "small letters, digits and '-'")
    for number, clique in enumerate(template.cliques):
        group_name = inside.get(clique.name, "")
        length = len(name) + len(group_name) + len(clique.name)
        if length > NAME_BUDGET:
            parts = [name, group_name, clique.name] if group_name else [name, clique.name]
            what = f"the names {' + '.join(parts)} have {length} characters in total"
            allowed = f"at most {NAME_BUDGET}, so that the names of pods have at most 63"
            yield Fault((*CLIQUES, number, "name"), what, allowed)
        for group in groups:
            rest = clique.name.removeprefix(f"{group.name}-")
            index, _, role = rest.partition("-")
            if rest != clique.name and index.isdigit() and role in group.clique_names:
                what = f"replica {index} of the group {group.name!r} gives this name to its clique"
                yield Fault((*CLIQUES, number, "name"), f"{what} {role!r}")


def _clique_faults(
    clique: CliqueTemplateSpec, path: KeyPath, template: SetTemplateSpec
) -> Iterator[Fault]:
    inside = (*path, "spec")
    counts = clique.counts
    yield from _minimum_faults(counts, inside)
    scale = clique.spec.auto_scaling_config
    groups = template.groups
    grouped = [group.name for group in groups if clique.name in group.clique_names]
    if scale is not None:
        place = (*inside, "autoScalingConfig")
        if grouped:
            what = f"a member of the scaling group {grouped[0]!r} is not scaled by itself"
            hint = "give the group a scaleConfig"
            yield Fault(place, what, hint=hint)
        yield from _bounds_faults(place, scale, counts, {"replicas": counts.replicas})
    if clique.rolling_update is not None and grouped:
        what = f"a member of the scaling group {grouped[0]!r} is updated with its group"
        yield Fault((*path, "rollingUpdate"), what, hint="write it at the group")


def _minimum_faults(counts: Counts, path: KeyPath) -> Iterator[Fault]:
    place = (*path, "minAvailable")
    if counts.replicas < 1:
        yield Fault((*path, "replicas"), "0 is too small", "at least 1")
    if counts.minimum < 1:
        yield Fault(place, "0 is too small", "at least 1")
    elif counts.minimum > counts.replicas:
        what = f"minAvailable {counts.minimum} is above replicas {counts.replicas}"
        yield Fault(place, what, f"1 to {counts.replicas}")


def _bounds_faults(
    path: KeyPath, scale: ScaleSpec, counts: Counts, beside: Mapping[str, int]
) -> Iterator[Fault]:
    """Checks autoscaling bounds; the maximum must reach the minima and the counts in `beside`."""
    lowest, most = scale.min_replicas, scale.max_replicas
    if lowest is not None and lowest < counts.minimum:
        what = f"minReplicas {lowest} is below minAvailable {counts.minimum}"
        yield Fault((*path, "minReplicas"), what, f"at least {counts.minimum}")
    reached = {"minReplicas": lowest or 0, "minAvailable": counts.minimum, **beside}
    above = [f"{name} {count}" for name, count in reached.items() if count > most]
    if above:
        what = f"maxReplicas {most} is below {above[0]}"
        yield Fault((*path, "maxReplicas"), what, f"at least {max(reached.values())}")


def _group_faults(
    group: GroupTemplateSpec, path: KeyPath, template: SetTemplateSpec
) -> Iterator[Fault]:
    counts = group.counts
    yield from _minimum_faults(counts, path)
    known = [clique.name for clique in template.cliques]
    if not group.clique_names:
        yield Fault((*path, "cliqueNames"), "the list has no item", "at least 1")
    for number, role in enumerate(group.clique_names):
        place = (*path, "cliqueNames", number)
        if role not in known:
            hint = nearest(role, known)
            yield Fault(place, f"there is no clique {role!r}", ", ".join(known), hint)
        elif role in group.clique_names[:number]:
            yield Fault(place, f"the clique {role!r} is there twice")
    if group.scale_config is not None:
        # Grove does not check a group's maximum; below a minimum, no autoscaler can be created.
        yield from _bounds_faults((*path, "scaleConfig"), group.scale_config, counts, {})


def _unique_faults(template: SetTemplateSpec) -> Iterator[Fault]:
    groups = template.groups
    names = [clique.name for clique in template.cliques]
    roles = [clique.spec.role_name or clique.name for clique in template.cliques]
    yield from _twice(names, CLIQUES, ("name",), "clique")
    if len(set(names)) == len(names):
        yield from _twice(roles, CLIQUES, ("spec", "roleName"), "role")
    yield from _twice([group.name for group in groups], GROUPS, ("name",), "scaling group")
    owner: dict[str, str] = {}
    for number, group in enumerate(groups):
        for place, role in enumerate(group.clique_names):
            first = owner.setdefault(role, group.name)
            if first != group.name:
                what = f"the clique {role!r} is already in the scaling group {first!r}"
                yield Fault((*GROUPS, number, "cliqueNames", place), what, "one group")


def _twice(names: Sequence[str], path: KeyPath, key: KeyPath, noun: str) -> Iterator[Fault]:
    seen: set[str] = set()
    for number, name in enumerate(names):
        if name in seen:
            what = f"there is another {noun} named {name!r}"
            yield Fault((*path, number, *key), what, "unique names")
        seen.add(name)


def _startup_faults(template: SetTemplateSpec) -> Iterator[Fault]:
    if template.clique_startup_type != EXPLICIT:
        return  # Grove accepts and ignores it
    graph = {clique.name: list(clique.spec.starts_after or []) for clique in template.cliques}
    known = [clique.name for clique in template.cliques]
    is_sound = True
    for number, clique in enumerate(template.cliques):
        parents = clique.spec.starts_after or []
        for place, parent in enumerate(parents):
            wrong = _parent_fault(parent, clique.name, parents[:place], known)
            if wrong:
                is_sound = False
                hint = nearest(parent, known) if parent not in known else None
                yield Fault((*CLIQUES, number, "spec", "startsAfter", place), wrong, hint=hint)
    cycle = cycle_in(graph) if is_sound else []
    if cycle:
        number = known.index(cycle[0])
        what = f"the cliques wait for each other in a cycle: {' after '.join(cycle)}"
        yield Fault((*CLIQUES, number, "spec", "startsAfter"), what)


def _parent_fault(parent: str, name: str, before: Iterable[str], known: list[str]) -> str | None:
    if not parent:
        return "the name is empty"
    if parent == name:
        return f"the clique {name!r} cannot start after itself"
    if parent not in known:
        return f"there is no clique {parent!r}"
    return f"the clique {parent!r} is there twice" if parent in before else None


def _scheduler_faults(template: SetTemplateSpec) -> Iterator[Fault]:
    first = scheduler_of(template.cliques[0].spec.pod_spec)
    for number, clique in enumerate(template.cliques):
        here = scheduler_of(clique.spec.pod_spec)
        if here != first:
            what = f"the scheduler is {here!r} here and {first!r} in the first clique"
            path = (*CLIQUES, number, "spec", "podSpec", "schedulerName")
            yield Fault(path, what, "one scheduler for all cliques of a set")


def _rolling_faults(spec: SetManifest) -> Iterator[Fault]:
    strategy = spec.spec.update_strategy
    found = [
        ((*path, "rollingUpdate"), one.rolling_update) for path, one in spec.spec.template.parts()
    ]
    if strategy is not None:
        found.append((("spec", "updateStrategy", "rollingUpdate"), strategy.rolling_update))
    for path, rolling in found:
        if rolling is None:
            continue
        if strategy is not None and strategy.type == ON_DELETE:
            what = "OnDelete has no rolling update"
            yield Fault(path, what, hint="leave it out, or use RollingRecreate")
        elif rolling.max_unavailable == (0, 0.0) and (rolling.max_surge or (0, 0.0)) == (0, 0.0):
            what = "with maxUnavailable 0 and maxSurge 0 nothing could ever be updated"
            yield Fault((*path, "maxUnavailable"), what, "one of them above 0")


def _mnnvl_faults(spec: SetManifest) -> Iterator[Fault]:
    for path, part in [(("metadata",), spec.metadata), *spec.spec.template.parts()]:
        group_name = (part.annotations or {}).get(MNNVL)
        if group_name is not None and not DNS_LABEL.fullmatch(group_name):
            what = f"{group_name!r} is not a DNS label"
            allowed = "small letters, digits and '-', or none"
            yield Fault((*path, "annotations", MNNVL), what, allowed)
