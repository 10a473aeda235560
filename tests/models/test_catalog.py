"""Catalog models have the parameter counts their publishers state, and names resolve or explain."""

from pathlib import Path

import pytest

from windtunnel.core.errors import InputError
from windtunnel.models.catalog.models import _VARIANTS as VARIANTS
from windtunnel.models.catalog.models import MODELS, resolve_model

# Billions, as published: model cards, technical reports, and the checkpoints' own tensor counts.
# Language model only: multimodal checkpoints also have an encoder. DeepSeek-V3 without its
# extra prediction layer, Llama 4 with its 0.9 billion of vision.
PUBLISHED = {
    "llama-3.1-8b": 8.03,
    "llama-3.1-70b": 70.6,
    "llama-3.1-405b": 406.0,
    "llama-3.2-1b": 1.24,
    "llama-3.2-3b": 3.21,
    "llama-3.3-70b": 70.6,
    "qwen2.5-0.5b": 0.494,
    "qwen2.5-1.5b": 1.54,
    "qwen2.5-3b": 3.09,
    "qwen2.5-7b": 7.62,
    "qwen2.5-14b": 14.8,
    "qwen2.5-32b": 32.8,
    "qwen2.5-72b": 72.7,
    "qwen3-0.6b": 0.596,
    "qwen3-1.7b": 1.72,
    "qwen3-4b": 4.02,
    "qwen3-8b": 8.19,
    "qwen3-14b": 14.8,
    "qwen3-32b": 32.8,
    "qwen3-30b-a3b": 30.5,
    "qwen3-235b-a22b": 235.0,
    "mistral-7b": 7.25,
    "mixtral-8x7b": 46.7,
    "mixtral-8x22b": 141.0,
    "deepseek-v3": 671.0,
    "gpt-oss-20b": 20.9,
    "gpt-oss-120b": 117.0,
    "gemma-3-4b": 3.88,
    "gemma-3-12b": 11.77,
    "gemma-3-27b": 27.02,
    "gemma-4-31b": 30.7,
    "gemma-4-26b-a4b": 25.2,
    "phi-4": 14.7,
    "llama-4-scout": 109.0,
    "llama-4-maverick": 402.0,
    "gemma-2-9b": 9.24,
    "gemma-2-27b": 27.2,
    "mistral-nemo-12b": 12.2,
    "mistral-small-3.1-24b": 23.6,
    "mistral-medium-3.5-128b": 128.0,
    "mistral-small-4-119b": 119.0,
    "granite-3.1-8b": 8.17,
    "deepseek-v2-lite": 15.7,
    "deepseek-v3.2": 672.0,
    "kimi-vl-a3b": 16.0,
    "kimi-k2": 1026.0,
    "glm-4.5": 355.0,
    "glm-5": 744.0,
    "minimax-m2.5": 229.0,
    "qwen3-coder-480b-a35b": 480.0,
    "qwen3-next-80b-a3b": 80.0,
    "qwen3.5-0.8b": 0.75,
    "qwen3.5-2b": 1.88,
    "qwen3.5-4b": 4.2,
    "qwen3.5-9b": 8.95,
    "qwen3.5-27b": 27.0,
    "qwen3.5-35b-a3b": 35.0,
    "qwen3.5-122b-a10b": 122.0,
    "qwen3.5-397b-a17b": 397.0,
    "nemotron-h-56b": 56.0,
    "nemotron-3-nano-30b-a3b": 31.6,
    "nemotron-3-super-120b-a12b": 120.0,
    "nemotron-3-ultra-550b-a55b": 550.0,
    "granite-4.0-h-small": 32.2,
    "granite-4.1-3b": 3.4,
    "granite-4.1-8b": 8.4,
    "granite-4.1-30b": 28.9,
    "granite-4.2-3b": 3.66,  # of GGUF files: 34 bytes for 32 numbers
    "granite-4.2-8b": 8.8,
    "granite-4.2-30b": 29.3,
}
PUBLISHED_ACTIVE = {
    "mixtral-8x7b": 12.9,
    "mixtral-8x22b": 39.0,
    "deepseek-v3": 37.0,
    "gpt-oss-20b": 3.6,
    "gpt-oss-120b": 5.1,
    "gemma-4-26b-a4b": 3.8,
    "qwen3-235b-a22b": 22.0,
    "qwen3-coder-480b-a35b": 35.0,
    "glm-4.5": 32.0,
    "kimi-k2": 32.0,
    "nemotron-3-nano-30b-a3b": 3.2,
    "nemotron-3-super-120b-a12b": 12.0,
    "nemotron-3-ultra-550b-a55b": 55.0,
    "granite-4.0-h-small": 9.0,
}


@pytest.mark.parametrize("name", sorted(MODELS))
def test_parameters_match_the_published_count(name: str) -> None:
    assert MODELS[name].params / 1e9 == pytest.approx(PUBLISHED[name], rel=0.025)


@pytest.mark.parametrize("name", sorted(PUBLISHED_ACTIVE))
def test_active_parameters_match_the_published_count(name: str) -> None:
    assert MODELS[name].active_params / 1e9 == pytest.approx(PUBLISHED_ACTIVE[name], rel=0.03)


def test_the_published_list_and_the_catalog_hold_the_same_models() -> None:
    assert sorted(PUBLISHED) == sorted(MODELS)


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("nvidia/Nemotron-H-56B-Base-8K", "nemotron-h-56b"),
        ("LLAMA-3.1-8B", "llama-3.1-8b"),
        ("meta-llama/Llama-3.1-8B", "llama-3.1-8b"),
        ("meta-llama/Meta-Llama-3.1-8B-Instruct", "llama-3.1-8b"),
        ("Qwen/Qwen2.5-7B-Instruct", "qwen2.5-7b"),
        ("mistralai/Mixtral-8x7B-Instruct-v0.1", "mixtral-8x7b"),
        ("google/gemma-3-27b-it", "gemma-3-27b"),
        ("google/gemma-4-31B-it", "gemma-4-31b"),
        ("google/gemma-4-26B-A4B-it", "gemma-4-26b-a4b"),
        ("openai/gpt-oss-20b", "gpt-oss-20b"),
        ("deepseek-ai/DeepSeek-R1", "deepseek-v3"),
        ("microsoft/phi-4", "phi-4"),
        ("MiniMaxAI/MiniMax-M2", "minimax-m2.5"),
        ("mistralai/Mistral-Small-3.2-24B-Instruct-2506", "mistral-small-3.1-24b"),
        ("mistralai/Mistral-Small-4-119B-2603", "mistral-small-4-119b"),
        ("deepseek-ai/DeepSeek-V3.2-FP8", "deepseek-v3.2"),
    ],
)
def test_hugging_face_ids_name_the_same_shapes(text: str, name: str) -> None:
    assert resolve_model(text) is MODELS[name]


@pytest.mark.parametrize(
    ("text", "model", "weights", "experts", "kv", "precision"),
    [
        ("Qwen/Qwen3-32B-FP8", "qwen3-32b", 1.0, 1.0, 2.0, "fp8"),
        ("amd/Llama-3.1-8B-Instruct-FP8-KV", "llama-3.1-8b", 1.0, 1.0, 1.0, "fp8"),
        ("nvidia/Llama-3.3-70B-Instruct-NVFP4", "llama-3.3-70b", 0.5625, 0.5625, 1.0, "fp4"),
        ("RedHatAI/Llama-3.3-70B-NVFP4", "llama-3.3-70b", 0.5625, 0.5625, 2.0, "fp4"),
        ("nvidia/Llama-3.1-70B-Instruct-FP8", "llama-3.1-70b", 1.0, 1.0, 1.0, "fp8"),
        ("RedHatAI/Llama-3.3-70B-Instruct-FP8", "llama-3.3-70b", 1.0, 1.0, 2.0, "fp8"),
        (
            *("nvidia/NVIDIA-Nemotron-3-Super-120B-A12B-FP8", "nemotron-3-super-120b-a12b"),
            *(1.0, 1.0, 1.0, "fp8"),
        ),
        ("nvidia/DeepSeek-R1-0528-NVFP4", "deepseek-v3", 2.0, 0.5625, 1.0, "fp4"),
        ("nvidia/DeepSeek-V3.2-NVFP4", "deepseek-v3.2", 1.284, 0.5625, 1.0, "fp4"),
        ("nvidia/MiniMax-M2.5-NVFP4", "minimax-m2.5", 2.0, 0.5625, 1.0, "fp4"),
        ("nvidia/Gemma-4-31B-IT-NVFP4", "gemma-4-31b", 0.982, 0.5625, 1.0, "fp4"),
        ("nvidia/Gemma-4-26B-A4B-NVFP4", "gemma-4-26b-a4b", 2.0, 0.5625, 1.0, "fp4"),
        ("RedHatAI/gemma-4-31B-it-FP8-block", "gemma-4-31b", 1.0, 1.0, 2.0, "fp8"),
        ("nvidia/GLM-5-NVFP4", "glm-5", 1.692, 0.5625, 1.0, "fp4"),
        ("nvidia/GLM-5.1-NVFP4", "glm-5", 1.943, 0.618, 1.0, "fp4"),
        ("amd/Llama-3.3-70B-Instruct-MXFP4", "llama-3.3-70b", 4.25 / 8, 4.25 / 8, 2.0, "fp4"),
        ("amd/DeepSeek-R1-MXFP4", "deepseek-v3", 2.0, 4.25 / 8, 2.0, "fp4"),
        ("openai/gpt-oss-20b-BF16", "gpt-oss-20b", 2.0, 2.0, 2.0, "bf16"),
        ("Qwen/Qwen2.5-7B-Instruct-AWQ", "qwen2.5-7b", 4.25 / 8, 4.25 / 8, 2.0, "bf16"),
        ("Qwen/Qwen2.5-7B-Instruct-GPTQ-Int4", "qwen2.5-7b", 4.125 / 8, 4.125 / 8, 2.0, "bf16"),
        ("moonshotai/Kimi-K2-Thinking", "kimi-k2", 2.0, 0.5625, 2.0, "bf16"),
        ("llama-3.1-8b-w8a8", "llama-3.1-8b", 1.0, 1.0, 2.0, "int8"),
    ],
)
def test_quantised_checkpoints_are_known_by_name(
    text: str, model: str, weights: float, experts: float, kv: float, precision: str
) -> None:
    found = resolve_model(text)
    precisions = (found.weight_bytes, found.expert_weight_bytes, found.kv_bytes)
    assert (*precisions, found.matmul_precision) == (weights, experts, kv, precision)
    assert found.params == MODELS[model].params
    assert found.embedding_bytes == 2.0


def test_a_name_cannot_have_quantised_experts_of_a_model_without_any() -> None:
    with pytest.raises(InputError, match="is not in the catalog"):
        resolve_model("llama-3.3-70b-mxfp4")


@pytest.mark.parametrize("name", sorted(VARIANTS))
def test_every_variant_can_be_named(name: str) -> None:
    assert resolve_model(name).layers == MODELS[VARIANTS[name][0]].layers


def test_layers_that_share_the_picks_of_others_have_no_indexer() -> None:
    """21 of GLM-5.2's 78 layers pick tokens; each keeps 132 bytes per token for it."""
    every, shared = resolve_model("zai-org/GLM-5.1"), resolve_model("zai-org/GLM-5.2-FP8")
    assert (every.indexers, shared.indexers) == (78, 21)
    assert every.kv_bytes_per_token - shared.kv_bytes_per_token == pytest.approx(57 * 132)
    assert every.params - shared.params == 57 * every.index_params


def test_checkpoints_of_eight_bits_need_no_suffix() -> None:
    """The recipe plans 154 GB for its native fp8 weights."""
    assert resolve_model("mistralai/Mistral-Medium-3.5-128B").total_weight_bytes < 130e9


def test_dated_names_have_their_own_context() -> None:
    assert resolve_model("Qwen/Qwen3-30B-A3B-Thinking-2507-FP8").max_context == 262_144
    assert resolve_model("Qwen/Qwen3-30B-A3B").max_context == 40_960


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("tiiuae/Falcon-H1-34B-Instruct", "attention and Mamba in the same layer"),
        ("moonshotai/Kimi-Linear-48B-A3B", "Kimi delta attention"),
        ("deepseek-ai/DeepSeek-V4-Pro", "compressed sparse attention"),
        ("google/gemma-4-E4B-it", "layers that share their keys and values"),
    ],
)
def test_models_that_follow_other_laws_are_refused(text: str, why: str) -> None:
    with pytest.raises(InputError, match=f"is not modelled: it has .*{why}"):
        resolve_model(text)


def test_a_slice_is_one_gpus_part() -> None:
    part = resolve_model("llama-3.1-70b-tp8-slice")
    found = (
        part.layers,
        part.hidden,
        part.heads,
        part.kv_heads,
        part.head_dim,
        part.ffn,
        part.vocab,
    )
    assert found == (80, 8192, 8, 1, 128, 3584, 16032)
    assert part.name == "llama-3.1-70b-tp8-slice"


@pytest.mark.parametrize("text", ["llama-3.1-70b-tp3-slice", "llama-3.1-70b-tp0-slice"])
def test_a_slice_that_does_not_divide_is_refused(text: str) -> None:
    with pytest.raises(InputError, match="64 attention heads"):
        resolve_model(text)


def test_an_unknown_name_is_answered_with_the_nearest() -> None:
    with pytest.raises(InputError, match=r"'lama-3.1-8b'.*did you mean 'llama-3.1-8b'"):
        resolve_model("lama-3.1-8b")


@pytest.mark.parametrize("text", ["", "\0", "x" * 5000, "/", "nowhere/config.json", "-tp8-slice"])
def test_hostile_names_get_a_sentence(text: str) -> None:
    with pytest.raises(InputError):
        resolve_model(text)


def test_a_path_is_read_as_a_configuration(tmp_path: Path) -> None:
    folder = tmp_path / "tiny"
    folder.mkdir()
    (folder / "config.json").write_text(
        '{"num_hidden_layers": 2, "hidden_size": 64, "num_attention_heads": 4,'
        ' "intermediate_size": 128, "vocab_size": 1000, "max_position_embeddings": 512}'
    )
    assert resolve_model(str(folder)).name == "tiny"
    assert resolve_model(str(folder / "config.json")).layers == 2
