"""What a set replica consists of: the cliques, scaling groups and gangs that ought to exist.

The guaranteed minimum of a replica is its base gang; every replica of a scaling group above the
group's minimum is a scaled gang of its own, so what is elastic never endangers what is guaranteed.
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
    """The names of a set replica, worked out once."""

    def __init__(self, owner: PodCliqueSet, replica: int) -> None:
        name, spec = owner.name, owner.spec
        self.replica: Final = replica
        self.base: Final = names.base_gang(name, replica)
        self.service: Final = f"Service/{self.base}"
        self.cliques: Final = [
            (clique.name, names.clique(name, replica, clique.name)) for clique in spec.alone
        ]
        """The cliques that stand alone: role and full name."""
        self.groups: Final = [
            (group, names.group(name, replica, group.name)) for group in spec.groups
        ]
        self._scaled: Final[dict[str, list[str]]] = {}  # by group

    def scaled_gangs(self, template: GroupTemplate, group: str, extent: int) -> list[str]:
        """The gangs of a scaling group that has so many replicas, without the base gang."""
        known, least = self._scaled.setdefault(group, []), template.min_available
        for index in range(least + len(known), extent):
            known.append(names.scaled_gang(group, index, least))
        return known[: max(0, extent - least)]


def create(view: View, owner: PodCliqueSet, thing: Owned, commands: list[Command]) -> str:
    """Adds the command that creates an object; the answer is whose one of its name already is.

    Names of different sets can meet: `a-0-b` of replica 0 of `a`, and replica 0 of a set `a-0-b`.
    An object of the same set that is being deleted has to be gone first.
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
    """A clique that stands alone."""
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
    """A clique of one replica of a scaling group."""
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
    """How many replicas a group has: its live scale, or its template's before it exists."""
    group = view.groups.get(name)
    return template.replicas if group is None else group.replicas


def in_base(template: GroupTemplate, replicas: int) -> int:
    """How many replicas of a group the base gang waits for; of one that was scaled to zero, none.

    Also where it was scaled below its minimum, past what refuses that: there is no half of a gang.
    """
    return 0 if replicas == 0 else template.min_available


def extent(view: View, name: str, template: GroupTemplate) -> int:
    """Replicas of a group that exist or ought to; some above its scale may be on their way out."""
    group = view.groups.get(name)
    return template.replicas if group is None else max(group.replicas, group.extent)


def scaled_of(view: View, outline: Outline, gang: str) -> tuple[GroupTemplate, int] | None:
    """Whose a scaled gang is and which replica of it; None for one that ought not to exist."""
    for template, name in outline.groups:
        number = gang[len(name) + 1 :]
        if gang.startswith(f"{name}-") and number.isdigit():
            index = template.min_available + int(number)
            return (template, index) if index < extent(view, name, template) else None
    return None


def pod_groups(
    view: View, owner: PodCliqueSet, outline: Outline, scaled: tuple[GroupTemplate, int] | None
) -> list[PodGroup]:
    """The pod groups of a gang, without their pods.

    What was scaled to zero asks for nothing: a sleeping role does not hold up its gang.
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
    """A constraint in keys of node labels; a domain that the cluster does not have is left out."""
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
    """A gang that refers to no pods yet."""
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
