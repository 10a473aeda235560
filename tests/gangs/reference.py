"""The controllers of a clique and of a scaling group that look at all pods and all replicas.

This is what is easiest to see to be right; the real ones look at what changed.
"""

from windtunnel.gangs.commands import Command, CreatePod, Delete, Ungate
from windtunnel.gangs.controllers.cliques import victim_order
from windtunnel.gangs.controllers.gates import held
from windtunnel.gangs.controllers.generation import create, new_member
from windtunnel.gangs.controllers.rollout import (
    allowance,
    has_turn,
    is_old,
    surge,
    takeable,
    target,
    unavailable,
)
from windtunnel.gangs.controllers.termination import is_condemned, template_of
from windtunnel.gangs.objects import GATE, Pod, PodClique, PodCliqueSet, ScalingGroup
from windtunnel.gangs.templates import COHERENT
from windtunnel.gangs.view import View

Doomed = list[tuple[Pod, str]]


def act(view: View, owner: PodCliqueSet, clique: PodClique) -> list[Command]:
    everyone = list(clique.pods.values())
    ended = [pod for pod in everyone if not pod.active and not pod.terminating]
    commands: list[Command] = [Delete(pod, f"it has {pod.phase.lower()}") for pod in ended]
    active = [pod for pod in everyone if pod.active]
    doomed = _doomed(owner, clique, active)
    commands += [Delete(pod, why) for pod, why in doomed]
    staying = _without(active, doomed)
    missing = _wanted(owner, clique, staying) - len(staying)
    taken = {pod.index for pod in staying}
    free = [index for index in range(len(staying) + max(0, missing)) if index not in taken]
    commands += [CreatePod(clique, index) for index in free[: max(0, missing)]]
    verdict = held(view, clique)
    if not verdict.why:
        gated = [pod for pod in staying if GATE in pod.gates and pod.name in verdict.referred]
        commands += [Ungate(pod) for pod in gated]
    return commands


def _without(pods: list[Pod], doomed: Doomed) -> list[Pod]:
    gone = [pod.name for pod, _ in doomed]
    return [pod for pod in pods if pod.name not in gone]


def _wanted(owner: PodCliqueSet, clique: PodClique, active: list[Pod]) -> int:
    extra = surge(owner, clique.template.rolling, clique.replicas)
    if not clique.status.updating or owner.spec.update.paused or extra == 0:
        return clique.replicas
    old = [pod for pod in active if pod.template_hash != clique.template.hash]
    above = [pod for pod in active if pod.index >= clique.replicas]
    return clique.replicas + min(extra, max(len(old), len(above)))


def _doomed(owner: PodCliqueSet, clique: PodClique, active: list[Pod]) -> Doomed:
    doomed: Doomed = []
    if clique.status.updating and not owner.spec.update.paused:
        doomed = [(pod, "its pod template is outdated") for pod in _outdated(owner, clique, active)]
    staying = _without(active, doomed)
    excess = len(staying) - _wanted(owner, clique, staying)
    if excess > 0:
        ordered = sorted(staying, key=lambda pod: victim_order(pod, clique.template.hash))
        doomed += [(pod, "there are more pods than replicas") for pod in ordered[:excess]]
    elif not doomed and clique.status.updating:
        doomed = _surplus(owner, clique, staying)
    return doomed


def _takeable(owner: PodCliqueSet, clique: PodClique, active: list[Pod]) -> int:
    replicas, minimum = clique.replicas, clique.min_available
    down = unavailable(owner, clique.template.rolling, replicas, minimum)
    ready = sum(pod.ready for pod in active)
    return takeable(ready, clique.status.update_peak, replicas, minimum, down)


def _outdated(owner: PodCliqueSet, clique: PodClique, active: list[Pod]) -> list[Pod]:
    old = [pod for pod in active if pod.template_hash != clique.template.hash]
    serving = sorted((pod for pod in old if pod.ready), key=lambda pod: (pod.created_s, pod.index))
    taken = [pod for pod in old if not pod.ready]
    taken += serving[: _takeable(owner, clique, active)]
    if owner.spec.update.type == COHERENT:
        above = max(0, len(active) - clique.replicas)
        moved = max(0, len(active) - len(old) - above)
        return taken[: max(0, allowance(owner, clique.replica, clique.role) - moved)]
    return taken


def _surplus(owner: PodCliqueSet, clique: PodClique, active: list[Pod]) -> Doomed:
    above = len(active) - clique.replicas
    if above <= 0 or any(pod.template_hash != clique.template.hash for pod in active):
        return []
    count = min(above, _takeable(owner, clique, active))
    last = sorted(active, key=lambda pod: -pod.index)[:count]
    return [(pod, "the update needs no more pods than replicas") for pod in last]


# A scaling group.


def act_on_group(view: View, owner: PodCliqueSet, group: ScalingGroup) -> list[Command]:
    extent, commands = _extent(owner, group), list[Command]()
    kept = [index for index in sorted(group.cliques) if index < extent]
    for index in sorted(group.cliques):
        if index >= extent:
            why = "its scaling group has fewer replicas"
            commands += [Delete(clique, why) for clique in group.cliques[index].values()]
    going = []
    for index in sorted(group.cliques):
        for clique in group.cliques[index].values():
            if is_condemned(owner, group, clique):
                commands.append(Delete(clique, "its gang is terminated"))
                going.append(index)
    taken: list[int] = []
    if group.status.updating and not owner.spec.update.paused:
        taken = _old_replicas(owner, group, kept)
    for index in taken:
        members = list(group.cliques[index].values())
        newest = [one for one in members if one.template.hash == owner.spec.roles[one.role].hash]
        if index not in going:
            commands += [
                Delete(clique, "its pod template is outdated") for clique in newest or members
            ]
    for index in range(extent):
        for role in group.members if index not in taken else []:
            if role not in group.cliques.get(index, {}):
                made = new_member(owner, group, index, target(owner, group.replica, role))
                create(view, owner, made, commands)
    return commands


def _is_whole(group: ScalingGroup, index: int) -> bool:
    return len(group.cliques.get(index, {})) == len(group.members)


def _is_fit(group: ScalingGroup, index: int) -> bool:
    members = group.cliques.get(index, {}).values()
    return all(clique.status.ready >= clique.min_available for clique in members)


def _extent(owner: PodCliqueSet, group: ScalingGroup) -> int:
    replicas = group.replicas
    extra = surge(owner, template_of(owner, group).rolling, replicas)
    if replicas == 0 or not has_turn(owner, group.replica) or extra == 0:
        return replicas
    whole = [index for index in range(replicas) if _is_whole(group, index)]
    old = [index for index in whole if is_old(owner, group.cliques[index])]
    if old:
        return replicas + min(extra, len(old))
    if sum(_is_fit(group, index) for index in whole) == replicas or not group.cliques:
        return replicas
    return max(replicas, min(replicas + extra, max(group.cliques) + 1))


def _old_replicas(owner: PodCliqueSet, group: ScalingGroup, kept: list[int]) -> list[int]:
    old = [index for index in kept if is_old(owner, group.cliques[index])]
    fit = [index for index in kept if _is_whole(group, index) and _is_fit(group, index)]
    own, replicas = template_of(owner, group).rolling, group.replicas
    down = unavailable(owner, own, replicas, group.min_available)
    count = takeable(len(fit), group.status.update_peak, replicas, group.min_available, down)
    taken = [index for index in old if index not in fit]
    taken += [index for index in old if index in fit][:count]
    if owner.spec.update.type == COHERENT:
        whole = [index for index in kept if index < replicas and _is_whole(group, index)]
        moved = [index for index in whole if index not in old]
        return taken[: max(0, allowance(owner, group.replica, group.short) - len(moved))]
    return taken
