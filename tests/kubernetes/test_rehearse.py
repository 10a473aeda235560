"""`windtunnel rehearse`: a whole scenario on the real API server, compared with its simulation."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

from tests.kubernetes.cluster import Cluster
from windtunnel.live.kubernetes.client import ALL
from windtunnel.live.kubernetes.resources import NODES
from windtunnel.live.operate.audit import audit

EXAMPLE = Path(__file__).parents[2] / "examples" / "rehearse.yaml"


SCALED = """\
name: scaled
seed: 1
duration: 15s
workload:
  - name: chat
    model: llama-3.1-8b
    arrivals: {process: poisson, rate: 16/s}
    prompt_tokens: 300
    output_tokens: 60
  - name: code
    model: qwen2.5-32b
    arrivals: {process: poisson, rate: 4/s}
    prompt_tokens: 300
    output_tokens: 60
serving:
  pools:
    - name: main
      model: llama-3.1-8b
      accelerator: h100-sxm
      replicas: 1
      engine: {max_num_seqs: 8}
      step_time: {model: linear, fixed: 15ms, per_prefill_token: 40us, per_decode: 200us}
    - name: large
      model: qwen2.5-32b
      accelerator: h100-sxm
      tensor_parallel: 2
      replicas: 1
      engine: {max_num_seqs: 16}
      step_time: {model: linear, fixed: 15ms, per_prefill_token: 40us, per_decode: 200us}
  router: {policy: least-loaded}
  startup: {load: {mean: 1s}}
scaling:
  policy: saturation
  interval: 4s
  pools: {main: {min: 1, max: 2}, large: {min: 1, max: 2}}
"""


async def rehearsed(cluster: Cluster, out: Path, *more: str) -> tuple[dict[str, Any], str]:
    """The comparison, and the output."""
    words = ["rehearse", *more, "--kubeconfig", str(cluster.plane.kubeconfig), "-o", str(out)]
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "windtunnel", *words,
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT,
    )  # fmt: skip
    said = (await process.communicate())[0].decode()
    assert process.returncode in (0, 1), said
    found: dict[str, Any] = json.loads((out / "rehearsal.json").read_text())
    assert process.returncode == (0 if found["agree"] else 1)
    return found, said


async def test_autoscalers_of_two_models_decide_as_in_the_simulation(
    cluster: Cluster, tmp_path: Path
) -> None:
    """One server has twice the requests that it can serve; plain pods, unlimited machines."""
    (tmp_path / "scaled.yaml").write_text(SCALED)
    found, said = await rehearsed(cluster, tmp_path / "out", str(tmp_path / "scaled.yaml"))
    sizes = [
        (one["what"], one["verdict"]) for one in found["findings"] if one["about"] == "scaling"
    ]
    assert sizes == [("main 1 to 2", "same")], said
    servers = [one for one in found["findings"] if one["about"] == "servers"]
    assert [(one["simulated"], one["rehearsed"]) for one in servers] == [(1, 1)], said
    shares = {one["what"]: one for one in found["findings"] if one["about"] == "routing"}
    assert shares["share of large/0"]["rehearsed"] > 0.1, said
    report = audit(tmp_path / "out" / "operator.jsonl")
    assert not report.difference
    assert report.decisions >= 2


async def test_gangs_servers_and_requests_do_as_the_simulation_said(
    cluster: Cluster, tmp_path: Path
) -> None:
    """An engine crashes after 2 s, restarts 10 s later, and loads for half a second. Meanwhile the
    operator is restarted and loses what it has seen."""
    restart = "{at: 5s, kind: controller-restart, controller: gangs}"
    crash = "{at: 2s, kind: engine-crash, select: {pool: main, count: 1}}"
    words = ["--set", "duration=15s", "--set", f"faults=[{crash}, {restart}]"]
    words += ["--set", "serving.startup.load.mean=500ms"]
    found, said = await rehearsed(cluster, tmp_path / "out", str(EXAMPLE), *words)
    led = (tmp_path / "out" / "operate.stderr").read_text()
    assert "leading, term 0" in led
    assert "leading, term 1" in led
    assert not any("not injected" in one for one in found["notes"])
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
