"""Turns the objects of a cluster into asks, has them placed, and writes down what came of it."""

from typing import Final, Protocol

from windtunnel.core.loop import INFINITY
from windtunnel.gangs.commands import Emit, SetCondition
from windtunnel.gangs.objects import (
    GANG,
    NORMAL,
    TRUE,
    WARNING,
    Condition,
    Event,
    Node,
    Pod,
    PodGang,
    PodGroup,
)
from windtunnel.gangs.objects import Pack as PackKeys
from windtunnel.gangs.placement.asks import GangAsk, GroupAsk, Pack, PartAsk, PodAsk, Shape, Tie
from windtunnel.gangs.placement.constraints import reuses, selector_of, spread_of
from windtunnel.gangs.placement.placer import Member, Pass, Victim, VictimsBelow
from windtunnel.gangs.placement.space import Space
from windtunnel.gangs.placement.units import keys_of
from windtunnel.gangs.placement.why import Waiting
from windtunnel.gangs.view import Changes, View

HOSTNAME: Final = "kubernetes.io/hostname"
PATIENCE_S: Final = 60.0
"""How long a gang that returns to its nodes waits for its own pods there to end."""
DISRUPTION: Final = "DisruptionTarget"


class Placer(Protocol):
    """Decides who goes where: gangs whole, or one pod at a time."""

    def plan(self, asks: list[GangAsk], victims: VictimsBelow) -> Pass: ...

    def gone(self, gang: str, family: str) -> None: ...


class Scheduler:
    """Keeps the space in step with the view, and gives pods that wait to the placer."""

    def __init__(self, view: View, space: Space, placer: Placer, *, whole: bool) -> None:
        self._view: Final = view
        self.space: Final = space
        self._placer: Final = placer
        self._waiting: Final[dict[str, list[str]]] = {}  # by gang: pods that may be placed
        self._news = False
        self._ending: Final[dict[str, dict[str, float]]] = {}  # by gang: pods about to end, since
        self._releasing: Final[dict[str, None]] = {}  # pods whose room is counted as free soon
        self.again_s = INFINITY
        """When somebody's patience ends: then a pass is due, even if nothing has changed."""
        self._freed = -1  # how much had become free at the last pass
        self._shapes: Final[dict[str, Shape]] = {}  # by hash of the template
        self._levels: Final[dict[str, list[str]]] = {}
        self.verdicts: Final[dict[str, tuple[Waiting, str]]] = {}
        """Of the gangs that wait."""
        self._whole: Final = whole  # whether gangs are admitted whole
        self.half_admitted: Final[list[str]] = []
        """Gangs that got nodes without getting their minimum, ever: there must be none."""

    @property
    def has_news(self) -> bool:
        """Whether somebody waits who did not before, or somebody waits and there may be room."""
        return len(self._waiting) > 0 and (self._news or self._freed != self.space.freed)

    # Keeping up.

    def add_node(self, node: Node) -> None:
        labels = {HOSTNAME: node.name, **node.labels}
        self.space.add_node(node.name, node.capacity, labels)

    def node_changed(self, node: Node) -> None:
        usable = node.ready and not node.cordoned
        self.space.set_usable(self.space.by_name[node.name], usable=usable)

    def absorb(self, changes: Changes) -> None:
        """Notes which gangs have pods to place now."""
        for name in changes.gangs:
            gang = self._view.gangs.get(name)
            if gang is None:
                self._waiting.pop(name, None)
                self.verdicts.pop(name, None)
                if name not in self._ending:
                    self._placer.gone(name, "")
                continue
            waiting = [pod for group in gang.groups for pod in group.pods if self._waits(pod)]
            if waiting != self._waiting.get(name, []):
                self._waiting[name] = waiting
                self._news = True

    def _waits(self, name: str) -> bool:
        pod = self._view.pods.get(name)
        return pod is not None and _waits(pod)

    def shape_of(self, pod: Pod) -> Shape:
        shape = self._shapes.get(pod.template_hash)
        if shape is None:
            selector = selector_of(pod.template.pod_spec)
            shape = self.space.shape(pod.requests, selector)
            self._shapes[pod.template_hash] = shape
        return shape

    def ending(self, pod: Pod) -> None:
        """A pod on a node was deleted: its room will be free."""
        self._ending.setdefault(pod.gang, {})[pod.name] = pod.deleted_s
        self._releasing[pod.name] = None
        self.space.releasing(self.space.by_name[pod.node], self.shape_of(pod))

    def overdue(self, pod: Pod) -> None:
        """A pod did not end in its time: nobody holds other room any longer to get this one."""
        if pod.name in self._releasing:
            del self._releasing[pod.name]
            self.space.releasing(self.space.by_name[pod.node], self.shape_of(pod), -1)

    def ended(self, pod: Pod) -> None:
        """A pod that was deleted is gone: its room is free."""
        leaving = self._ending[pod.gang]
        del leaving[pod.name]
        if not leaving:
            del self._ending[pod.gang]
        self.overdue(pod)
        self.space.give(self.space.by_name[pod.node], self.shape_of(pod))
        gang = self._view.gangs.get(pod.gang)
        if gang is None or not any(self._bound(group) for group in gang.groups):
            self._placer.gone(pod.gang, pod.set_name)

    # One pass.

    def run(self, now_s: float) -> tuple[list[Pod], list[Pod]]:
        """Places whom it can: the pods that got a node, and those that must make way."""
        self._learn_levels()
        self._news = False
        self.again_s = INFINITY
        asks, settled = [], []
        for name in self._waiting:
            gang = self._view.gangs.get(name)
            ask = None if gang is None else self._ask(gang, now_s)
            if ask is None:
                settled.append(name)
            else:
                asks.append(ask)
        for name in settled:
            del self._waiting[name]
            self._say(name, None, now_s)
        done = self._placer.plan(asks, self._victims)
        bound = [self._bind(binding.pod, binding.node, now_s) for binding in done.bindings]
        if self._whole:
            self._check_admitted(done)
        told = {verdict.gang: verdict for verdict in done.verdicts}
        placed = {binding.gang for binding in done.bindings}
        for ask in asks:
            verdict = told.get(ask.name)
            self._say(ask.name, None if verdict is None else (verdict.waiting, verdict.says), now_s)
            if ask.name in placed:
                self._placed(ask, now_s)
        evicted = self._evict(done, now_s)
        self._freed = self.space.freed
        return bound, evicted

    def _check_admitted(self, done: Pass) -> None:
        for name in dict.fromkeys(binding.gang for binding in done.bindings):
            for group in self._view.gangs[name].groups:
                have = len(self._bound(group))
                if have < group.min_replicas:
                    self.half_admitted.append(f"{group.name} has {have} of {group.min_replicas}")

    def _learn_levels(self) -> None:
        for name, levels in self._view.levels.items():
            keys = list(levels.values())
            if self._levels.get(name) != keys:
                self._levels[name] = keys
                self.space.add_topology(name, keys, list(levels))
        for name in [name for name in self._levels if name not in self._view.levels]:
            del self._levels[name]
            self.space.remove_topology(name)

    def _bind(self, name: str, node: str, now_s: float) -> Pod:
        pod = self._view.pods[name]
        pod.node = node
        pod.scheduled_s = now_s
        self._view.pod_changed(pod)
        return pod

    def _evict(self, done: Pass, now_s: float) -> list[Pod]:
        evicted = [self._view.pods[eviction.pod] for eviction in done.evictions]
        for eviction in done.evictions:
            gang = self._view.gangs[eviction.gang]
            says = f"makes way for {eviction.in_favour_of}, which has a higher priority"
            self._condition(gang, DISRUPTION, TRUE, "Preempted", says, now_s)
            key = f"Preempted/{gang.uid}/{eviction.in_favour_of}/{now_s}"
            self._event(gang, key, WARNING, "Preempted", says, now_s)
        for pod in evicted:
            self._view.delete_pod(pod, now_s)
        return evicted

    # Asks.

    def _ask(self, gang: PodGang, now_s: float) -> GangAsk | None:
        """What a gang wants now; None when none of its pods may be placed."""
        spec = self._view.sets.get(gang.set_name)
        groups, pending = [], False
        for group in gang.groups:
            pods = [self._view.pods[name] for name in group.pods if name in self._view.pods]
            waiting = [
                PodAsk(pod.name, self.shape_of(pod)) for pod in _by_index(pods) if _waits(pod)
            ]
            pending = pending or bool(waiting)
            clique = self._view.cliques.get(group.name)
            notes = clique.template.annotations if clique is not None else {}
            groups.append(
                GroupAsk(group.name, group.min_replicas, waiting, self._bound(group),
                         _pack(group.pack), spread_of(notes, gang.topology, self._view.levels))
            )  # fmt: skip
        if not pending:
            return None
        set_notes = spec.spec.annotations if spec is not None else {}
        parts = [
            PartAsk(g.name, list(g.pod_groups), _pack(g.pack) or Pack()) for g in gang.pack_groups
        ]
        reuse = gang.reuse or (gang.name if reuses(set_notes) else "")
        return GangAsk(
            gang.name,
            groups,
            priority=self._priority(gang),
            order=gang.created_s,
            tie=_tie(gang),
            parts=parts,
            pack=_pack(gang.pack),
            spread=None if gang.base else spread_of(set_notes, gang.topology, self._view.levels),
            family=gang.set_name,
            topology=gang.topology,
            reuse=reuse,
            patient=bool(reuse) and self._is_patient(reuse, now_s),
            near=self._base_nodes(gang),
            preempts=self._preempts(gang),
        )

    def _base_nodes(self, gang: PodGang) -> list[str]:
        """Where the base gang is: a scaled gang that begins is placed as close as can be."""
        base = self._view.gangs.get(gang.base) if gang.base else None
        if base is None or any(self._bound(group) for group in gang.groups):
            return []
        return [node for group in base.groups for node in self._bound(group)]

    def _preempts(self, gang: PodGang) -> bool:
        """Whether others may make way for it: not if a pod spec of it says that they never do."""
        cliques = [self._view.cliques.get(group.name) for group in gang.groups]
        specs = [one.template.pod_spec for one in cliques if one is not None]
        return all(spec.get("preemptionPolicy") != "Never" for spec in specs)

    def _is_patient(self, gang: str, now_s: float) -> bool:
        """Whether pods of a gang are about to end, and that has not taken too long."""
        until_s = [since_s + PATIENCE_S for since_s in self._ending.get(gang, {}).values()]
        late_s = max(until_s, default=now_s)
        if late_s > now_s:
            self.again_s = min(self.again_s, late_s)
        return late_s > now_s

    def _priority(self, gang: PodGang) -> int:
        return self._view.priorities.get(gang.priority_class, 0)

    def _bound(self, group: PodGroup) -> list[str]:
        pods = [self._view.pods[name] for name in group.pods if name in self._view.pods]
        return [pod.node for pod in _by_index(pods) if pod.node and pod.active]

    def _victims(self, below: int) -> list[Victim]:
        found = []
        for gang in self._view.gangs.values():
            priority = self._priority(gang)
            if priority < below:
                members = [member for group in gang.groups for member in self._members(group)]
                if members:
                    found.append(Victim(gang.name, priority, gang.created_s, members, _tie(gang)))
        return found

    def _members(self, group: PodGroup) -> list[Member]:
        pods = [self._view.pods[name] for name in group.pods if name in self._view.pods]
        bound = [pod for pod in _by_index(pods) if pod.node and pod.active]
        return [
            Member(pod.name, pod.node, self.shape_of(pod), extra=place >= group.min_replicas)
            for place, pod in enumerate(bound)
        ]

    # What is said of it.

    def _say(self, name: str, verdict: tuple[Waiting, str] | None, now_s: float) -> None:
        gang = self._view.gangs.get(name)
        if verdict is None:
            self.verdicts.pop(name, None)
        else:
            self.verdicts[name] = verdict
        if gang is None:
            return
        says = "" if verdict is None else verdict[1]
        if gang.why_pending != says:
            gang.why_pending = says
            self._view.gang_changed(gang)
        if verdict is not None and verdict[0] is not Waiting.EXTRAS:
            key = f"Unschedulable/{gang.uid}/{verdict[0].value}"  # once for each cause
            self._event(gang, key, WARNING, "Unschedulable", says, now_s)

    def _placed(self, ask: GangAsk, now_s: float) -> None:
        gang = self._view.gangs[ask.name]
        if all(len(self._bound(group)) >= group.min_replicas for group in gang.groups):
            gang.placement_score = self._score(ask, gang)
            self._condition(gang, DISRUPTION, "", "", "", now_s)
            says = "the minimum of every group has nodes"
            self._event(gang, f"Scheduled/{gang.uid}", NORMAL, "Scheduled", says, now_s)

    def _score(self, ask: GangAsk, gang: PodGang) -> float:
        """How close its pods are: 1 in one domain of the narrowest level, 0 in none."""
        tree = self.space.tree(ask.topology, keys_of(ask))
        nodes = [self.space.by_name[n] for group in gang.groups for n in self._bound(group)]
        for level in range(len(tree.keys) - 1, -1, -1):
            domain = tree.domain_of(nodes[0], level)
            if domain is not None and all(tree.domain_of(n, level) is domain for n in nodes):
                return (level + 1) / len(tree.keys)
        return 0.0

    def _condition(
        self, gang: PodGang, kind: str, status: str, reason: str, says: str, now_s: float
    ) -> None:
        known = gang.conditions.get(kind)
        if (known is None and not status) or (
            known is not None and known.says(status, reason, says)
        ):
            return
        since_s = known.since_s if known is not None and known.status == status else now_s
        condition = Condition(kind, status, reason, says, since_s)
        self._view.apply(SetCondition(GANG, gang.name, condition), now_s)

    def _event(
        self, gang: PodGang, key: str, level: str, reason: str, says: str, now_s: float
    ) -> None:
        """Says something once: a second event of the same key is the same event."""
        self._view.apply(Emit(Event(key, level, GANG, gang.name, reason, says, now_s)), now_s)


def _tie(gang: PodGang) -> Tie:
    return (gang.set_name, gang.replica, len(gang.name))


def _waits(pod: Pod) -> bool:
    return not pod.node and not pod.gates and pod.active


def _by_index(pods: list[Pod]) -> list[Pod]:
    return sorted(pods, key=lambda pod: (pod.index, pod.created_s, pod.name))


def _pack(pack: PackKeys | None) -> Pack | None:
    if pack is None or not (pack.required or pack.preferred):
        return None
    return Pack(pack.required or None, pack.preferred or None)
