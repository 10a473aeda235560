"""The controller of one clique: what its pods look like, and which come, go or are let through."""

from windtunnel.gangs.commands import (
    Command,
    CreatePod,
    Delete,
    Emit,
    PatchCliqueStatus,
    Ungate,
)
from windtunnel.gangs.controllers import conditions
from windtunnel.gangs.controllers.gates import GatedPod, held
from windtunnel.gangs.controllers.rollout import allowance, has_turn, surge, takeable, unavailable
from windtunnel.gangs.objects import (
    CLIQUE,
    GATE,
    NEVER,
    PENDING,
    POD,
    UNKNOWN,
    WARNING,
    CliqueStatus,
    ObjectEvent,
    Pod,
    PodClique,
    PodCliqueSet,
)
from windtunnel.gangs.templates import COHERENT
from windtunnel.gangs.view import View


def observe(owner: PodCliqueSet, clique: PodClique, now_s: float, commands: list[Command]) -> bool:
    """Counts the pods of a clique; adds what must be written, and says whether to act on them.

    The status is written last: as long as it is not, the conditions are worked out again.
    """
    status, ended = _count(clique)
    before = clique.status
    _follow_update(owner, clique, before, status, now_s)
    status.lost_rule = owner.spec.on_all_scheduled_lost
    status.first_scheduled_s = before.first_scheduled_s
    if status.scheduled and before.first_scheduled_s < 0.0:
        status.first_scheduled_s = now_s
    elif clique.replicas == 0 and not status.scheduled:
        status.first_scheduled_s = NEVER  # what wakes up again was never scheduled
    lost = before.scheduled > 0 and status.scheduled == 0 and clique.replicas > 0
    status.losses = before.losses + 1 if lost else before.losses
    if not before.same(status):
        if lost:
            commands.append(Emit(_lost(clique, status.losses, now_s)))
        _judge(clique, status, now_s, commands)
        commands.append(PatchCliqueStatus(clique.name, status, clique.uid))
    return (
        ended
        or status.gated > 0
        or status.replicas != clique.replicas
        or (status.updating and not owner.spec.update.paused)
    )


def _count(clique: PodClique) -> tuple[CliqueStatus, bool]:
    status, tally = CliqueStatus(), clique.tally
    status.observed = True
    status.replicas = tally.active
    status.scheduled = tally.scheduled
    status.gated = tally.gated
    status.ready = tally.ready
    status.erroneous = tally.erroneous
    status.unready = tally.unready
    status.updated = tally.updated
    status.updated_ready = tally.updated_ready
    return status, tally.ended > 0


def _follow_update(
    owner: PodCliqueSet,
    clique: PodClique,
    before: CliqueStatus,
    status: CliqueStatus,
    now_s: float,
) -> None:
    """An update starts with the first old pod at the clique's turn, and ends with the last."""
    status.update_started_s = before.update_started_s
    status.update_ended_s = before.update_ended_s
    status.update_peak = before.update_peak
    turn = not clique.group and has_turn(owner, clique.replica)
    if before.updating:
        enough = status.updated_ready >= min(clique.min_available, clique.replicas)
        done = status.updated == status.replicas == clique.replicas and enough
        if done or not turn:
            status.update_ended_s = now_s
    elif turn and status.updated < status.replicas:
        status.update_started_s, status.update_ended_s = now_s, NEVER
        status.update_peak = 0
    if status.updating:
        status.update_peak = max(status.update_peak, status.ready)


def _lost(clique: PodClique, losses: int, now_s: float) -> ObjectEvent:
    key = f"{conditions.ALL_LOST}/{clique.uid}/{losses}"
    what = f"No pod of {clique.name} is scheduled any more"
    return ObjectEvent(key, WARNING, CLIQUE, clique.name, conditions.ALL_LOST, what, now_s)


def _judge(clique: PodClique, status: CliqueStatus, now_s: float, commands: list[Command]) -> None:
    asleep = clique.replicas == 0
    minimum = min(clique.min_available, clique.replicas)
    verdict = (
        conditions.asleep()
        if asleep
        else conditions.breach(
            status.scheduled,
            minimum,
            status.scheduled - status.erroneous - status.unready,
            updating=status.updating,
            ever_scheduled=status.first_scheduled_s >= 0.0,
            rule=status.lost_rule,
        )
    )
    conditions.put(commands, CLIQUE, clique, conditions.BREACHED, verdict, now_s)
    scheduled = conditions.clique_scheduled(status.scheduled, minimum)
    conditions.put(commands, CLIQUE, clique, conditions.CLIQUE_SCHEDULED, scheduled, now_s)


def act(view: View, owner: PodCliqueSet, clique: PodClique, commands: list[Command]) -> None:
    """Adds the pods that are to come and to go, and takes the gates off those that may."""
    active: list[Pod] = []
    for pod in clique.pods.values():
        if pod.active:
            active.append(pod)
        elif pod.deleted_s < 0.0:
            commands.append(Delete(POD, pod.name, pod.uid, f"it has {pod.phase.lower()}"))
    doomed = _doomed(owner, clique, active)
    for pod, why in doomed:
        commands.append(Delete(POD, pod.name, pod.uid, why))
    gone = {pod.name for pod, _ in doomed}
    staying = [pod for pod in active if pod.name not in gone] if gone else active
    missing = wanted(owner, clique, staying) - len(staying)
    if missing > 0:
        taken = {pod.index for pod in staying}
        index = 0
        while missing > 0:
            if index not in taken:
                commands.append(CreatePod(clique, index))
                missing -= 1
            index += 1
    _let_through(view, clique, staying, commands)


def wanted(owner: PodCliqueSet, clique: PodClique, active: list[Pod]) -> int:
    """How many pods there are to be; more than its replicas while old ones are being replaced."""
    if not clique.status.updating or owner.spec.update.paused:
        return clique.replicas
    extra = surge(owner, clique.template.rolling, clique.replicas)
    if extra == 0:
        return clique.replicas
    old = sum(1 for pod in active if pod.template_hash != clique.template.hash)
    # Those above go last, when the places below are taken: indices stay without holes.
    above = sum(1 for pod in active if pod.index >= clique.replicas)
    return clique.replicas + min(extra, max(old, above))


def _doomed(owner: PodCliqueSet, clique: PodClique, active: list[Pod]) -> list[tuple[Pod, str]]:
    """The pods that are to go, each with the reason."""
    doomed: list[tuple[Pod, str]] = []
    if clique.status.updating and not owner.spec.update.paused:
        doomed = [(pod, "its template is old") for pod in _outdated(owner, clique, active)]
    gone = {pod.name for pod, _ in doomed}
    staying = [pod for pod in active if pod.name not in gone] if gone else active
    excess = len(staying) - wanted(owner, clique, staying)
    if excess > 0:
        current = clique.template.hash
        victims = sorted(staying, key=lambda pod: victim_order(pod, current))[:excess]
        doomed += [(pod, "there are more pods than replicas") for pod in victims]
    elif not gone and clique.status.updating:
        doomed += _surplus(owner, clique, staying)
    return doomed


def victim_order(pod: Pod, current_hash: str) -> tuple[bool, int, bool, bool, float, int]:
    """Who goes first when there are too many: what serves least, is oldest in kind, and newest."""
    phase = 0 if pod.phase == PENDING else 1 if pod.phase == UNKNOWN else 2
    return (
        pod.node != "",
        phase,
        pod.ready,
        pod.template_hash == current_hash,
        -pod.created_s,
        -pod.index,
    )


def _outdated(owner: PodCliqueSet, clique: PodClique, active: list[Pod]) -> list[Pod]:
    """The old pods that an update takes now: those that serve nobody, then the oldest others."""
    current = clique.template.hash
    old = [pod for pod in active if pod.template_hash != current]
    if not old:
        return []
    taken = [pod for pod in old if not pod.ready]
    ready = sum(1 for pod in active if pod.ready)
    replicas, own = clique.replicas, clique.template.rolling
    down = unavailable(owner, own, replicas, clique.min_available)
    count = takeable(ready, clique.status.update_peak, replicas, clique.min_available, down)
    serving = sorted((pod for pod in old if pod.ready), key=lambda pod: (pod.created_s, pod.index))
    taken += serving[:count]
    if owner.spec.update.type == COHERENT:
        above = max(0, len(active) - replicas)  # what stands in does not count as moved
        moved = max(0, len(active) - len(old) - above)
        return taken[: max(0, allowance(owner, clique.replica, clique.role) - moved)]
    return taken


def _surplus(owner: PodCliqueSet, clique: PodClique, active: list[Pod]) -> list[tuple[Pod, str]]:
    """Pods above the replicas once nothing old is left and those in their places are ready."""
    above = len(active) - clique.replicas
    if above <= 0 or any(pod.template_hash != clique.template.hash for pod in active):
        return []
    replicas = clique.replicas
    down = unavailable(owner, clique.template.rolling, replicas, clique.min_available)
    ready = sum(1 for pod in active if pod.ready)
    count = takeable(ready, clique.status.update_peak, replicas, clique.min_available, down)
    last = sorted(active, key=lambda pod: -pod.index)[: min(above, count)]
    return [(pod, "the update needs no more pods than replicas") for pod in last]


def _let_through(
    view: View, clique: PodClique, staying: list[Pod], commands: list[Command]
) -> None:
    gated = [pod for pod in staying if GATE in pod.gates]
    if not gated:
        return
    verdict: GatedPod = held(view, clique)
    if verdict.why:
        return
    commands += [Ungate(pod.name, pod.uid) for pod in gated if pod.name in verdict.referred]
