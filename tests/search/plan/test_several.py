"""Plans of several models: the cheapest joint deployment, or which model cannot be served."""

import itertools
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

import windtunnel as wt
from windtunnel.api.searches import PlanTable
from windtunnel.report.terminal.searches.plan import PlannedScenario, show
from windtunnel.search.execution.workers import Workers
from windtunnel.search.plan.runs.confidence import ShareBounds
from windtunnel.search.plan.runs.trials import SearchResources
from windtunnel.search.plan.several import GoalAsked, JointSearch, parts_of
from windtunnel.search.point import Origin, Settings
from windtunnel.twin.run import simulate

SERVER = """\
      accelerator: l4
      price_per_hour: 2
      engine: {kv_blocks: 400, max_num_seqs: 8}
      step_time: {model: linear, fixed: 8ms, per_prefill_token: 200us, per_decode: 300us}
"""
TWO = """\
name: two
seed: 3
workload:
  - {name: chat, model: llama-3.1-8b, slo: critical, count: 160,
     prompt_tokens: 100, output_tokens: 10, arrivals: {process: poisson, rate: 40/s}}
  - {name: code, model: qwen2.5-32b, slo: critical, count: 80,
     prompt_tokens: 200, output_tokens: 20, arrivals: {process: poisson, rate: 16/s}}
slo:
  critical: {ttft: 200ms, tpot: 40ms}
serving:
  pools:
    - name: small
      model: llama-3.1-8b
SERVER    - name: large
      model: qwen2.5-32b
      tensor_parallel: 2
SERVER  router: {policy: least-loaded}
plan:
  replicas: {min: 1, max: 4}
""".replace("SERVER", SERVER)
LARGE, SMALL = "qwen2.5-32b", "llama-3.1-8b"
M2 = {"accelerators": 2, "machines": {"max": 4}}
POOLS = [f"serving.pools.{number}.replicas" for number in (0, 1)]


@pytest.fixture
def two(tmp_path: Path) -> Path:
    path = tmp_path / "two.yaml"
    path.write_text(TWO)
    return path


def planned(two: Path, **sets: Any) -> PlanTable:
    return wt.plan(two, sets={f"plan.{key}": value for key, value in sets.items()}, seeds=2, jobs=1)


def servers(table: PlanTable) -> list[int]:
    return [one["best"]["servers"][0] for one in table.models.values()]


def test_the_answer_is_the_cheapest_of_all_that_do(two: Path) -> None:
    """By running nine joint deployments."""
    table = planned(two)
    good = []
    for counts in itertools.product(range(1, 4), repeat=2):
        plan = Origin.read(two).plan(tuple(zip(POOLS, counts, strict=True)))
        runs = [simulate(plan.changed(seed=seed))["models"] for seed in (20, 21)]
        if all(sum(run[name]["attained"] for run in runs) >= 2 * 0.95 for name in (LARGE, SMALL)):
            good.append((2.0 * counts[0] + 4.0 * counts[1], counts))
    cost, counts = min(good)
    best = table.best
    assert best is not None
    assert (best["cost_per_hour"], tuple(servers(table))) == (cost, counts)
    assert best["low"] >= 0.95
    again = Origin.read(two).plan(tuple((path, value) for path, value in best["settings"]))
    assert [pool.replicas for pool in again.pools] == list(counts)
    assert {row["serves"] for row in table} == {LARGE, SMALL}
    assert "serves" in table._repr_html_()
    html = table.plot().html
    assert f"Why not the others for {LARGE}" in html
    assert f"{SMALL}, critical: TTFT up to 200 ms" in html


def test_models_share_stock_machines_and_money(two: Path) -> None:
    small, large = servers(planned(two))
    used = small + 2 * large
    exact = planned(two, stock={"l4": used})
    assert servers(exact) == [small, large]
    assert exact.found["budget"]["accelerators"][0]["taken"] == used
    shared = planned(two, machine=4)
    whole = -(-used // 4) * 4
    assert shared.best is not None
    assert shared.best["cost_per_hour"] == 2.0 * whole
    short = planned(two, stock={"l4": used - 1})
    assert short.best is None
    (name,) = [name for name, one in short.models.items() if one["best"] is None]
    other = {SMALL: 2 * large, LARGE: small}[name]
    left = f"the other models leave {used - 1 - other} of {used - 1} l4"
    assert short.models[name]["why"].endswith(left)
    assert "does not fit beside the other models" in {
        row["why"].partition("and ")[2] for row in short.models[name]["candidates"]
    }
    poor = planned(two, dollars_per_hour=2.0 * used - 0.5)
    assert poor.best is None
    assert re.search(
        r"leave \$[0-9.]+ of \$[0-9.]+ an hour",
        " ".join(one["why"] for one in poor.models.values()),
    )


def test_each_model_has_its_own_choices_and_share(two: Path) -> None:
    table = planned(two, by_model={LARGE: {"attained": 0.5, "replicas": {"min": 3, "max": 4}}})
    large = table.models[LARGE]
    assert large["goal"]["attained"] == 0.5
    assert large["best"]["servers"] == [3]
    assert table.models[SMALL]["goal"]["attained"] == 0.95
    assert large["goal"]["confidence"] == pytest.approx(0.975)


def test_the_answer_may_be_a_variant(two: Path) -> None:
    table = planned(two, by_model={LARGE: {"models": [f"{LARGE}-fp8"]}})
    assert table.best is not None
    settings = tuple((path, value) for path, value in table.best["settings"])
    assert dict(settings)["workload.1.model"] == f"{LARGE}-fp8"
    assert Origin.read(two, ["plan.by_model={qwen2.5-32b: {}}"]).plan(settings).models == (
        SMALL,
        f"{LARGE}-fp8",
    )


def test_a_model_that_nothing_serves_is_named(two: Path) -> None:
    table = planned(two, by_model={LARGE: {"replicas": {"min": 1, "max": 1}}})
    assert table.best is None
    console = Console(record=True, width=100)
    show(table.found, PlannedScenario(two), None, console)
    said = console.export_text()
    assert f"Not all models can be served: {LARGE} cannot." in said
    assert "none of its candidates within the budget attains its targets" in said
    assert "Closest: 2 x l4 (1 server, tp 2), least-loaded" in said
    assert f"{SMALL}: " in said


def test_a_search_without_runs_left_says_so(two: Path) -> None:
    table = wt.plan(two, seeds=2, jobs=1, max_runs=4)
    assert table.best is None
    assert table.found["searched"]["out_of_runs"] is True
    assert table.found["searched"]["whole_runs"] <= 4


class MissesOnce(JointSearch):
    """Together, the second model misses the first time."""

    def _test(self, settings: Settings) -> list[ShareBounds]:
        found = super()._test(settings)
        return [found[0], ShareBounds(0.5, 0.4, 0.6)] if self._tests == 1 else found


def test_a_model_that_misses_beside_the_others_gets_more_servers(two: Path) -> None:
    origin = Origin.read(two)
    base = origin.plan()
    before: Sequence[int] = servers(planned(two))
    with Workers(jobs=1) as workers:
        parts, _ = parts_of(origin, base, GoalAsked(None, 0.95, None), 2)
        means = SearchResources(workers, 400, lambda *_: None)
        found = MissesOnce(origin, base, parts, (2, 0.95), means).run()
    assert [one["best"]["servers"][0] for one in found["models"]] == [before[0], before[1] + 1]
    assert "attains 50.0%" in found["models"][1]["candidates"][before[1] - 1]["why"]


def test_shapes_of_models_are_chosen_apart(two: Path) -> None:
    split: dict[str, Any] = {"prefill": {"max": 2}, "decode": {"max": 2}}
    table = planned(
        two, by_model={LARGE: {"together": False, "replicas": None, "prefill_decode": split}}
    )
    assert table.best is not None
    ((path, pools),) = table.best["settings"]
    assert path == "serving.pools"
    assert [pool["name"] for pool in pools] == ["small", "large-prefill", "large-decode"]
    assert table.models[LARGE]["best"]["shape"] == "prefill-decode"


@pytest.mark.parametrize(
    ("sets", "says"),
    [
        ({"plan.by_model": {"qwen2.5-3b": {}}}, "no pool serves 'qwen2.5-3b'.*qwen2.5-32b"),
        ({"plan.by_model": {SMALL: {"accelerators": ["h10"]}}}, r"accelerators.*h10"),
        ({"plan.models": [SMALL]}, r"plan\.models: .*several models.*by_model"),
        ({"plan.autoscalers": [{"policy": "saturation"}]}, r"fixed numbers of servers"),
        ({"fleet": {"pools": [{"name": "m", "accelerator": "l4", **M2}]}}, "fleet: "),
        ({"workload.1.model": SMALL}, "no entry of the workload asks for qwen2.5-32b"),
        ({"workload.1.slo": "batch"}, "of qwen2.5-32b: no class of service"),
        ({f"serving.pools.0.{key}": None for key in ("price_per_hour", "accelerator")}, "be added"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_said(two: Path, sets: dict[str, Any], says: str) -> None:
    with pytest.raises(wt.WindtunnelError, match=says):
        wt.plan(two, sets=sets, jobs=1)
