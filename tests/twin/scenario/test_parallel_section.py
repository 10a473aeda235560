"""Degrees of parallelism in a scenario: what they cost, what they allow, and what is refused."""

import pytest

from tests.twin.scenario.scenario_texts import SMALL
from windtunnel.core.errors import InputError
from windtunnel.twin.run import simulate
from windtunnel.twin.scenario.load import load_text
from windtunnel.twin.scenario.plan import ScenarioPlan
from windtunnel.twin.servers.pools import assumptions_of, hardware_faults, limits_of, shape_of

POOL = "serving.pools.0"
HARDWARE = (
    f"{POOL}.accelerator=h200",
    f"{POOL}.step_time={{model: physics}}",
    f"{POOL}.engine.kv_blocks=auto",
)


def plan(*sets: str) -> ScenarioPlan:
    return load_text(SMALL, sets=[f"{POOL}.{one}" for one in sets])


def served(model: str, *sets: str) -> ScenarioPlan:
    return load_text(SMALL, sets=[f"model={model}", *HARDWARE, *(f"{POOL}.{one}" for one in sets)])


@pytest.mark.parametrize(
    ("sets", "said"),
    [
        (("data_parallel=2", "engine.lora={}"), "adapters on data-parallel ranks are not modelled"),
        (("data_parallel=2", "engine.chunked_prefill=false"), "a prompt that is computed whole"),
        (
            ("pipeline_parallel=2", "engine.speculative={method: mtp, num_speculative_tokens: 1}"),
            "drafts in a pipeline are not modelled",
        ),
        (
            ("all2all_backend=deepep_low_latency", "data_parallel=2"),
            "carries tokens between data-parallel ranks",
        ),
        (("engine.prompt_wait_steps=60",), "60, but the pool's data_parallel is 1"),
        (("all2all_backend=pplx",), "'pplx' is not known here"),
    ],
)
def test_what_is_refused(sets: tuple[str, ...], said: str) -> None:
    with pytest.raises(InputError, match=said):
        plan(*sets)


@pytest.mark.parametrize("step", ["roofline", "blis-trained-physics"])
def test_step_times_that_know_of_one_rank(step: str) -> None:
    sets = ("data_parallel=2", f"step_time={{model: {step}}}", "accelerator=h200")
    with pytest.raises(InputError, match="knows of one rank"):
        load_text(SMALL, sets=["model=qwen3-30b-a3b", *(f"{POOL}.{one}" for one in sets)])


def test_ranks_of_a_dense_model_are_servers_of_their_own() -> None:
    ((_, fault),) = hardware_faults(served("llama-3.1-8b", "data_parallel=4"))
    assert "llama-3.1-8b has no experts to share" in str(fault)
    assert "replicas, 4 times as many" in str(fault)


@pytest.mark.parametrize("blocks", ["auto", "2000"])
def test_every_stage_of_a_pipeline_has_a_layer(blocks: str) -> None:
    sets = ("pipeline_parallel=1024", f"engine.kv_blocks={blocks}")
    ((_, fault),) = hardware_faults(served("llama-3.1-8b", *sets))
    assert "pipeline_parallel is 1024 but the model has 32 layers" in str(fault)


def test_limits_hold_for_each_rank_and_a_request_is_on_one() -> None:
    both = ("expert_parallel=true", "tensor_parallel=2", "engine.max_num_seqs=100")
    one, four = (
        limits_of(pool, shape_of(pool))
        for pool in (
            served("qwen3-30b-a3b", *both).pools[0],
            served("qwen3-30b-a3b", *both, "data_parallel=4").pools[0],
        )
    )
    assert four.max_num_seqs == 4 * one.max_num_seqs == 400
    assert four.max_num_batched_tokens == 4 * one.max_num_batched_tokens
    assert four.long_prefill_threshold == one.max_num_batched_tokens
    assert four.usable_blocks == 4 * four.request_blocks > 4 * one.request_blocks
    small = limits_of(plan("data_parallel=4", "engine.kv_blocks=11").pools[0], None)
    assert small.usable_blocks == 40
    assert small.refusal(161, 1) == "needs 11 KV blocks, the server has 10"


def test_every_accelerator_is_paid_for() -> None:
    found = simulate(plan("tensor_parallel=2", "data_parallel=3", "pipeline_parallel=4"))
    pool = found["pools"]["main"]
    assert pool["accelerator_seconds"] == 24 * pool["replica_seconds"]
    (says,) = [one["says"] for one in found["trust"]["findings"] if one["code"] == "assumptions"]
    assert "spread evenly over its 3 ranks" in says
    wide = served("qwen3-30b-a3b", "tensor_parallel=4", "data_parallel=4", "pipeline_parallel=2")
    balance, links, batches = assumptions_of(wide.pools[0])
    assert "4 ranks" in balance
    assert "nothing was measured between machines" in links
    assert "no run of a pipeline was measured" in batches
