"""The controller of one clique: its status, and which pods to create, delete or ungate."""

from windtunnel.gangs.commands import Command, CreatePod, Delete, PatchStatus, Ungate
from windtunnel.gangs.controllers import conditions
from windtunnel.gangs.controllers.gates import GatedPod, held
from windtunnel.gangs.controllers.rollout import allowance, has_turn, surge, takeable, unavailable
from windtunnel.gangs.objects import PENDING, UNKNOWN, Pod, PodClique, PodCliqueSet
from windtunnel.gangs.statuses import CliqueStatus
from windtunnel.gangs.templates import COHERENT
from windtunnel.gangs.view import View


def observe(owner: PodCliqueSet, clique: PodClique, now_s: float, commands: list[Command]) -> bool:
    """Counts the pods of a clique, adds status commands, and returns whether its pods need action.

    The status is written last: until it is written, the conditions are computed again.
    """
    before, tally = clique.status, clique.tally
    minimum = clique.needed
    if _is_written(owner, clique, before, minimum):
        return tally.ended > 0 or tally.gated > 0 or tally.active != clique.replicas
    status, lost = made_status(owner, clique, now_s)
    if before != status:
        if lost:
            conditions.report_loss(clique, "pod", status.losses, now_s, commands)
        fit = status.scheduled - status.erroneous - status.unready
        says = conditions.breach(clique, status, fit)
        conditions.put(commands, clique, conditions.BREACHED, says, now_s)
        says = conditions.clique_scheduled(clique, status.scheduled)
        conditions.put(commands, clique, conditions.CLIQUE_SCHEDULED, says, now_s)
        commands.append(PatchStatus(clique, status))
    return (
        tally.ended > 0
        or status.gated > 0
        or status.replicas != clique.replicas
        or (status.updating and not owner.spec.update.paused)
    )


def made_status(owner: PodCliqueSet, clique: PodClique, now_s: float) -> tuple[CliqueStatus, bool]:
    """Returns the observed status of a clique, and whether it has just lost all scheduled pods."""
    before, tally = clique.status, clique.tally
    minimum = clique.needed
    status = CliqueStatus(
        replicas=tally.active,
        updated=tally.updated,
        scheduled=tally.scheduled,
        ready=tally.ready,
        updated_ready=tally.updated_ready,
        gated=tally.gated,
        erroneous=tally.erroneous,
        unready=tally.unready,
    )
    status.first_ready_s = before.first_ready_s
    if status.first_ready_s < 0.0 and 0 < minimum <= status.ready:
        status.first_ready_s = now_s
    complete = status.updated == status.replicas == clique.replicas
    conditions.follow_update(
        owner,
        before,
        status,
        status.ready,
        now_s,
        turn=not clique.group and has_turn(owner, clique.replica),
        old=status.updated < status.replicas,
        done=complete and status.updated_ready >= minimum,
    )
    lost = conditions.follow_parts(owner, clique, status, now_s)
    return status, lost


def _is_written(owner: PodCliqueSet, clique: PodClique, before: CliqueStatus, minimum: int) -> bool:
    """Whether the status already matches what is observed, without building a new one: after a
    restart, most do."""
    tally = clique.tally
    return (
        before.scheduled == tally.scheduled
        and before.ready == tally.ready
        and before.replicas == tally.active == before.updated == tally.updated
        and before.updated_ready == tally.updated_ready
        and before.gated == tally.gated
        and before.erroneous == tally.erroneous
        and before.unready == tally.unready
        and (before.first_ready_s >= 0.0 or not 0 < minimum <= tally.ready)
        and conditions.is_followed(owner, clique, before)
    )


def act(view: View, owner: PodCliqueSet, clique: PodClique, commands: list[Command]) -> None:
    """Adds commands to create missing pods, delete surplus pods, and ungate those that may be
    scheduled."""
    for pod in _in_turn(clique.pod_index.ended):
        why = f"it has {pod.phase.lower()}"
        commands.append(Delete(pod, why))
    gone: dict[str, Pod] = {}
    for pod, why in _doomed(owner, clique):
        commands.append(Delete(pod, why))
        gone[pod.name] = pod
    missing = _wanted(owner, clique, gone) - (clique.tally.active - len(gone))
    if missing > 0:
        free = clique.pod_index.free_indices(missing, gone.values())
        commands += [CreatePod(clique, index) for index in free]
    _let_through(view, clique, gone, commands)


def _in_turn(pods: dict[str, Pod]) -> list[Pod]:
    return sorted(pods.values(), key=lambda pod: pod.turn)


def _wanted(owner: PodCliqueSet, clique: PodClique, gone: dict[str, Pod]) -> int:
    """Returns the number of pods to have; above `replicas` while an update surges."""
    if not clique.status.updating or owner.spec.update.paused:
        return clique.replicas
    extra = surge(owner, clique.template.rolling, clique.replicas)
    if extra == 0:
        return clique.replicas
    old, above = clique.tally.active - clique.tally.updated, clique.pod_index.above(clique.replicas)
    for pod in gone.values():
        old -= pod.template_hash != clique.template.hash
        above -= pod.index >= clique.replicas
    # Pods with higher indices go last, when the lower ones are taken: indices have no holes.
    return clique.replicas + min(extra, max(old, above))


def _doomed(owner: PodCliqueSet, clique: PodClique) -> list[tuple[Pod, str]]:
    """Returns the pods to delete, each with the reason."""
    doomed: list[tuple[Pod, str]] = []
    if clique.status.updating and not owner.spec.update.paused:
        doomed = [(pod, "its pod template is outdated") for pod in _outdated(owner, clique)]
    gone = {pod.name: pod for pod, _ in doomed}
    excess = clique.tally.active - len(gone) - _wanted(owner, clique, gone)
    if excess > 0:
        current = clique.template.hash
        staying = [pod for pod in clique.pods.values() if pod.active and pod.name not in gone]
        victims = sorted(staying, key=lambda pod: victim_order(pod, current))[:excess]
        doomed += [(pod, "there are more pods than replicas") for pod in victims]
    elif not gone and clique.status.updating:
        doomed += _surplus(owner, clique)
    return doomed


def victim_order(pod: Pod, current_hash: str) -> tuple[bool, int, bool, bool, float, int]:
    """Sort key for scale-down: pods that serve least go first, then old revisions."""
    phase = 0 if pod.phase == PENDING else 1 if pod.phase == UNKNOWN else 2
    return (
        pod.node != "",
        phase,
        pod.ready,
        pod.template_hash == current_hash,
        -pod.created_s,
        -pod.index,
    )


def _takeable(owner: PodCliqueSet, clique: PodClique) -> int:
    """Returns how many serving pods may be taken down now."""
    replicas, minimum = clique.replicas, clique.min_available
    down = unavailable(owner, clique.template.rolling, replicas, minimum)
    return takeable(clique.tally.ready, clique.status.update_peak, replicas, minimum, down)


def _outdated(owner: PodCliqueSet, clique: PodClique) -> list[Pod]:
    """Returns the old pods to replace now: those that are not ready, then the oldest ready ones."""
    tally, pod_index = clique.tally, clique.pod_index
    if tally.updated == tally.active:
        return []
    taken = _in_turn(pod_index.old_unready)
    serving = pod_index.old_ready[: _takeable(owner, clique)]
    taken += [clique.pods[name] for _, _, name in serving]
    if owner.spec.update.type == COHERENT:
        above = max(0, tally.active - clique.replicas)  # a surge pod does not count as moved
        moved = max(0, tally.updated - above)
        return taken[: max(0, allowance(owner, clique.replica, clique.role) - moved)]
    return taken


def _surplus(owner: PodCliqueSet, clique: PodClique) -> list[tuple[Pod, str]]:
    """Returns pods above `replicas` once no old pod is left and the pods below are ready."""
    above = clique.tally.active - clique.replicas
    if above <= 0 or clique.tally.updated < clique.tally.active:
        return []
    count = min(above, _takeable(owner, clique))
    last = clique.pod_index.indices[::-1][:count]
    return [
        (clique.pods[name], "the update needs no more pods than replicas") for _, _, name in last
    ]


def _let_through(
    view: View, clique: PodClique, gone: dict[str, Pod], commands: list[Command]
) -> None:
    if not clique.pod_index.held:
        return
    verdict: GatedPod = held(view, clique)
    if verdict.why:
        return
    commands += [
        Ungate(pod)
        for pod in _in_turn(clique.pod_index.held)
        if pod.name in verdict.referred and pod.name not in gone
    ]
