"""The rules of shared resource claims."""

from collections.abc import Iterator

from windtunnel.core.errors import nearest
from windtunnel.gangs.api.set_spec import TEMPLATE, GroupTemplateSpec, SetTemplateSpec, SharingSpec
from windtunnel.settings.document import KeyPath
from windtunnel.settings.faults import Fault


def sharing_faults(template: SetTemplateSpec) -> Iterator[Fault]:
    """Lists the faults of claim templates and of claim sharing."""
    groups = template.groups
    inside = {role for group in groups for role in group.clique_names}
    alone = [clique.name for clique in template.cliques if clique.name not in inside]
    inline = [claim.name for claim in template.resource_claim_templates or []]
    yield from _claim_faults(template)
    path: KeyPath = (*TEMPLATE, "resourceSharing")
    names = [group.name for group in groups]
    yield from _list_faults(template.resource_sharing, path, inline, alone, names)
    for path, part in template.parts():
        within = part.clique_names if isinstance(part, GroupTemplateSpec) else None
        yield from _list_faults(
            part.resource_sharing, (*path, "resourceSharing"), inline, within, None
        )


def _claim_faults(template: SetTemplateSpec) -> Iterator[Fault]:
    seen: set[str] = set()
    for number, claim in enumerate(template.resource_claim_templates or []):
        path: KeyPath = (*TEMPLATE, "resourceClaimTemplates", number)
        if not claim.name:
            yield Fault((*path, "name"), "the name is empty")
        elif claim.name in seen:
            what = f"there is another claim template named {claim.name!r}"
            yield Fault((*path, "name"), what, "unique names")
        seen.add(claim.name)
        spec = claim.template_spec.get("spec")
        devices = spec.get("devices") if isinstance(spec, dict) else None
        requests = devices.get("requests") if isinstance(devices, dict) else None
        if not isinstance(requests, list) or not requests:
            what = "the claim requests no device"
            allowed = "at least one item in spec.devices.requests"
            yield Fault((*path, "templateSpec"), what, allowed)


def _list_faults(
    sharing: list[SharingSpec] | None,
    path: KeyPath,
    inline: list[str],
    cliques: list[str] | None,
    groups: list[str] | None,
) -> Iterator[Fault]:
    """Lists the faults of one list; its filter may name `cliques` and `groups` of this level."""
    seen: set[str] = set()
    for number, entry in enumerate(sharing or []):
        here = (*path, number)
        if not entry.name:
            yield Fault((*here, "name"), "the name is empty")
        elif entry.name in seen:
            yield Fault((*here, "name"), f"{entry.name!r} is there twice")
        seen.add(entry.name)
        if entry.namespace and entry.name in inline:
            what = f"{entry.name!r} is a claim template of this set, and has no namespace"
            yield Fault((*here, "namespace"), what, hint="leave it out")
        if entry.filter is not None:
            yield from _filter_faults(entry, (*here, "filter"), cliques, groups)


def _filter_faults(
    entry: SharingSpec, path: KeyPath, cliques: list[str] | None, groups: list[str] | None
) -> Iterator[Fault]:
    chosen = entry.filter
    assert chosen is not None
    if cliques is None:
        yield Fault(path, "a clique has no parts to choose from", hint="leave it out")
        return
    if not chosen.child_clique_names and not chosen.child_scaling_group_names:
        what = "the filter selects nothing"
        allowed = "at least one name of a clique or a group"
        yield Fault(path, what, allowed, hint="leave it out to select all")
    if chosen.child_scaling_group_names and groups is None:
        what = "a scaling group has no groups in it"
        yield Fault((*path, "childScalingGroupNames"), what, hint="leave it out")
    known = {"childCliqueNames": cliques, "childScalingGroupNames": groups or []}
    named = {
        "childCliqueNames": chosen.child_clique_names or [],
        "childScalingGroupNames": (chosen.child_scaling_group_names or []) if groups else [],
    }
    for key, names in named.items():
        for number, name in enumerate(names):
            if name not in known[key]:
                what = f"there is no {name!r} at this level"
                known_here = ", ".join(known[key]) or None
                hint = nearest(name, known[key])
                yield Fault((*path, key, number), what, known_here, hint)
