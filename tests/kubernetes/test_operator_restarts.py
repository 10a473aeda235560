"""The operator while its API server is down, its kubeconfig changes, or it dies between calls."""

from __future__ import annotations

import asyncio
import shutil
import signal
from pathlib import Path

from tests.gangs.manifests import workload
from tests.kubernetes.cluster import Cluster
from tests.kubernetes.gang_stage import stage
from tests.kubernetes.test_gang_placement import add, placed
from tests.kubernetes.test_operate_command import operate
from windtunnel.live.kubernetes.resources import NODES, PODS, Unstructured
from windtunnel.live.rehearse.control_plane import API_SERVER

OUTAGE_S = 14.0
"""Longer than a lease may go without renewal."""


async def test_an_api_server_that_is_killed_delays_and_ends_nothing(cluster: Cluster) -> None:
    """Killed while pods are created, for longer than a lease lasts; and again at the end."""
    plane = cluster.plane
    async with (
        stage(cluster, operator=False) as on,
        operate(cluster, "--init-image", "x:1") as (process, _),
    ):
        await on.apply(workload(2))
        await on.until(lambda: len(on.kubelets.alive()) >= 2)
        plane.kill(API_SERVER)
        await asyncio.sleep(OUTAGE_S)
        before = {pod.metadata.uid for pod in on.kubelets.alive()}
        await plane.restart()
        await on.until_ready(10)
        assert before <= {pod.metadata.uid for pod in on.kubelets.alive()}
        plane.kill(API_SERVER)
        process.send_signal(signal.SIGTERM)
        async with asyncio.timeout(20):
            _, err = await process.communicate()
        assert process.returncode == 0
        said = err.decode()
        assert "Traceback" not in said
        assert said.count("no answer") <= 4, "once for an outage, not for each call"
        await plane.restart()


async def test_a_kubeconfig_is_read_again_and_a_wrong_one_is_refused(
    cluster: Cluster, tmp_path: Path
) -> None:
    file = tmp_path / "kubeconfig"
    shutil.copy(cluster.plane.kubeconfig, file)
    async with (
        stage(cluster, operator=False) as on,
        operate(cluster, "--kubeconfig", str(file), "--init-image", "x:1") as (process, _),
    ):
        assert process.stderr is not None

        async def said(words: str) -> None:
            assert process.stderr is not None
            async with asyncio.timeout(30):
                while words not in (await process.stderr.readline()).decode():
                    continue

        await said("leading, term 0")
        file.write_text("clusters: 7")
        process.send_signal(signal.SIGHUP)
        await said("was not reloaded")
        shutil.copy(cluster.plane.kubeconfig_of("second", "system:masters"), file)
        process.send_signal(signal.SIGHUP)
        await said("leading, term 1")
        await on.apply(workload(2))
        await on.until_ready(10)


async def test_a_gang_that_was_bound_in_part_is_completed_or_evicted(cluster: Cluster) -> None:
    """As after a crash between two bindings."""
    async with stage(cluster, slots=None, operator=False) as on:
        name = await add(on, 0)
        await on.apply(placed(on, 3, "fits"))
        await on.apply(placed(on, 4, "large"))
        gated = asyncio.create_task(on.operator_without_placement().run())
        await on.until(
            lambda: sum(not pod.spec.get("schedulingGates") for pod in on.kubelets.alive()) == 7
        )
        gated.cancel()
        await asyncio.gather(gated, return_exceptions=True)
        first = {}
        for gang in ("fits", "large"):
            pod = on.kubelets.alive(f"{gang}-0-a")[0]
            await on.client.bind(pod.metadata, name)
            first[gang] = pod.metadata
        placing = asyncio.create_task(on.operator.run())
        await on.until(lambda: on.kubelets.ready("fits-0-a") == 3)

        async def evicted() -> bool:
            pods = on.kubelets.alive("large-0-a")
            return len(pods) == 4 and not any(pod.spec.get("nodeName") for pod in pods)

        await cluster.until(evicted)
        kept = await on.client.get(PODS, on.space, first["fits"].name, Unstructured)
        assert kept.metadata.uid == first["fits"].uid
        placing.cancel()
        await asyncio.gather(placing, return_exceptions=True)
        await on.client.delete(NODES, "", name)
