"""The gang scheduler: decides the nodes of waiting pods, and says why a gang waits.

It reads a `View` and the nodes that were added. `plan` decides; the driver binds the pods, also in
the cache, and `report` then returns what has to be written. State of gangs is updated
incrementally, at the cost of what changed.
"""

from collections.abc import Iterable, Iterator
from heapq import heapify, heappop, heappush
from typing import Final, Protocol

from windtunnel.core.loop import INFINITY
from windtunnel.gangs.changes import Changes
from windtunnel.gangs.commands import Command, Delete, Emit, PatchGangPlacement, SetCondition
from windtunnel.gangs.objects import GANG, NORMAL, TRUE, WARNING, Node, Pod, PodGang
from windtunnel.gangs.placement.claims import PodClaims
from windtunnel.gangs.placement.constraints import (
    NODE_NAME,
    reuses,
    spread_of,
)
from windtunnel.gangs.placement.gang_pods import Closeness, GangPods, GroupPods
from windtunnel.gangs.placement.parking import ParkedGangs, Rank
from windtunnel.gangs.placement.placer import (
    Binding,
    GangKind,
    Member,
    Pass,
    PlacementVerdict,
    Victim,
    VictimsBelow,
    kind_of,
)
from windtunnel.gangs.placement.requests import (
    HOSTNAME,
    GangRequest,
    GroupRequest,
    PackConstraint,
    PartRequest,
    PodShape,
    Tie,
    UnboundPod,
)
from windtunnel.gangs.placement.shapes import PlacedPods, PodShapes
from windtunnel.gangs.placement.space import Space
from windtunnel.gangs.placement.units import keys_of
from windtunnel.gangs.placement.why import Waiting
from windtunnel.gangs.statuses import Condition, ObjectEvent
from windtunnel.gangs.templates import Pack as PackKeys
from windtunnel.gangs.templates import PodGroup
from windtunnel.gangs.view import View

PATIENCE_S: Final = 60.0
"""How long a gang that returns to its nodes waits for its own pods there to end."""
SAY_AGAIN_S: Final = 60.0
"""How long the sentence of a gang that waits behind others of its kind may be out of date:
rewriting the remaining room of all waiting gangs whenever a node joins would be endless work."""
DISRUPTION: Final = "DisruptionTarget"


class Placer(Protocol):
    """Decides which pod goes where: gangs whole, or one pod at a time."""

    def plan_in_order(self, requests: Iterable[GangRequest], victims: VictimsBelow) -> Pass: ...

    def full(self, kind: GangKind) -> PlacementVerdict | None: ...

    def gone(self, gang: str, family: str) -> None: ...


class Planned:
    """The decisions of a pass, and reports on gangs that no longer wait."""

    __slots__ = ("behind", "done", "freed", "requests", "settled")

    def __init__(
        self,
        requests: list[GangRequest],
        behind: list[tuple[str, PlacementVerdict]],
        done: Pass,
        settled: list[Command],
        freed: int,
    ) -> None:
        self.requests: Final = requests
        self.behind: Final = behind
        """Gangs that wait behind one of their kind, and the verdict on that one."""
        self.done: Final = done
        self.settled: Final = settled
        self.freed: Final = freed
        """The space's `freed` count when this was decided."""

    @property
    def bindings(self) -> list[Binding]:
        return self.done.bindings


class GangScheduler:
    """Keeps the room of nodes up to date with the view, and passes waiting pods to the placer."""

    def __init__(
        self,
        view: View,
        space: Space,
        placer: Placer,
        *,
        whole: bool,
        only: str = "",
        claims: PodClaims | None = None,
        placed: PlacedPods | None = None,
    ) -> None:
        self._view: Final = view
        self._claims: Final = claims  # None: pods have none, or all are met
        self._only: Final = only  # places gangs of this `schedulerName`; empty: all
        self.space: Final = space
        self.shapes: Final = PodShapes(view, space, claims, placed)
        self._placer: Final = placer
        self._gangs: Final[dict[str, GangPods]] = {}
        self._gang_of: Final[dict[str, str]] = {}  # by pod that a gang refers to
        self._by_priority: Final[dict[int, dict[str, None]]] = {}
        self._waiting: Final[dict[str, None]] = {}  # gangs that have, or just had, pods to place
        self._active: Final[dict[str, None]] = {}  # those of them that a pass has to try
        self._parked: Final = ParkedGangs()  # the others
        self._unparked_s = -INFINITY
        self._news = False
        self._kept: Final[dict[str, float]] = {}  # pods excluded from eviction, and until when
        self._refused: Final[dict[str, str]] = {}  # by gang: its victims that may not be evicted
        self._ending: Final[
            dict[str, dict[str, float]]
        ] = {}  # terminating pods by gang, since when
        self._releasing: Final[dict[str, PodShape]] = {}  # pods whose room is counted as free soon
        self.again_s = INFINITY
        """When a wait ends and a pass is due, even if nothing has changed."""
        self._freed = -1  # the space's `freed` at the last pass
        self._levels: Final[dict[str, list[str]]] = {}
        self.verdicts: Final[dict[str, tuple[Waiting, str]]] = {}
        """Verdicts on the gangs that wait."""
        self._whole: Final = whole  # whether gangs are admitted whole
        self.half_admitted: Final[list[str]] = []
        """Gangs that got nodes but not their minimum: there must never be any."""

    @property
    def has_news(self) -> bool:
        """Whether a gang newly waits, or one waits and room may have been freed."""
        return len(self._waiting) > 0 and (self._news or self._freed != self.space.freed)

    # Following the view.

    def add_node(self, node: Node) -> None:
        labels = {HOSTNAME: node.name, NODE_NAME: node.name, **node.labels}
        self.space.add_node(node.name, node.capacity, labels, node.taints)

    def node_changed(self, node: Node) -> None:
        usable = node.ready and not node.cordoned
        self.space.set_usable(self.space.by_name[node.name], usable=usable)

    def absorb(self, changes: Changes) -> None:
        """Records which gangs have pods to place now."""
        touched: dict[str, list[str]] = {}
        for name in changes.pods:
            pod = self._view.pods.get(name)
            if pod is not None and self.shapes.learn(pod):
                self._renew_requests()
            gang_name = self._gang_of.get(name, "") if pod is None else pod.gang
            touched.setdefault(gang_name, []).append(name)
        for name in changes.gangs:
            gang = self._view.gangs.get(name)
            if gang is None or gang.terminating:
                self._forget(name)
                continue
            if self._only and gang.scheduler != self._only:
                continue
            known, moved = self._gangs.get(name), False
            pods = touched.get(name, [])
            if known is None:
                priority = self._view.priorities.get(gang.priority_class, 0)
                known = self._gangs[name] = GangPods(priority)
                self._by_priority.setdefault(priority, {})[name] = None
            if known.groups is not gang.groups:
                self._unpark(name)
                left, new, moved = known.regroup(gang.groups)
                for pod_name in left:
                    self._gang_of.pop(pod_name, None)
                self._gang_of.update(dict.fromkeys(new, name))
                pods = [*pods, *new]
            for pod_name in pods:
                moved = known.follow(pod_name, self._view.pods.get(pod_name)) or moved
            if moved:
                self._unpark(name)
                self._waiting[name] = self._active[name] = None
                self._news = True
            elif gang.why_pending != self._says(name):
                # The view shows an older text than the last decision.
                self._unpark(name)
                self._waiting[name] = self._active[name] = None
                self._news = True

    def _says(self, name: str) -> str:
        """Returns why a gang waits; empty if it does not."""
        verdict = self.verdicts.get(name)
        return "" if verdict is None else verdict[1]

    def _unpark(self, name: str) -> None:
        if self._parked.remove(name):
            self._active[name] = None

    def _unpark_all(self) -> None:
        self._active.update(dict.fromkeys(self._parked.clear()))

    def _first_parked(self, kind: GangKind, due: list[Rank]) -> None:
        """Makes the first parked gang of a kind due."""
        rank = self._parked.pop(kind)
        if rank is not None:
            self._active[rank[3]] = None
            heappush(due, rank)

    def _forget(self, name: str) -> None:
        self._waiting.pop(name, None)
        self._active.pop(name, None)
        self._parked.remove(name)
        self._refused.pop(name, None)
        self.verdicts.pop(name, None)
        known = self._gangs.pop(name, None)
        if known is not None:
            alike = self._by_priority[known.priority]
            del alike[name]
            if not alike:
                del self._by_priority[known.priority]
            for pod in known.group_of:
                self._gang_of.pop(pod, None)
        if name not in self._ending:
            self._placer.gone(name, "")

    def _renew_requests(self) -> None:
        """Computes again what every pod requests."""
        self.shapes.clear()
        self._unpark_all()
        for known in self._gangs.values():
            known.kind_of = -1
            for group in known.by_group.values():
                group.unbound = None

    def claims_changed(self) -> None:
        """Follows a change of claims or volumes."""
        self._renew_requests()
        self.look_again()

    def waiting_for_claims(self, gang: str) -> set[str]:
        """Returns the pods of a gang that wait for a claim, their own or one that its minimum
        needs."""
        known = self._gangs.get(gang)
        if known is None:
            return set()
        groups = list(known.by_group.values())
        if gang in self.verdicts and self.verdicts[gang][0] is Waiting.CLAIMS:
            return {name for group in groups for _, _, name in group.waiting}
        return {pod.name for group in groups for pod in group.blocked}

    def is_whole_with(self, gang: str, bindings: Iterable[Binding]) -> bool:
        """Whether a gang has its minimum once these bindings are made."""
        more: dict[str, int] = {}
        for one in bindings:
            more[one.group] = more.get(one.group, 0) + 1
        known = self._gangs[gang]
        return all(
            len(known.by_group[group.name].bound) + more.get(group.name, 0) >= group.min_replicas
            for group in known.groups
        )

    def ending(self, pod: Pod) -> None:
        """Records that a pod on a node was deleted: its room will be free."""
        self._ending.setdefault(pod.gang, {})[pod.name] = pod.deleted_s
        shape = self._releasing[pod.name] = self.shapes.of(pod)
        self.space.releasing(self.space.by_name[pod.node], shape)

    def overdue(self, pod: Pod) -> None:
        """Records that a pod did not end in time: no gang holds other room while waiting for it."""
        shape = self._releasing.pop(pod.name, None)
        if shape is not None:
            self.space.releasing(self.space.by_name[pod.node], shape, -1)

    def ended(self, pod: Pod) -> None:
        """Records that a deleted pod is gone: its room is free."""
        leaving = self._ending[pod.gang]
        del leaving[pod.name]
        if not leaving:
            del self._ending[pod.gang]
        self.overdue(pod)
        self.space.give(self.space.by_name[pod.node], self.shapes.of(pod))
        known = self._gangs.get(pod.gang)
        if known is None or not any(group.bound for group in known.by_group.values()):
            self._placer.gone(pod.gang, pod.set_name)

    def look_again(self) -> None:
        """Requests another look at all waiting gangs, as decisions could not be executed."""
        self._news = True
        self._freed = -1

    def keep(self, gang: str, pods: Iterable[str], until_s: float, says: str) -> None:
        """Excludes pods from eviction until `until_s`: meanwhile a gang looks for other victims,
        and holds no room if there are none."""
        self._kept.update(dict.fromkeys(pods, until_s))
        self._refused[gang] = says
        self.again_s = min(self.again_s, until_s)
        self._news = True

    def _release_kept(self, now_s: float) -> None:
        """Makes pods whose exclusion from eviction is over eligible again."""
        over = [name for name, until_s in self._kept.items() if until_s <= now_s]
        for name in over:
            del self._kept[name]
        if over:
            self._refused.clear()
            self._freed = -1
        self.again_s = min(self._kept.values(), default=INFINITY)

    # One pass.

    def plan(self, now_s: float) -> Planned:
        """Decides which pods get which nodes, and which pods are evicted."""
        self._learn_levels()
        self._news = False
        self._release_kept(now_s)
        freed = self._freed != self.space.freed
        if now_s >= self._unparked_s + SAY_AGAIN_S:
            self._unparked_s = now_s
            self._unpark_all()
        due, settled = list[Rank](), list[Command]()
        for name in list(self._active):
            gang, known = self._view.gangs.get(name), self._gangs[name]
            if gang is None or not any(group.waiting for group in known.by_group.values()):
                del self._waiting[name]
                del self._active[name]
                self._say(name, None, now_s, settled)
            elif freed or known.stands_for != known.version:
                due.append((-known.priority, gang.created_s, _tie(gang), name))
            elif gang.why_pending != self._says(name):
                self._say(name, self.verdicts.get(name), now_s, settled)
        requests, behind = list[GangRequest](), list[tuple[str, PlacementVerdict]]()
        heapify(due)
        for kind in self._parked.kinds() if freed else []:
            self._first_parked(kind, due)
        in_order = self._in_order(due, now_s, requests, behind)
        done = self._placer.plan_in_order(in_order, self._victims)
        return Planned(requests, behind, done, settled, self.space.freed)

    def _in_order(
        self,
        due: list[Rank],
        now_s: float,
        requests: list[GangRequest],
        behind: list[tuple[str, PlacementVerdict]],
    ) -> Iterator[GangRequest]:
        """Yields requests of gangs in order of rank, except for kinds that no longer fit."""
        while due:
            rank = heappop(due)
            name = rank[3]
            gang, known = self._view.gangs[name], self._gangs[name]
            if known.kind is not None and known.kind_of == known.version:
                full = self._placer.full(known.kind)
                if full is not None:
                    behind.append((name, full))
                    if full.stands:
                        self._parked.add(rank, known.kind)
                        del self._active[name]
                    continue
            request = self._request(gang, known, now_s)
            before = known.kind
            known.kind, known.kind_of = kind_of(request), known.version
            requests.append(request)
            yield request
            if known.kind is not None and self._placer.full(known.kind) is None:
                self._first_parked(known.kind, due)
            # Others may be parked behind it as one of its previous kind.
            if before is not None and before != known.kind and self._placer.full(before) is None:
                self._first_parked(before, due)

    def report(self, planned: Planned, now_s: float) -> list[Command]:
        """Returns what has to be written once the bindings are in the view; evictions come last.

        Live, the view changes while pods are bound: planned pods and gangs may be gone.
        """
        done, commands = planned.done, list[Command]()
        near = False
        for binding in done.bindings:
            pod = self._view.pods.get(binding.pod)
            if pod is not None and self.shapes.terms:
                near = near or any(term.near for term in self.shapes.of(pod).rules.matches)
            self._news = self._gangs[binding.gang].follow(binding.pod, pod) or self._news
        if self._whole:
            self._check_admitted(done)
        verdicts = {verdict.gang: verdict for verdict in done.verdicts}
        for name, found in verdicts.items():
            known = self._gangs[name]
            known.stands_for = known.version if found.stands else -1
        placed = {binding.gang for binding in done.bindings}
        for request in planned.requests:
            verdict = verdicts.get(request.name)
            says = None if verdict is None else (verdict.waiting, verdict.says)
            self._say(request.name, says, now_s, commands)
            if request.name in placed:
                self._placed(request, now_s, commands)
        for name, found in planned.behind:
            self._say_behind(name, found, now_s, commands)
        self._evict(done, now_s, commands)
        # Pods that others want to be near are like room that became free.
        self._freed = -1 if near else planned.freed
        return commands

    def _say_behind(
        self, name: str, found: PlacementVerdict, now_s: float, commands: list[Command]
    ) -> None:
        known = self._gangs.get(name)
        if known is None:
            return
        known.stands_for = known.version if found.stands else -1
        before = self.verdicts.get(name)
        if before is None or before[0] is not found.waiting or now_s >= known.said_s + SAY_AGAIN_S:
            self._say(name, (found.waiting, found.says), now_s, commands)

    def _check_admitted(self, done: Pass) -> None:
        for name in dict.fromkeys(binding.gang for binding in done.bindings):
            for group in self._view.gangs[name].groups:
                have = len(self._gangs[name].by_group[group.name].bound)
                if have < group.min_replicas:
                    self.half_admitted.append(f"{group.name} has {have} of {group.min_replicas}")

    def _learn_levels(self) -> None:
        for name, levels in self._view.levels.items():
            keys = list(levels.values())
            if self._levels.get(name) != keys:
                self._levels[name] = keys
                self.space.add_topology(name, keys, list(levels))
                self._unpark_all()
                for known in self._gangs.values():
                    known.kind_of = -1
        for name in [name for name in self._levels if name not in self._view.levels]:
            del self._levels[name]
            self.space.remove_topology(name)

    def _evict(self, done: Pass, now_s: float, commands: list[Command]) -> None:
        for eviction in done.evictions:
            gang = self._view.gangs.get(eviction.gang)
            if gang is None:
                continue
            says = f"makes way for {eviction.in_favour_of}, which has a higher priority"
            self._condition(gang, DISRUPTION, TRUE, "Preempted", says, now_s, commands)
            key = f"Preempted/{gang.uid}/{eviction.in_favour_of}/{now_s}"
            commands.append(_event(gang, key, WARNING, "Preempted", says, now_s))
        for eviction in done.evictions:
            pod = self._view.pods.get(eviction.pod)
            if pod is not None:
                why = f"it makes way for {eviction.in_favour_of}"
                commands.append(Delete(pod, why))

    # Requests.

    def _request(self, gang: PodGang, known: GangPods, now_s: float) -> GangRequest:
        """Builds a gang's current request."""
        view = self._view
        groups = []
        for group in gang.groups:
            found = known.by_group[group.name]
            clique = view.cliques.get(group.name)
            notes = clique.template.annotations if clique is not None else {}
            groups.append(
                GroupRequest(
                    group.name,
                    group.min_replicas,
                    self._unbound_pods(found),
                    list(found.nodes),
                    _pack(group.pack),
                    spread_of(notes, gang.topology, view.levels),
                    list(found.blocked),
                )
            )
        owner = view.sets.get(gang.set_name)
        set_notes = owner.spec.annotations if owner is not None else {}
        parts = [
            PartRequest(g.name, list(g.pod_groups), _pack(g.pack) or PackConstraint())
            for g in gang.pack_groups
        ]
        reuse = gang.reuse or (gang.name if reuses(set_notes) else "")
        return GangRequest(
            gang.name,
            groups,
            priority=known.priority,
            order=gang.created_s,
            tie=_tie(gang),
            parts=parts,
            pack=_pack(gang.pack),
            spread=None if gang.base else spread_of(set_notes, gang.topology, view.levels),
            family=gang.set_name,
            topology=gang.topology,
            reuse=reuse,
            patient=bool(reuse) and self._is_patient(reuse, now_s),
            near=self._base_nodes(gang, known),
            preempts=self._preempts(gang),
        )

    def _unbound_pods(self, group: GroupPods) -> list[UnboundPod]:
        """Returns the requests of the pods that can be placed, and looks up which are blocked."""
        if group.unbound is None:
            group.unbound, group.blocked = [], []
            for _, _, name in group.waiting:
                pod = self._view.pods[name]
                why = "" if self._claims is None else self._claims.of(pod).why
                request = UnboundPod(name, self.shapes.of(pod), why)
                (group.blocked if why else group.unbound).append(request)
        return list(group.unbound)

    def _base_nodes(self, gang: PodGang, known: GangPods) -> list[str]:
        """Returns the nodes of the base gang: a new scaled gang is placed as close to it as
        possible."""
        base = self._gangs.get(gang.base) if gang.base else None
        if base is None or any(group.bound for group in known.by_group.values()):
            return []
        return base.nodes()

    def _preempts(self, gang: PodGang) -> bool:
        """Whether it may preempt others: not if one of its pod specs says `preemptionPolicy:
        Never`."""
        cliques = [self._view.cliques.get(group.name) for group in gang.groups]
        specs = [one.template.pod_spec for one in cliques if one is not None]
        return all(spec.get("preemptionPolicy") != "Never" for spec in specs)

    def _is_patient(self, gang: str, now_s: float) -> bool:
        """Whether pods of a gang are terminating, and for less than `PATIENCE_S`."""
        until_s = [since_s + PATIENCE_S for since_s in self._ending.get(gang, {}).values()]
        late_s = max(until_s, default=now_s)
        if late_s > now_s:
            self.again_s = min(self.again_s, late_s)
        return late_s > now_s

    def _victims(self, below: int) -> list[Victim]:
        found = []
        for priority in sorted(self._by_priority):
            if priority >= below:
                break
            for name in self._by_priority[priority]:
                gang, known = self._view.gangs[name], self._gangs[name]
                members = [one for group in gang.groups for one in self._members(group, known)]
                if self._kept:
                    members = self._may_go(members)
                if members:
                    found.append(Victim(name, priority, gang.created_s, members, _tie(gang)))
        return found

    def _may_go(self, members: list[Member]) -> list[Member]:
        """Returns the pods of a gang that may be evicted: of its minimum, all or none."""
        whole = not any(one.pod in self._kept and not one.extra for one in members)
        return [one for one in members if one.pod not in self._kept and (whole or one.extra)]

    def _members(self, group: PodGroup, known: GangPods) -> list[Member]:
        pods = [self._view.pods[name] for _, _, name in known.by_group[group.name].bound]
        return [
            Member(pod.name, pod.node, self.shapes.of(pod), extra=place >= group.min_replicas)
            for place, pod in enumerate(pods)
        ]

    # Reports.

    def _say(
        self, name: str, verdict: tuple[Waiting, str] | None, now_s: float, commands: list[Command]
    ) -> None:
        gang = self._view.gangs.get(name)
        if verdict is None:
            self.verdicts.pop(name, None)
            self._refused.pop(name, None)
        else:
            verdict = (verdict[0], self._refused.get(name, verdict[1]))
            self.verdicts[name] = verdict
            known = self._gangs.get(name)
            if known is not None:
                known.said_s = now_s
        if gang is None:
            return
        says = "" if verdict is None else verdict[1]
        if gang.why_pending != says:
            commands.append(PatchGangPlacement(gang, says, gang.placement_score))
        if verdict is not None and verdict[0] is not Waiting.EXTRAS:
            key = f"Unschedulable/{gang.uid}/{verdict[0].value}"  # once for each cause
            commands.append(_event(gang, key, WARNING, "Unschedulable", says, now_s))

    def _placed(self, request: GangRequest, now_s: float, commands: list[Command]) -> None:
        gang, known = self._view.gangs.get(request.name), self._gangs[request.name]
        if gang is None or gang.groups is not known.groups:
            return  # it has changed while its pods were bound
        enough = all(
            len(known.by_group[group.name].bound) >= group.min_replicas for group in gang.groups
        )
        if enough:
            score = self._score(request, known)
            if score != gang.placement_score:
                commands.append(PatchGangPlacement(gang, self._says(request.name), score))
            self._condition(gang, DISRUPTION, "", "", "", now_s, commands)
            says = "the minimum of every group has nodes"
            key = f"Scheduled/{gang.uid}"
            commands.append(_event(gang, key, NORMAL, "Scheduled", says, now_s))

    def _score(self, request: GangRequest, known: GangPods) -> float:
        """Returns how close its pods are: 1 in one domain of the narrowest level, 0 in none."""
        tree = self.space.tree(request.topology, keys_of(request))
        close = known.closeness
        if close is None or close.tree is not tree:
            close = known.closeness = Closeness(tree, known.nodes())
        level = close.level(self.space)
        return (level + 1) / len(tree.keys) if tree.keys else 0.0

    def _condition(
        self,
        gang: PodGang,
        kind: str,
        status: str,
        reason: str,
        says: str,
        now_s: float,
        commands: list[Command],
    ) -> None:
        known = gang.conditions.get(kind)
        if (known is None and not status) or (
            known is not None and known.says(status, reason, says)
        ):
            return
        since_s = known.since_s if known is not None and known.status == status else now_s
        condition = Condition(kind, status, reason, says, since_s)
        commands.append(SetCondition(gang, condition))


def _event(gang: PodGang, key: str, level: str, reason: str, says: str, now_s: float) -> Emit:
    """Builds an event that is reported once: a second one with the same key is the same event."""
    return Emit(ObjectEvent(key, level, GANG, gang.name, reason, says, now_s))


def _tie(gang: PodGang) -> Tie:
    return (gang.set_name, gang.replica, len(gang.name))


def _pack(pack: PackKeys | None) -> PackConstraint | None:
    if pack is None or not (pack.required or pack.preferred):
        return None
    return PackConstraint(pack.required or None, pack.preferred or None)
