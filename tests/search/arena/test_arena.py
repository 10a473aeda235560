"""Policies that compete on a small scenario: the command, its files, and what it refuses."""

import json
from pathlib import Path

import pytest

from windtunnel.cli.main import main
from windtunnel.search.arena.capacity import MissSink
from windtunnel.search.arena.cases import cases_of
from windtunnel.twin.run import run
from windtunnel.twin.scenario.load import load, load_text
from windtunnel.workload.settings.sources import ReplaySettings

SCENARIO = """\
name: small
seed: 4
duration: 150s
workload:
  - name: chat
    slo: critical
    arrivals: {process: poisson, rate: 6/s}
    rate_curve: [[0s, 1], [60s, 1], [70s, 4], [150s, 4]]
    prompt_tokens: 100
    output_tokens: 20
slo:
  critical: {ttft: 500ms, tpot: 40ms}
serving:
  pools:
    - name: main
      replicas: 1
      price_per_hour: 2
      engine: {kv_blocks: 400, max_num_seqs: 8}
      step_time: {model: linear, fixed: 20ms, per_prefill_token: 20us, per_decode: 500us}
  startup: {load: {mean: 10s}}
scaling:
  policy: predictive
  pools: {main: {min: 1, max: 6}}
"""


def invoke(capfd: pytest.CaptureFixture[str], *args: str) -> tuple[int, str]:
    with pytest.raises(SystemExit) as left:
        main(["compare", *args])
    captured = capfd.readouterr()
    assert isinstance(left.value.code, int)
    return left.value.code, captured.out + captured.err


@pytest.fixture
def scenario(tmp_path: Path) -> Path:
    path = tmp_path / "small.yaml"
    path.write_text(SCENARIO)
    return path


def test_misses_by_bin_add_up_to_those_of_the_run() -> None:
    sets = ("serving.pools.0.overheads.completion=300ms", "slo.critical.tpot=30ms")
    plan = load_text(SCENARIO, sets=sets)
    sink = MissSink(plan, 10.0)
    found = run(plan, rows=sink).result["slo"]["critical"]
    assert 0.1 < found["attained"] < 0.9
    assert sum(sink.arrived.values()) == found["requests"]
    missed = (1.0 - found["attained"]) * found["requests"]
    assert sum(sink.missed.values()) == pytest.approx(missed)


@pytest.mark.long
def test_policies_are_tuned_judged_and_held_against_foresight(
    scenario: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    code, says = invoke(
        capfd, str(scenario), "--policies", "predictive,keda", "--seeds", "2", "--jobs", "1",
        "-o", str(out),
    )  # fmt: skip
    assert code == 0, says
    found = json.loads((out / "compare.json").read_text())
    rows = {row["name"]: row for row in found["contestants"]}
    assert list(rows) == ["predictive", "keda", "fixed"]
    assert found["cases"] == {"tuned_on": 2, "judged_on": 2}
    assert len(found["foresight"]) == 2
    fixed = rows["fixed"]["judged"][0]
    # A pool of one size is paid for all the time: 2 $ an hour for each, 150 s.
    assert fixed["cost"]["mean"] == pytest.approx(fixed["value"] * 2.0 * 150.0 / 3600.0)
    assert fixed["attained"]["mean"] >= 0.9
    for hull in found["foresight"]:
        assert hull["cost"] <= 1.001 * fixed["cost"]["mean"] or hull["attained"] > 0.99
    for name in ("predictive", "keda"):
        assert [one["kind"] for one in rows[name]["judged"]] == ["default", "tuned"]
        assert len(rows[name]["tried"]) == 8
        tuned = rows[name]["judged"][1]
        good = [one for one in rows[name]["tried"] if one["attained"] >= found["goal"]]
        if good:
            cheapest = min(good, key=lambda one: float(one["cost"]))
            assert (tuned["value"], tuned["floor"]) == (cheapest["value"], cheapest["floor"])
        assert tuned["cost"]["low"] <= tuned["cost"]["mean"] <= tuned["cost"]["high"]
    page = (out / "compare.html").read_text()
    assert "<svg" in page
    assert "keda" in page
    assert "regret" in says


def test_a_replay_is_tuned_on_its_first_half_and_judged_on_its_second(tmp_path: Path) -> None:
    rows = "\n".join(f"{second},100,20" for second in range(0, 400, 2))
    (tmp_path / "t.csv").write_text("arrived,prompt_tokens,output_tokens\n" + rows + "\n")
    head, tail = SCENARIO.split("workload:", maxsplit=1)[0], SCENARIO.split("slo:\n", 1)[1]
    text = head.replace("duration: 150s\n", "") + (
        "workload:\n  - slo: critical\n    trace: {path: t.csv, speedup: 2}\nslo:\n" + tail
    )
    path = tmp_path / "replay.yaml"
    path.write_text(text)
    tune, judge = cases_of(lambda sets, seed: load(path, sets, seed), 3)
    plans = [case(()) for case in (*tune, *judge)]
    assert len(plans) == 2
    assert [plan.duration_s for plan in plans] == [99.5, 99.5]
    entries = [plan.workload[0] for plan in plans]
    starts = [entry.trace.start_s for entry in entries if isinstance(entry, ReplaySettings)]
    assert starts == [0.0, 199.0]


@pytest.mark.parametrize(
    ("more", "says"),
    [
        (("--policies", "hpaa"), "hpa"),
        (("--policies", "all", "--vary", "seed=1,2"), "--vary"),
        (("--attained", "95%"), "--policies"),
        (("--policies", "all", "--attained", "120%"), "--attained"),
        (("--policies", "all", "--set", "slo={}", "--set", "workload.0.slo=standard"), "target"),
    ],
)
def test_what_cannot_be_compared_is_refused_with_a_reason(
    scenario: Path, more: tuple[str, ...], says: str, capfd: pytest.CaptureFixture[str]
) -> None:
    code, said = invoke(capfd, str(scenario), *more)
    assert code == 2
    assert says in said


@pytest.mark.long
def test_a_goal_out_of_reach_is_said_and_does_not_need_the_largest_pool(
    scenario: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """Half of the answers take too long on an idle server, too."""
    out = tmp_path / "out"
    length = "{distribution: lognormal, mean: 20, cv: 1.0, min: 1, max: 200}"
    code, says = invoke(
        capfd, str(scenario), "--policies", "keda", "--seeds", "2", "--jobs", "1", "-o", str(out),
        "--set", f"workload.0.output_tokens={length}", "--set", "slo.critical={e2e: 400ms}",
        "--set", "scaling.pools.main.max=64",
    )  # fmt: skip
    assert code == 0, says
    found = json.loads((out / "compare.json").read_text())
    assert 0.3 < found["reached"] < 0.95
    assert found["contestants"][-1]["judged"][0]["value"] < 32
    assert "No fixed pool attained 95%" in " ".join(says.split())
