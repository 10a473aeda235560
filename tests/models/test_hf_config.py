"""Hugging Face configurations: real families read right, hostile files get a sentence each."""

import json
import math
import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from windtunnel.core.errors import InputError
from windtunnel.models.catalog.hf_config import MAX_FILE_BYTES, parse_hf_config, read_hf_config
from windtunnel.models.catalog.models import MODELS
from windtunnel.models.catalog.shapes import ModelShape

LLAMA: dict[str, Any] = {
    "model_type": "llama",
    "num_hidden_layers": 32,
    "hidden_size": 4096,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "intermediate_size": 14336,
    "vocab_size": 128256,
    "max_position_embeddings": 131072,
    "tie_word_embeddings": False,
    "torch_dtype": "bfloat16",
    "rope_scaling": {
        "factor": 8.0,
        "original_max_position_embeddings": 8192,
        "rope_type": "llama3",
    },
}
MIXTRAL = LLAMA | {
    "model_type": "mixtral",
    "vocab_size": 32000,
    "max_position_embeddings": 32768,
    "rope_scaling": None,
    "sliding_window": None,
    "num_local_experts": 8,
    "num_experts_per_tok": 2,
}
QWEN_MOE: dict[str, Any] = {
    "model_type": "qwen3_moe",
    "num_hidden_layers": 48,
    "hidden_size": 2048,
    "num_attention_heads": 32,
    "num_key_value_heads": 4,
    "head_dim": 128,
    "intermediate_size": 6144,
    "moe_intermediate_size": 768,
    "num_experts": 128,
    "num_experts_per_tok": 8,
    "decoder_sparse_step": 1,
    "mlp_only_layers": [],
    "vocab_size": 151936,
    "max_position_embeddings": 40960,
    "use_sliding_window": False,
    "sliding_window": 4096,
    "tie_word_embeddings": False,
}
DEEPSEEK: dict[str, Any] = {
    "model_type": "deepseek_v3",
    "num_nextn_predict_layers": 1,
    "num_hidden_layers": 61,
    "hidden_size": 7168,
    "num_attention_heads": 128,
    "num_key_value_heads": 128,
    "intermediate_size": 18432,
    "moe_intermediate_size": 2048,
    "n_routed_experts": 256,
    "num_experts_per_tok": 8,
    "n_shared_experts": 1,
    "first_k_dense_replace": 3,
    "moe_layer_freq": 1,
    "q_lora_rank": 1536,
    "kv_lora_rank": 512,
    "qk_rope_head_dim": 64,
    "qk_nope_head_dim": 128,
    "v_head_dim": 128,
    "vocab_size": 129280,
    "max_position_embeddings": 163840,
    "rope_scaling": {"type": "yarn", "factor": 40, "original_max_position_embeddings": 4096},
    "quantization_config": {"quant_method": "fp8", "fmt": "e4m3"},
    "tie_word_embeddings": False,
}
GPT_OSS: dict[str, Any] = {
    "model_type": "gpt_oss",
    "num_hidden_layers": 24,
    "hidden_size": 2880,
    "num_attention_heads": 64,
    "num_key_value_heads": 8,
    "head_dim": 64,
    "intermediate_size": 2880,
    "num_local_experts": 32,
    "experts_per_token": 4,
    "vocab_size": 201088,
    "max_position_embeddings": 131072,
    "rope_scaling": {
        "rope_type": "yarn",
        "factor": 32.0,
        "original_max_position_embeddings": 4096,
    },
    "sliding_window": 128,
    "layer_types": ["sliding_attention", "full_attention"] * 12,
    "quantization_config": {"quant_method": "mxfp4", "modules_to_not_convert": ["lm_head"]},
    "tie_word_embeddings": False,
}
GEMMA: dict[str, Any] = {
    "model_type": "gemma3",
    "torch_dtype": "bfloat16",
    "vision_config": {"num_hidden_layers": 27, "hidden_size": 1152},
    "text_config": {
        "model_type": "gemma3_text",
        "num_hidden_layers": 34,
        "hidden_size": 2560,
        "intermediate_size": 10240,
        "rope_scaling": {"factor": 8.0, "rope_type": "linear"},
        "sliding_window": 1024,
    },
}
GEMMA_4: dict[str, Any] = {
    "model_type": "gemma4",
    "dtype": "bfloat16",
    "tie_word_embeddings": True,
    "vision_config": {"num_hidden_layers": 27, "hidden_size": 1152, "global_head_dim": 72},
    "text_config": {
        "model_type": "gemma4_text",
        "attention_k_eq_v": True,
        "enable_moe_block": False,
        "global_head_dim": 512,
        "head_dim": 256,
        "hidden_size": 5376,
        "hidden_size_per_layer_input": 0,
        "intermediate_size": 21504,
        "layer_types": [*["sliding_attention"] * 5, "full_attention"] * 10,
        "max_position_embeddings": 262144,
        "num_attention_heads": 32,
        "num_experts": None,
        "num_global_key_value_heads": 4,
        "num_hidden_layers": 60,
        "num_key_value_heads": 16,
        "num_kv_shared_layers": 0,
        "rope_parameters": {
            "full_attention": {"partial_rotary_factor": 0.25, "rope_type": "proportional"},
            "sliding_attention": {"rope_type": "default"},
        },
        "sliding_window": 1024,
        "top_k_experts": None,
        "vocab_size": 262144,
    },
}
GEMMA_4_MIXTURE: dict[str, Any] = GEMMA_4 | {
    "text_config": GEMMA_4["text_config"]
    | {
        "enable_moe_block": True,
        "hidden_size": 2816,
        "intermediate_size": 2112,
        "layer_types": [*["sliding_attention"] * 5, "full_attention"] * 5,
        "moe_intermediate_size": 704,
        "num_attention_heads": 16,
        "num_experts": 128,
        "num_global_key_value_heads": 2,
        "num_hidden_layers": 30,
        "num_key_value_heads": 8,
        "top_k_experts": 8,
    },
}
QWEN_HYBRID: dict[str, Any] = {
    "model_type": "qwen3_5",
    "tie_word_embeddings": False,
    "vision_config": {"depth": 27, "hidden_size": 1152},
    "text_config": {
        "model_type": "qwen3_5_text",
        "attn_output_gate": True,
        "full_attention_interval": 4,
        "head_dim": 256,
        "hidden_size": 5120,
        "intermediate_size": 17408,
        "layer_types": [*["linear_attention"] * 3, "full_attention"] * 16,
        "linear_conv_kernel_dim": 4,
        "linear_key_head_dim": 128,
        "linear_num_key_heads": 16,
        "linear_num_value_heads": 48,
        "linear_value_head_dim": 128,
        "mamba_ssm_dtype": "float32",
        "max_position_embeddings": 262144,
        "mtp_num_hidden_layers": 1,
        "num_attention_heads": 24,
        "num_hidden_layers": 64,
        "num_key_value_heads": 4,
        "vocab_size": 248320,
    },
}
NEMOTRON: dict[str, Any] = {
    "model_type": "nemotron_h",
    "torch_dtype": "bfloat16",
    "conv_kernel": 4,
    "head_dim": 128,
    "hidden_size": 2688,
    "hybrid_override_pattern": "MEMEM*EMEMEM*EMEMEM*EMEMEM*EMEMEM*EMEMEMEM*EMEMEMEME",
    "intermediate_size": 1856,
    "mamba_head_dim": 64,
    "mamba_num_heads": 64,
    "max_position_embeddings": 262144,
    "moe_intermediate_size": 1856,
    "moe_shared_expert_intermediate_size": 3712,
    "n_groups": 8,
    "n_routed_experts": 128,
    "n_shared_experts": 1,
    "num_attention_heads": 32,
    "num_experts_per_tok": 6,
    "num_hidden_layers": 52,
    "num_key_value_heads": 2,
    "ssm_state_size": 128,
    "vocab_size": 131072,
}
MAMBA: dict[str, Any] = {
    "mamba_n_heads": 128,
    "mamba_d_head": 64,
    "mamba_d_state": 128,
    "mamba_n_groups": 1,
    "mamba_d_conv": 4,
}
GRANITE: dict[str, Any] = {
    **MAMBA,
    "model_type": "granitemoehybrid",
    "hidden_size": 4096,
    "intermediate_size": 768,
    "layer_types": [*["mamba"] * 5, "attention", *["mamba"] * 4] * 4,
    "max_position_embeddings": 131072,
    "num_attention_heads": 32,
    "num_experts_per_tok": 10,
    "num_hidden_layers": 40,
    "num_key_value_heads": 8,
    "num_local_experts": 72,
    "shared_intermediate_size": 1536,
    "tie_word_embeddings": True,
    "vocab_size": 100352,
}


def parse(config: object, name: str = "tested") -> ModelShape:
    return parse_hf_config(config, where="config.json", name=name)


@pytest.mark.parametrize(
    ("config", "name"),
    [
        (LLAMA, "llama-3.1-8b"),
        (MIXTRAL, "mixtral-8x7b"),
        (QWEN_MOE, "qwen3-30b-a3b"),
        (DEEPSEEK, "deepseek-v3"),
        (GPT_OSS, "gpt-oss-20b"),
        (GEMMA, "gemma-3-4b"),
        (GEMMA_4, "gemma-4-31b"),
        (GEMMA_4_MIXTURE, "gemma-4-26b-a4b"),
        (QWEN_HYBRID, "qwen3.5-27b"),
        (NEMOTRON, "nemotron-3-nano-30b-a3b"),
        (GRANITE, "granite-4.0-h-small"),
    ],
)
def test_a_familys_configuration_gives_the_catalogs_shape(
    config: dict[str, Any], name: str
) -> None:
    assert parse(config, name) == MODELS[name]


def test_gemma_4_has_other_heads_only_where_its_file_says_so() -> None:
    text = GEMMA_4["text_config"]
    rotated = parse(GEMMA_4 | {"text_config": text | {"attention_k_eq_v": False}})
    assert (rotated.full_kv_heads, rotated.of_full_layers.kv_heads) == (0, 16)
    plain = parse(GEMMA_4 | {"text_config": text | {"global_head_dim": None}})
    assert (plain.of_full_layers.kv_heads, plain.of_full_layers.head_dim) == (4, 256)
    for field, value in (("num_kv_shared_layers", 18), ("hidden_size_per_layer_input", 256)):
        with pytest.raises(InputError, match=f"{field} is {value}, for .*: not modelled"):
            parse(GEMMA_4 | {"text_config": text | {field: value}})


def test_an_mlp_beside_the_experts_may_be_left_in_16_bits() -> None:
    """As in NVIDIA's checkpoints: attention everywhere, and the mixture's MLPs and routers."""
    for config, kinds, weights in (
        (GEMMA_4, ("self_attn",), 0.982),
        (GEMMA_4_MIXTURE, ("self_attn", "mlp", "router"), 2.0),
    ):
        layers = range(config["text_config"]["num_hidden_layers"])
        kept = [f"model.language_model.layers.{n}.{kind}*" for n in layers for kind in kinds]
        quantization = {
            "quant_algo": "NVFP4",
            "ignore": ["lm_head", *kept],
            "kv_cache_scheme": {"num_bits": 8, "type": "float"},
        }
        found = parse(config | {"quantization_config": quantization})
        assert found.weight_bytes == pytest.approx(weights, abs=0.001)
        assert (found.expert_weight_bytes, found.kv_bytes) == (0.5625, 1.0)


@pytest.mark.parametrize(
    "key",
    [
        "num_experts",
        "moe_num_experts",
        "n_routed_experts",
        "num_local_experts",
        "num_routed_experts",
    ],
)
def test_every_spelling_of_experts_is_known(key: str) -> None:
    shape = parse(LLAMA | {key: 16, "num_experts_per_tok": 2, "moe_intermediate_size": 1024})
    assert (shape.experts, shape.expert_ffn, shape.moe_layers) == (16, 1024, 32)


def test_one_expert_is_a_dense_model() -> None:
    assert not parse(LLAMA | {"num_local_experts": 1}).is_mixture


def test_llama_4_interleaves_and_shares_an_expert() -> None:
    shape = parse(
        {
            "text_config": LLAMA
            | {
                "model_type": "llama4_text",
                "num_local_experts": 128,
                "num_experts_per_tok": 1,
                "intermediate_size": 8192,
                "intermediate_size_mlp": 16384,
                "interleave_moe_layer_step": 2,
                "attention_chunk_size": 8192,
            }
        }
    )
    assert (shape.moe_layers, shape.ffn, shape.expert_ffn, shape.shared_ffn) == (
        16,
        16384,
        8192,
        8192,
    )
    assert (shape.window, shape.window_layers) == (8192, 24)


def test_a_list_of_mixture_layers_counts_the_dense_ones() -> None:
    extra = {"num_experts": 4, "num_experts_per_tok": 1, "moe_layer_freq": [0, 0] + [1] * 30}
    assert parse(LLAMA | extra).moe_layers == 30


@pytest.mark.parametrize(
    ("quantization", "weight_bytes", "precision"),
    [
        ({"quant_method": "awq", "bits": 4}, 0.5, "bf16"),
        ({"quant_method": "gptq", "bits": 8}, 1.0, "bf16"),
        ({"quant_method": "fp8"}, 1.0, "fp8"),
        ({"quant_method": "fbgemm_fp8"}, 1.0, "fp8"),
        ({"quant_method": "modelopt", "quant_algo": "NVFP4"}, 4.5 / 8, "fp4"),
        ({"quant_method": "modelopt", "quant_algo": "W4A16_MXFP4"}, 4.25 / 8, "bf16"),
        ({"quant_method": "modelopt", "quant_algo": "W4A8_NVFP4_FP8"}, 4.5 / 8, "fp8"),
        ({"quant_method": "modelopt", "quant_algo": "FP8"}, 1.0, "fp8"),
        ({"quant_method": "bitsandbytes", "load_in_4bit": True}, 0.5, "bf16"),
        (
            {
                "quant_method": "compressed-tensors",
                "config_groups": {"group_0": {"weights": {"num_bits": 4, "type": "int"}}},
            },
            0.5,
            "bf16",
        ),
        (
            {
                "quant_method": "compressed-tensors",
                "config_groups": {
                    "group_0": {
                        "weights": {"num_bits": 8, "type": "float"},
                        "input_activations": {"num_bits": 8, "type": "float"},
                    }
                },
            },
            1.0,
            "fp8",
        ),
    ],
)
def test_quantisation_sets_weights_and_arithmetic(
    quantization: dict[str, Any], weight_bytes: float, precision: str
) -> None:
    shape = parse(LLAMA | {"quantization_config": quantization})
    assert (shape.weight_bytes, shape.matmul_precision) == (weight_bytes, precision)
    assert shape.embedding_bytes == 2.0


@pytest.mark.parametrize(
    ("quantization", "kv_bytes"),
    [
        ({"quant_method": "fp8"}, 2.0),
        ({"quant_method": "modelopt", "quant_algo": "FP8", "kv_cache_quant_algo": "FP8"}, 1.0),
        ({"quant_algo": "NVFP4", "kv_cache_quant_algo": None}, 2.0),
        ({"quant_method": "fp8", "kv_cache_scheme": {"num_bits": 8, "type": "float"}}, 1.0),
    ],
)
def test_a_checkpoint_may_want_its_cache_in_fp8(
    quantization: dict[str, Any], kv_bytes: float
) -> None:
    assert parse(LLAMA | {"quantization_config": quantization}).kv_bytes == kv_bytes


def test_groups_of_weights_have_scales() -> None:
    awq = {"quant_method": "awq", "bits": 4, "group_size": 128, "zero_point": True}
    assert parse(LLAMA | {"quantization_config": awq}).weight_bytes == (4 + 20 / 128) / 8
    gptq = {"quant_method": "gptq", "bits": 4, "group_size": 32}
    assert parse(LLAMA | {"quantization_config": gptq}).weight_bytes == 4.5 / 8


LATENT_LISTS: list[dict[str, Any]] = [
    {"exclude_modules": ["lm_head", "model.layers.*.self_attn*"]},
    {"ignore": ["lm_head", r"re:.*self_attn\..*"]},
    {"modules_to_not_convert": ["mlp.gate", "self_attn"]},
    {"ignored_layers": [f"model.layers.{n}.self_attn" for n in range(61)]},
]


@pytest.mark.parametrize("kept", LATENT_LISTS)
def test_modules_that_stay_in_16_bits_are_counted_so(kept: dict[str, Any]) -> None:
    quantization = {"quant_algo": "NVFP4", **kept}
    shape = parse(DEEPSEEK | {"quantization_config": quantization})
    narrow = 4.5 / 8
    attention = shape.layers * shape.attention_params
    rest = shape.dense_layers * shape.dense_mlp_params + shape.moe_layers * shape.shared_params
    both = (2.0 * attention + narrow * rest) / (attention + rest)
    assert shape.weight_bytes == pytest.approx(both)
    assert shape.expert_weight_bytes == narrow


@pytest.mark.parametrize(
    "kept",
    [
        {"ignore": ["model.layers.1.mlp", "model.layers.1.self_attn"]},
        {"dynamic": {r"-:model\.layers\.1\..*": {}}},
        {"extra_config": {"model.layers.1": {"bits": 16}}},
    ],
)
def test_a_layer_that_stays_in_16_bits_counts_for_its_share(kept: dict[str, Any]) -> None:
    gptq = {"quant_method": "gptq", "bits": 8, **kept}
    shape = parse(LLAMA | {"quantization_config": gptq})
    assert shape.weight_bytes == pytest.approx(1.0 + 1.0 / shape.layers)


def test_routers_and_heads_are_no_part_of_what_is_left_in_16_bits() -> None:
    fp8 = {"quant_method": "fp8", "modules_to_not_convert": ["lm_head", "model.layers.0.mlp.gate"]}
    shape = parse(QWEN_MOE | {"quantization_config": fp8})
    assert (shape.weight_bytes, shape.expert_weight_bytes) == (1.0, 1.0)


def test_an_indexer_is_read() -> None:
    sparse = {"index_topk": 2048, "index_n_heads": 64, "index_head_dim": 128}
    shape = parse(DEEPSEEK | sparse, "deepseek-v3.2")
    assert shape == MODELS["deepseek-v3.2"]
    with pytest.raises(InputError, match="index_n_heads is missing"):
        parse(DEEPSEEK | {"index_topk": 2048})


def test_a_file_of_modelopt_beside_the_configuration_is_read(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(LLAMA))
    beside = {"quantization": {"quant_algo": "NVFP4", "kv_cache_quant_algo": "FP8"}}
    (tmp_path / "hf_quant_config.json").write_text(json.dumps(beside))
    shape = read_hf_config(tmp_path / "config.json")
    assert (shape.weight_bytes, shape.kv_bytes) == (4.5 / 8, 1.0)


@pytest.mark.parametrize(
    ("name", "weight_bytes"),
    [
        ("llama-w4a16", 4.125 / 8),
        ("llama-quantized.w8a8", 1.0),
        ("Llama-3.1-8B-FP8", 1.0),
        ("llama", 2.0),
    ],
)
def test_a_name_may_carry_the_quantisation(name: str, weight_bytes: float) -> None:
    assert parse(LLAMA, name).weight_bytes == weight_bytes


@pytest.mark.parametrize(
    ("scaling", "longest"),
    [
        (None, 131072),
        ({"rope_type": "llama3", "factor": 8.0}, 131072),
        ({"type": "linear", "factor": 2.0}, 262144),
        ({"type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32768}, 131072),
        ({"type": "longrope", "short_factor": [1.0], "long_factor": [1.0]}, 131072),
        ({"rope_theta": 10000.0}, 131072),
    ],
)
def test_rope_scaling_stretches_the_context(scaling: object, longest: int) -> None:
    assert parse(LLAMA | {"rope_scaling": scaling}).max_context == longest


def compressed(groups: object) -> dict[str, Any]:
    quantization = {"quant_method": "compressed-tensors", "config_groups": groups}
    return {"quantization_config": quantization}


def test_a_null_field_is_not_hinted_at_by_its_own_name() -> None:
    with pytest.raises(InputError, match="hidden_size is missing") as caught:
        parse(LLAMA | {"hidden_size": None})
    assert "did you mean" not in str(caught.value)
    with pytest.raises(InputError, match="did you mean 'hidden_sise'"):
        parse(LLAMA | {"hidden_size": None, "hidden_sise": 4096})


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"num_hidden_layers": 0}, "num_hidden_layers is 0; allowed: a whole number from 1"),
        ({"num_hidden_layers": -3}, "num_hidden_layers is -3"),
        ({"num_hidden_layers": 10**9}, "num_hidden_layers is 1000000000"),
        ({"num_hidden_layers": None}, "num_hidden_layers is missing"),
        ({"hidden_size": "4096"}, "hidden_size is '4096'"),
        ({"hidden_size": math.nan}, "hidden_size is nan"),
        ({"hidden_size": math.inf}, "hidden_size is inf"),
        ({"hidden_size": 4096.5}, "hidden_size is 4096.5"),
        ({"hidden_size": True}, "hidden_size is True"),
        ({"hidden_size": [4096]}, "hidden_size is"),
        ({"hidden_size": 4095}, "num_attention_heads is 32 but hidden_size is 4095"),
        ({"num_key_value_heads": 5}, "num_key_value_heads is 5; allowed: a divisor"),
        ({"num_key_value_heads": 64}, "num_key_value_heads is 64; allowed: .* to 32"),
        ({"vocab_size": 10**12}, "vocab_size is 1000000000000"),
        ({"intermediate_size": None}, "intermediate_size is missing"),
        ({"tie_word_embeddings": "no"}, "tie_word_embeddings is 'no'; allowed: true or false"),
        ({"torch_dtype": "int3"}, "torch_dtype is 'int3'"),
        ({"text_config": 7}, "text_config is 7; allowed: an object"),
        ({"rope_scaling": "yarn"}, "rope_scaling is 'yarn'"),
        ({"rope_scaling": {"type": "linear", "factor": math.nan}}, "factor is nan"),
        ({"rope_scaling": {"type": "linear", "factor": 0}}, "factor is 0"),
        ({"rope_scaling": {"rope_type": "linear", "factor": 10**400}}, "factor is 1000.*; allowed"),
        ({"rope_scaling": {"rope_type": "llama3", "factor": "x"}}, "rope_scaling: factor is 'x'"),
        ({"rope_scaling": {"rope_type": 5}}, "rope_scaling: rope_type is 5; allowed: a string"),
        ({"model_type": [1]}, r"model_type is \[1\]; allowed: a string"),
        ({"layer_types": {"a": 1}}, "layer_types is {'a': 1}; allowed: a list"),
        ({"layer_types": ["full_attention"] * 31}, "layer_types has 31 entries for 32 layers"),
        ({"layer_types": []}, "layer_types has 0 entries for 32 layers"),
        ({"is_encoder_decoder": "yes"}, "is_encoder_decoder is 'yes'; allowed: true or false"),
        (compressed([1]), r"config_groups is \[1\]; allowed: an object"),
        (compressed({"g": 7}), "config_groups.g is 7; allowed: an object"),
        (compressed({"g": {"weights": "int4"}}), "g: weights is 'int4'"),
        (compressed({"g": {"input_activations": 8}}), "g: input_activations is 8"),
        (
            compressed({"g": {"weights": {"num_bits": 8}, "input_activations": {"num_bits": "8"}}}),
            "num_bits of the input_activations is '8'",
        ),
        (
            {"quantization_config": {"quant_method": "bitsandbytes", "load_in_4bit": "yes"}},
            "load_in_4bit is 'yes'; allowed: true, false",
        ),
        ({"quantization_config": {"quant_method": 4, "bits": 4}}, "quant_method is 4"),
        ({"num_experts": 8}, "num_experts_per_tok is missing"),
        ({"num_experts": 8, "num_experts_per_tok": 9}, "num_experts_per_tok is 9; .* to 8"),
        ({"kv_lora_rank": 512}, "qk_rope_head_dim is missing"),
        ({"quantization_config": "awq"}, "quantization_config is 'awq'"),
        ({"quantization_config": {"quant_method": "fp8", "ignore": "lm_head"}}, "ignore is 'lm_h"),
        ({"quantization_config": {"quant_method": "fp8", "ignore": [1]}}, "ignore holds 1"),
        (
            {"quantization_config": {"quant_method": "fp8", "ignore": ["re:("]}},
            "no regular expression",
        ),
        (
            {"quantization_config": {"quant_method": "fp8", "ignore": ["re:(m+)+$"]}},
            "with at most 4 repeats, none of a group",
        ),
        (
            {"quantization_config": {"quant_method": "fp8", "ignore": ["re:" + "m*" * 9]}},
            "with at most 4 repeats, none of a group",
        ),
        (
            {"quantization_config": {"quant_method": "fp8", "ignore": ["re:m"] * 999}},
            "999 patterns .*; allowed: at most 256",
        ),
        (
            {
                "quantization_config": {
                    "quant_method": "gptq",
                    "bits": 4,
                    "dynamic": {"+:.*mlp.*": {"bits": 8}},
                }
            },
            "dynamic changes the precision of",
        ),
        (
            compressed(
                {
                    "mlp": {"weights": {"num_bits": 4, "type": "int"}},
                    "attention": {"weights": {"num_bits": 8, "type": "int"}},
                }
            ),
            "config_groups have weights of different precisions",
        ),
        ({"quantization_config": {"quant_method": "awq", "bits": 0}}, "bits is 0; allowed: 1, 2"),
        ({"quantization_config": {"quant_method": "magic"}}, "'magic' has no bits"),
        ({"layer_types": ["kda"]}, "layer_types holds 'kda'"),
        ({"layer_types": ["linear_attention"] * 32}, "linear_num_value_heads is missing"),
        (
            {"layer_types": ["mamba", "linear_attention"] * 16},
            "layer_types holds linear_attention and mamba; allowed: one of them",
        ),
        ({"hybrid_override_pattern": "MX"}, "hybrid_override_pattern is 'MX'; allowed: one of M"),
        ({"hybrid_override_pattern": "M--"}, "hybrid_override_pattern is 'M--'; allowed: MLPs"),
        ({**MAMBA, "layer_types": ["mamba"] * 32}, "32 recurrent layers of 32"),
        (
            {**MAMBA, "layer_types": ["mamba", "attention"] * 16, "mamba_ssm_cache_dtype": "int8"},
            "mamba_ssm_cache_dtype is 'int8'; allowed: float32",
        ),
        ({"model_type": "mamba2"}, "'mamba2' has layers that are not modelled"),
        ({"model_type": "gemma4_assistant"}, "'gemma4_assistant' has layers that are not modelled"),
        ({"model_type": "diffusion_gemma"}, "'diffusion_gemma' has layers that are not modelled"),
        ({"hidden_size_per_layer_input": 256}, "hidden_size_per_layer_input is 256, for embedd"),
        ({"global_head_dim": "512"}, "global_head_dim is '512'"),
        (
            {"attention_k_eq_v": True, "num_global_key_value_heads": 5},
            "32 attention heads cannot share 5 key-value heads of full-attention layers",
        ),
        ({"model_type": "minimax"}, "'minimax' has layers that are not modelled"),
        ({"model_type": "llada_moe"}, "'llada_moe' has layers that are not modelled"),
        ({"model_type": "gemma3n_text"}, "'gemma3n_text' has layers that are not modelled"),
        ({"model_type": "lfm2"}, "'lfm2' has layers that are not modelled"),
        ({"compress_ratios": [4, 128]}, "compress_ratios is .*, for compressed sparse attention"),
        ({"hybrid_layer_pattern": [0, 1]}, "hybrid_layer_pattern is .*, for windowed layers with"),
        ({"attn_type_list": [0, 1]}, "attn_type_list is .*, for lightning attention: not modelled"),
        ({"attn_type_list": 7}, "attn_type_list is 7"),
        ({"num_kv_shared_layers": 10}, "num_kv_shared_layers is 10, for layers that share"),
        (
            {"model_type": "something", "sliding_window": 512},
            "sliding_window is 512, but not which layers have it; allowed: layer_types",
        ),
        ({"mamba_d_state": 64}, "mamba_d_state is given, but not which layers are recurrent"),
        ({"layers_block_type": [[1]]}, r"layers_block_type holds \[1\]"),
        ({"layers_block_type": ["conv"]}, "layers_block_type holds 'conv'; allowed: mamba, moe"),
        ({"index_topk": 2048}, "index_topk is given without kv_lora_rank"),
        (
            {"layer_types": ["deepseek_sparse_attention"] * 32},
            "layer_types holds deepseek_sparse_attention without index_topk",
        ),
        (
            {"quantization_config": {"quant_method": "fp8", "kv_cache_quant_algo": "INT4"}},
            "kv_cache_quant_algo is 'INT4'",
        ),
        (
            {"quantization_config": {"quant_method": "awq", "bits": 4, "group_size": 0}},
            "group_size is 0",
        ),
        ({"is_encoder_decoder": True}, "not a decoder-only transformer"),
        ({"sliding_window": -5, "model_type": "mistral"}, "sliding_window is -5"),
    ],
)
def test_a_faulty_field_is_named_with_what_is_allowed(
    change: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(InputError, match=rf"^config\.json: .*{sentence}"):
        parse(LLAMA | change)


@pytest.mark.parametrize("config", [None, [], "llama", 7, {}])
def test_what_is_not_a_model_is_refused(config: object) -> None:
    with pytest.raises(InputError):
        parse(config)


@pytest.mark.parametrize(
    "raw",
    [b"", b"{", b"\xff\xfe", b'{"hidden_size": NaN}', b"[" * 200_000, b'{"a":' * 5000],
)
def test_a_file_that_is_not_json_is_refused(raw: bytes, tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    path.write_bytes(raw)
    with pytest.raises(InputError, match="is not JSON"):
        read_hf_config(path)


def test_a_huge_file_is_not_read(tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    path.write_bytes(b" " * (MAX_FILE_BYTES + 1))
    with pytest.raises(InputError, match="is too large; allowed: up to 4 MiB"):
        read_hf_config(path)


def test_a_missing_file_or_a_folder_is_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="the model configuration cannot be read"):
        read_hf_config(tmp_path / "none.json")
    with pytest.raises(InputError, match="the model configuration cannot be read"):
        read_hf_config(tmp_path)


def test_a_file_is_named_by_its_folder(tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    path.write_text(json.dumps(LLAMA))
    assert read_hf_config(path).name == tmp_path.name


PATTERN_FIELDS = ("hybrid_override_pattern", "num_hidden_layers")

JUNK = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=8)
    | st.sampled_from([0, 1, 2, 8, 4096]),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3)
    ),
    max_leaves=6,
)


@given(
    base=st.sampled_from([LLAMA, MIXTRAL, QWEN_MOE, DEEPSEEK, GPT_OSS, GEMMA, GEMMA_4]),
    changes=st.lists(st.tuples(st.integers(0, 30), JUNK), max_size=3),
)
def test_junk_is_a_shape_or_a_sentence(
    base: dict[str, Any], changes: list[tuple[int, object]]
) -> None:
    config = dict(base)
    keys = sorted(config)
    for index, value in changes:
        config[keys[index % len(keys)]] = value
    try:
        shape = parse(config)
    except InputError as error:
        sentence = str(error)
    else:
        assert shape.params > 0
        assert math.isfinite(shape.total_weight_bytes)
        assert shape.kv_bytes_per_token > 0
        return
    assert sentence.startswith("config.json: ")


def test_a_layer_in_four_attends_to_everything_where_no_list_says_so() -> None:
    text = {k: v for k, v in QWEN_HYBRID["text_config"].items() if k != "layer_types"}
    shape = parse(QWEN_HYBRID | {"text_config": text}, "qwen3.5-27b")
    assert shape == MODELS["qwen3.5-27b"]


@pytest.mark.parametrize(
    ("change", "windows"),
    [
        ({"model_type": "mistral"}, 32),
        ({"model_type": "cohere2"}, 24),
        ({"model_type": "mimo", "use_sliding_window": False}, 0),
        ({"model_type": "mimo", "use_sliding_window": True, "max_window_layers": 28}, 4),
        ({"model_type": "phi3", "sliding_window": 1 << 18}, 0),  # longer than any request
        ({"model_type": "minimax_m2", "attn_type_list": [1] * 32, "sliding_window": None}, 0),
    ],
)
def test_windows_are_where_the_family_has_them(change: dict[str, Any], windows: int) -> None:
    assert parse(LLAMA | {"sliding_window": 4096} | change).window_layers == windows


def test_indexers_are_counted_where_layers_share_them() -> None:
    indexer = {"index_topk": 2048, "index_n_heads": 64, "index_head_dim": 128}
    layers = DEEPSEEK["num_hidden_layers"]
    assert parse(DEEPSEEK | indexer).indexers == layers
    kinds = ["full"] * 3 + ["shared"] * (layers - 3)
    listed = indexer | {"index_topk_freq": 4, "indexer_types": kinds}
    listed["layer_types"] = ["deepseek_sparse_attention"] * layers
    assert parse(DEEPSEEK | listed).indexers == 3
    for change, sentence in (
        ({"indexer_types": None}, "index_topk_freq is above 1 without indexer_types"),
        ({"indexer_types": ["none"]}, "indexer_types holds 'none'; allowed: full, shared"),
        ({"indexer_types": [{}]}, "indexer_types holds {}"),
        ({"indexer_types": ["shared"]}, "indexer_types has no full indexer"),
    ):
        with pytest.raises(InputError, match=sentence):
            parse(DEEPSEEK | listed | change)


def test_layers_named_one_by_one_are_those_of_a_pattern() -> None:
    kinds = {"M": "mamba", "E": "moe", "*": "attention"}
    plain = {k: v for k, v in NEMOTRON.items() if k not in PATTERN_FIELDS}
    named = [kinds[letter] for letter in NEMOTRON["hybrid_override_pattern"]]
    assert parse(plain | {"layers_block_type": named}) == parse(NEMOTRON)


def test_kept_modules_are_found_where_mlps_count_as_layers() -> None:
    """Attention, and the Mamba layer before it, of Nemotron 3 Nano's NVFP4 checkpoint."""
    pattern = NEMOTRON["hybrid_override_pattern"]
    kept = ["lm_head"]
    for number, letter in enumerate(pattern):
        if letter == "*":
            kept += [f"backbone.layers.{number}.mixer.{name}_proj" for name in "qkvo"]
            kept += [f"backbone.layers.{number - 1}.mixer.{name}_proj" for name in ("in", "out")]
    quantization = {"quant_algo": "NVFP4", "exclude_modules": kept}
    shape = parse(NEMOTRON | {"quantization_config": quantization})
    before = pattern.count("M*")
    wide = 6 * shape.attention_params + before * shape.recurrent_params
    whole = shape.mixer_params + shape.moe_layers * shape.shared_params
    assert shape.weight_bytes == pytest.approx(0.5625 + (2.0 - 0.5625) * wide / whole)
    assert shape.expert_weight_bytes == 0.5625


def test_infinity_as_a_limit_of_time_steps_is_no_fault(tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    path.write_text(json.dumps(NEMOTRON | {"time_step_limit": [0.0, math.inf]}))
    assert read_hf_config(path).recurrent_layers == 23


def test_a_byte_order_mark_is_no_fault(tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    path.write_bytes(b"\xef\xbb\xbf" + json.dumps(LLAMA).encode())
    assert read_hf_config(path).layers == 32


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="there are no pipes with a name here")
def test_a_pipe_is_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "config.json")
    with pytest.raises(InputError, match="the model configuration cannot be read: it is not a"):
        read_hf_config(tmp_path / "config.json")
