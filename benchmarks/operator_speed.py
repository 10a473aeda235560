"""The operator on a real API server: many sets of ten pods from apply to all bound, then idle.

Etcd, API server and controllers of Kubernetes run beside `windtunnel operate --place`, which is
interpreted; nodes are objects without kubelets. `python -m benchmarks.operator_speed 1000` takes
1,000 sets in the place of 100, and `1000 10` adds ten minutes in which nothing happens, with the
operator's memory after each. What one lost pod costs is counted over what a create takes until its
own watch shows it.
"""

import asyncio
import os
import re
import signal
import sys
import tempfile
from pathlib import Path
from statistics import median
from typing import Any, Final

import aiohttp
from tests.gangs.manifests import clique, group, pod_clique_set
from tests.kubernetes.control_plane import StageControlPlane, build, why_not
from tests.kubernetes.gang_stage import SETS

from benchmarks.claim import Claim, report
from windtunnel.core.clock import monotonic_s
from windtunnel.live.kubernetes.client import Client, ObjectSelection, open_client
from windtunnel.live.kubernetes.config import load_config
from windtunnel.live.kubernetes.reflector import Reflector
from windtunnel.live.kubernetes.resources import NAMESPACES, PODS, Plain, Unstructured
from windtunnel.live.rehearse.cluster import install
from windtunnel.live.rehearse.kubelets import add_node
from windtunnel.live.system import new_loop

SPACE: Final = "speed"
PODS_OF_SET: Final = 10
ON_A_NODE: Final = 100
LOST: Final = 100
IDLE_S: Final = 30.0
CALM_S: Final = 10
RESTARTS: Final = 3
TICKS: Final = os.sysconf("SC_CLK_TCK")


def cpu_of(pid: int) -> float:
    """CPU seconds of a process so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


def memory_of(pid: int, which: str = "VmHWM") -> float:
    """Peak memory of a process in MB, or (VmRSS) its current memory."""
    found = re.search(rf"{which}:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text())
    assert found is not None
    return int(found[1]) / 1024


def manifest(number: int) -> dict[str, Any]:
    roles = [clique("router", 2), clique("leader", 1), clique("worker", 3)]
    for one in roles:
        pod = one["spec"]["podSpec"]
        pod["schedulerName"] = "windtunnel"
        pod["containers"][0]["resources"] = {"requests": {"cpu": "100m"}}
    made = pod_clique_set(roles, [group("serve", ["leader", "worker"], 2)], name=f"s{number}")
    made["metadata"]["namespace"] = SPACE
    return made


class Process:
    """`windtunnel operate` as a user runs it."""

    def __init__(self, process: asyncio.subprocess.Process, url: str) -> None:
        self.process: Final = process
        self.pid: Final = process.pid
        self._url: Final = url

    async def until_leading(self) -> None:
        async with aiohttp.ClientSession() as session:
            while True:
                async with session.get(f"{self._url}/metrics") as answer:
                    text = await answer.text()
                if "windtunnel_operator_leader 1.0" in text and re.search(
                    r"windtunnel_operator_passes_total [1-9]", text
                ):
                    return
                await asyncio.sleep(0.1)  # to answer costs the operator, too

    async def stop(self) -> None:
        self.process.send_signal(signal.SIGTERM)
        await self.process.communicate()


async def started(plane: StageControlPlane) -> Process:
    words = ["-m", "windtunnel", "operate", "--metrics-port", "0", "--place"]
    env = {**os.environ, "KUBECONFIG": str(plane.kubeconfig)}
    env.pop("PYTHONDONTWRITEBYTECODE", None)  # an installed program is not compiled at each start
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        *words,
        env=env,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
    )
    assert process.stdout is not None
    line = (await process.stdout.readline()).decode()
    found = re.search(r"probes on http://[^:]+:(\d+)", line)
    assert found is not None, line
    return Process(process, f"http://127.0.0.1:{found[1]}")


class Watched:
    """The pods as shown by the benchmark's own watch."""

    def __init__(self, client: Client) -> None:
        self.reflector: Final = Reflector(client, PODS, Unstructured, ObjectSelection(SPACE))
        self.bound: Final[set[str]] = set()
        self._changed: Final = asyncio.Event()
        self.shown_s: Final[dict[str, float]] = {}
        """When each pod was first shown, by uid."""
        self.gone_s: Final[dict[str, float]] = {}
        self.reflector.cache.subscribe(self._change)

    def _change(self, before: Unstructured | None, after: Unstructured | None) -> None:
        self._changed.set()
        if after is None:
            assert before is not None
            self.bound.discard(before.metadata.uid)
            self.gone_s[before.metadata.uid] = monotonic_s()
        else:
            self.shown_s.setdefault(after.metadata.uid, monotonic_s())
            if after.spec.get("nodeName"):
                self.bound.add(after.metadata.uid)

    async def until_gone(self, uid: str) -> None:
        while uid not in self.gone_s:
            self._changed.clear()
            await self._changed.wait()

    async def until_bound(self, pods: int) -> None:
        while len(self.bound) != pods:
            self._changed.clear()
            await self._changed.wait()

    async def until_shown(self, uid: str) -> float:
        while uid not in self.shown_s:
            self._changed.clear()
            await self._changed.wait()
        return self.shown_s[uid]


async def lose(client: Client, watched: Watched, pod: Unstructured, pods: int) -> float:
    """Deletes one pod; returns the seconds until a watch shows its replacement."""
    known = set(watched.shown_s)
    meta = pod.metadata
    await client.delete(PODS, SPACE, meta.name, uid=meta.uid, grace_s=0)
    await watched.until_gone(meta.uid)
    await watched.until_bound(pods)
    (new,) = set(watched.shown_s) - known
    return watched.shown_s[new] - watched.gone_s[meta.uid]


async def latency(client: Client, watched: Watched, number: int) -> float:
    """Seconds from a create until the watch shows it."""
    spec = {"containers": [{"name": "m", "image": "x"}], "schedulerName": "none"}
    body = {"metadata": {"name": f"probe-{number}", "namespace": SPACE}, "spec": spec}
    began_s = monotonic_s()
    made = await client.create(PODS, body, Unstructured)
    took_s = await watched.until_shown(made.metadata.uid) - began_s
    await client.delete(PODS, SPACE, made.metadata.name, grace_s=0)
    return took_s


async def measure(plane: StageControlPlane, sets: int, minutes: int) -> None:
    pods = sets * PODS_OF_SET
    config = load_config(plane.kubeconfig)
    async with open_client(config, name="benchmark") as client:
        await client.create(NAMESPACES, {"metadata": {"name": SPACE}}, Plain)
        await install(client)
        for number in range(pods // ON_A_NODE + 2):
            await add_node(client, f"node-{number}")
        watched = Watched(client)
        watching = asyncio.create_task(watched.reflector.run())
        await watched.reflector.synced.wait()
        operator = await started(plane)
        try:
            await operator.until_leading()
            others = list(plane.pids())
            before = [cpu_of(pid) for pid in (operator.pid, *others)]
            began_s = monotonic_s()
            for number in range(sets):
                await client.create(SETS, manifest(number), Plain)
            await watched.until_bound(pods)
            took_s = monotonic_s() - began_s
            after = [cpu_of(pid) for pid in (operator.pid, *others)]
            used = [b - a for a, b in zip(before, after, strict=True)]
            print(f"{sets} sets with {pods} pods, from apply to all bound: {took_s:.1f} s")
            claim(f"operator, {sets} sets: its part of all CPU", used[0], sum(used), 0.25, "CPU s",
                  "with API server, etcd and controllers")  # fmt: skip
            claim(f"operator, {pods} pods: most memory", memory_of(operator.pid), 300.0, 1.0, "MB",
                  "target")  # fmt: skip
            await at_rest(operator.pid)
            await lost_pods(client, watched, pods)
            await at_rest(operator.pid)
            idle = cpu_of(operator.pid)
            await asyncio.sleep(IDLE_S)
            idle = cpu_of(operator.pid) - idle
            claim(f"operator, idle on {pods} pods", idle, IDLE_S, 0.01, "CPU s", "a core's")
            kept = [memory_of(operator.pid, "VmRSS")]
            for _ in range(minutes):
                await asyncio.sleep(60.0)
                kept.append(memory_of(operator.pid, "VmRSS"))
            print("MB of the idle operator, by minute:", *(f"{mb:.1f}" for mb in kept), flush=True)
            restarts: list[tuple[float, float, float]] = []
            for _ in range(RESTARTS):
                await operator.stop()
                served, began_s = sum(map(cpu_of, others)), monotonic_s()
                operator = await started(plane)
                await operator.until_leading()
                took_s = monotonic_s() - began_s
                served = sum(map(cpu_of, others)) - served
                restarts.append((took_s, cpu_of(operator.pid), served))
            took_s, own_s, served = (median(each) for each in zip(*restarts, strict=True))
            claim(f"operator, restart on {pods} pods to caught up", took_s, 5.0, 1.0, "s",
                  f"target; {own_s:.2f} s of CPU, {served:.2f} s of API server, etcd and "
                  "controllers")  # fmt: skip
        finally:
            await operator.stop()
            watching.cancel()


async def at_rest(pid: int) -> None:
    """Waits until the operator has written all statuses, that is, until it has used almost no CPU
    time for a while; this works on a busy machine, too."""
    used, calm = 0.0, 0
    while calm < CALM_S:
        now = cpu_of(pid)
        calm = calm + 1 if now - used <= 0.05 else 0
        used = now
        await asyncio.sleep(1.0)


async def lost_pods(client: Client, watched: Watched, pods: int) -> None:
    api, ours = [], []
    for number in range(LOST):
        api.append(await latency(client, watched, number))
        bound = [one for one in watched.reflector.cache if one.metadata.uid in watched.bound]
        ours.append(await lose(client, watched, bound[number * 7 % len(bound)], pods))
    over = sorted(one - median(api) for one in ours)
    claim("operator, a lost pod to the one in its place: p99 over the API's latency",
          1000 * over[LOST * 99 // 100], 200.0, 1.0, "ms",
          f"target; median {1000 * median(over):.0f} ms, "
          f"of a create alone {1000 * median(api):.0f} ms")  # fmt: skip


def claim(name: str, ours: float, baseline: float, most: float, unit: str, against: str) -> None:
    report(Claim(name, ours=ours, baseline=baseline, most=most, unit=unit, against=against))


def main() -> None:
    reason = why_not()
    if reason:
        print(f"skipped: {reason}")
        return
    sets = int(sys.argv[1]) if len(sys.argv) > 1 else 100
    minutes = int(sys.argv[2]) if len(sys.argv) > 2 else 0
    with (
        tempfile.TemporaryDirectory() as folder,
        StageControlPlane(Path(folder), build()) as plane,
        asyncio.Runner(loop_factory=new_loop) as runner,
    ):
        runner.run(measure(plane, sets, minutes))


if __name__ == "__main__":
    main()
