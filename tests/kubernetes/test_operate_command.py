"""`windtunnel operate` as a process: ready, leading, deciding, and a clean stop."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp

from tests.gangs.manifests import workload
from tests.kubernetes.cluster import Cluster
from tests.kubernetes.gang_stage import stage
from windtunnel.live.kubernetes.leader import LeaseObject
from windtunnel.live.kubernetes.resources import LEASES


@asynccontextmanager
async def operate(
    cluster: Cluster, *more: str
) -> AsyncIterator[tuple[asyncio.subprocess.Process, str]]:
    """The process, and the address of its probes."""
    words = ["-m", "windtunnel", "operate", "--metrics-port", "0", *more]
    words += ["--namespace", cluster.namespace, "--lease-namespace", cluster.namespace]
    plane = cluster.plane
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        *words,
        env={**os.environ, "KUBECONFIG": str(plane.kubeconfig)},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    assert process.stdout is not None
    try:
        line = (await process.stdout.readline()).decode()
        found = re.search(r"probes on http://[^:]+:(\d+)", line)
        assert found is not None, line
        yield process, f"http://127.0.0.1:{found[1]}"
    finally:
        if process.returncode is None:
            process.kill()
            _, said = await process.communicate()
            sys.stderr.write(said.decode())  # for who reads a failure


async def text_of(url: str) -> str:
    async with aiohttp.ClientSession() as session, session.get(url) as answer:
        return await answer.text()


async def test_it_leads_decides_and_gives_its_lease_back(cluster: Cluster, tmp_path: Path) -> None:
    async with stage(cluster, operator=False) as on:
        log = tmp_path / "operator.jsonl"
        async with operate(cluster, "--init-image", "x:1", "--log", str(log)) as (process, url):
            await on.apply(workload(2))
            await on.until_ready(10)
            assert await text_of(f"{url}/readyz") == "ok\n"
            metrics = await text_of(f"{url}/metrics")
            assert "windtunnel_operator_leader 1.0" in metrics
            assert 'windtunnel_operator_objects{kind="Pod"} 10.0' in metrics
            process.send_signal(signal.SIGTERM)
            out, err = await process.communicate()
            assert process.returncode == 0, err.decode()
            assert b"stopped after " in out
            assert b"Traceback" not in err
        lease = await on.client.get(LEASES, on.space, "windtunnel-operator", LeaseObject)
        assert not lease.spec.holder_identity
        lines = log.read_text().splitlines()
        assert '"kind":"operator.started"' in lines[0]
        assert sum('"gangs.decided"' in line for line in lines) > 30


async def test_a_dry_run_writes_nothing_and_says_what_it_would_do(cluster: Cluster) -> None:
    async with stage(cluster, operator=False) as on:
        await on.apply(workload(2))
        async with operate(cluster, "--dry-run") as (process, url):
            assert process.stderr is not None
            said = ""
            async with asyncio.timeout(60):
                while "would create ServiceAccount" not in said:
                    said += (await process.stderr.readline()).decode()
            assert "windtunnel_operator_leader 0.0" in await text_of(f"{url}/metrics")
        assert await on.names("PodClique") == []
        assert await on.names("ServiceAccount") in ([], ["default"])
        assert await on.status("PodCliqueSet", "web") == {}
