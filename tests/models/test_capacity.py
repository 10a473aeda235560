"""KV blocks: known servers come out as they are, and what does not fit is explained."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from windtunnel.core.errors import InputError
from windtunnel.models.capacity import kv_capacity
from windtunnel.models.catalog.accelerators import ACCELERATORS, resolve_accelerator
from windtunnel.models.catalog.models import MODELS

H100 = resolve_accelerator("h100")


def test_a_well_known_server_has_its_blocks() -> None:
    found = kv_capacity(MODELS["llama-3.1-8b"], H100)
    assert 26_000 <= found.blocks <= 28_000
    assert found.block_bytes == 16 * 128 * 1024
    assert found.tokens == found.blocks * 16


@given(
    name=st.sampled_from(sorted(MODELS)),
    accelerator=st.sampled_from(sorted(ACCELERATORS)),
    degree=st.sampled_from([1, 2, 4, 8]),
    utilization=st.floats(0.5, 1.0),
)
def test_memory_is_never_oversold(
    name: str, accelerator: str, degree: int, utilization: float
) -> None:
    gpu = ACCELERATORS[accelerator]
    try:
        found = kv_capacity(
            MODELS[name], gpu, tensor_parallel=degree, memory_utilization=utilization
        )
    except InputError:
        return
    used = found.weight_bytes + found.activation_bytes + found.runtime_bytes
    used += found.blocks * found.block_bytes
    assert used <= gpu.memory_bytes * utilization * (1 + 1e-12)
    assert used + found.block_bytes > gpu.memory_bytes * utilization * (1 - 1e-12)


def test_a_model_that_does_not_fit_is_explained() -> None:
    with pytest.raises(InputError) as caught:
        kv_capacity(MODELS["llama-3.1-70b"], H100)
    sentence = str(caught.value)
    assert "llama-3.1-70b does not fit on h100-sxm: it needs 134.6 GiB" in sentence
    assert "has 71.6 GiB" in sentence
    assert "try tensor_parallel: 2 or accelerator: b200" in sentence


def test_the_advice_works() -> None:
    assert kv_capacity(MODELS["llama-3.1-70b"], H100, tensor_parallel=2).blocks >= 1
    b200 = resolve_accelerator("b200")
    assert kv_capacity(MODELS["llama-3.1-70b"], b200).blocks >= 1


def test_latent_attention_gains_blocks_only_from_smaller_weights() -> None:
    h200 = resolve_accelerator("h200")
    eight = kv_capacity(MODELS["deepseek-v3"], h200, tensor_parallel=8)
    sixteen = kv_capacity(MODELS["deepseek-v3"], h200, tensor_parallel=16)
    assert eight.block_bytes == sixteen.block_bytes
    assert sixteen.blocks > eight.blocks


def test_sliding_windows_make_blocks_cheaper() -> None:
    shape = MODELS["gemma-3-27b"]
    found = kv_capacity(shape, H100)
    per_layer = shape.kv_bytes_per_token_layer * 16
    assert found.block_bytes == (10 + 52 * 0.25) * per_layer


@pytest.mark.parametrize(
    "setting",
    [
        {"memory_utilization": 0.0},
        {"memory_utilization": 1.5},
        {"memory_utilization": float("nan")},
        {"block_size": 0},
        {"max_num_seqs": 0},
        {"max_num_batched_tokens": -1},
        {"tensor_parallel": 3},
    ],
)
def test_absurd_settings_are_refused(setting: dict[str, float]) -> None:
    with pytest.raises(InputError, match=next(iter(setting))):
        kv_capacity(MODELS["llama-3.1-8b"], H100, **setting)  # type: ignore[arg-type]
