"""Emulated servers behind a gateway: its trace is simulated, and the twin held against it."""

import contextlib
import json
import os
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from threading import Event
from typing import Any

import pytest

from tests.live.emulated import command
from windtunnel.cli.main import main

SCENARIO = """\
name: loop
{workload}
serving:
  router: {{policy: least-loaded}}
  pools:
    - name: main
      replicas: 2
      engine: {{kv_blocks: 4000, max_num_seqs: 6, max_num_batched_tokens: 512}}
      step_time: {{model: linear, fixed: 40ms, per_prefill_token: 300us, per_decode: 1ms,
                  per_context_token: 1us}}
"""
DRAWN = """\
workload:
  - name: chat
    count: 16
    arrivals: {process: poisson, rate: 10/s}
    prompt_tokens: {distribution: uniform, min: 300, max: 700}
    output_tokens: {distribution: uniform, min: 15, max: 35}
"""
COUNT = 16


@contextlib.contextmanager
def gateway(folder: Path, urls: list[str]) -> Iterator[str]:
    """`windtunnel gateway` on a free port, with the routing of the scenario."""
    servers = [f"--server={url}" for url in urls]
    arguments = [sys.executable, "-m", "windtunnel", "gateway", "--port", "0", *servers]
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        admin = f"127.0.0.1:{found.getsockname()[1]}"
    arguments += ["--set=serving.router.policy=least-loaded", f"--set=live.admin={admin}"]
    arguments += ["--set=live.health.ramp=0s", f"--set=live.trace.folder={folder}"]
    process = subprocess.Popen(arguments, stdout=subprocess.PIPE, text=True, env=os.environ)
    try:
        assert process.stdout is not None
        url = process.stdout.readline().split()[2].rstrip(":")
        for _ in range(500):
            with urllib.request.urlopen(f"http://{admin}/servers") as page:
                if all(one["available"] for one in json.loads(page.read())):
                    break
            Event().wait(0.05)
        yield url
    finally:
        process.terminate()
        said, _ = process.communicate(timeout=30)
        assert said.startswith("stopped; ")


@pytest.mark.once
def test_the_twin_is_held_against_the_trace_of_a_gateway(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """How far off it is depends on how busy this machine is; that it is the same trace does not."""
    drawn, replayed = tmp_path / "drawn.yaml", tmp_path / "replayed.yaml"
    drawn.write_text(SCENARIO.format(workload=DRAWN))

    def said(*arguments: str) -> Any:
        with pytest.raises(SystemExit) as left:
            main([*arguments, "--json", "-"])
        out, err = capsys.readouterr()
        assert left.value.code == 0, err
        return json.loads(out)

    folder, observed = tmp_path / "trace", tmp_path / "observed.parquet"
    with contextlib.ExitStack() as stack:
        urls = [stack.enter_context(command(str(drawn)))[1].split()[2] for _ in range(2)]
        url = stack.enter_context(gateway(folder, urls))
        seen = said("observe", str(drawn), "--endpoint", url, "-o", str(observed))
        assert seen["requests"]["completed"] == COUNT
    (trace,) = folder.iterdir()
    rows = [json.loads(line) for line in trace.read_text().splitlines()]
    assert [row["outcome"] for row in rows] == ["completed"] * COUNT
    assert {row["server"] for row in rows} == set(urls)
    held = said("compare", "--real", str(trace), str(drawn))
    assert held["requests"]["compared"] == held["requests"]["measured"] == COUNT
    replayed.write_text(SCENARIO.format(workload=f"workload: [{{trace: {{path: {trace}}}}}]"))
    simulated = said("simulate", str(replayed))
    assert simulated["requests"]["completed"] == COUNT
    for kind in ("ttft", "e2e"):
        mean = held["latency"][kind]["mean"]
        assert mean["measured"] == pytest.approx(sum(row[kind] for row in rows) / COUNT)
        assert mean["simulated"] == pytest.approx(simulated["latency"][kind]["mean"])
    for kind in ("prompt", "output"):
        assert simulated["tokens"][kind] == sum(row[f"{kind}_tokens"] for row in rows)
