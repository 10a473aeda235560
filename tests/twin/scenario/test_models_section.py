"""Models of pools and workloads, and clusters: what is refused when a scenario is read."""

import pytest

from tests.twin.test_models import CHAT, CODE, LARGE, LARGE_POOL, SMALL, SMALL_POOL, text
from windtunnel.core.errors import InputError
from windtunnel.twin.scenario.load import load, load_text
from windtunnel.workload.settings.sources import models_of

TWO = text(CHAT, CODE, SMALL_POOL, LARGE_POOL)


def refused(*sets: str, scenario: str = TWO) -> str:
    with pytest.raises(InputError) as caught:
        load_text(scenario, sets=sets)
    return str(caught.value)


def test_pools_and_sources_have_the_scenario_s_model_unless_they_name_one() -> None:
    plan = load_text(TWO)
    assert [pool.model for pool in plan.pools] == [SMALL, LARGE]
    assert [models_of(entry) for entry in plan.workload] == [[SMALL], [LARGE]]
    assert plan.models == plan.model_names == (SMALL, LARGE)
    one = load_text(text(CHAT, SMALL_POOL), sets=["model=null"])
    assert (one.models, one.model_names) == ((None,), ("two",))


def test_a_path_counts_from_the_scenario_s_folder_wherever_it_stands() -> None:
    sets = ["workload.1.model=shapes/x.json", "serving.pools.1.model=shapes/x.json"]
    plan = load_text(TWO, "some/where/two.yaml", sets)
    assert plan.pools[1].model == "some/where/shapes/x.json"
    assert models_of(plan.workload[1]) == ["some/where/shapes/x.json"]


@pytest.mark.parametrize(
    ("sets", "said"),
    [
        (
            ["workload.1.model=llama-3.1-8B"],
            "workload[1].model: no pool serves 'llama-3.1-8B'; allowed: llama-3.1-8b, "
            "llama-3.1-70b (did you mean 'llama-3.1-8b' ",
        ),
        (
            ["model=null", "serving.pools.0.model=llama-3.1-8b"],
            "workload[0].model: missing, and every pool has a model of its own; allowed: "
            "llama-3.1-8b, llama-3.1-70b",
        ),
        (
            ["serving.pools.1.role=decode", "serving.pools.0.role=both"],
            "serving.pools[1].role: 'decode', but no pool for its model has the role 'prefill' "
            "or 'both'",
        ),
        (
            ["serving.clusters.west.latency=1ms"],
            "serving.clusters.west: no pool is in it; allowed: main",
        ),
        (["serving.clusters.main.latency=-1ms"], "serving.clusters.main.latency: "),
        (["serving.pools.0.cluster=''"], "serving.pools[0].cluster: "),
        (
            ["workload.1.adapters.count=2"],
            "serving.pools[1].engine.lora: missing, but workload[1].adapters asks for adapters "
            "(every pool of its model must have slots for them)",
        ),
    ],
)
def test_what_cannot_be_is_said_with_its_place(sets: list[str], said: str) -> None:
    assert said in refused(*sets)


def test_only_the_pools_of_its_model_need_slots_for_adapters() -> None:
    load_text(TWO, sets=["workload.1.adapters.count=2", "serving.pools.1.engine.lora.slots=2"])
    said = refused("workload.1.adapters.count=2", "serving.pools.0.engine.lora.slots=2")
    assert "serving.pools[1].engine.lora: missing" in said


def test_a_model_that_nothing_takes_is_noted() -> None:
    sets = ["workload.0.model=llama-3.1-8b", "serving.pools.0.model=llama-3.1-8b"]
    (note,) = load_text(TWO, sets=sets).notes
    assert "model: every pool and every entry of the workload has a model of its own" in note


def test_a_prefill_pool_needs_its_partner_in_its_own_cluster() -> None:
    scenario = text(CHAT, SMALL_POOL, SMALL_POOL.replace("small", "far"))
    said = refused(
        "serving.pools.0.role=prefill",
        "serving.pools.1.role=decode",
        "serving.pools.1.cluster=east",
        scenario=scenario,
    )
    assert "pools[0].role: 'prefill', but no pool in its cluster has the role 'decode'" in said
    assert "pools[1].role: 'decode', but no pool in its cluster has the role 'prefill'" in said


def test_some_pool_of_every_model_may_have_a_server() -> None:
    scaling = "scaling: {policy: saturation}\n"
    sets = ["scaling.pools.large.min=0", "scaling.pools.large.max=0", "serving.pools.1.replicas=0"]
    assert "scaling.pools.large.max: no pool that" in refused(*sets, scenario=TWO + scaling)


def test_a_trace_s_models_are_served_too() -> None:
    source = "  - trace: {path: a.csv, models: {gpt-4: qwen3-8b, gpt-5: llama-3.1-70b}}\n"
    said = refused(scenario=text(source, SMALL_POOL, LARGE_POOL))
    assert "workload[0].trace.models.gpt-4: no pool serves 'qwen3-8b'" in said
    assert "gpt-5" not in said


def test_models_that_no_catalog_has_are_told_together(tmp_path: object) -> None:
    file = f"{tmp_path}/two.yaml"
    changed = TWO.replace(LARGE, "lama-70b").replace("model: llama-3.1-8b", "model: lama-8b")
    with open(file, "w", encoding="utf-8") as out:
        out.write(changed)
    with pytest.raises(InputError) as caught:
        load(file)
    said = str(caught.value)
    assert "lama-8b" in said
    assert "serving.pools[1].model" in said
    assert "lama-70b" in said
