"""The contents of a set replica: the cliques, scaling groups and gangs that should exist.

The guaranteed minimum of a replica is its base gang. Every replica of a scaling group above the
group's minimum is a scaled gang of its own, so elastic replicas never endanger the guaranteed ones.
"""

from typing import Final

from windtunnel.gangs import names
from windtunnel.gangs.commands import Command, Create
from windtunnel.gangs.controllers.startup import starts_after
from windtunnel.gangs.controllers.termination import incarnation_of
from windtunnel.gangs.objects import Owned, PodClique, PodCliqueSet, PodGang, ScalingGroup
from windtunnel.gangs.templates import (
    CliquePlace,
    CliqueTemplate,
    GroupTemplate,
    Pack,
    PackDomains,
    PackGroup,
    PodGroup,
)
from windtunnel.gangs.view import View


class Outline:
    """The names in a set replica, computed once."""

    def __init__(self, owner: PodCliqueSet, replica: int) -> None:
        name, spec = owner.name, owner.spec
        self.replica: Final = replica
        self.base: Final = names.base_gang(name, replica)
        self.service: Final = f"Service/{self.base}"
        self.cliques: Final = [
            (clique.name, names.clique(name, replica, clique.name)) for clique in spec.alone
        ]
        """The standalone cliques: role and full name."""
        self.groups: Final = [
            (group, names.group(name, replica, group.name)) for group in spec.groups
        ]
        self._scaled: Final[dict[str, list[str]]] = {}  # by group

    def scaled_gangs(self, template: GroupTemplate, group: str, extent: int) -> list[str]:
        """Returns the scaled gangs of a group with `extent` replicas, without the base gang."""
        known, least = self._scaled.setdefault(group, []), template.min_available
        for index in range(least + len(known), extent):
            known.append(names.scaled_gang(group, index, least))
        return known[: max(0, extent - least)]


def create(view: View, owner: PodCliqueSet, thing: Owned, commands: list[Command]) -> str:
    """Adds a create command; if another owner has an object of that name, describes that instead.

    Names of different sets can collide: `a-0-b` of replica 0 of `a`, and replica 0 of a set
    `a-0-b`. An object of the same set that is being deleted must be gone first.
    """
    found = view.find(thing.kind, thing.name)
    if found is None:
        commands.append(Create(thing))
        return ""
    assert isinstance(found, Owned)
    if found.set_name == owner.name and (found.terminating or found.owner_uid != thing.owner_uid):
        return ""
    whose = f"belongs to the set {found.set_name}"
    if not found.set_name:
        whose = "was not created by this operator"
    return f"{thing.kind} {thing.name} {whose}"


def new_clique(
    owner: PodCliqueSet, outline: Outline, name: str, template: CliqueTemplate, replicas: int
) -> PodClique:
    """Builds a standalone clique."""
    replica = outline.replica
    after = starts_after(owner.spec, owner.name, replica, template.name)
    incarnation = incarnation_of(owner, replica, None, -1)
    place = CliquePlace(owner.name, replica, outline.base)
    made = PodClique(name, place, template, replicas, after, incarnation)
    made.owner_uid = owner.uid
    return made


def new_member(
    owner: PodCliqueSet, group: ScalingGroup, group_replica: int, template: CliqueTemplate
) -> PodClique:
    """Builds a clique of one scaling group replica."""
    base = names.base_gang(owner.name, group.replica)
    scaled = group_replica >= group.min_available
    gang = names.scaled_gang(group.name, group_replica, group.min_available) if scaled else base
    after = starts_after(owner.spec, owner.name, group.replica, template.name, group_replica)
    place = CliquePlace(
        owner.name, group.replica, gang, base if scaled else "", group.name, group_replica
    )
    name = names.member(group.name, group_replica, template.name)
    incarnation = incarnation_of(owner, group.replica, group, group_replica)
    made = PodClique(name, place, template, template.replicas, after, incarnation)
    made.owner_uid = group.uid
    return made


def new_group(owner: PodCliqueSet, replica: int, template: GroupTemplate) -> ScalingGroup:
    name = names.group(owner.name, replica, template.name)
    made = ScalingGroup(name, owner.name, replica, template)
    made.owner_uid = owner.uid
    return made


def group_replicas(view: View, name: str, template: GroupTemplate) -> int:
    """Returns the replicas of a group: its live scale, or its template's before it exists."""
    group = view.groups.get(name)
    return template.replicas if group is None else group.replicas


def in_base(template: GroupTemplate, replicas: int) -> int:
    """Returns how many replicas of a group the base gang waits for: none if scaled to zero.

    A scale below the minimum that got past validation still counts as the minimum: there is no half
    gang.
    """
    return 0 if replicas == 0 else template.min_available


def extent(view: View, name: str, template: GroupTemplate) -> int:
    """Returns the replicas of a group that exist or should; some above its scale may be
    terminating."""
    group = view.groups.get(name)
    return template.replicas if group is None else max(group.replicas, group.extent)


def scaled_of(view: View, outline: Outline, gang: str) -> tuple[GroupTemplate, int] | None:
    """Returns the group and replica of a scaled gang, or None if the gang should not exist."""
    for template, name in outline.groups:
        number = gang[len(name) + 1 :]
        if gang.startswith(f"{name}-") and number.isdigit():
            index = template.min_available + int(number)
            return (template, index) if index < extent(view, name, template) else None
    return None


def pod_groups(
    view: View, owner: PodCliqueSet, outline: Outline, scaled: tuple[GroupTemplate, int] | None
) -> list[PodGroup]:
    """Returns the pod groups of a gang, without their pods.

    A role that was scaled to zero requires nothing, so that it does not hold up its gang.
    """
    spec, found = owner.spec, []
    if scaled is not None:
        template, index = scaled
        name = names.group(owner.name, outline.replica, template.name)
        return [_member_group(view, owner, name, index, role) for role in template.roles]
    for role, name in outline.cliques:
        clique = spec.roles[role]
        live = view.cliques.get(name)
        minimum = clique.min_available
        if live is not None and live.replicas == 0:
            minimum = 0
        found.append(PodGroup(name, minimum, pack_of(view, clique.pack)))
    for template, name in outline.groups:
        for index in range(in_base(template, group_replicas(view, name, template))):
            found += [_member_group(view, owner, name, index, role) for role in template.roles]
    return found


def _member_group(view: View, owner: PodCliqueSet, group: str, index: int, role: str) -> PodGroup:
    clique = owner.spec.roles[role]
    name = names.member(group, index, role)
    return PodGroup(name, clique.min_available, pack_of(view, clique.pack))


def pack_of(view: View, domains: PackDomains | None) -> Pack | None:
    """Translates a constraint into node label keys; domains that the cluster does not have are
    dropped."""
    if domains is None:
        return None
    levels = view.levels.get(domains.topology)
    if levels is None:
        return None
    required = levels.get(domains.required, "")
    preferred = levels.get(domains.preferred, "")
    return Pack(required, preferred) if required or preferred else None


def new_gang(
    view: View,
    owner: PodCliqueSet,
    outline: Outline,
    name: str,
    scaled: tuple[GroupTemplate, int] | None,
) -> PodGang:
    """Builds a gang that refers to no pods yet."""
    spec = owner.spec
    gang = PodGang(name, owner.name, outline.replica, "" if scaled is None else outline.base)
    gang.owner_uid = owner.uid
    gang.groups = tuple(pod_groups(view, owner, outline, scaled))
    gang.priority_class = spec.priority_class
    gang.scheduler = spec.cliques[0].scheduler
    gang.topology = spec.packs[0].topology if spec.packs else ""
    if scaled is not None:
        gang.pack = pack_of(view, scaled[0].pack or spec.pack)
        return gang
    gang.pack = pack_of(view, spec.pack)
    packed = []
    for template, group in outline.groups:
        pack = pack_of(view, template.pack)
        if pack is None:
            continue
        for index in range(in_base(template, group_replicas(view, group, template))):
            members = tuple(names.member(group, index, role) for role in template.roles)
            packed.append(PackGroup(f"{group}-{index}", members, pack))
    gang.pack_groups = tuple(packed)
    return gang
