"""Models with recurrent layers in a scenario: their blocks, their states, and what is refused."""

import pytest

from windtunnel.models.catalog.accelerators import resolve_accelerator
from windtunnel.twin.run import simulate
from windtunnel.twin.scenario.load import load_text
from windtunnel.twin.scenario.plan import ScenarioPlan
from windtunnel.twin.servers.pools import (
    assumptions_of,
    capacity_of,
    hardware_faults,
    limits_of,
    shape_of,
)

TEXT = """\
name: hybrid
model: Qwen/Qwen3.5-35B-A3B
workload:
  - name: chat
    count: 12
    arrivals: {process: closed, users: 4, think: 0s}
    prompt_tokens: 3000
    output_tokens: 20
serving:
  pools:
    - {name: main, accelerator: h200, step_time: {model: physics}}
"""
POOL = "serving.pools.0"


def plan(*sets: str) -> ScenarioPlan:
    return load_text(TEXT, sets=[f"{POOL}.{one}" for one in sets])


def test_blocks_hold_a_state_and_requests_hold_blocks_for_theirs() -> None:
    pool = plan().pools[0]
    # A state of 2,146,304 bytes: 1,048 tokens of 2,048 bytes, in multiples of 16.
    assert pool.engine.block_size == 1056
    shape = shape_of(pool)
    assert shape is not None
    limits = limits_of(pool, shape)
    # 3,020 tokens are 3 blocks of the attention group, and each of 3 recurrent groups has a state.
    assert limits.blocks_of(3019) == 3 + 3
    assert limits.blocks_of(10) == 1 + 3
    fp8 = plan("engine.kv_cache_dtype=fp8").pools[0]
    assert fp8.engine.block_size == 2096
    drafting = plan("engine.speculative={method: mtp, num_speculative_tokens: 2}").pools[0]
    drafts = limits_of(drafting, shape_of(drafting))
    assert drafts.windows is not None
    assert drafts.window_blocks(10) == 3 * 3


def test_a_run_holds_as_many_blocks_as_capacity_says() -> None:
    found = plan()
    pool = found.pools[0]
    shape = shape_of(pool)
    assert shape is not None
    capacity = capacity_of(pool, shape, resolve_accelerator("h200"))
    assert capacity.block_size == pool.engine.block_size
    assert limits_of(pool, shape).kv_blocks == capacity.blocks
    result = simulate(found)
    assert result["requests"]["completed"] == 12
    (says,) = [one for one in assumptions_of(pool) if "state" in one]
    assert "vLLM keeps a state for every cached block" in says
    assert assumptions_of(plan("engine.prefix_caching=false").pools[0]) == []


@pytest.mark.parametrize(
    ("sets", "said"),
    [
        (
            ("engine.offload=[{tier: cpu, size: 100GiB}]",),
            "whose states are not offloaded or handed over",
        ),
        (("step_time={model: blis-trained-physics}",), "recurrent layers, which the step time"),
        (("tensor_parallel=3",), "tensor_parallel is 3"),
    ],
)
def test_what_is_not_modelled_is_refused(sets: tuple[str, ...], said: str) -> None:
    faults = hardware_faults(plan(*sets))
    assert any(said in str(fault) for _, fault in faults)
