"""`windtunnel rehearse`: a whole scenario on the real API server, beside its simulation."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path

from tests.kubernetes.cluster import Cluster
from windtunnel.live.kubernetes.client import ALL
from windtunnel.live.kubernetes.resources import NODES

EXAMPLE = Path(__file__).parents[2] / "examples" / "rehearse.yaml"


async def test_gangs_servers_and_requests_do_as_the_simulation_said(
    cluster: Cluster, tmp_path: Path
) -> None:
    """An engine crashes after 2 s, restarts 10 s later, and loads for half a second."""
    words = ["rehearse", str(EXAMPLE), "--kubeconfig", str(cluster.plane.kubeconfig)]
    words += ["-o", str(tmp_path / "out"), "--set", "duration=15s", "--set", "faults.0.at=2s"]
    words += ["--set", "serving.startup.load.mean=500ms"]
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "windtunnel", *words,
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT,
    )  # fmt: skip
    said = (await process.communicate())[0].decode()
    assert process.returncode in (0, 1), said
    found = json.loads((tmp_path / "out" / "rehearsal.json").read_text())
    rows = {(one["about"], one["what"]): one for one in found["findings"]}
    # Times of requests are not asserted on a machine that may be busy; decisions are.
    for subject in ("gangs and their pods", "machines of gangs"):
        assert rows["start", subject]["verdict"] == "same", said
    assert rows["start", "gangs and their pods"]["rehearsed"] == 2
    servers = [one for one in found["findings"] if one["about"] == "servers"]
    assert [one["what"] for one in servers] == ["decisions in both"], said
    assert (servers[0]["simulated"], servers[0]["rehearsed"]) == (2, 2)
    assert rows["requests", "sent"]["simulated"] == rows["requests", "sent"]["rehearsed"] > 50
    share = rows["routing", "share of chat-0-engine-1"]
    assert share["rehearsed"] > 0.6, said  # the other one was down for most of the run
    log = (tmp_path / "out" / "gateway.jsonl").read_text()
    assert '"server.joined"' in log
    assert any("fleet controller" in one for one in found["notes"])
    nodes = await cluster.client.list_all(NODES, ALL)
    assert not [one for one in nodes.items if b'"h100-0"' in bytes(one)]
