"""The state of a cluster at one time as plain data, for `windtunnel gangs status`."""

from windtunnel.core.telemetry import Plain
from windtunnel.gangs.controllers.gates import why_held
from windtunnel.gangs.objects import RUNNING, Node, Pod, PodClique, PodCliqueSet, PodGang, Thing
from windtunnel.gangs.view import View


def status_of(view: View, now_s: float) -> dict[str, Plain]:
    """Returns sets with all that they own, gangs, pods, nodes and events, sorted by name."""
    used: dict[str, dict[str, Plain]] = {}
    for pod in view.pods.values():
        if pod.node:
            sums = used.setdefault(pod.node, {})
            for resource, amount in pod.requests.items():
                before = sums.get(resource, 0.0)
                assert isinstance(before, float)
                sums[resource] = before + amount
    return {
        "at_s": now_s,
        "sets": [_set(view, one, now_s) for _, one in sorted(view.sets.items())],
        "gangs": [_gang(view, gang, now_s) for _, gang in sorted(view.gangs.items())],
        "pods": [_pod(pod, now_s) for _, pod in sorted(view.pods.items())],
        "nodes": [_node(node, used.get(node.name, {})) for node in view.nodes.values()],
        "events": [
            _fields(event, "at_s", "level", "kind", "name", "reason", "message")
            for event in sorted(view.events.values(), key=lambda event: event.at_s)
        ],
        "pending": _pending(view),
    }


def _pending(view: View) -> dict[str, Plain]:
    """Returns why each waiting gang waits: the scheduler's reason, or its pods' gates."""
    found: dict[str, Plain] = {}
    for name, gang in sorted(view.gangs.items()):
        if gang.why_pending:
            found[name] = gang.why_pending
    for _, pod in sorted(view.pods.items()):
        if pod.gated and pod.active and pod.gang not in found:
            found[pod.gang] = why_held(view, pod)
    return found


def pod_word(pod: Pod) -> str:
    """Returns the status word that kubectl shows for a pod."""
    if pod.terminating:
        return "Terminating"
    if pod.gated:
        return "SchedulingGated"
    if not pod.node:
        return "Pending"
    if pod.ready:
        return "Running"
    if pod.erroneous and not pod.started:
        return "CrashLoopBackOff"
    if pod.started or pod.phase == RUNNING:
        return "NotReady"
    return "Init" if pod.waits_for else "ContainerCreating"


def _fields(of: object, *names: str) -> dict[str, Plain]:
    return {name: getattr(of, name) for name in names}


def _conditions(thing: Thing) -> list[Plain]:
    return [
        _fields(condition, "type", "status", "reason", "message", "since_s")
        for _, condition in sorted(thing.conditions.items())
    ]


def _set(view: View, one: PodCliqueSet, now_s: float) -> Plain:
    replicas: list[Plain] = []
    for number, part in sorted(one.parts.items()):
        if not (part.cliques or part.groups or part.gangs):
            continue
        cliques: list[Plain] = [_clique(clique) for _, clique in sorted(part.cliques.items())]
        groups: list[Plain] = [
            {
                **_fields(group, "name", "replicas", "min_available"),
                **_fields(group.status, "scheduled", "available", "updated"),
                "conditions": _conditions(group),
                "parts": [
                    {
                        "replica": index,
                        "cliques": [_clique(clique) for _, clique in sorted(members.items())],
                    }
                    for index, members in sorted(group.cliques.items())
                ],
            }
            for _, group in sorted(part.groups.items())
        ]
        gangs: list[Plain] = [name for name in sorted(part.gangs) if name in view.gangs]
        replicas.append({"replica": number, "cliques": cliques, "groups": groups, "gangs": gangs})
    return {
        **_fields(one, "name", "replicas"),
        **_fields(one.status, "available", "updated", "updating"),
        "age_s": now_s - one.created_s,
        "conditions": _conditions(one),
        "parts": replicas,
    }


def _clique(clique: PodClique) -> Plain:
    return {
        **_fields(clique, "name", "replicas", "min_available"),
        **_fields(clique.status, "scheduled", "ready", "updated"),
        "gang": clique.gang,
        "conditions": _conditions(clique),
    }


def _gang(view: View, gang: PodGang, now_s: float) -> Plain:
    pods = [view.pods[name] for group in gang.groups for name in group.pods if name in view.pods]
    alive = [pod for pod in pods if pod.active]
    return {
        "name": gang.name,
        "phase": gang.phase,
        "minimum": sum(group.min_replicas for group in gang.groups),
        "pods": len(alive),
        "scheduled": sum(pod.scheduled for pod in alive),
        "ready": sum(pod.ready for pod in alive),
        "placement_score": gang.placement_score,
        "base": gang.base,
        "age_s": now_s - gang.created_s,
        "why_pending": gang.why_pending,
        "conditions": _conditions(gang),
    }


def _pod(pod: Pod, now_s: float) -> Plain:
    return {
        "name": pod.name,
        "status": pod_word(pod),
        "ready": pod.ready,
        "node": pod.node,
        "clique": pod.clique,
        "gang": pod.gang,
        "age_s": now_s - pod.created_s,
    }


def _node(node: Node, used: dict[str, Plain]) -> Plain:
    return {
        **_fields(node, "name", "ready", "cordoned"),
        "capacity": dict(node.capacity),
        "used": used,
        "labels": dict(node.labels),
    }
