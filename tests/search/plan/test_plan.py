"""Plans as a whole: the answer is that of trying everything, and the same whoever runs it."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

import windtunnel as wt
from tests.search.plan.plans import SHOP
from windtunnel.api.searches import PlanTable
from windtunnel.report.terminal.searches.plan import PlannedScenario
from windtunnel.search.execution.workers import MeasuredRun, Workers
from windtunnel.search.plan.candidates.choices import PlanBudget
from windtunnel.search.plan.deployment import not_varied, space_of
from windtunnel.search.plan.goal import goal_of, trial_of
from windtunnel.search.plan.load import loaded
from windtunnel.search.plan.planner import Question, answer
from windtunnel.search.plan.runs.run_lengths import lengths_of, shortened
from windtunnel.search.point import Origin
from windtunnel.twin.run import simulate
from windtunnel.twin.scenario.load import load_text
from windtunnel.workload.settings.arrivals import ClosedArrivals
from windtunnel.workload.settings.sources import ReplaySettings, SourceSettings, TraceSettings

BUDGET = """\
name: budget
model: llama-3.1-8b
workload:
  - {name: chat, slo: critical, count: 60, arrivals: {process: poisson, rate: 20/s},
     prompt_tokens: 500, output_tokens: 20}
slo: {critical: {ttft: 500ms, tpot: 50ms}}
serving:
  pools: [{name: main, replicas: 1, accelerator: h100-sxm, tensor_parallel: 2}]
  router: {policy: least-loaded}
plan:
  accelerators: [h100-sxm]
  prices: {h100-sxm: 3}
  tensor_parallel: [2]
  replicas: {min: 1, max: 5}
"""


@pytest.fixture
def shop(tmp_path: Path) -> Path:
    path = tmp_path / "shop.yaml"
    path.write_text(SHOP)
    return path


def attained(text: str, seed: int, **changes: object) -> float:
    sets = [f"{path}={json.dumps(value)}" for path, value in changes.items()]
    share = simulate(load_text(text, sets=sets, seed=seed))["slo"]["critical"]["attained"]
    assert isinstance(share, float)
    return share


def test_the_answer_is_the_fewest_servers_that_do(shop: Path) -> None:
    table = wt.plan(shop, seeds=3, jobs=1)
    best = table.best
    assert best is not None
    enough = [
        count
        for count in range(1, 5)
        if sum(attained(SHOP, seed, **{"serving.pools.0.replicas": count}) for seed in range(3, 10))
        >= 7 * 0.95
    ]
    assert best["servers"] == [enough[0]]
    assert best["cost_per_hour"] == 2.5 * enough[0]
    assert best["low"] >= 0.95
    assert best["reason"] == "best"
    (alone,) = [row["why"] for row in table if row["runs"] == 1 and row["reason"] == "misses-slo"]
    assert re.match(r"attains [0-9.]+% in one run: ttft ", alone)
    assert [row["reason"] for row in table if row["cost_per_hour"] < best["cost_per_hour"]]
    assert "least-loaded" in table._repr_html_()
    assert table.not_tried


def test_percentiles_are_asked_of_each_target_by_itself(shop: Path) -> None:
    sets: dict[str, Any] = {"plan.replicas": {"min": 1, "max": 4}, "plan.attained": 0.85}
    together = wt.plan(shop, sets=sets, seeds=2, jobs=1)
    apart = wt.plan(shop, sets={**sets, "plan.each_target": True}, seeds=2, jobs=1)
    assert apart.found["goal"]["each_target"] is True
    assert apart.best is not None
    assert together.best is not None
    assert apart.best["cost_per_hour"] <= together.best["cost_per_hour"]
    assert "each target by itself" in apart.plot().html
    base = Origin(SHOP, "shop.yaml").plan()
    goals = [goal_of(base, 0.85, 0.95, None, each_target=each) for each in (False, True)]
    figures = {"simulated_seconds": 1.0, "slo.critical.requests": 100, "slo.critical.attained": 0.8}
    targets = {"slo.critical.attained_by.ttft": 0.9, "slo.critical.attained_by.tpot": 0.88}
    trials = [trial_of(MeasuredRun({**figures, **targets}), goal, {}) for goal in goals]
    assert [trial.attained for trial in trials] == [(0.8,), (0.9, 0.88)]
    assert [trial.worst >= 0.85 for trial in trials] == [False, True]
    assert [goal.together for goal in goals] == pytest.approx([0.85, 0.7])


def test_a_plan_stays_within_stock_machines_and_money() -> None:
    eights = PlanBudget({"h100-sxm": 30}, 8, None)
    assert [eights.accelerators(count, 2) for count in (1, 4, 5)] == [8, 8, 16]
    assert [eights.accelerators(2, degree) for degree in (4, 5, 8, 16)] == [8, 16, 16, 32]
    assert PlanBudget({}, None, None).accelerators(3, 4) == 12


@pytest.mark.parametrize(
    ("budget", "most", "says"),
    [
        ({"plan.stock": {"h100-sxm": 4}}, 2, "takes 6 of 4 h100-sxm"),
        ({"plan.stock": {"h100-sxm": 10}, "plan.machine": 8}, 4, "10 h100-sxm, 8 of them in whole"),
        ({"plan.dollars_per_hour": 13}, 2, r"\$18.00 an hour is more than \$13.00"),
    ],
)
def test_candidates_over_the_budget_are_never_the_answer(
    tmp_path: Path, budget: dict[str, Any], most: int, says: str
) -> None:
    path = tmp_path / "budget.yaml"
    path.write_text(BUDGET)
    table = wt.plan(path, sets=budget, seeds=2, jobs=1, max_runs=12)
    over = [row for row in table if row["reason"] == "over-budget"]
    assert {row["servers"][0] for row in over} == set(range(most + 1, 6))
    assert re.search(says, " ".join(row["why"] for row in over))
    assert all(row["runs"] == 0 for row in over)
    if "plan.machine" in budget:
        assert {row["cost_per_hour"] for row in table if row["servers"][0] <= 4} == {24.0}
        dearer = {row["why"] for row in table if row["reason"] == "dearer"}
        assert dearer == {"costs as much as the answer"}
    three = next(row["label"] for row in table if row["servers"] == [3])
    assert re.fullmatch(r"(\d+) x h100-sxm \(3 servers, tp (\d+)\), .+", three)
    assert three.startswith(f"{3 * int(three.partition('tp ')[2][0])} x ")


def test_variants_of_a_model_are_candidates(tmp_path: Path) -> None:
    path = tmp_path / "budget.yaml"
    path.write_text(BUDGET)
    models = ["llama-3.1-8b", "llama-3.1-8b-fp8"]
    sets: dict[str, Any] = {"plan.models": models, "plan.replicas": {"min": 1, "max": 2}}
    table = wt.plan(path, sets=sets, seeds=2, jobs=1, max_runs=12)
    assert {row["model"] for row in table} == set(models)
    assert table.best is not None
    assert ["model", table.best["model"]] in table.best["settings"]
    assert table.best["model"] in table.best["label"]


MACHINES = """\
fleet:
  pools:
    - {name: dear, accelerator: l4, accelerators: 2, price_per_hour: 9, machines: {max: 4}}
    - {name: cheap, accelerator: l4, accelerators: 2, price_per_hour: 4, machines: {max: 1}}
"""


def test_a_plan_counts_servers_on_machines_of_the_scenario(tmp_path: Path) -> None:
    """Two servers share the cheap machine; a third needs a dear one."""
    path = tmp_path / "machines.yaml"
    path.write_text(SHOP.replace("price_per_hour: 2.5", "accelerator: l4") + MACHINES)
    table = wt.plan(path, seeds=2, jobs=1)
    best = table.best
    assert best is not None
    assert best["servers"] == [2]
    costs = {row["servers"][0]: row["cost_per_hour"] for row in table if row["runs"]}
    assert (costs[2], costs[3]) == (4.0, 13.0)
    assert {row["reason"] for row in table if row["servers"] > [2]} == {"dearer"}
    assert any("its own machines" in note for note in table.not_tried)
    with pytest.raises(wt.WindtunnelError, match=r"plan\.stock: .* allowed: replicas"):
        wt.plan(path, sets={"plan.stock": {"l4": 4}}, jobs=1)


def test_requests_that_are_cut_off_are_a_caution(shop: Path) -> None:
    """Long answers under a duration: what ended was in time, and what was cut counts as missed."""
    sets: dict[str, Any] = {
        "workload.0.output_tokens": {"distribution": "constant", "value": 60},
        "workload.0.arrivals.rate": "10/s",
        "workload.0.count": None,
        "slo.critical": {"ttft": "400ms"},
        "plan.replicas": {"min": 2, "max": 4},
    }
    cut = wt.plan(shop, sets={**sets, "duration": "3s"}, seeds=2, jobs=1).found
    (finding,) = [one for one in cut["trust"]["findings"] if one["code"] == "unfinished"]
    assert finding["severity"] == "doubt"
    assert finding["figures"]["share"] > 0.05
    assert finding["figures"]["attained_of_ended"] > 0
    assert "A `count` of requests instead of `duration`" in finding["says"]
    ended = wt.plan(shop, sets={**sets, "workload.0.count": 160}, seeds=2, jobs=1).found
    assert [one["code"] for one in ended["trust"]["findings"]] == ["calibration"]
    assert cut["best"] is None
    assert ended["best"] is not None


@pytest.mark.parametrize("find", ["deployment", "load", "knee"])
def test_the_answer_has_the_evidence_for_its_step_times(shop: Path, find: str) -> None:
    found = wt.plan(shop, find=find, seeds=2, jobs=1).found
    shown = simulate(load_text(SHOP))["trust"]["findings"]
    assert found["trust"]["verdict"] == "caution"
    assert found["trust"]["findings"] == [one for one in shown if one["code"] == "calibration"]


def test_an_answer_that_vllm_would_not_start_names_the_max_model_len_it_needs(
    tmp_path: Path,
) -> None:
    path = tmp_path / "budget.yaml"
    path.write_text(BUDGET)
    sets: dict[str, Any] = {
        "plan": {"accelerators": ["l4"], "tensor_parallel": [1], "replicas": {"min": 1, "max": 1}},
        "slo.critical": {"e2e": "1h"},
    }
    short = wt.plan(path, sets=sets, seeds=2, jobs=1).found
    assert short["best"] is not None
    (finding,) = [one for one in short["trust"]["findings"] if one["code"] == "max-model-len"]
    assert finding["figures"]["longest"] == 32_560
    long = wt.plan(path, sets={**sets, "workload.0.prompt_tokens": 32_560}, seeds=2, jobs=1).found
    assert [one["reason"] for one in long["candidates"]] == ["requests-too-long"]


def test_what_was_not_tried_of_an_engine_is_true_for_all_candidates() -> None:
    def notes(**planned: object) -> list[str]:
        sets = [f"plan.{name}={json.dumps(value)}" for name, value in planned.items()]
        origin = Origin(BUDGET, "budget.yaml", sets)
        base = origin.plan()
        goal = goal_of(base, 0.9, 0.95, None, each_target=False)
        return [one for one in not_varied(space_of(origin, base, goal, 2)) if "max_num" in one]

    both = ["l40s", "h100-sxm"]
    assert notes(accelerators=both) == [
        "max_num_seqs other than the default of each candidate (256 or 1024)",
        "max_num_batched_tokens other than the default of each candidate (2048 or 8192)",
    ]
    assert notes(accelerators=["h100-sxm"]) == [
        "max_num_seqs other than 1024",
        "max_num_batched_tokens other than 8192",
    ]
    assert notes(accelerators=both, engine={"max_num_batched_tokens": [512]}) == [
        "max_num_seqs other than the default of each candidate (256 or 512)"
    ]


def test_the_settings_of_the_answer_make_it(shop: Path) -> None:
    sets: dict[str, Any] = {
        "plan.routers": [{"policy": "round-robin"}, {"policy": "least-loaded"}],
        "plan.engine.max_num_seqs": [4, 8],
        "plan.replicas": {"min": 1, "max": 4},
    }
    table = wt.plan(shop, sets=sets, seeds=2, jobs=1)
    assert len(table) == 16
    assert table.best is not None
    settings = tuple((path, value) for path, value in table.best["settings"])
    plan = Origin.read(shop).plan(settings)
    assert plan.pools[0].replicas == table.best["servers"][0]
    assert plan.pools[0].engine.max_num_seqs == table.best["max_num_seqs"]
    assert plan.router.policy == table.best["router"]
    costs = [row["cost_per_hour"] for row in table.runners_up]
    assert costs == sorted(costs)


def test_prefill_and_decode_are_told_apart(shop: Path) -> None:
    """Of a scenario that has such pools, without a word of what to choose from."""
    data: Any = Origin.read(shop).data()
    pool = data["serving"]["pools"][0]
    roles: list[Any] = [{**pool, "name": role, "role": role} for role in ("prefill", "decode")]
    roles[0] |= {"price_per_hour": 1.0, "engine": {**pool["engine"], "max_num_seqs": 16}}
    sets: dict[str, Any] = {
        "serving.pools": roles,
        "serving.disaggregation": {"transfer": {"bytes_per_token": 1000}},
    }
    table = wt.plan(shop, sets=sets, seeds=2, jobs=1)
    assert {row["shape"] for row in table} == {"prefill-decode"}
    assert table.best is not None
    assert len(table.best["servers"]) == 2
    prefill, decode = table.best["servers"]
    assert table.best["label"].startswith(f"{prefill} prefill + {decode} decode servers, ")
    settings = [*sets.items(), *((path, value) for path, value in table.best["settings"])]
    plan = Origin.read(shop).plan(tuple(settings))
    assert [pool.replicas for pool in plan.pools] == table.best["servers"]
    assert [pool.engine.max_num_seqs for pool in plan.pools] == [16, 8]
    assert table.best["cost_per_hour"] == 1.0 * prefill + 2.5 * decode


def test_what_cannot_be_built_is_told(shop: Path) -> None:
    """KV that moves has a size, and a scenario without a model says nothing of it."""
    split: dict[str, Any] = {"prefill": {"max": 1}, "decode": {"max": 1}}
    sets: dict[str, Any] = {"plan.together": False, "plan.prefill_decode": split}
    table = wt.plan(shop, sets=sets, seeds=2, jobs=1)
    assert table.best is table.closest is None
    assert table["reason"] == ["does-not-fit"]
    assert "bytes_per_token" in table["why"][0]
    assert table["cost_per_hour"] == [5.0]


def test_an_autoscaler_is_judged_by_what_it_used(shop: Path) -> None:
    scaler: dict[str, Any] = {
        "policy": "saturation",
        "interval": "1s",
        "pools": {"main": {"min": 1, "max": 5}},
    }
    table = wt.plan(
        shop,
        sets={"plan.autoscalers": [scaler], "plan.replicas": {"max": 5}},
        attained=0.5,
        seeds=2,
        jobs=1,
    )
    scaled = [row for row in table if row["scaling"] == "saturation"]
    assert len(scaled) == 1
    assert scaled[0]["attained"] is not None
    assert scaled[0]["cost_per_hour"] > 2.5
    assert scaled[0]["run_share"] == 1.0


def test_nothing_is_good_enough(shop: Path) -> None:
    table = wt.plan(shop, sets={"plan.replicas": {"max": 1}}, seeds=2, jobs=1)
    assert table.best is None
    assert table.closest is not None
    assert table.closest["servers"] == [1]


def test_all_is_ruled_out_before_a_run(shop: Path) -> None:
    table = wt.plan(shop, sets={"slo.critical.ttft": "1ms"}, seeds=2, jobs=1)
    assert table.best is None
    assert table.closest is not None
    assert {row["reason"] for row in table} == {"ttft-floor"}
    assert "even on an empty server" in table.closest["why"]
    assert table.closest["attained"] == 0.0


def test_the_same_answer_whoever_runs_it(shop: Path) -> None:
    alone, both = (wt.plan(shop, seeds=2, jobs=jobs) for jobs in (1, 2))
    assert json.dumps(alone.found) == json.dumps(both.found)


def test_progress_says_what_is_best_so_far(shop: Path) -> None:
    told: list[tuple[str, float, float]] = []
    with Workers(jobs=1) as workers:
        origin, question = Origin.read(shop), Question(seeds=2)
        found = answer(origin, question, workers, lambda *said: told.append(said))
    assert "best so far: " in told[0][0]
    assert told[-1][0].startswith("testing the answer, best so far: ")
    assert found["best"]["label"] in told[-1][0]
    assert [spent for _, spent, _ in told] == sorted(spent for _, spent, _ in told)


def test_how_much_is_carried(shop: Path) -> None:
    table = wt.plan(shop, find="load", seeds=3, jobs=1)
    assert table.best is not None
    load = table.best["load"]
    assert table.best["requests_per_s"] == pytest.approx(40 * load)
    plan = load_text(SHOP)
    shares = [
        simulate(loaded(plan.changed(seed=seed), load))["slo"]["critical"] for seed in range(20, 24)
    ]
    assert sum(one["attained"] for one in shares) / 4 >= 0.94
    missed = table.found["missed"]
    assert missed["attained"] < 0.95
    assert load < missed["load"]
    assert [row["load"] for row in table] == sorted(row["load"] for row in table)


def test_where_latency_turns(shop: Path) -> None:
    table = wt.plan(shop, find="knee", seeds=2, jobs=1)
    assert table.best is not None
    light = table.found["light"]["ttft_p95"]
    assert table.best["ttft_p95"] >= 2.0 * light
    assert table.best["low"] <= table.best["load"] <= table.best["high"]


def test_loads_scale_whatever_makes_requests() -> None:
    text = SHOP.replace("{process: poisson, rate: 40/s}", "{process: closed, users: 10, think: 1s}")
    closed = loaded(load_text(text), 2.5).workload[0]
    assert isinstance(closed, SourceSettings)
    assert isinstance(closed.arrivals, ClosedArrivals)
    assert closed.arrivals.users == 25
    source = loaded(load_text(SHOP), 0.5).workload[0]
    assert isinstance(source, SourceSettings)
    assert (source.arrivals.drawn().rate_per_s, source.count) == (20.0, 160)
    trace = ReplaySettings(trace=TraceSettings(path="t.csv", speedup=3.0), count=50)
    replayed = loaded(load_text(SHOP).changed(workload=[trace]), 2.0).workload[0]
    assert isinstance(replayed, ReplaySettings)
    assert (replayed.trace.speedup, replayed.count) == (6.0, 50)
    heavy = loaded(load_text(SHOP), 2.0).workload[0]
    assert isinstance(heavy, SourceSettings)
    assert heavy.count == 320


def test_short_runs_are_cut_by_requests_not_by_time() -> None:
    plan = load_text(SHOP.replace("count: 160\n", "\n").replace("seed: 3", "duration: 100s"))
    assert lengths_of(plan, 4).stages[0].share == 0.25
    short = shortened(plan, 0.25, 9)
    assert (short.duration_s, short.seed) == (None, 9)
    source = short.workload[0]
    assert isinstance(source, SourceSettings)
    assert source.count == 1000


def test_traffic_that_changes_runs_whole() -> None:
    text = SHOP.replace(
        "    slo: critical\n", "    slo: critical\n    rate_curve: [[0s, 1], [5s, 2]]\n"
    )
    lengths = lengths_of(load_text(text), 4)
    assert {stage.share for stage in lengths.stages} == {1.0}
    assert lengths.whole_because == "the traffic changes over time"


@pytest.mark.parametrize(
    ("asked", "says"),
    [
        ({"find": "loads"}, "did you mean 'load'"),
        ({"attained": 1.5}, "attained is 1.5"),
        ({"confidence": 0.5}, "0.6 or more"),
        ({"seeds": 1}, "seeds is 1"),
        ({"max_runs": 0}, "max_runs is 0"),
        ({"slo": ["critcal"]}, "did you mean 'critical'"),
        ({"slo": ["batch"]}, "'batch' has no targets"),
        ({"sets": {"slo": {}}}, "nothing could miss one"),
        ({"sets": {"plan.routers": [{"policy": "rand"}]}}, "did you mean 'random'"),
        ({"sets": {"plan.models": ["llama-3.1-8"]}}, "is not in the catalog"),
        ({"sets": {"plan.by_model": {"llama-3.1-8b": {}}}}, "the scenario serves one model"),
    ],
)
def test_what_is_wrong_is_said(shop: Path, asked: dict[str, object], says: str) -> None:
    with pytest.raises(wt.WindtunnelError, match=says):
        wt.plan(shop, jobs=1, **asked)  # type: ignore[arg-type]


def test_a_plan_without_rows_is_a_table_too() -> None:
    found: dict[str, object] = {
        "find": "load",
        "name": "x",
        "curve": [],
        "carried": None,
        "not_tried": [],
    }
    empty = PlanTable(found, PlannedScenario(Path("x.yaml")))
    assert len(empty) == 0
    assert empty.best is None
    assert empty.closest is None
