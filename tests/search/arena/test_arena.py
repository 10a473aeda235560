"""Policies that compete on a small scenario: the command, its files, and what it refuses."""

import io
import json
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from tests.report.page.browser import CHROMIUM, Browser
from windtunnel.cli.main import main
from windtunnel.report.page.searches.arena import WIDTH, arena_page
from windtunnel.report.terminal.searches.arena import headline_of, show_arena
from windtunnel.search.arena.arena import ArenaOutcome, Setting, judgement_of
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
        most = max(one["attained"] for one in rows[name]["tried"])
        aim = min(1.0 - 0.6 * (1.0 - found["goal"]), most - 0.003)  # a margin for other seeds
        good = [one for one in rows[name]["tried"] if one["attained"] >= aim]
        cheapest = min(good, key=lambda one: float(one["cost"]))
        assert (tuned["value"], tuned["floor"]) == (cheapest["value"], cheapest["floor"])
        assert tuned["cost"]["low"] <= tuned["cost"]["mean"] <= tuned["cost"]["high"]
    page = (out / "compare.html").read_text()
    assert "<svg" in page
    assert "keda" in page
    assert "regret" in says


@pytest.fixture
def contest() -> dict[str, Any]:
    """Two policies and a pool of a fixed size, which always costs the same."""

    def row(name: str, runs: dict[str, list[tuple[float, float]]]) -> dict[str, Any]:
        judged = []
        for kind, outcomes in runs.items():
            setting = Setting(kind, {}, 3.0 if kind == "tuned" else None, 1)
            played = [ArenaOutcome(attained, cost, 4) for attained, cost in outcomes]
            one = judgement_of(setting, played)
            judged.append({**one, "regret": one["cost"]})
        return {"name": name, "knob": "replicas", "tried": [], "judged": judged}

    sure = [(0.93, 0.5), (0.95, 0.6), (0.94, 0.7)]
    return {
        "windtunnel": "0.1.0",
        "name": "shop",
        "goal": 0.9999999,
        "reached": 0.99996,
        "unit": "$",
        "cases": {"tuned_on": 2, "judged_on": 3},
        "bounds": {"min": 1, "max": 8, "floors": [1, 2]},
        "contestants": [
            row("predictive", {"default": [(1.0, 0.1), (0.8, 0.2), (1.0, 0.3)], "tuned": sure}),
            row("keda", {"default": [(0.1, 0.1), (0.0, 0.2), (0.0, 0.9)], "tuned": sure}),
            row("fixed", {"tuned": [(1.0, 0.4 / 3.0)] * 3}),
        ],
        "left_out": [],
        "foresight": [],
    }


def shown(contest: dict[str, Any], width: int) -> str:
    file = io.StringIO()
    show_arena(contest, None, Console(file=file, width=width, highlight=False, _environ={}))
    return file.getvalue()


def test_intervals_are_possible_and_no_half_width_is_negative(contest: dict[str, Any]) -> None:
    judged = [one for row in contest["contestants"] for one in row["judged"]]
    for one in judged:
        assert 0.0 <= one["attained"]["low"] <= one["attained"]["mean"]
        assert one["attained"]["mean"] <= one["attained"]["high"] <= 1.0
        assert 0.0 <= one["cost"]["low"] <= one["cost"]["mean"] <= one["cost"]["high"]
    assert judged[-1]["cost"]["low"] == judged[-1]["cost"]["high"]
    lines = [line.split() for line in shown(contest, 160).splitlines()]
    rows = {tuple(line[:2]): " ".join(line) for line in lines}
    assert "93.33% (64.65 to 100)" in rows["predictive", "default"]
    assert "3.33% (0 to 17.68)" in rows["keda", "default"]
    assert "$0.40 ±1.1" in rows["keda", "default"]
    assert "94.00% ±2.5" in rows["keda", "3"]
    assert "100.00% ±0 $0.13 ±0" in rows["fixed", "3"]
    assert headline_of(contest).endswith("100.00% ±0 for $0.13 ±0, 0.13x ±0 foresight.")


@pytest.mark.xdist_group("browser")
@pytest.mark.skipif(CHROMIUM is None, reason="there is no Chromium here")
def test_its_chart_can_be_read_on_a_phone(contest: dict[str, Any], tmp_path: Path) -> None:
    page = tmp_path / "compare.html"
    page.write_text(arena_page("Policies", [contest]))
    with Browser(tmp_path / "profile") as browser:
        browser.open(page, 390)
        assert browser.value("document.documentElement.scrollWidth") <= 390
        assert browser.value("document.querySelector('.arena text').getBBox().height") > 10.0
        wide = "document.querySelector('.arena').getBoundingClientRect().width"
        assert browser.value(wide) > 0.9 * WIDTH


@pytest.mark.parametrize("width", [20, 60, 80, 100, 160])
def test_each_row_has_a_name_of_its_own(contest: dict[str, Any], width: int) -> None:
    rows = [line for line in shown(contest, width).splitlines() if "%" in line and "$" in line]
    names = [line.split("%")[0].rsplit(maxsplit=1)[0] for line in rows[:5]]
    assert len(set(names)) == 5, names


def test_a_goal_close_to_all_is_not_rounded(contest: dict[str, Any]) -> None:
    assert "goal 99.99999%" in shown(contest, 400)
    assert "99.99999%" in arena_page("Policies", [contest])
    assert "No fixed pool attained 99.99999%" in shown(contest, 400)
    assert "the most was 99.99%." in shown(contest, 400)


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
        (("--policies", "fixed,hpaa"), "no policy 'hpaa' competes"),
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
