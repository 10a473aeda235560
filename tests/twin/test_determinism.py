"""Same scenario, same seed, same bytes: twice, under any hash seed, interpreted or compiled."""

import os
import subprocess
import sys
from pathlib import Path

import pyarrow.parquet as pq
import pytest

import windtunnel
from tests.twin.runs import BUSY
from windtunnel._forms import read_manifest

ROOT = Path(__file__).parents[2]
PACKAGE = Path(windtunnel.__file__).parent

PREEMPTING = """\
name: preempting
model: llama-3.1-8b
duration: 20s
workload:
  - name: chat
    slo: critical
    arrivals: {process: poisson, rate: 12/s}
    prompt_tokens: {distribution: lognormal, mean: 300, cv: 0.8, max: 2000}
    output_tokens: {distribution: lognormal, mean: 120, cv: 0.8, max: 600}
    prefix: {tokens: 200, groups: 3}
  - name: nightly
    slo: background
    arrivals: {process: weibull, rate: 4/s, cv: 2}
    prompt_tokens: {distribution: normal, mean: 900, stddev: 300, max: 3000}
    output_tokens: {distribution: exponential, mean: 150, max: 900}
serving:
  pools:
    - name: main
      replicas: 2
      accelerator: l40s
      engine: {kv_blocks: 400, scheduling: priority, reserve_full_prompt: false}
"""
"""The physics model, prefixes, priorities, and too little memory."""

GATED = (
    BUSY
    + """\
  admission:
    policy: flow-control
    limit: 0.5
    max_waiting: 40
    ttl: 700ms
    eviction: true
    detector: {kind: utilization, queue_depth: 2, kv_utilization: 0.9}
    budgets: {acme: 0.5}
"""
)
"""A gateway in front of it that has every reason to turn requests away, or to stop them."""

SCENARIOS = {
    "busy": BUSY,
    "gated": GATED,
    "preempting": PREEMPTING,
    "first": (ROOT / "examples" / "first.yaml").read_text().replace("4000", "800"),
}


def simulate(name: str, folder: Path, **variables: str) -> tuple[bytes, list[dict[str, object]]]:
    """The bytes of result.json and the rows of requests.parquet, from a process of its own."""
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / f"{name}.yaml"
    file.write_text(SCENARIOS[name])
    command = [sys.executable, "-m", "windtunnel", "simulate", str(file), "-o", str(folder)]
    environment = {"PYTHONPATH": str(PACKAGE.parent), **variables}
    done = subprocess.run(
        command, env={**os.environ, **environment}, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    rows: list[dict[str, object]] = pq.read_table(folder / "requests.parquet").to_pylist()
    return (folder / "result.json").read_bytes(), rows


def test_the_scenarios_have_what_is_easy_to_get_wrong(tmp_path: Path) -> None:
    for name in ("busy", "preempting"):
        _, rows = simulate(name, tmp_path / name)
        assert any(row["preemptions"] for row in rows)
        assert any(row["prefix_hit_tokens"] for row in rows)
        assert {"completed", "unfinished"} <= {row["outcome"] for row in rows}
    _, rows = simulate("gated", tmp_path / "gated")
    reasons = {row["reason"] for row in rows if row["outcome"] == "rejected"}
    assert {"expired", "outranked", "queue-full", "made-way"} <= reasons


@pytest.mark.parametrize("name", SCENARIOS)
def test_hash_seeds_change_nothing(name: str, tmp_path: Path) -> None:
    outcomes = [
        simulate(name, tmp_path / seed, PYTHONHASHSEED=seed) for seed in ("0", "1", "random")
    ]
    assert outcomes[0] == outcomes[1] == outcomes[2]


@pytest.mark.parametrize("name", SCENARIOS)
def test_both_forms_give_the_same_bytes(name: str, tmp_path: Path) -> None:
    manifest = read_manifest(PACKAGE)
    if manifest is None or manifest.faults(PACKAGE.parent):
        pytest.skip("nothing is compiled for the present sources")
    forms = [
        simulate(name, tmp_path / form, WINDTUNNEL_FORM=form)
        for form in ("interpreted", "compiled")
    ]
    assert forms[0] == forms[1]


@pytest.mark.parametrize("name", SCENARIOS)
def test_a_second_run_in_one_process_is_the_same_run(name: str) -> None:
    """And so is one whose invariants are checked, whatever ran in between."""
    from windtunnel.report.files.folder import result_bytes
    from windtunnel.twin.run import simulate as run
    from windtunnel.twin.scenario.load import load_text

    first = run(load_text(SCENARIOS[name]))
    other = run(load_text(SCENARIOS[name], seed=99))
    second = run(load_text(SCENARIOS[name]))
    assert result_bytes(first) == result_bytes(second)
    assert other["tokens"] != first["tokens"]
