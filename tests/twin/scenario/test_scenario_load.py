"""What a good scenario comes to."""

from pathlib import Path
from typing import Annotated

import msgspec
import pytest

from tests.twin.scenario.scenario_texts import LARGE, SMALL
from windtunnel.core.errors import InputError
from windtunnel.engine.settings import EngineSettings
from windtunnel.models.settings import (
    BlisTrainedPhysicsStepTime,
    LinearStepTime,
    PhysicsStepTime,
    TableStepTime,
)
from windtunnel.settings.section import Added, Section, digest_data
from windtunnel.twin.scenario.load import load, load_text
from windtunnel.twin.settings import OverheadSettings
from windtunnel.workload.distributions import Arrivals, Lengths
from windtunnel.workload.settings.sources import PrefixSettings, SloClass


def test_defaults_are_filled_in() -> None:
    plan = load_text(SMALL)
    (source,), (pool,) = plan.sources, plan.pools
    assert (plan.name, plan.seed, plan.duration_s, plan.model) == ("small", 0, None, None)
    assert (source.name, source.tenant, source.slo, source.count) == (
        "chat",
        "default",
        "standard",
        100,
    )
    assert source.arrivals.drawn() == Arrivals("poisson", 40.0, 1.0)
    assert source.lengths() == {
        "prompt_tokens": Lengths("constant", 512.0, 0.0, 512, 512),
        "output_tokens": Lengths("lognormal", 200.0, 0.8, 1, 4096),
    }
    left_out = (source.prefix, source.curve, source.session, source.timeout_s)
    assert left_out == (None, None, None, None)
    assert (source.members, source.adapter_weights) == (1, ())
    assert (pool.name, pool.role, pool.replicas, pool.accelerator) == ("main", "both", 2, None)
    assert pool.engine == EngineSettings(kv_blocks=1000)
    assert pool.step_time == LinearStepTime(model="linear", fixed_s=0.006)
    assert pool.overheads == OverheadSettings(queueing_s=0.0, per_token_s=0.0, completion_s=0.0)
    assert plan.router.policy == "round-robin"
    priorities = {name: slo.priority for name, slo in plan.slos.items()}
    assert priorities == {
        "critical": 4,
        "standard": 3,
        "batch": -1,
        "sheddable": -2,
        "background": -3,
    }


def test_everything_that_can_be_written() -> None:
    plan = load_text(LARGE, "scenarios/large.yaml")
    chat, nightly = plan.sources
    main, old, measured = plan.pools
    assert (plan.seed, plan.duration_s, plan.model) == (7, 1800.0, "meta-llama/Llama-3.1-8B")
    assert (chat.tenant, chat.slo, chat.count) == ("acme", "critical", None)
    assert chat.arrivals.drawn() == Arrivals("gamma", 40.0, 2.5)
    assert chat.prompt_tokens.drawn() == Lengths("normal", 900.0, 0.1, 16, 16384)
    assert chat.output_tokens.drawn() == Lengths("exponential", 250.0, 1.0, 1, 10**7)
    assert chat.prefix == PrefixSettings(tokens=600, groups=12)
    assert (nightly.slo, nightly.count) == ("offline", 1000)
    assert nightly.arrivals.drawn() == Arrivals("constant", 5.0, 0.0)
    prompt = nightly.prompt_tokens.drawn()
    assert (prompt.mean, prompt.low, prompt.high) == (200.0, 100, 300)
    assert prompt.cv == pytest.approx(58.02 / 200, rel=1e-3)
    assert plan.slos["critical"] == SloClass(priority=4, ttft_s=0.5, tpot_s=0.05, e2e_s=30.0)
    assert plan.slos["offline"] == SloClass(priority=-1)
    assert isinstance(main.step_time, PhysicsStepTime)
    assert main.step_time.profile == "scenarios/profiles/mine.json"
    assert main.engine.kv_blocks == "auto"
    assert main.engine.host_overhead_s == 0.002
    assert isinstance(old.step_time, BlisTrainedPhysicsStepTime)
    assert (old.step_time.alpha, old.step_time.beta) == ([1.0, 2.5, 3.0], None)
    table = TableStepTime(model="table", path="scenarios/steps.csv", per_step_s=0.001)
    assert measured.step_time == table


@pytest.mark.parametrize(
    ("written", "resolved"),
    [
        ("config.json", "folder/config.json"),
        ("./models/mine", "folder/models/mine"),
        ("../config.json", "folder/../config.json"),
        ("/models/config.json", "/models/config.json"),
        ("meta-llama/Llama-3.1-8B", "meta-llama/Llama-3.1-8B"),
    ],
)
def test_a_model_is_a_path_or_a_name(written: str, resolved: str) -> None:
    assert load_text(SMALL, "folder/s.yaml", [f"model={written}"]).model == resolved


@pytest.mark.parametrize(
    ("override", "old", "new"),
    [
        ("serving.pools.0.replicas=8", "replicas: 2", "replicas: 8"),
        ("serving.pools[0].name=other", "name: main", "name: other"),
        ("workload.0.prompt_tokens={distribution: uniform, min: 1, max: 9}",
         "prompt_tokens: 512", "prompt_tokens: {distribution: uniform, min: 1, max: 9}"),
        ("workload.0.arrivals.rate=120/min", "rate: 40/s", "rate: 2"),
        ("workload.0.prefix.tokens=64", "count: 100", "count: 100\n    prefix: {tokens: 64}"),
        ("slo.standard.priority=9", "name: small",
         "name: small\nslo: {standard: {priority: 9}}"),
        ("seed=11", "name: small", "name: small\nseed: 11"),
    ],
)  # fmt: skip
def test_an_override_is_as_good_as_the_file(override: str, old: str, new: str) -> None:
    assert SMALL.count(old) == 1
    plan = load_text(SMALL, sets=[override])
    assert plan.overrides == (override,)
    written = load_text(SMALL.replace(old, new))
    assert msgspec.structs.replace(plan, overrides=()) == written


def test_overrides_are_applied_in_order() -> None:
    sets = ["duration=5m", "workload.0.count=null", "duration=10m"]
    plan = load_text(SMALL, sets=sets)
    assert plan.duration_s == 600.0
    assert plan.sources[0].count is None


def test_null_takes_out_what_is_there_and_nothing_else() -> None:
    path = "serving.pools.0.overheads"
    plan = load_text(SMALL, sets=[f"{path}.queueing=1s", f"{path}=null"])
    assert msgspec.structs.replace(plan, overrides=()) == load_text(SMALL)
    with pytest.raises(InputError, match="overhead"):
        load_text(SMALL, sets=["serving.pools.0.overhead=null"])


def test_the_seed_option_wins() -> None:
    assert load_text(SMALL, sets=["seed=1"], seed=5).seed == 5


def test_the_digest_depends_on_values_only() -> None:
    digest = load_text(SMALL, "a.yaml").sha256
    rewritten = "# A comment.\n" + SMALL.replace("40/s", "2400/min").replace("6ms", "0.006")
    rewritten = rewritten.replace(
        "prompt_tokens: 512", "prompt_tokens: {value: 512, distribution: constant}"
    )
    same = load_text(rewritten + "seed: 0\nslo: {critical: {priority: 4}}\n", "b.yaml")
    assert same.sha256 == digest
    assert len(digest) == 64
    assert load_text(SMALL, sets=["serving.pools.0.replicas=3"]).sha256 != digest
    assert load_text(SMALL, sets=["slo.critical.ttft=1s"]).sha256 != digest
    assert load_text(SMALL, seed=1).sha256 != digest


def test_an_option_that_was_added_leaves_digests_as_they_were() -> None:
    class Part(Section):
        size: int = 1
        dtype: Annotated[str, Added()] = "auto"

    class Whole(Section):
        parts: list[Part]

    assert digest_data(Whole(parts=[Part()])) == {"parts": [{"size": 1}]}
    named = digest_data(Whole(parts=[Part(dtype="fp8")]))
    assert named == {"parts": [{"size": 1, "dtype": "fp8"}]}


def test_a_scenario_without_a_name_is_called_as_its_file(tmp_path: Path) -> None:
    nameless = SMALL.removeprefix("name: small\n")
    file = tmp_path / "Launch day (v2).yaml"
    file.write_text("\ufeff" + nameless, encoding="utf-8")
    plan = load(file)
    assert plan.name == "Launch-day-v2-"
    assert plan.sha256 == load_text(nameless, "other.yaml").sha256
    assert load_text(nameless, "....yaml").name == "scenario"


def test_aliases_are_read_and_are_copies() -> None:
    text = LARGE.replace(
        "output_tokens: {distribution: exponential, mean: 250}",
        "output_tokens: &some {distribution: exponential, mean: 250}",
    ).replace("output_tokens: {distribution: constant, value: 64}", "output_tokens: *some")
    plan = load_text(text, sets=["workload.0.output_tokens.mean=99"])
    assert [source.output_tokens.drawn().mean for source in plan.sources] == [99.0, 250.0]


@pytest.mark.parametrize("word", ["yes", "no", "on", "off", "y", "2024-01-01", "0x10", "1_000"])
def test_words_that_some_readers_convert_stay_words(word: str) -> None:
    assert load_text(SMALL, sets=[f"workload.0.tenant={word}"]).sources[0].tenant == word


@pytest.mark.parametrize(
    ("written", "tokens"), [("010", 10), ("1e3", 1000), ("+5", 5), ("5.0", 5), ("1.5e1", 15)]
)
def test_numbers_are_decimal(written: str, tokens: int) -> None:
    assert (
        load_text(SMALL, sets=[f"workload.0.prompt_tokens={written}"])
        .sources[0]
        .prompt_tokens.drawn()
        .low
        == tokens
    )


BLIS = SMALL.replace("name: small\n", "name: small\nmodel: llama-3.1-8b\n").replace(
    "step_time: {model: linear, fixed: 6ms}", "step_time: {model: blis-trained-physics}"
)


def test_the_step_times_of_blis_bring_its_engine_with_them() -> None:
    (pool,) = load_text(BLIS, sets=["serving.pools.0.accelerator=h100"]).pools
    engine = pool.engine
    assert (engine.max_num_batched_tokens, engine.async_scheduling) == (2048, False)
    eager = (engine.reserve_full_prompt, engine.unhashed_blocks_first, engine.null_block)
    assert eager == (False, False, False)
    assert (engine.preemption, engine.over_length) == ("restart", "refuse")
    between = (engine.last_step_blocks, engine.compute_whole_hits, engine.store_last_token)
    assert between == (False, False, True)


def test_what_is_written_stands_against_the_habits_of_blis() -> None:
    written = ["engine.async_scheduling=true", "engine.max_num_batched_tokens=8192"]
    sets = ["serving.pools.0.accelerator=h100", *(f"serving.pools.0.{one}" for one in written)]
    (pool,) = load_text(BLIS, sets=sets).pools
    engine = pool.engine
    assert (engine.max_num_batched_tokens, engine.async_scheduling) == (8192, True)
    assert (engine.preemption, engine.last_step_blocks) == ("recompute", True)
    assert (engine.compute_whole_hits, engine.store_last_token) == (True, False)
    assert engine.over_length == "refuse"


def test_tiers_take_the_habits_of_blis_that_they_cannot_have() -> None:
    offload = "serving.pools.0.engine.offload=[{tier: cpu, size: 10GiB}]"
    (pool,) = load_text(BLIS, sets=["serving.pools.0.accelerator=h100", offload]).pools
    engine = pool.engine
    assert (engine.last_step_blocks, engine.compute_whole_hits) == (True, True)
    assert (engine.preemption, engine.store_last_token) == ("restart", True)


def test_a_class_of_your_own_has_the_priority_of_standard() -> None:
    plan = load_text(SMALL + "slo: {vip: {ttft: 1s}, late: {priority: -7}, batch: {}}\n")
    priorities = {name: slo.priority for name, slo in plan.slos.items()}
    assert (priorities["vip"], priorities["late"], priorities["batch"]) == (3, -7, -1)
