"""The gang scheduler on a cluster that other programs change, too: it follows a view.

Pods may have been bound by an earlier process or by another scheduler, may vanish without having
been seen to end, and may be on nodes that are not known yet. If a node comes back with other labels
or another capacity, all state is rebuilt, which is rare.
"""

from collections.abc import Collection, Iterable, Iterator
from types import MappingProxyType
from typing import Final

from windtunnel.core.loop import INFINITY
from windtunnel.gangs.changes import Changes
from windtunnel.gangs.commands import Command, Delete
from windtunnel.gangs.controllers.pod_gangs import BELOW_MINIMUM, MINIMUM_SCHEDULED, SCHEDULED
from windtunnel.gangs.objects import FAILED, SUCCEEDED, Node, Pod
from windtunnel.gangs.placement.claims import PodClaims
from windtunnel.gangs.placement.constraints import Fields
from windtunnel.gangs.placement.placer import Binding, GangPlacer
from windtunnel.gangs.placement.requests import PodRules, PodShape
from windtunnel.gangs.placement.scheduler import GangScheduler, Planned
from windtunnel.gangs.placement.space import Space
from windtunnel.gangs.placement.why import Waiting
from windtunnel.gangs.view import View

SOON: Final = (Waiting.PODS, Waiting.ENDINGS, Waiting.PREEMPTING, Waiting.EXTRAS)
"""Reasons to wait for a gang that is complete, or will be without further action."""
NO_SPEC: Final[Fields] = MappingProxyType({})
WHOLE_ONCE: Final = (MINIMUM_SCHEDULED, BELOW_MINIMUM)
"""Reasons of a gang that has had its minimum: if it loses a pod, its termination delay counts."""


class _Held:
    """A pod that occupies room on a node."""

    __slots__ = ("ending", "node", "pod", "uid")

    def __init__(self, pod: Pod, node: str) -> None:
        self.pod: Final = pod
        self.node: Final = node
        self.uid: Final = pod.uid
        self.ending = False


class FollowingScheduler:
    """Places the gangs of one `schedulerName`, alongside all other pods on the nodes."""

    def __init__(self, view: View, name: str, claims: PodClaims | None = None) -> None:
        self._view: Final = view
        self._name: Final = name
        self._claims: Final = PodClaims(view) if claims is None else claims
        self._others: Final[dict[str, tuple[str, dict[str, float] | None, Fields]]] = {}
        """Pods outside gangs, by uid: node, resource requests (None if unknown), and spec."""
        self._changes = view.watch()
        self._begin()

    def _begin(self) -> None:
        self._view.unwatch(self._changes)
        self._changes = self._view.watch()
        self._space = Space()
        placer = GangPlacer(self._space)
        self._held: dict[str, _Held] = {}
        self._scheduler = GangScheduler(
            self._view,
            self._space,
            placer,
            whole=False,
            only=self._name,
            claims=self._claims,
            placed=self._placed,
        )
        self._nodes: dict[str, Node | None] = {}
        self._other_shapes: dict[str, PodShape] = {}
        self._unknown: dict[str, dict[str, None]] = {}
        """Pods with unknown requests, by node."""
        for node in self._view.nodes.values():
            self._add_node(node)
        for uid, (name, requests, spec) in self._others.items():
            self._take(uid, name, requests, spec)

    def _placed(self) -> Iterator[tuple[Pod, str]]:
        """Returns the pods whose room is taken: not all that the view shows as bound, yet."""
        for held in self._held.values():
            yield held.pod, held.node

    # Following the view.

    def _add_node(self, node: Node) -> None:
        self._nodes[node.name] = node
        self._scheduler.add_node(node)
        self._node_changed(node)

    def _node_changed(self, node: Node) -> None:
        if node.name not in self._unknown:
            self._scheduler.node_changed(node)

    def _room(self, name: str) -> None:
        """Registers a node that is not visible yet but may have a pod; nothing more fits there."""
        if name not in self._nodes:
            self._nodes[name] = None
            self._space.set_usable(self._space.add_node(name, {}, {}), usable=False)

    def other_pod(
        self, uid: str, node: str, requests: dict[str, float] | None, spec: Fields = NO_SPEC
    ) -> None:
        """Records that a pod outside all gangs is on a node or, with "", that it is gone or has
        ended.

        Without `requests`, its usage is unknown: as long as it exists, nothing more fits on its
        node.
        """
        known = self._others.get(uid)
        if (known is None and not node) or (
            known is not None and known[:2] == (node, requests)  # ports cannot be changed
        ):
            return
        if known is not None:
            del self._others[uid]
            self._give(uid, known[0])
        if node:
            self._others[uid] = (node, requests, spec)
            self._take(uid, node, requests, spec)

    def _give(self, uid: str, node: str) -> None:
        shape = self._other_shapes.pop(uid, None)
        if shape is not None:
            self._space.give(self._space.by_name[node], shape)
        elif node in self._unknown:
            del self._unknown[node][uid]
            if not self._unknown[node]:
                del self._unknown[node]
                found = self._nodes[node]
                if found is not None:
                    self._scheduler.node_changed(found)

    def _take(self, uid: str, node: str, requests: dict[str, float] | None, spec: Fields) -> None:
        self._room(node)
        if requests is None:
            self._unknown.setdefault(node, {})[uid] = None
            self._space.set_usable(self._space.by_name[node], usable=False)
            return
        rules = self._scheduler.shapes.with_ports(spec, PodRules())
        shape = self._other_shapes[uid] = self._space.shape(requests, rules)
        self._space.shift(self._space.by_name[node], shape, -1)

    def follow(self) -> None:
        """Applies the changes of the view."""
        if self._is_other_ground(self._changes):
            self._begin()
        changes = self._changes
        if changes.pods:
            self._claims.pods_changed()
        if self._claims.changes():
            self._scheduler.claims_changed()
        for name in changes.nodes:
            node = self._view.nodes.get(name)
            if node is not None and name not in self._nodes:
                self._add_node(node)
            elif node is not None:
                self._node_changed(node)
        for name in changes.pods:
            pod = self._view.pods.get(name)
            if pod is not None and pod.node:
                self._room(pod.node)
        self._scheduler.absorb(changes)
        for name in changes.pods:
            self._follow_pod(name)
        changes.clear()

    def _is_other_ground(self, changes: Changes) -> bool:
        """Whether a node is gone, or was replaced by another one."""
        return any(
            name in self._nodes and self._view.nodes.get(name) is not self._nodes[name]
            for name in changes.nodes
        )

    def _follow_pod(self, name: str) -> None:
        pod, held = self._view.pods.get(name), self._held.get(name)
        there = pod is not None and pod.phase not in (SUCCEEDED, FAILED)
        if held is not None and not (there and pod is not None and pod.uid == held.uid):
            del self._held[name]
            if not held.pod.node:  # it was gone before its binding was seen
                self._space.give(
                    self._space.by_name[held.node], self._scheduler.shapes.of(held.pod)
                )
            else:
                if not held.ending:
                    self._scheduler.ending(held.pod)
                self._scheduler.ended(held.pod)
            held = None
        if pod is None or not there or not pod.node:
            return
        if held is None:
            held = self._held[name] = _Held(pod, pod.node)
            shape = self._scheduler.shapes.of(pod)
            self._space.shift(self._space.by_name[pod.node], shape, -1)
        if pod.terminating and not held.ending:
            held.ending = True
            self._scheduler.ending(pod)

    # Decisions.

    @property
    def again_s(self) -> float:
        """When a pass is due, even if nothing changes."""
        return self._scheduler.again_s

    def is_due(self, now_s: float) -> bool:
        return self._scheduler.has_news or self._scheduler.again_s <= now_s < INFINITY

    def plan(self, now_s: float) -> Planned:
        """Plans a pass; the room for its bindings is reserved."""
        planned = self._scheduler.plan(now_s)
        for binding in planned.bindings:
            self._held[binding.pod] = _Held(self._view.pods[binding.pod], binding.node)
        return planned

    def bound(self, binding: Binding, now_s: float) -> None:
        """Records that a pod was bound, before the cache shows it."""
        pod = self._view.pods.get(binding.pod)
        if pod is not None and not pod.node:
            pod.node, pod.scheduled_s = binding.node, now_s
            self._view.changed(pod)

    def not_bound(self, planned: Planned, binding: Binding) -> None:
        """Records that a pod could not be bound, and frees its room."""
        self._cancel(planned, [binding.pod])

    def _cancel(self, planned: Planned, pods: Collection[str]) -> None:
        """Drops the bindings of pods, and frees their room."""
        if not pods:
            return
        dropped = [one for one in planned.bindings if one.pod in pods]
        planned.bindings[:] = [one for one in planned.bindings if one.pod not in pods]
        for one in dropped:
            held = self._held.pop(one.pod, None)
            if held is not None:
                shape = self._scheduler.shapes.of(held.pod)
                self._space.give(self._space.by_name[one.node], shape)
        self._scheduler.look_again()

    def not_evicted(
        self, planned: Planned, gang: str, kept: Iterable[str], until_s: float, why: str
    ) -> None:
        """Cancels the evictions in favour of a gang, as not all of its victims may be evicted; the
        pods in `kept` are not chosen again until `until_s`."""
        done = planned.done
        held = [one for one in done.evictions if one.in_favour_of == gang]
        done.evictions = [one for one in done.evictions if one.in_favour_of != gang]
        names = ", ".join(dict.fromkeys(one.gang for one in held))
        says = f"pods of {names} would make way, and may not be evicted: {why}"
        self._scheduler.keep(gang, kept, until_s, says)

    def look_again(self) -> None:
        self._scheduler.look_again()

    def wait_for_volumes(self, planned: Planned) -> dict[str, str]:
        """Cancels the bindings of pods whose volumes are still to be provisioned, and the others of
        their gangs too if these would not be whole. Returns those claims, each with the node to
        provision its volume for: that of its first pod."""
        claims: dict[str, str] = {}
        by_gang: dict[str, list[Binding]] = {}
        late: dict[str, None] = {}
        for one in planned.bindings:
            by_gang.setdefault(one.gang, []).append(one)
            for claim in self._claims.of(self._view.pods[one.pod]).unmade:
                late[one.pod] = None
                claims.setdefault(claim, one.node)
        for gang, bindings in by_gang.items() if late else ():
            kept = [one for one in bindings if one.pod not in late]
            if len(kept) < len(bindings) and not self._scheduler.is_whole_with(gang, kept):
                late.update(dict.fromkeys(one.pod for one in kept))
        self._cancel(planned, late)
        return claims

    def waiting_for_claims(self, gang: str) -> set[str]:
        """The pods of a gang that wait for a claim, their own or one that its minimum needs."""
        return self._scheduler.waiting_for_claims(gang)

    def report(self, planned: Planned, now_s: float) -> list[Command]:
        """Returns the commands that report a pass, including the pods to evict."""
        halves = self._halves(planned)
        return [*planned.settled, *self._scheduler.report(planned, now_s), *halves]

    def _halves(self, planned: Planned) -> list[Command]:
        """Deletes pods of gangs that were bound in part and whose rest has no room, as after a
        crash or a refusal between the bindings of a gang. The gang then waits as a whole."""
        evictions: list[Command] = []
        for verdict in planned.done.verdicts:
            gang = self._view.gangs.get(verdict.gang)
            if gang is None or verdict.waiting in SOON:
                continue
            known = gang.conditions.get(SCHEDULED)
            if known is not None and known.reason in WHOLE_ONCE:
                continue
            why = f"{gang.name} was bound in part, and for the rest {verdict.says}"
            for group in gang.groups:
                pods = [self._view.pods.get(name) for name in group.pods]
                evictions += [Delete(pod, why) for pod in pods if pod and pod.active and pod.node]
        return evictions
