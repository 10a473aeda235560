"""A soak of three `windtunnel operate --place` on a real API server with faults, beside the twin.

Each of three namespaces has a set that is edited at random, on the real cluster and on the
simulated one. Operators are killed and stopped, their requests fail, are shed, delayed, cut and
lose their answers; the API server is killed and its history compacted. Invariants: never two pods
at an index, never two pods on a node for one, no gang partly bound once its set has settled, as
many terminations as in the twin, and after every edit the same end state.

A third operator is never killed: its memory from minute to minute would show a leak.

    python -m benchmarks.operator_soak SECONDS SEED LOG    (defaults: 120, 0, a temporary file)
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import tempfile
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

from tests.gangs.manifests import clique, group, pod_clique_set
from tests.kubernetes.chaos import Chaos, Cut, Delay, Fate, Refuse, Swallow, chaos
from tests.kubernetes.cluster import Cluster, open_cluster
from tests.kubernetes.control_plane import StageControlPlane, build, why_not
from tests.kubernetes.gang_stage import Stage, StageKubelets, stage
from tests.kubernetes.test_side_by_side import FATES, Both

from benchmarks.operator_speed import claim, cpu_of, memory_of
from windtunnel.core.clock import monotonic_s
from windtunnel.core.random import Stream, Streams
from windtunnel.gangs.commands import CreatePod
from windtunnel.gangs.view import View
from windtunnel.live.kubernetes.resources import NODES, PODS, Plain, Unstructured
from windtunnel.live.rehearse.control_plane import API_SERVER
from windtunnel.live.rehearse.kubelets import add_node
from windtunnel.live.system import new_loop

SPACES: Final = 3
ROOM: Final = 36
"""Nodes of a namespace, for one pod each."""
DELAY_S: Final = 90.0
"""Delay from a breach to a termination, longer than any fault blocks the operators' repairs."""
STOPPED_S: Final = 20.0
"""Longer than a lease: the other operator leads when the stopped one resumes."""
SETTLED_S: Final = 240.0
PAUSE_S: Final = 20.0
FAULTS_S: Final = (8.0, 25.0)
MOST_MB: Final = 150.0
MINUTE_S: Final = 60.0


class Invariants:
    """Invariants on the pods of a namespace, checked after every event."""

    def __init__(self, kubelets: StageKubelets) -> None:
        self._kubelets: Final = kubelets
        self.broken: Final[list[str]] = []
        self.events = 0
        self.trail: Final[list[str]] = []
        kubelets.subscribe(self._look)

    def _look(self, before: Unstructured | None, after: Unstructured | None) -> None:
        self.events += 1
        pod = after or before
        assert pod is not None
        meta, deleted = pod.metadata, pod.metadata.deletion_timestamp
        what = "gone" if after is None else "deleted" if deleted else "made" if not before else ""
        if what:
            self.trail.append(f"    {monotonic_s():.2f} {what} {meta.name} {meta.uid[:4]}")
        if before is not None and after is not None:
            was, now = before.spec.get("nodeName"), after.spec.get("nodeName")
            if was and was != now:
                self._tell(f"{meta.name} went from {was} to {now}")
        # A list is taken object by object; it is judged as a whole.
        asyncio.get_running_loop().call_soon(self._judge)

    def _judge(self) -> None:
        indices: Counter[tuple[str, str]] = Counter()
        nodes: Counter[str] = Counter()
        for pod in self._kubelets.pods:
            owner = pod.metadata.controller
            if pod.metadata.deletion_timestamp is None and owner is not None:
                indices[owner.uid, pod.spec["hostname"]] += 1
            nodes[pod.spec.get("nodeName") or ""] += 1
        del nodes[""]
        for place, count in [*indices.items(), *nodes.items()]:
            if count > 1:
                self._tell(f"{count} pods at {place}")

    def _tell(self, what: str) -> None:
        if what not in self.broken:
            self.broken.append(what)
            print("BROKEN", what, *self.trail, sep="\n", flush=True)


class Soaked(Both):
    """A namespace, its twin, and its edits."""

    def __init__(self, on: Stage, proxy: Chaos, stream: Stream, editing: asyncio.Lock) -> None:
        super().__init__(on, proxy, on.client, stream, ROOM)
        self.editing: Final = editing
        self.invariants: Final = Invariants(on.kubelets)
        self.edits: Final[Counter[str]] = Counter()
        self.slowest_s = 0.0
        self.extra = 0
        self.raced = 0
        """Pods that were to find no node, and got one before their operator saw the cordons."""

    def manifest(self, replicas: int = 1) -> dict[str, Any]:
        roles = [clique("a", 2), clique("b", 1), clique("c", 2)]
        for number, role in enumerate(roles):
            if self.version % 3 >= number:
                role["labels"] = {"version": str(self.version)}
            pod = role["spec"]["podSpec"]
            pod["schedulerName"] = "windtunnel"
            pod["nodeSelector"] = {"space": self.on.space}
        delay = f"{DELAY_S:g}s"
        groups = [group("g", ["b", "c"], 2, 1)]
        return pod_clique_set(roles, groups, replicas, terminationDelay=delay)

    def outcome(self, view: View) -> dict[str, Any]:
        ended = [(one.name.rpartition("/")[2], sorted(one.status.incarnations.items()))
                 for known in (view.sets, view.groups) for one in known.values()]  # fmt: skip
        # References of gangs to pods come a moment after the pods.
        half = [] if view is self.twin.view else self.half_bound()
        more = {"terminations": sorted(ended), "bound in part": half}
        return {**super().outcome(view), **more}

    async def settle(self, patience_s: float = SETTLED_S) -> None:
        """Waits until both have the same end state and the same number of pods created."""
        await super().settle(patience_s)
        try:
            async with asyncio.timeout(patience_s):
                while len(self.on.ever) < self.made:
                    await asyncio.sleep(0.2)
        except TimeoutError:
            said = f"{self.made - len(self.on.ever)} pods that the twin has made were never made"
            raise AssertionError(said) from None
        await super().settle(patience_s)

    @property
    def made(self) -> int:
        """Pods that the twin has created, plus those that the cluster created beyond that."""
        ours = sum(isinstance(command, CreatePod) for command in self.twin.commands)
        return ours + self.extra

    async def begin(self) -> None:
        for number in range(ROOM):
            labels = {"space": self.on.space}
            await add_node(self.on.client, f"{self.on.space}-{number}", labels, {"pods": "1"})
        await self.on.apply(self.manifest())
        await self.settle(SETTLED_S)

    async def edit(self) -> None:
        edits: list[Callable[[], Awaitable[None]]] = [
            *[self.change_templates, self.scale, self.scale, self.lose_pods] * 2,
            self.delete_and_apply,
            self.take_a_label_off,
            self.terminate,
        ]
        one = self.chosen(edits)
        self.edits[one.__name__] += 1
        self.invariants.trail.clear()
        began_s = monotonic_s()
        print(f"{began_s:.0f} {self.on.space[-4:]} {one.__name__}", flush=True)
        if one == self.terminate:
            await one()
        else:
            async with self.editing:
                await one()
        try:
            await self.settle(SETTLED_S)
        except AssertionError:
            print("NOT SETTLED", *self.invariants.trail, sep="\n", flush=True)
            raise
        self.slowest_s = max(self.slowest_s, monotonic_s() - began_s)
        print(f"{monotonic_s():.0f} {self.on.space[-4:]} {one.__name__}: settled after "
              f"{monotonic_s() - began_s:.1f} s, {len(self.on.ever)} pods", flush=True)  # fmt: skip
        if len(self.on.ever) > self.made:
            self.extra += len(self.on.ever) - self.made
            print("\n".join(self.invariants.trail), flush=True)

    async def terminate(self) -> None:
        """Loses a pod while no node is free: its gang is terminated once, and comes back."""
        lost = self.chosen(self.twin.pods() or [None])
        if lost is None:
            return
        async with self.editing:
            taken = {pod.spec.get("nodeName") for pod in self.on.kubelets.alive()}
            for number in range(ROOM):
                name = f"{self.on.space}-{number}"
                if name not in taken:
                    await self._cordon(name, cordoned=True)
            (same,) = self.counterparts([lost])
            await self._cordon(same.spec["nodeName"], cordoned=True)
            name, uid = same.metadata.name, same.metadata.uid
            before = {pod.metadata.uid for pod in self.on.kubelets.alive(lost.clique)}
            await self.on.client.delete(PODS, self.on.space, name, uid=uid, grace_s=0)
        if await self._is_bound_again(lost.clique, before):
            self.raced += 1
            self.twin.kill(lost, shut=False)
        else:
            self.twin.close_free()
            self.twin.kill(lost)
            self.twin.run(DELAY_S + 10.0)
            await self._until_terminated()
            self.twin.open()
        async with self.editing:
            for number in range(ROOM):
                await self._cordon(f"{self.on.space}-{number}", cordoned=False)

    async def _is_bound_again(self, clique: str, before: set[str]) -> bool:
        """Whether the pod in the place of a lost one gets a node: one that was just cordoned, by an
        operator whose watch of nodes is behind that of pods. Else it says that it waits."""
        async with asyncio.timeout(SETTLED_S):
            while True:
                for pod in self.on.kubelets.alive(clique):
                    if pod.metadata.uid in before:
                        continue
                    if pod.spec.get("nodeName"):
                        return True
                    conditions = pod.status.get("conditions") or []
                    if any(one.get("reason") == "Unschedulable" for one in conditions):
                        return False
                await asyncio.sleep(0.2)

    async def _until_terminated(self) -> None:
        """As often as in the twin."""
        wanted = self.outcome(self.twin.view)["terminations"]
        found: Any = None
        half: list[str] = []
        try:
            async with asyncio.timeout(SETTLED_S):
                while found != wanted or half:
                    await asyncio.sleep(0.2)
                    found, half = self.outcome(self.seen.view)["terminations"], self.half_bound()
        except TimeoutError:
            said = f"terminations {found}, in the twin {wanted}; bound in part: {half}"
            pods = [(pod.metadata.name, pod.spec.get("nodeName")) for pod in self.on.kubelets.pods]
            trail = "\n".join(self.invariants.trail)
            raise AssertionError(f"{said}\n{pods}\n{trail}") from None

    async def _cordon(self, name: str, *, cordoned: bool) -> None:
        change = {"spec": {"unschedulable": cordoned}}
        await self.on.client.patch(NODES, "", name, change, Plain)

    def half_bound(self) -> list[str]:
        """Gangs with some pods bound, but too few.

        After the termination of one replica of a scaling group, the rest of its gang stays where it
        is, and only the cliques of that replica wait together.
        """
        found = []
        pods = self.seen.view.pods
        for gang in self.seen.view.gangs.values():
            units: dict[str, list[bool]] = {}
            for one in [one for one in gang.groups if one.pods]:
                bound = sum(bool(pods[name].node) for name in one.pods if name in pods)
                unit = one.name.rpartition("-")[0] if "-g-" in one.name else ""
                units.setdefault(unit, []).extend([bound > 0, bound >= one.min_replicas])
            if any(len(set(states)) > 1 for states in units.values()):
                found.append(gang.name)
        return found


class Soak:
    """Operators, their faults, and the namespaces."""

    def __init__(self, plane: StageControlPlane, proxy: Chaos, stream: Stream, log: Path) -> None:
        self.plane, self.proxy, self.stream, self.log = plane, proxy, stream, log
        self.editing: Final = asyncio.Lock()
        self.faults: Final[Counter[str]] = Counter()
        self.most_mb = self.cpu_s = 0.0
        self.kept_mb: Final[list[float]] = []
        self.processes: Final[list[asyncio.subprocess.Process]] = []
        self._fates: tuple[Fate, ...] = ()
        self._kubeconfig: Final = plane.kubeconfig_of("soaked", "tests", proxy.url)
        proxy.fate = self._fate

    def _fate(self, method: str, path: str) -> Fate:
        if "watch=" in path or not self._fates or self.stream.uniform() >= 0.1:
            return None
        fate = self._fates[self.stream.integer(0, len(self._fates) - 1)]
        is_read = method == "GET" and isinstance(fate, Refuse) and fate.status == 409
        return None if is_read else fate

    async def start(self) -> None:
        words = ["-m", "windtunnel", "operate", "--metrics-port", "0", "--place"]
        words += ["--lease-namespace", "default"]
        with self.log.open("ab") as written:
            process = await asyncio.create_subprocess_exec(
                sys.executable, *words,
                env={**os.environ, "KUBECONFIG": str(self._kubeconfig)},
                stdout=asyncio.subprocess.DEVNULL, stderr=written,
            )  # fmt: skip
        self.processes.append(process)

    async def end(self, process: asyncio.subprocess.Process) -> None:
        assert process.returncode is None, f"an operator ended with {process.returncode}"
        self.most_mb = max(self.most_mb, memory_of(process.pid))
        self.cpu_s += cpu_of(process.pid)
        self.processes.remove(process)
        process.kill()
        await process.wait()

    async def misfortune(self) -> None:
        faults = [self.kill, self.kill, self.stop, self.kill_api_server, self.compact, self.cut,
                  self.change_fates, self.change_fates, self.change_fates]  # fmt: skip
        while True:
            await asyncio.sleep(FAULTS_S[0] + self.stream.uniform() * (FAULTS_S[1] - FAULTS_S[0]))
            fault = faults[self.stream.integer(0, len(faults) - 1)]
            self.faults[fault.__name__] += 1
            print(f"{monotonic_s():.0f} {fault.__name__}", flush=True)
            await fault()

    async def watch_memory(self) -> None:
        while True:
            await asyncio.sleep(MINUTE_S)
            self.kept_mb.append(memory_of(self.processes[0].pid, "VmRSS"))

    def _one(self, first: int) -> asyncio.subprocess.Process:
        return self.processes[self.stream.integer(first, len(self.processes) - 1)]

    async def kill(self) -> None:
        await self.end(self._one(1))
        await self.start()

    async def stop(self) -> None:
        process = self._one(0)
        process.send_signal(signal.SIGSTOP)
        await asyncio.sleep(STOPPED_S)
        process.send_signal(signal.SIGCONT)

    async def kill_api_server(self) -> None:
        async with self.editing:
            self.plane.kill(API_SERVER)
            await self.plane.restart()

    async def compact(self) -> None:
        listed = await self.plane_version()
        await asyncio.to_thread(self.plane.compact, listed)
        self.proxy.cut_all()

    plane_version: Callable[[], Awaitable[int]]

    async def cut(self) -> None:
        self.proxy.cut_all()

    async def change_fates(self) -> None:
        kinds = [*FATES, (Delay(1.0),), (Cut(),), (Refuse(500), Swallow(), Delay(0.3))]
        self._fates = kinds[self.stream.integer(0, len(kinds) - 1)]


async def soak(plane: StageControlPlane, log: Path, seconds: float, seed: int) -> None:
    streams = Streams(seed)
    async with AsyncExitStack() as stack:
        proxy = await stack.enter_async_context(chaos(plane))
        run = Soak(plane, proxy, streams["soak.faults"], log)
        clusters: list[Cluster] = []
        spaces: list[Soaked] = []
        watching: list[asyncio.Task[Any]] = []
        for number in range(SPACES):
            clusters.append(await stack.enter_async_context(open_cluster(plane)))
            on = await stack.enter_async_context(stage(clusters[-1], None, operator=False))
            one = Soaked(on, proxy, streams[f"soak.edits.{number}"], run.editing)
            watching += [asyncio.create_task(each.run()) for each in one.seen.reflectors.values()]
            spaces.append(one)

        async def version() -> int:
            return int(await clusters[0].client.newest_version(NODES))

        run.plane_version = version
        for _ in range(3):
            await run.start()
        until_s = monotonic_s() + seconds

        async def edited(one: Soaked) -> None:
            await one.begin()
            while monotonic_s() < until_s:
                await one.edit()
                await asyncio.sleep(one.stream.uniform() * PAUSE_S)

        try:
            async with asyncio.TaskGroup() as tasks:
                beside = [tasks.create_task(each()) for each in (run.misfortune, run.watch_memory)]
                await asyncio.gather(*(tasks.create_task(edited(one)) for one in spaces))
                for task in beside:
                    task.cancel()
            for process in list(run.processes):
                process.send_signal(signal.SIGCONT)
                await run.end(process)
        finally:
            for process in run.processes:
                process.kill()
            for task in watching:
                task.cancel()
            await asyncio.gather(*watching, return_exceptions=True)
        report(run, spaces, seconds)
        told = log.read_text().split("Traceback")
        for before, after in pairwise(told):
            print(f"{before[-1000:]}Traceback{after[:5000]}")
        assert len(told) == 1, f"{len(told) - 1} tracebacks in the operators' log"


def report(run: Soak, spaces: list[Soaked], seconds: float) -> None:
    edits = sum((one.edits for one in spaces), Counter[str]())
    events = sum(one.invariants.events for one in spaces)
    pods = sum(len(one.on.ever) for one in spaces)
    extra = sum(one.extra for one in spaces)
    raced = sum(one.raced for one in spaces)
    broken = [what for one in spaces for what in one.invariants.broken]
    print(f"{len(broken)} invariants broken: {broken}", flush=True)
    print(f"{seconds:.0f} s: {edits.total()} edits {dict(edits)}; "
          f"{run.faults.total()} faults {dict(run.faults)}; {pods} pods, "
          f"{extra} of them not in the twin, {events} events; "
          f"{raced} pods bound as their node was cordoned; "
          f"slowest edit settled after {max(one.slowest_s for one in spaces):.0f} s; "
          f"operators used {run.cpu_s / seconds:.3f} of a core", flush=True)  # fmt: skip
    kept = [f"{mb:.0f}" for mb in run.kept_mb]
    print(f"MB of the operator that lived on, by minute: {' '.join(kept)}", flush=True)
    assert not broken
    # A race with a cordon is rare; an operator that ignores cordons would race every time.
    assert raced <= max(1, edits["terminate"] // 10), f"{raced} of {edits['terminate']} raced"
    claim("soak of the operator: most memory of one", run.most_mb, MOST_MB, 1.0, "MB", "target")


def main() -> None:
    reason = why_not()
    if reason:
        print(f"skipped: {reason}")
        return
    seconds = float(sys.argv[1]) if len(sys.argv) > 1 else 120.0
    seed = int(sys.argv[2]) if len(sys.argv) > 2 else 0
    with (
        tempfile.TemporaryDirectory() as folder,
        StageControlPlane(Path(folder), build()) as plane,
        asyncio.Runner(loop_factory=new_loop) as runner,
    ):
        log = Path(sys.argv[3] if len(sys.argv) > 3 else f"{folder}/operators.log")
        runner.run(soak(plane, log, seconds, seed))


if __name__ == "__main__":
    main()
