"""The rules of topology constraints: known topology, known domains, no parent narrower than a
child."""

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from windtunnel.core.errors import nearest
from windtunnel.gangs.api.set_spec import (
    TEMPLATE,
    CliqueTemplateSpec,
    GroupTemplateSpec,
    SetTemplateSpec,
    TopologySpec,
)
from windtunnel.settings.document import KeyPath
from windtunnel.settings.faults import Fault

Levels = Mapping[str, Mapping[str, str]]
"""Topologies by name, each mapping a domain to its node label key, broadest first."""

PLACE = "topologyConstraint"


class Placed(NamedTuple):
    """A constraint, its path, and the enclosing constraints, nearest first."""

    constraint: TopologySpec
    path: KeyPath
    above: tuple[TopologySpec, ...]


def placed_constraints(template: SetTemplateSpec) -> list[Placed]:
    """Lists all constraints of a set: its own, those of groups, those of cliques."""
    found = []
    whole = template.topology_constraint
    top = (whole,) if whole is not None else ()
    if whole is not None:
        found.append(Placed(whole, (*TEMPLATE, PLACE), ()))
    over: dict[str, tuple[TopologySpec, ...]] = {}
    for path, part in template.parts():
        constraint = part.topology_constraint
        around = over.get(part.name, top) if isinstance(part, CliqueTemplateSpec) else top
        if constraint is not None:
            found.append(Placed(constraint, (*path, PLACE), around))
        if isinstance(part, GroupTemplateSpec):
            above = top if constraint is None else (constraint, *top)
            over.update(dict.fromkeys(part.clique_names, above))
    return found


def topology_of(placed: Placed) -> str:
    """Returns the topology's name: the constraint's own, or that of the nearest enclosing one."""
    names = [one.topology_name for one in (placed.constraint, *placed.above) if one.topology_name]
    return names[0] if names else ""


def topology_faults(template: SetTemplateSpec, levels: Levels | None, *, new: bool) -> list[Fault]:
    """Lists the faults of topology constraints; with `levels`, also names that the cluster does not
    have, and constraints broader than an enclosing one."""
    placed = placed_constraints(template)
    faults = [fault for one in placed for fault in _form_faults(one, new=new)]
    names = [topology_of(one) for one in placed]
    for one, name in zip(placed, names, strict=True):
        if not name and new:
            what = "it does not say which topology its domains belong to"
            hint = "name a ClusterTopologyBinding here or above"
            faults.append(Fault((*one.path, "topologyName"), what, hint=hint))
        elif name and names[0] and name != names[0]:
            what = f"the topology is {name!r} here and {names[0]!r} elsewhere in the set"
            faults.append(Fault((*one.path, "topologyName"), what, "one topology for a set"))
    if levels is not None and not faults:
        for one, name in zip(placed, names, strict=True):
            if name:
                faults += _level_faults(one, name, levels)
    return faults


def _form_faults(placed: Placed, *, new: bool) -> Iterator[Fault]:
    constraint, path = placed.constraint, placed.path
    if constraint.pack is None and constraint.pack_domain is None:
        yield Fault((*path, "pack"), "missing", "required, preferred or both")
    if constraint.pack is not None and not (constraint.pack.required or constraint.pack.preferred):
        yield Fault((*path, "pack"), "it is empty", "required, preferred or both")
    if constraint.pack is not None and constraint.pack.required and constraint.pack_domain:
        what = "packDomain is the old form of pack.required, and both are set"
        yield Fault((*path, "packDomain"), what, hint="leave packDomain out")
    elif constraint.pack_domain and new:
        what = "packDomain is refused for new sets"
        hint = f"write pack: {{required: {constraint.pack_domain}}}"
        yield Fault((*path, "packDomain"), what, hint=hint)


def _level_faults(placed: Placed, name: str, levels: Levels) -> Iterator[Fault]:
    topology = levels.get(name)
    if topology is None:
        what = f"there is no ClusterTopologyBinding {name!r}"
        allowed = ", ".join(levels) or None
        yield Fault((*placed.path, "topologyName"), what, allowed, nearest(name, levels))
        return
    domains = list(topology)
    wanted = {
        "required": placed.constraint.required,
        "preferred": placed.constraint.preferred,
    }
    for key, domain in wanted.items():
        path = (*placed.path, "pack", key)
        if domain and domain not in topology:
            what = f"the topology {name!r} has no level {domain!r}"
            yield Fault(path, what, ", ".join(domains), nearest(domain, domains))
        elif domain:
            for parent in placed.above:
                above = parent.required if key == "required" else parent.preferred
                if above in topology and domains.index(above) > domains.index(domain):
                    what = f"{domain!r} is broader than {above!r} of an enclosing constraint"
                    yield Fault(path, what, f"{above} or narrower")
                    break


def topology_warnings(template: SetTemplateSpec, levels: Levels) -> list[str]:
    """Warns of topologies that the file does not define, and of preferences broader than what is
    required, which have no effect."""
    named = {topology_of(one): None for one in placed_constraints(template)}
    said = [
        f"the topology {name!r} is not in the file, so its levels are not checked"
        for name in named
        if name not in levels
    ]
    for one in placed_constraints(template):
        domains = list(levels.get(topology_of(one), {}))
        required, preferred = one.constraint.required, one.constraint.preferred
        if required not in domains or preferred not in domains:
            continue
        if domains.index(preferred) < domains.index(required):
            what = f"the preferred domain {preferred!r} is broader than the required {required!r}"
            said.append(f"{what}, so it changes nothing")
    return said
