"""A run's own requests as a trace: replayed, every request fares as it did, but for prefixes."""

from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from windtunnel.analysis.run_folder import REQUESTS
from windtunnel.report.files.folder import RunFolder
from windtunnel.twin.run import run as run_plan
from windtunnel.twin.scenario.load import load_text
from windtunnel.workload.traces.reading import open_trace
from windtunnel.workload.traces.writing import write_trace

SERVING = """
serving:
  router: {policy: least-loaded}
  pools:
    - name: main
      replicas: 2
      engine: {kv_blocks: 400, lora: {slots: 2}}
      step_time: {model: linear, fixed: 10ms, per_prefill_token: 20us, per_decode: 100us}
"""
MADE = """
name: made
workload:
  - name: chat
    count: 300
    tenant: acme
    slo: critical
    arrivals: {process: poisson, rate: 40/s}
    prompt_tokens: {distribution: lognormal, mean: 60, cv: 1, max: 400}
    output_tokens: {distribution: uniform, min: 1, max: 80}
    media: {tokens: 30}
    adapters: {count: 3}
  - name: talks
    count: 20
    arrivals: {process: constant, rate: 20/s}
    session: {turns: 3, think: 500ms, context: fresh}
    prompt_tokens: 50
    output_tokens: 9
"""
KEPT = ("source", "tenant", "slo", "adapter", "turn", "prompt_tokens", "media_tokens", "outcome")
TIMES = ("arrived", "scheduled", "first_token", "finished", "replica")


def run(text: str, folder: Path) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    plan = load_text(text + SERVING)
    with RunFolder(folder) as place:
        done = run_plan(plan, rows=place.rows())
        place.finish(done)
    return done.result, pq.read_table(folder / REQUESTS).sort_by("id").to_pylist()


@pytest.mark.parametrize("converted", [False, True])
def test_a_run_sent_again_from_its_own_file_is_the_same_run(
    tmp_path: Path, *, converted: bool
) -> None:
    _, first = run(MADE, tmp_path / "first")
    trace = tmp_path / "first" / REQUESTS
    if converted:
        write_trace(open_trace(trace), tmp_path / "trace.csv")
        trace = tmp_path / "trace.csv"
    result, second = run(
        f"name: again\nworkload: [{{trace: {{path: {trace}}}}}]", tmp_path / "again"
    )
    assert [[row[key] for key in (*KEPT, *TIMES)] for row in second] == [
        [row[key] for key in (*KEPT, *TIMES)] for row in first
    ]
    assert not [one for one in result["trust"]["findings"] if one["code"] == "left-out"]


def test_a_replay_says_that_prefixes_are_not_in_a_runs_file(tmp_path: Path) -> None:
    shared = MADE.replace("    adapters", "    prefix: {tokens: 64}\n    adapters")
    before, _ = run(shared, tmp_path / "first")
    trace = tmp_path / "first" / REQUESTS
    after, _ = run(f"name: again\nworkload: [{{trace: {{path: {trace}}}}}]", tmp_path / "again")
    lost = before["tokens"]["prefix_hit"]
    assert lost > 0 == after["tokens"]["prefix_hit"]
    (finding,) = [one for one in after["trust"]["findings"] if one["code"] == "left-out"]
    assert f"{lost:,} tokens of prompts were found in caches" in finding["says"]
