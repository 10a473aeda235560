"""What follows from a shape: parts add up to the whole, and impossible shapes are refused."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from windtunnel.core.errors import InputError
from windtunnel.models.catalog.models import MODELS

DEGREES = (1, 2, 4, 8)


@given(name=st.sampled_from(sorted(MODELS)), degree=st.sampled_from(DEGREES))
def test_gpus_hold_the_whole_model_between_them(name: str, degree: int) -> None:
    shape = MODELS[name]
    if shape.heads % degree or (shape.kv_heads % degree and degree % shape.kv_heads):
        return
    each = shape.per_gpu(degree).total_weight_bytes
    assert each * degree >= shape.total_weight_bytes * (1 - 1e-12)
    assert each <= shape.total_weight_bytes
    assert each * degree <= shape.total_weight_bytes * 1.35  # norms, routers, kv heads


def test_kv_heads_are_replicated_beyond_their_number() -> None:
    shape = MODELS["qwen3-30b-a3b"]
    assert shape.per_gpu(4).kv_bytes_per_token == shape.kv_bytes_per_token / 4
    assert shape.per_gpu(8).kv_bytes_per_token == shape.kv_bytes_per_token / 4


def test_full_attention_layers_may_have_heads_of_their_own() -> None:
    """Gemma 4 31B: 50 windowed layers of 16 heads of 256, 10 full ones of 4 heads of 512."""
    shape = MODELS["gemma-4-31b"]
    queries, hidden = 32, 5376
    assert shape.all_attention_params == hidden * (
        50 * 256 * (2 * queries + 2 * 16) + 10 * 512 * (2 * queries + 2 * 4)
    )
    assert shape.kv_bytes_per_token == 2 * 2 * (50 * 16 * 256 + 10 * 4 * 512)
    assert shape.of_full_layers.of_full_layers == shape.of_full_layers
    plain = MODELS["gemma-3-27b"]
    assert plain.of_full_layers is plain


@pytest.mark.parametrize(
    ("name", "degree", "windowed", "full"),
    [
        ("gemma-4-31b", 4, 4, 1),
        ("gemma-4-31b", 8, 2, 1),
        ("gemma-4-31b", 32, 1, 1),
        ("gemma-4-26b-a4b", 2, 4, 1),
        ("gemma-4-26b-a4b", 8, 1, 1),
    ],
)
def test_heads_of_full_attention_layers_are_divided_apart(
    name: str, degree: int, windowed: int, full: int
) -> None:
    shape = MODELS[name]
    part = shape.per_gpu(degree)
    assert (part.kv_heads, part.full_kv_heads, part.full_head_dim) == (windowed, full, 512)
    in_all = shape.window_layers * windowed * 256 + shape.full_layers * full * 512
    assert part.kv_bytes_per_token == 2 * 2 * in_all


def test_latent_cache_is_small_and_not_divided() -> None:
    shape = MODELS["deepseek-v3"]
    assert shape.kv_bytes_per_token == 61 * (512 + 64) * 2
    assert shape.per_gpu(8).kv_bytes_per_token == shape.kv_bytes_per_token


def test_experts_are_dealt_out_whole_or_cut() -> None:
    shape = MODELS["mixtral-8x7b"]
    dealt = shape.per_gpu(8, 8)
    cut = shape.per_gpu(8)
    assert (dealt.experts, dealt.expert_ffn) == (1, shape.expert_ffn)
    assert (cut.experts, cut.expert_ffn) == (8, shape.expert_ffn // 8)
    assert dealt.moe_layers == shape.layers
    expert_bytes = shape.layers * shape.expert_params * 2
    assert dealt.total_weight_bytes == pytest.approx(cut.total_weight_bytes, abs=expert_bytes / 50)


def test_interleaved_and_prefixed_mixtures_count_their_layers() -> None:
    assert MODELS["llama-4-maverick"].moe_layers == 24
    assert MODELS["deepseek-v3"].moe_layers == 58
    assert MODELS["llama-3.1-8b"].moe_layers == 0


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"layers": 0}, "layers is 0"),
        ({"hidden": -1}, "hidden is -1"),
        ({"kv_heads": 5}, "32 attention heads cannot share 5"),
        ({"experts": 4, "experts_per_token": 5}, "5 experts per token of 4"),
        ({"full_kv_heads": 5}, "32 attention heads cannot share 5 .* of full-attention layers"),
        ({"window_layers": 33}, "33 sliding-window layers of 32"),
    ],
)
def test_impossible_shapes_are_refused(change: dict[str, int], sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        msgspec.structs.replace(MODELS["llama-3.1-8b"], **change)


@pytest.mark.parametrize(("tp", "ep"), [(3, 1), (0, 1), (-8, 1), (1, 9), (1, 0)])
def test_impossible_divisions_are_refused(tp: int, ep: int) -> None:
    with pytest.raises(InputError, match="parallel is"):
        MODELS["mixtral-8x7b"].per_gpu(tp, ep)


def test_heads_of_full_attention_layers_must_divide_too() -> None:
    shape = msgspec.structs.replace(
        MODELS["gemma-4-31b"], heads=48, kv_heads=24, full_kv_heads=16, full_head_dim=0
    )
    assert shape.per_gpu(8).full_kv_heads == 2
    with pytest.raises(InputError, match="tensor_parallel is 24 but the model has 16 key-value"):
        shape.per_gpu(24)
