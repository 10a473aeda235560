"""A cluster in virtual time: it takes pods from scheduling to readiness to their end.

Its driver asks for `next_s`, calls `advance(now_s)` at that time, and `apply(commands, now_s)`
whenever a controller issues commands. Every pod has at most one next event, and an hour in which
nothing happens costs nothing.
"""

from collections.abc import Callable, Iterable
from typing import Final

from windtunnel.core.loop import INFINITY, Component, Entry, EventQueue
from windtunnel.core.random import Streams
from windtunnel.gangs.commands import Command
from windtunnel.gangs.objects import PENDING, RUNNING, Node, Pod
from windtunnel.gangs.placement.constraints import stay_s
from windtunnel.gangs.placement.one_by_one import OneByOnePlacer
from windtunnel.gangs.placement.placer import GangPlacer
from windtunnel.gangs.placement.scheduler import GangScheduler, Placer
from windtunnel.gangs.placement.space import Space
from windtunnel.gangs.servers import grace_s
from windtunnel.twin.kubernetes.api_server import ApiServer
from windtunnel.twin.kubernetes.probes import pod_start, recycle_cause, recycle_loops
from windtunnel.twin.kubernetes.times import ClusterDice, PodDelay, PodTimes

PULLED: Final = "pulled"
STARTED: Final = "started"
READY: Final = "ready"
PROBED: Final = "probed"
CRASHED: Final = "crashed"
GONE: Final = "gone"
OVERDUE: Final = "overdue"
FORCED: Final = "forced"
LOOK: Final = "look"
LOOK_AGAIN: Final = "look-again"
LOST: Final = "lost"
EVICTED: Final = "evicted"

BACKOFF_S: Final = 10.0
LONGEST_BACKOFF_S: Final = 300.0
"""Wait between restarts of crashing containers: it doubles each time, as in the kubelet."""
NOT_SAID: Final = -1.0


class _Life:
    """The cluster's state of a pod that is on a node."""

    __slots__ = ("crashes", "ending", "entry", "overdue", "running", "steps", "stuck", "unready")

    def __init__(self) -> None:
        self.entry: Entry | None = None  # its next event
        self.overdue: Entry | None = None  # the end of its grace period, while it is stuck
        self.crashes = 0
        self.running = False  # its containers run
        self.steps: list[tuple[float, str]] = []  # events of their start, the next one last
        self.unready: list[tuple[float, float]] = []  # when a container is started and not ready
        self.ending = False  # it is terminating
        self.stuck = False  # it does not end when it is deleted

    def is_unready(self, now_s: float) -> bool:
        return any(began_s <= now_s < ended_s for began_s, ended_s in self.unready)


class _Due:
    """An event of a pod or a node, or a pass of the scheduler."""

    __slots__ = ("kind", "name", "stay_s", "uid")

    def __init__(self, kind: str, name: str = "", uid: str = "", stay_s: float = 0.0) -> None:
        self.kind: Final = kind
        self.name: Final = name
        self.uid: Final = uid
        self.stay_s: Final = stay_s  # of an eviction: how long its pods stay on a failed machine


class SimCluster(Component):
    """Machines, pods and the scheduler, which act through the API server."""

    def __init__(
        self,
        server: ApiServer,
        *,
        seed: int = 0,
        times: PodTimes | None = None,
        load: PodDelay | None = None,
        serves: bool = False,
        one_by_one: bool = False,
    ) -> None:
        self.server: Final = server
        self.view: Final = server.view
        self.times: Final = times or PodTimes()
        force_after_s = self.times.force_after_s
        self._force_after_s: Final = INFINITY if force_after_s is None else force_after_s
        self._serves: Final = serves
        """Whether its pods serve the requests of a run, so that none is ready before it has
        loaded."""
        self.dice: Final = ClusterDice(self.times.delays(load), Streams(seed))
        self._queue: Final = EventQueue()
        self._lives: Final[dict[str, _Life]] = {}
        self._on: Final[dict[str, dict[str, None]]] = {}  # by node: its pods
        self._images: Final[dict[str, dict[str, None]]] = {}  # by node: pulled images
        self._ready_count: Final[dict[str, int]] = {}  # by uid of the clique: its ready pods
        self._start_after: Final[dict[str, dict[int, list[str]]]] = {}
        """By clique, and by how many of its pods must be ready: pods that start after that."""
        self._crashing: Final[dict[str, None]] = {}  # cliques whose containers crash
        self._pass_due = False
        self._changes: Final = server.view.watch()
        self.holds: Callable[[Pod], bool] = _never
        """Whether a terminating pod has to wait for `unstick`, as with a preStop hook."""
        space = Space()
        placer: Placer = OneByOnePlacer(space) if one_by_one else GangPlacer(space)
        self.scheduler: Final = GangScheduler(self.view, space, placer, whole=not one_by_one)
        for node in self.view.nodes.values():
            self._join(node)

    def recycle_loops(self) -> list[str]:
        """Descriptions of what is terminated again and again before it is ready."""
        return recycle_loops(self.view, self.dice.mean_s("readiness"), serves=self._serves)

    def recycle_cause(self, name: str) -> str:
        """Why gangs of a set or group never become ready; empty when unknown."""
        group = self.view.groups.get(name)
        owner = self.view.sets.get(name if group is None else group.set_name)
        if owner is None:
            return ""
        return recycle_cause(owner, self.dice.mean_s("readiness"), serves=self._serves)

    # The clock.

    def next_s(self) -> float:
        """Time of the next event; infinity: none is pending."""
        return self._queue.next_s

    def advance(self, now_s: float) -> None:
        """Does everything that is due by now."""
        self.absorb(now_s)
        while self._queue.next_s <= now_s:
            entry = self._queue.pop()
            assert entry is not None
            due = entry.payload
            assert isinstance(due, _Due)
            self._happen(due, entry.time_s)
            self.absorb(entry.time_s)

    def apply(self, commands: Iterable[Command], now_s: float) -> list[Command]:
        """Carries out commands and their immediate consequences; returns the refused ones."""
        refused = [command for command in commands if not self.server.apply(command, now_s)]
        self.absorb(now_s)
        return refused

    def absorb(self, now_s: float) -> None:
        """Processes changes: pods that may be placed, and pods that must end."""
        changes = self._changes
        if not (changes.pods or changes.gangs or changes.nodes):
            return
        self.scheduler.absorb(changes)
        for name in list(changes.pods):
            pod = self.view.pods.get(name)
            if pod is not None and pod.terminating and pod.node:
                self._begin_to_end(pod, now_s)
        changes.clear()
        self._look(now_s)

    def _look(self, now_s: float) -> None:
        """Schedules a pass of the scheduler when there is news for it."""
        if self.scheduler.has_news and not self._pass_due:
            self._pass_due = True
            self._queue.push(now_s + self.dice.draw_s("scheduling"), 1, _Due(LOOK))

    def _happen(self, due: _Due, now_s: float) -> None:
        if due.kind in (LOOK, LOOK_AGAIN):
            self._pass_due = self._pass_due and due.kind == LOOK_AGAIN
            self._schedule(now_s)
            if now_s < self.scheduler.again_s < INFINITY:
                self._queue.push(self.scheduler.again_s, 1, _Due(LOOK_AGAIN))
            return
        if due.kind in (LOST, EVICTED):
            self._node_lost(due, now_s)
            return
        pod = self.view.pods.get(due.name)
        if pod is None or pod.uid != due.uid:
            return
        if due.kind == OVERDUE:
            self._lives[pod.name].overdue = None
            self.scheduler.overdue(pod)
            self._look(now_s)
            return
        self._lives[pod.name].entry = None
        if due.kind == PULLED:
            self._start_in_order(pod, now_s)
        elif due.kind == STARTED:
            self._started(pod, now_s)
        elif due.kind == PROBED:
            self._probed(pod, now_s)
        elif due.kind == READY:
            self._ready(pod, now_s)
        elif due.kind == CRASHED:
            self._crashed(pod, now_s)
        else:
            assert due.kind in (GONE, FORCED), due.kind
            self._gone(pod)

    def _schedule(self, now_s: float) -> None:
        """Runs one pass of the scheduler: binds placed pods, and writes its verdicts."""
        planned = self.scheduler.plan(now_s)
        for command in planned.settled:
            self.server.apply(command, now_s)
        bound = [self.view.pods[binding.pod] for binding in planned.bindings]
        for pod, binding in zip(bound, planned.bindings, strict=True):
            pod.node = binding.node
            pod.scheduled_s = now_s
            self.server.wrote(pod)
        for command in self.scheduler.report(planned, now_s):
            self.server.apply(command, now_s)
        for pod in bound:
            self._arrive(pod, now_s)

    # The lifecycle of a pod.

    def _cancel(self, life: _Life) -> None:
        if life.entry is not None:
            self._queue.cancel(life.entry)
            life.entry = None

    def _plan(self, pod: Pod, kind: str, at_s: float) -> None:
        life = self._lives[pod.name]
        self._cancel(life)
        life.entry = self._queue.push(at_s, 0, _Due(kind, pod.name, pod.uid))

    def _arrive(self, pod: Pod, now_s: float) -> None:
        self._lives[pod.name] = _Life()
        self._on[pod.node][pod.name] = None
        images = self._images[pod.node]
        image = _images_of(pod)
        pull_s = 0.0 if image in images else self.dice.draw_s("image_pull")
        images[image] = None
        self._plan(pod, PULLED, now_s + pull_s)

    def _start_in_order(self, pod: Pod, now_s: float) -> None:
        """Starts containers once every preceding clique has enough ready pods."""
        for clique, count in pod.waits_for:
            if self._ready_pods(clique) < count:
                self._start_after.setdefault(clique, {}).setdefault(count, []).append(pod.name)
                return
        self._plan(pod, STARTED, now_s + self.dice.draw_s("startup"))

    def _ready_pods(self, name: str) -> int:
        clique = self.view.cliques.get(name)
        return 0 if clique is None else self._ready_count.get(clique.uid, 0)

    def _set_ready(self, pod: Pod, *, ready: bool) -> None:
        """Sets whether a pod is ready: the one place that counts ready pods."""
        if pod.ready != ready:
            pod.ready = ready
            count = self._ready_count.get(pod.clique_uid, 0) + (1 if ready else -1)
            self._ready_count[pod.clique_uid] = count

    def _started(self, pod: Pod, now_s: float) -> None:
        """Starts the containers of a pod; its probes determine what follows."""
        life = self._lives[pod.name]
        life.running = True
        pod.phase = RUNNING
        load_s = self.dice.draw_s("readiness")
        start = pod_start(pod.template.pod_spec, load_s, serves=self._serves)
        crash_s = self.times.crash_after_s if pod.clique in self._crashing else INFINITY
        end_s = min(crash_s, start.killed_s, start.ready_s)
        steps = [(end_s, READY if end_s < min(crash_s, start.killed_s) else CRASHED)]
        for began_s, ended_s in start.unready:
            steps += [(at_s, PROBED) for at_s in (began_s, ended_s) if at_s < end_s]
        life.unready = [(now_s + began_s, now_s + ended_s) for began_s, ended_s in start.unready]
        pod.started = life.is_unready(now_s)
        life.steps = [(now_s + at_s, kind) for at_s, kind in sorted(steps, reverse=True)]
        while life.steps[-1] == (now_s, PROBED):
            life.steps.pop()
        if life.steps[-1] == (now_s, READY):
            self._ready(pod, now_s)
            return
        self.server.wrote(pod)
        self._next_step(pod)

    def _next_step(self, pod: Pod) -> None:
        at_s, kind = self._lives[pod.name].steps.pop()
        self._plan(pod, kind, at_s)

    def _probed(self, pod: Pod, now_s: float) -> None:
        """Updates whether a container of the pod is started but not ready."""
        unready = self._lives[pod.name].is_unready(now_s)
        if pod.started != unready:
            pod.started = unready
            self.server.wrote(pod)
        self._next_step(pod)

    def _ready(self, pod: Pod, now_s: float) -> None:
        self._set_ready(pod, ready=True)
        pod.started = True
        pod.ready_s = now_s
        pod.erroneous = False
        self.server.wrote(pod)
        if pod.clique in self._crashing:
            self._plan(pod, CRASHED, now_s + self.times.crash_after_s)
        start_after, ready = self._start_after.get(pod.clique, {}), self._ready_pods(pod.clique)
        for count in [count for count in start_after if count <= ready]:
            for name in start_after.pop(count):
                waiting = self.view.pods.get(name)
                if waiting is None or waiting.terminating or self._lives[name].running:
                    continue
                self._start_in_order(waiting, now_s)

    def _crashed(self, pod: Pod, now_s: float) -> None:
        life = self._lives[pod.name]
        life.running = False
        self._set_ready(pod, ready=False)
        pod.started = False
        pod.erroneous = True
        self.server.wrote(pod)
        backoff_s = min(LONGEST_BACKOFF_S, BACKOFF_S * 2.0**life.crashes)
        life.crashes = min(life.crashes + 1, 10)
        self._plan(pod, STARTED, now_s + backoff_s)

    def _begin_to_end(self, pod: Pod, now_s: float) -> None:
        life = self._lives[pod.name]
        if life.ending:
            return
        life.ending = True
        life.stuck = life.stuck or self.holds(pod)
        self._cancel(life)
        self.scheduler.ending(pod)
        if not life.stuck:
            self._plan(pod, GONE, now_s + min(self.dice.draw_s("ending"), grace_s(pod)))
            return
        due = _Due(OVERDUE, pod.name, pod.uid)
        life.overdue = self._queue.push(max(now_s, pod.deleted_s + grace_s(pod)), 0, due)
        if self._force_after_s < INFINITY:
            self._plan(pod, FORCED, now_s + self._force_after_s)

    def _gone(self, pod: Pod) -> None:
        self.scheduler.ended(pod)
        self._set_ready(pod, ready=False)
        overdue = self._lives.pop(pod.name).overdue
        if overdue is not None:  # no event of a removed pod remains
            self._queue.cancel(overdue)
        del self._on[pod.node][pod.name]
        self.server.remove_pod(pod)

    # Changes of pods from outside.

    def crash(self, pod: Pod, now_s: float) -> None:
        """Crashes the containers of a pod once; they are restarted."""
        life = self._lives.get(pod.name)
        if life is not None and life.running and not pod.terminating:
            self._crashed(pod, now_s)
            self.absorb(now_s)

    def crash_loop(self, clique: str, now_s: float) -> None:
        """Makes containers of a clique crash soon after each start from now on."""
        self._crashing[clique] = None
        for pod in list(self._pods_of(clique)):
            self.crash(pod, now_s)

    def mend(self, clique: str) -> None:
        """Ends the crashes of a clique's containers; those that wait for a restart start
        normally."""
        self._crashing.pop(clique, None)
        for pod in self._pods_of(clique):
            life = self._lives.get(pod.name)
            if life is not None and life.entry is not None and _kind(life.entry) == CRASHED:
                at_s = life.entry.time_s
                if pod.ready:
                    self._cancel(life)
                else:
                    self._plan(pod, READY, at_s)

    def _pods_of(self, clique: str) -> list[Pod]:
        found = self.view.cliques.get(clique)
        return [] if found is None else list(found.pods.values())

    def delete_pod(self, name: str, now_s: float) -> None:
        """Deletes a pod, as a user would."""
        self.server.delete_pod(self.view.pods[name], now_s)
        self.absorb(now_s)

    def unstick(self, name: str, now_s: float) -> None:
        """Lets a pod end that was held, or is on a failed machine."""
        life, pod = self._lives[name], self.view.pods[name]
        life.stuck = False
        if pod.terminating:
            self._plan(pod, GONE, now_s)

    # Changes of machines.

    def add_node(self, node: Node, now_s: float) -> None:
        """Adds a machine; a machine of the same name may have been here before."""
        if node.name in self.view.nodes:
            self.recover(node.name, now_s)
            self.uncordon(node.name, now_s)
            return
        self.server.add_node(node, now_s)
        self._join(node)
        self.absorb(now_s)
        self._look(now_s)

    def remove_node(self, name: str, now_s: float) -> None:
        """Removes a machine and its pods, for good or until a machine of its name joins."""
        self.drain(name, now_s)
        for pod in self._pods_on(name):
            self._cancel(self._lives[pod.name])
            self._gone(pod)
        node = self.view.nodes[name]
        node.ready = False
        self._images[name].clear()
        self._node_changed(node, now_s)

    def _join(self, node: Node) -> None:
        self.scheduler.add_node(node)
        self.scheduler.node_changed(node)
        self._images[node.name] = {}
        self._on[node.name] = {}

    def cordon(self, name: str, now_s: float) -> None:
        """Keeps new pods off a node; its present pods stay."""
        self._set_cordon(name, now_s, cordoned=True)

    def uncordon(self, name: str, now_s: float) -> None:
        self._set_cordon(name, now_s, cordoned=False)

    def _set_cordon(self, name: str, now_s: float, *, cordoned: bool) -> None:
        node = self.view.nodes[name]
        if node.cordoned != cordoned:
            node.cordoned = cordoned
            self._node_changed(node, now_s)

    def _node_changed(self, node: Node, now_s: float) -> None:
        self.scheduler.node_changed(node)
        self.server.wrote(node)
        self.absorb(now_s)
        self._look(now_s)

    def drain(self, name: str, now_s: float) -> None:
        """Keeps new pods off a node, and deletes its present pods."""
        self.cordon(name, now_s)
        for pod in self._pods_on(name):
            self.server.delete_pod(pod, now_s)
        self.absorb(now_s)

    def fail(self, name: str, now_s: float) -> None:
        """Stops a machine. Its pods cannot terminate until it is back."""
        node = self.view.nodes[name]
        if not node.ready:
            return
        node.ready = False
        for pod in self._pods_on(name):
            life = self._lives[pod.name]
            self._cancel(life)
            life.stuck = True
            if life.ending and self._force_after_s < INFINITY:
                self._plan(pod, FORCED, now_s + self._force_after_s)
        self._images[name].clear()
        self._queue.push(now_s + self.times.node_lost_after_s, 0, _Due(LOST, name, node.uid))
        stays_s = [self.times.evict_after_s, *[self._stay_s(pod) for pod in self._pods_on(name)]]
        for after_s in dict.fromkeys(stays_s):
            if after_s < INFINITY:
                self._queue.push(now_s + after_s, 0, _Due(EVICTED, name, node.uid, after_s))
        self._node_changed(node, now_s)

    def _stay_s(self, pod: Pod) -> float:
        """How long a pod is left on a failed machine: its toleration counts from when the failure
        is noticed."""
        own_s = stay_s(pod.template.pod_spec, NOT_SAID)
        return self.times.evict_after_s if own_s < 0.0 else self.times.node_lost_after_s + own_s

    def _node_lost(self, due: _Due, now_s: float) -> None:
        node = self.view.nodes[due.name]
        if node.ready:
            return
        for pod in self._pods_on(due.name):
            if due.kind == EVICTED:
                if self._stay_s(pod) == due.stay_s:
                    self.server.delete_pod(pod, now_s)
            elif pod.ready:
                self._set_ready(pod, ready=False)
                self.server.wrote(pod)

    def recover(self, name: str, now_s: float) -> None:
        """Brings back a machine: terminating pods end, and the others start again."""
        node = self.view.nodes[name]
        if node.ready:
            return
        node.ready = True
        for pod in self._pods_on(name):
            life = self._lives[pod.name]
            life.stuck = life.running = False
            if pod.terminating:
                self._plan(pod, GONE, now_s)
            else:
                self._set_ready(pod, ready=False)
                pod.started = False
                pod.phase = PENDING
                self.server.wrote(pod)
                self._plan(pod, PULLED, now_s + self.dice.draw_s("image_pull"))
        self._node_changed(node, now_s)

    def is_empty(self, name: str) -> bool:
        """Whether a machine has no pods, not even terminating ones."""
        return not self._on[name]

    def _pods_on(self, node: str) -> list[Pod]:
        return [self.view.pods[name] for name in self._on[node]]


def _never(pod: Pod) -> bool:  # noqa: ARG001 - no pod waits
    return False


def _kind(entry: Entry) -> str:
    due = entry.payload
    assert isinstance(due, _Due)
    return due.kind


def _images_of(pod: Pod) -> str:
    containers = pod.template.pod_spec.get("containers")
    if not isinstance(containers, list):
        return ""
    return " ".join(sorted(str(one.get("image")) for one in containers if isinstance(one, dict)))
