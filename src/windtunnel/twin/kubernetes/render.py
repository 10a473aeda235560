"""The tree of objects that a set would become: gangs, cliques, pods and related objects.

The controllers generate it on an empty cluster: it shows what they would create.
"""

from typing import Any, NamedTuple

from windtunnel.core.errors import InputError
from windtunnel.core.units import format_duration, format_size
from windtunnel.gangs import names
from windtunnel.gangs.api.load import NamedSet
from windtunnel.gangs.controllers.attachments import claims_of
from windtunnel.gangs.controllers.controller import Controller
from windtunnel.gangs.objects import PodClique, PodCliqueSet, PodGang, SetReplica
from windtunnel.gangs.pod_manifest import (
    attachment_manifest,
    clique_manifest,
    gang_manifest,
    group_manifest,
    pod_manifest,
)
from windtunnel.gangs.templates import OFF, CliqueTemplate, Pack, SetSpec
from windtunnel.gangs.view import View
from windtunnel.twin.kubernetes.api_server import ApiServer

MOST_DRAWN = 200_000
"""The most pods in a set replica that is drawn, or in a whole set that is printed or simulated."""

MOST_NAMED = 3
"""How many of several pods that differ only in their number are named."""


class Branch(NamedTuple):
    """A line of the tree, and the lines below it."""

    kind: str
    name: str
    about: str
    below: tuple["Branch", ...] = ()

    def as_json(self) -> dict[str, object]:
        plain: dict[str, object] = {"kind": self.kind, "name": self.name, "about": self.about}
        return {**plain, "below": [one.as_json() for one in self.below]} if self.below else plain


def planned(asked: NamedSet, levels: dict[str, dict[str, str]], replicas: int) -> View:
    """An empty cluster on which a set with this many replicas was created."""
    refuse_too_many(f"the set {asked.name}", replicas * pods_of(asked.spec))
    server = ApiServer()
    view = server.view
    view.levels.update(levels)
    server.add_set(asked.name, asked.spec, 0.0).replicas = replicas
    controller = Controller(view)
    while commands := controller.reconcile(0.0):
        for command in commands:
            server.apply(command, 0.0)
    return view


def manifests_of(asked: NamedSet, levels: dict[str, dict[str, str]]) -> list[dict[str, Any]]:
    """All objects that would be created for a set: related objects, gangs, groups, cliques, and
    pods last."""
    view = planned(asked, levels, asked.spec.replicas)
    owner = view.sets[asked.name]
    attached = (one for known in view.attachments.values() for one in known.values())
    found = [attachment_manifest(owner, one) for one in attached]
    found += [gang_manifest(owner, gang) for gang in view.gangs.values()]
    found += [group_manifest(owner, group) for group in view.groups.values()]
    for clique in view.cliques.values():
        above = view.owner_of(clique)
        assert above is not None
        found.append(clique_manifest(owner, above, clique))
    pods = sorted(view.pods.values(), key=lambda pod: (pod.clique, pod.index))
    return found + [pod_manifest(owner, view.cliques[pod.clique], pod) for pod in pods]


def tree_of(asked: NamedSet, levels: dict[str, dict[str, str]]) -> Branch:
    """The tree of a set. Its replicas are alike, so only the first is drawn."""
    view = planned(asked, levels, min(1, asked.spec.replicas))
    owner = view.sets[asked.name]
    below = [_replica(view, owner, owner.parts[0])] if owner.replicas else []
    more = asked.spec.replicas - 1
    if more > 0:
        rest = f"{names.base_gang(owner.name, 1)} to {names.base_gang(owner.name, more)}"
        alike = names.base_gang(owner.name, 1) if more == 1 else rest
        below.append(Branch("replica", alike, "the same again"))
    shared = owner.parts[-1].attachments.values() if -1 in owner.parts else []
    below += [Branch(one.kind, names.short(one.name), "") for one in shared]
    return Branch("PodCliqueSet", names.short(owner.name), _about_set(asked), tuple(below))


def refuse_too_many(whose: str, pods: int) -> None:
    """Raises InputError for too many pods, before any is created."""
    if pods > MOST_DRAWN:
        what = f"{whose} would have {pods:,} pods to show"
        raise InputError(what, allowed=f"up to {MOST_DRAWN:,}", hint="lower its replicas to see it")


def pods_of(spec: SetSpec) -> int:
    """The number of pods in one replica of a set."""
    alone = sum(one.replicas for one in spec.alone)
    return alone + sum(
        group.replicas * sum(spec.roles[role].replicas for role in group.roles)
        for group in spec.groups
    )


def _about_set(asked: NamedSet) -> str:
    spec = asked.spec
    said = [f"{spec.replicas} x {_several(pods_of(spec), 'pod')}", f"revision {spec.hash}"]
    if names.namespace(asked.name) != "default":
        said.insert(0, f"in {names.namespace(asked.name)}")
    said.append(f"update {spec.update.type}")
    delay = (
        "never" if spec.termination_delay_s == OFF else format_duration(spec.termination_delay_s)
    )
    said.append(f"terminated after {delay}" if delay != "never" else "never terminated")
    if spec.priority_class:
        said.append(f"priority {spec.priority_class}")
    return ", ".join(said)


def _replica(view: View, owner: PodCliqueSet, part: SetReplica) -> Branch:
    below = [_gang(view, owner, gang) for gang in part.gangs.values()]
    for group in part.groups.values():
        about = f"{_several(group.replicas, 'replica')} of {', '.join(group.members)}"
        about += f", at least {group.min_available}"
        below.append(Branch("PodCliqueScalingGroup", names.short(group.name), about))
    attached = part.attachments.values()
    below += [Branch(one.kind, names.short(one.name), "") for one in attached]
    base = names.short(names.base_gang(owner.name, 0))
    return Branch("replica", base, "", tuple(below))


def _gang(view: View, owner: PodCliqueSet, gang: PodGang) -> Branch:
    minimum = sum(group.min_replicas for group in gang.groups)
    total = sum(len(group.pods) for group in gang.groups)
    about = f"{minimum} of {total} pods are placed together"
    if gang.base:
        about += f", once {names.short(gang.base)} is"
    about += _packed(gang.pack)
    below = []
    within = {name: one for one in gang.pack_groups for name in one.pod_groups}
    for group in gang.groups:
        clique = view.cliques[group.name]
        around = within.get(group.name)
        closer = _packed(around.pack, f"all of {names.short(around.name)}") if around else ""
        below.append(_clique(owner, clique, _packed(group.pack) or closer))
    return Branch("PodGang", names.short(gang.name), about, tuple(below))


def _several(count: int, noun: str) -> str:
    return f"{count} {noun}{'' if count == 1 else 's'}"


def _packed(pack: Pack | None, whom: str = "") -> str:
    if pack is None:
        return ""
    said = ""
    if pack.required:
        said += f", in one {pack.required}"
    if pack.preferred:
        said += f", in one {pack.preferred} if it can be"
    return f"{said} ({whom})" if whom else said


def _clique(owner: PodCliqueSet, clique: PodClique, packed: str) -> Branch:
    about = f"{_several(clique.replicas, 'pod')}, at least {clique.min_available}{packed}"
    asks = asked_for(clique.template)
    if asks:
        about += f"; each {asks}"
    if clique.starts_after:
        parents = ", ".join(
            f"{count} of {names.short(name)}" for name, count in clique.starts_after
        )
        about += f"; starts after {parents} ready"
    pods = sorted(clique.pods.values(), key=lambda pod: pod.index)
    below = []
    for pod in pods[:MOST_NAMED]:
        claims = claims_of(owner.spec, pod)
        uses = f"claims {', '.join(names.short(claim) for claim in claims)}" if claims else ""
        below.append(Branch("Pod", names.host(clique.name, pod.index), uses))
    if len(pods) > MOST_NAMED:
        last = names.host(clique.name, pods[-1].index)
        below.append(Branch("Pod", f"... {last}", f"{len(pods) - MOST_NAMED} more"))
    return Branch("PodClique", names.short(clique.name), about, tuple(below))


def asked_for(template: CliqueTemplate) -> str:
    """The resource requests of a pod, in readable form."""
    said = []
    for resource, amount in template.requests.items():
        shown = (
            format_size(amount) if resource in ("memory", "ephemeral-storage") else f"{amount:g}"
        )
        said.append(f"{shown} {resource}")
    return ", ".join(said)


def lines_of(branch: Branch) -> list[str]:
    """The tree as text."""
    return [_line(branch), *_below(branch, "")]


def _below(branch: Branch, indent: str) -> list[str]:
    lines = []
    for number, one in enumerate(branch.below):
        last = number == len(branch.below) - 1
        lines.append(f"{indent}{'└─' if last else '├─'} {_line(one)}")
        lines += _below(one, indent + ("   " if last else "│  "))
    return lines


def _line(branch: Branch) -> str:
    return f"{branch.kind} {branch.name}" + (f": {branch.about}" if branch.about else "")
