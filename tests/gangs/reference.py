"""The controller of a clique as it is easiest to see that it is right: it looks at all pods."""

from windtunnel.gangs.commands import Command, CreatePod, Delete, Ungate
from windtunnel.gangs.controllers.cliques import victim_order
from windtunnel.gangs.controllers.gates import held
from windtunnel.gangs.controllers.rollout import allowance, surge, takeable, unavailable
from windtunnel.gangs.objects import GATE, Pod, PodClique, PodCliqueSet
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
        doomed = [(pod, "its template is old") for pod in _outdated(owner, clique, active)]
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
