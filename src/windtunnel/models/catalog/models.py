"""Models by name: public models, slices of them, and paths of Hugging Face configurations."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

import msgspec

from windtunnel.core.errors import InputError, nearest
from windtunnel.models.catalog.hf_quantization import (
    MXFP4_BYTES,
    Precisions,
    precisions_of_name,
)
from windtunnel.models.catalog.shapes import (
    GATED_DELTA_NET,
    MAMBA2,
    PLAIN_BYTES,
    ModelShape,
    encoder_params,
)

__all__ = ["MODELS", "resolve_model", "source_of"]

K = 1024
EIGHT_BIT_BYTES = 1.0


# The published checkpoints in their published precision: bf16 unless the table says otherwise.
# fmt: off
_Sizes = tuple[int, int, int, int, int, int, int, int]
_DENSE: dict[str, _Sizes] = {  # layers, hidden, heads, kv heads, head dim, ffn, vocab, context
    "llama-3.1-8b":    (32,  4096,  32,  8, 128, 14336, 128256, 128 * K),
    "llama-3.1-70b":   (80,  8192,  64,  8, 128, 28672, 128256, 128 * K),
    "llama-3.1-405b": (126, 16384, 128,  8, 128, 53248, 128256, 128 * K),
    "llama-3.2-1b":    (16,  2048,  32,  8,  64,  8192, 128256, 128 * K),
    "llama-3.2-3b":    (28,  3072,  24,  8, 128,  8192, 128256, 128 * K),
    "llama-3.3-70b":   (80,  8192,  64,  8, 128, 28672, 128256, 128 * K),
    "qwen2.5-0.5b":    (24,   896,  14,  2,  64,  4864, 151936,  32 * K),
    "qwen2.5-1.5b":    (28,  1536,  12,  2, 128,  8960, 151936,  32 * K),
    "qwen2.5-3b":      (36,  2048,  16,  2, 128, 11008, 151936,  32 * K),
    "qwen2.5-7b":      (28,  3584,  28,  4, 128, 18944, 152064,  32 * K),
    "qwen2.5-14b":     (48,  5120,  40,  8, 128, 13824, 152064,  32 * K),
    "qwen2.5-32b":     (64,  5120,  40,  8, 128, 27648, 152064,  32 * K),
    "qwen2.5-72b":     (80,  8192,  64,  8, 128, 29568, 152064,  32 * K),
    "qwen3-0.6b":      (28,  1024,  16,  8, 128,  3072, 151936,  40 * K),
    "qwen3-1.7b":      (28,  2048,  16,  8, 128,  6144, 151936,  40 * K),
    "qwen3-4b":        (36,  2560,  32,  8, 128,  9728, 151936,  40 * K),
    "qwen3-8b":        (36,  4096,  32,  8, 128, 12288, 151936,  40 * K),
    "qwen3-14b":       (40,  5120,  40,  8, 128, 17408, 151936,  40 * K),
    "qwen3-32b":       (64,  5120,  64,  8, 128, 25600, 151936,  40 * K),
    "mistral-7b":      (32,  4096,  32,  8, 128, 14336,  32768,  32 * K),
    "gemma-3-4b":      (34,  2560,   8,  4, 256, 10240, 262208, 128 * K),
    "gemma-3-12b":     (48,  3840,  16,  8, 256, 15360, 262208, 128 * K),
    "gemma-3-27b":     (62,  5376,  32, 16, 128, 21504, 262208, 128 * K),
    "gemma-4-31b":     (60,  5376,  32, 16, 256, 21504, 262144, 256 * K),
    "gemma-2-9b":      (42,  3584,  16,  8, 256, 14336, 256000,   8 * K),
    "gemma-2-27b":     (46,  4608,  32, 16, 128, 36864, 256000,   8 * K),
    "mistral-nemo-12b": (40, 5120,  32,  8, 128, 14336, 131072, 128 * K),
    "mistral-small-3.1-24b": (40, 5120, 32, 8, 128, 32768, 131072, 128 * K),
    "mistral-medium-3.5-128b": (88, 12288, 96, 8, 128, 28672, 131072, 256 * K),
    "granite-3.1-8b":  (40,  4096,  32,  8, 128, 12800,  49155, 128 * K),
    "granite-4.1-3b":  (40,  2560,  40,  8,  64,  8192, 100352, 128 * K),
    "granite-4.1-8b":  (40,  4096,  32,  8, 128, 12800, 100352, 128 * K),
    "granite-4.1-30b": (64,  4096,  32,  8, 128, 32768, 100352, 128 * K),
    "granite-4.2-3b":  (40,  2560,  40,  8,  64,  8192, 100352, 128 * K),
    "granite-4.2-8b":  (40,  4096,  32,  8, 128, 12800, 100352, 128 * K),
    "granite-4.2-30b": (64,  4096,  32,  8, 128, 32768, 100352, 128 * K),
    "qwen3.5-0.8b":    (24,  1024,   8,  2, 256,  3584, 248320, 256 * K),
    "qwen3.5-2b":      (24,  2048,   8,  2, 256,  6144, 248320, 256 * K),
    "qwen3.5-4b":      (32,  2560,  16,  4, 256,  9216, 248320, 256 * K),
    "qwen3.5-9b":      (32,  4096,  16,  4, 256, 12288, 248320, 256 * K),
    "qwen3.5-27b":     (64,  5120,  24,  4, 256, 17408, 248320, 256 * K),
    "nemotron-h-56b":  (64,  8192,  64,  8, 128, 32768, 131072,   8 * K),
    "phi-4":           (40,  5120,  40, 10, 128, 17920, 100352,  16 * K),
}
_TIED = (
    "llama-3.2-1b", "llama-3.2-3b", "qwen2.5-0.5b", "qwen2.5-1.5b", "qwen2.5-3b", "qwen3-0.6b",
    "qwen3-1.7b", "qwen3-4b", "gemma-3-4b", "gemma-3-12b", "gemma-3-27b", "gemma-4-31b",
    "gemma-4-26b-a4b", "gemma-2-9b", "gemma-2-27b", "granite-3.1-8b", "granite-4.1-3b",
    "granite-4.1-8b", "granite-4.1-30b", "granite-4.0-h-small", "qwen3.5-0.8b", "qwen3.5-2b",
    "qwen3.5-4b",
)
_WINDOWS = {"gemma-2-9b": (4096, 21), "gemma-2-27b": (4096, 23),
            "gemma-3-4b": (1024, 29), "gemma-3-12b": (1024, 40), "gemma-3-27b": (1024, 52),
            "gemma-4-31b": (1024, 50), "gemma-4-26b-a4b": (1024, 25),
            "gpt-oss-20b": (128, 12), "gpt-oss-120b": (128, 18),
            "llama-4-scout": (8192, 36), "llama-4-maverick": (8192, 36)}
_MIXTURES: dict[str, _Sizes] = {
    "qwen3-30b-a3b":     (48, 2048,  32,   4, 128,  6144, 151936,    40 * K),
    "qwen3-235b-a22b":   (94, 4096,  64,   4, 128, 12288, 151936,    40 * K),
    "mixtral-8x7b":      (32, 4096,  32,   8, 128, 14336,  32000,    32 * K),
    "mixtral-8x22b":     (56, 6144,  48,   8, 128, 16384,  32768,    64 * K),
    "deepseek-v3":       (61, 7168, 128, 128, 128, 18432, 129280,   160 * K),
    "deepseek-v3.2":     (61, 7168, 128, 128, 128, 18432, 129280,   160 * K),
    "glm-5":             (78, 6144,  64,  64, 192, 12288, 154880,   198 * K),
    "deepseek-v2-lite":  (27, 2048,  16,  16, 128, 10944, 102400,   160 * K),
    "kimi-vl-a3b":       (27, 2048,  16,  16, 128, 11264, 163840,   128 * K),
    "kimi-k2":           (61, 7168,  64,  64, 128, 18432, 163840,   128 * K),
    "glm-4.5":           (92, 5120,  96,   8, 128, 12288, 151552,   128 * K),
    "minimax-m2.5":      (62, 3072,  48,   8, 128,  1536, 200064,   192 * K),
    "qwen3-coder-480b-a35b": (62, 6144, 96, 8, 128, 8192, 151936,   256 * K),
    "mistral-small-4-119b": (36, 4096, 32, 32, 64, 12288, 131072,   256 * K),
    "gpt-oss-20b":       (24, 2880,  64,   8,  64,  2880, 201088,   128 * K),
    "gpt-oss-120b":      (36, 2880,  64,   8,  64,  2880, 201088,   128 * K),
    "qwen3-next-80b-a3b": (48, 2048, 16,   2, 256,  5120, 151936,   256 * K),
    "qwen3.5-35b-a3b":   (40, 2048,  16,   2, 256,   512, 248320,   256 * K),
    "qwen3.5-122b-a10b": (48, 3072,  32,   2, 256,  1024, 248320,   256 * K),
    "qwen3.5-397b-a17b": (60, 4096,  32,   2, 256,  1024, 248320,   256 * K),
    "nemotron-3-nano-30b-a3b":   (29, 2688, 32, 2, 128, 1856, 131072, 256 * K),
    "nemotron-3-super-120b-a12b": (48, 4096, 32, 2, 128, 2688, 131072, 256 * K),
    "nemotron-3-ultra-550b-a55b": (60, 8192, 64, 2, 128, 5120, 131072, 256 * K),
    "granite-4.0-h-small": (40, 4096, 32,   8, 128,   768, 100352,   128 * K),
    "gemma-4-26b-a4b":   (30, 2816,  16,   8, 256,  2112, 262144,   256 * K),
    "llama-4-scout":     (48, 5120,  40,   8, 128, 16384, 202048, 10240 * K),
    "llama-4-maverick":  (48, 5120,  40,   8, 128, 16384, 202048,  1024 * K),
}
_DETAILS: dict[str, dict[str, Any]] = {  # experts, latent attention, other heads and precision
    "qwen3-30b-a3b": {"experts": 128, "experts_per_token": 8, "expert_ffn": 768},
    "qwen3-235b-a22b": {"experts": 128, "experts_per_token": 8, "expert_ffn": 1536},
    "mixtral-8x7b": {"experts": 8, "experts_per_token": 2, "expert_ffn": 14336},
    "mixtral-8x22b": {"experts": 8, "experts_per_token": 2, "expert_ffn": 16384},
    "deepseek-v3": {
        "weight_bytes": 1.0, "expert_weight_bytes": 1.0, "matmul_precision": "fp8", "experts": 256,
        "experts_per_token": 8, "expert_ffn": 2048, "shared_ffn": 2048, "dense_prefix_layers": 3,
        "q_lora_rank": 1536, "kv_lora_rank": 512, "qk_rope_dim": 64, "qk_nope_dim": 128,
        "v_head_dim": 128,
    },
    "deepseek-v3.2": {
        "weight_bytes": 1.0, "expert_weight_bytes": 1.0, "matmul_precision": "fp8", "experts": 256,
        "experts_per_token": 8, "expert_ffn": 2048, "shared_ffn": 2048, "dense_prefix_layers": 3,
        "q_lora_rank": 1536, "kv_lora_rank": 512, "qk_rope_dim": 64, "qk_nope_dim": 128,
        "v_head_dim": 128, "index_heads": 64, "index_dim": 128, "index_topk": 2048,
    },
    "glm-5": {
        "experts": 256, "experts_per_token": 8, "expert_ffn": 2048, "shared_ffn": 2048,
        "dense_prefix_layers": 3, "q_lora_rank": 2048, "kv_lora_rank": 512, "qk_rope_dim": 64,
        "qk_nope_dim": 192, "v_head_dim": 256, "index_heads": 32, "index_dim": 128,
        "index_topk": 2048,
    },
    "deepseek-v2-lite": {
        "experts": 64, "experts_per_token": 6, "expert_ffn": 1408, "shared_ffn": 2816,
        "dense_prefix_layers": 1, "kv_lora_rank": 512, "qk_rope_dim": 64, "qk_nope_dim": 128,
        "v_head_dim": 128,
    },
    "kimi-vl-a3b": {
        "experts": 64, "experts_per_token": 6, "expert_ffn": 1408, "shared_ffn": 2816,
        "dense_prefix_layers": 1, "kv_lora_rank": 512, "qk_rope_dim": 64, "qk_nope_dim": 128,
        "v_head_dim": 128,
    },
    "kimi-k2": {
        "weight_bytes": 1.0, "expert_weight_bytes": 1.0, "matmul_precision": "fp8", "experts": 384,
        "experts_per_token": 8, "expert_ffn": 2048, "shared_ffn": 2048, "dense_prefix_layers": 1,
        "q_lora_rank": 1536, "kv_lora_rank": 512, "qk_rope_dim": 64, "qk_nope_dim": 128,
        "v_head_dim": 128,
    },
    "glm-4.5": {
        "experts": 160, "experts_per_token": 8, "expert_ffn": 1536, "shared_ffn": 1536,
        "dense_prefix_layers": 3,
    },
    "minimax-m2.5": {
        "weight_bytes": 1.0, "expert_weight_bytes": 1.0, "matmul_precision": "fp8", "experts": 256,
        "experts_per_token": 8, "expert_ffn": 1536,
    },
    "qwen3-coder-480b-a35b": {"experts": 160, "experts_per_token": 8, "expert_ffn": 2560},
    "mistral-medium-3.5-128b": {"weight_bytes": 1.0, "matmul_precision": "fp8"},
    "mistral-small-4-119b": {
        "weight_bytes": 1.0, "expert_weight_bytes": 1.0, "matmul_precision": "fp8", "experts": 128,
        "experts_per_token": 4, "expert_ffn": 2048, "shared_ffn": 2048, "q_lora_rank": 1024,
        "kv_lora_rank": 256, "qk_rope_dim": 64, "qk_nope_dim": 64, "v_head_dim": 128,
    },
    "gpt-oss-20b": {
        "expert_weight_bytes": MXFP4_BYTES, "experts": 32, "experts_per_token": 4,
        "expert_ffn": 2880,
    },
    "gpt-oss-120b": {
        "expert_weight_bytes": MXFP4_BYTES, "experts": 128, "experts_per_token": 4,
        "expert_ffn": 2880,
    },
    "qwen3-next-80b-a3b": {
        "experts": 512, "experts_per_token": 10, "expert_ffn": 512, "shared_ffn": 512,
    },
    "qwen3.5-35b-a3b": {
        "experts": 256, "experts_per_token": 8, "expert_ffn": 512, "shared_ffn": 512,
    },
    "qwen3.5-122b-a10b": {
        "experts": 256, "experts_per_token": 8, "expert_ffn": 1024, "shared_ffn": 1024,
    },
    "qwen3.5-397b-a17b": {
        "experts": 512, "experts_per_token": 10, "expert_ffn": 1024, "shared_ffn": 1024,
    },
    "nemotron-h-56b": {"mlp_matrices": 2, "bare_layers": 10},
    "nemotron-3-nano-30b-a3b": {
        "mlp_matrices": 2, "bare_layers": 6, "experts": 128, "experts_per_token": 6,
        "expert_ffn": 1856, "shared_ffn": 3712,
    },
    "nemotron-3-super-120b-a12b": {
        "mlp_matrices": 2, "bare_layers": 8, "experts": 512, "experts_per_token": 22,
        "expert_ffn": 2688, "shared_ffn": 5376, "expert_hidden": 1024,
    },
    "nemotron-3-ultra-550b-a55b": {
        "mlp_matrices": 2, "bare_layers": 12, "experts": 512, "experts_per_token": 22,
        "expert_ffn": 5120, "shared_ffn": 10240, "expert_hidden": 2048,
    },
    "granite-4.0-h-small": {
        "experts": 72, "experts_per_token": 10, "expert_ffn": 768, "shared_ffn": 1536,
    },
    "gemma-4-31b": {"full_kv_heads": 4, "full_head_dim": 512},
    "gemma-4-26b-a4b": {
        "full_kv_heads": 2, "full_head_dim": 512, "experts": 128, "experts_per_token": 8,
        "expert_ffn": 704, "shared_ffn": 2112,
    },
    "llama-4-scout": {
        "experts": 16, "experts_per_token": 1, "expert_ffn": 8192, "shared_ffn": 8192,
    },
    "llama-4-maverick": {
        "experts": 128, "experts_per_token": 1, "expert_ffn": 8192, "shared_ffn": 8192,
        "moe_layer_step": 2,
    },
}
# Recurrent layers: their kind and number; heads and their width, those that share keys, and width
# of keys; bytes of a number of the state. vLLM keeps it as the checkpoint says, else in 16 bits.
_RECURRENT: dict[str, tuple[str, int, int, int, int, int, float]] = {
    "qwen3-next-80b-a3b": (GATED_DELTA_NET, 36, 32, 128, 16, 128, 2.0),
    "qwen3.5-0.8b":       (GATED_DELTA_NET, 18, 16, 128, 16, 128, 4.0),
    "qwen3.5-2b":         (GATED_DELTA_NET, 18, 16, 128, 16, 128, 4.0),
    "qwen3.5-4b":         (GATED_DELTA_NET, 24, 32, 128, 16, 128, 4.0),
    "qwen3.5-9b":         (GATED_DELTA_NET, 24, 32, 128, 16, 128, 4.0),
    "qwen3.5-27b":        (GATED_DELTA_NET, 48, 48, 128, 16, 128, 4.0),
    "qwen3.5-35b-a3b":    (GATED_DELTA_NET, 30, 32, 128, 16, 128, 4.0),
    "qwen3.5-122b-a10b":  (GATED_DELTA_NET, 36, 64, 128, 16, 128, 4.0),
    "qwen3.5-397b-a17b":  (GATED_DELTA_NET, 45, 64, 128, 16, 128, 4.0),
    "nemotron-h-56b":             (MAMBA2, 54, 256, 64, 8, 256, 4.0),
    "nemotron-3-nano-30b-a3b":    (MAMBA2, 23,  64, 64, 8, 128, 4.0),
    "nemotron-3-super-120b-a12b": (MAMBA2, 40, 128, 64, 8, 128, 4.0),
    "nemotron-3-ultra-550b-a55b": (MAMBA2, 48, 256, 64, 8, 128, 4.0),
    "granite-4.0-h-small":        (MAMBA2, 36, 128, 64, 1, 128, 2.0),
}
# Layers for multi-token prediction that checkpoints have beside the model's own.
_MTP_LAYERS = {
    "deepseek-v3": 1, "deepseek-v3.2": 1, "glm-4.5": 1, "glm-5": 1, "minimax-m2.5": 3,
    "nemotron-3-super-120b-a12b": 1, "nemotron-3-ultra-550b-a55b": 1, "qwen3-next-80b-a3b": 1,
    **{name: 1 for name in _RECURRENT if name.startswith("qwen3.5")},
}
# Where the shapes are from: the config.json of checkpoints by their publisher on Hugging Face, or a
# copy or description of it by others.
_SOURCES = {
    "llama": "meta-llama", "qwen": "Qwen", "mistral": "mistralai", "mixtral": "mistralai",
    "gemma": "google", "phi": "microsoft", "granite": "ibm-granite", "deepseek": "deepseek-ai",
    "kimi-vl": "moonshotai", "gpt-oss": "openai", "gemma-4": "google, in aiconfigurator",
    "qwen3-coder": "Qwen, in aiconfigurator", "deepseek-v3.2": "deepseek-ai, in aiconfigurator",
    "kimi-k2": "moonshotai, in aiconfigurator", "glm-5": "zai-org, in aiconfigurator",
    "glm-4.5": "zai-org, in a training script", "minimax": "MiniMaxAI, in aiconfigurator",
    "mistral-small-4": "mistralai, in notes of a port",
    "mistral-medium-3.5": "mistralai, in notes of a port",
    "qwen3-next": "Qwen, in a GGUF header", "qwen3.5": "Qwen, in aiconfigurator",
    **{f"qwen3.5-{size}": "Qwen, in aiconfigurator and a list of models"
       for size in ("0.8b", "2b", "4b", "9b")},
    "nemotron": "nvidia, in aiconfigurator", "granite-4.1": "ibm-granite, in its announcement",
    "granite-4.2": "Granite 4.1, untied: sizes of GGUF files agree",
    "granite-4.0-h": "ibm-granite, in a test of another project",
}
# Layers and width of vision encoders, beside the language model.
_ENCODERS = {
    "gemma-3-4b": (27, 1152), "gemma-3-12b": (27, 1152), "gemma-3-27b": (27, 1152),
    "gemma-4-31b": (27, 1152), "gemma-4-26b-a4b": (27, 1152),
    "llama-4-scout": (34, 1408), "llama-4-maverick": (34, 1408), "kimi-vl-a3b": (27, 1152),
    "mistral-small-3.1-24b": (24, 1024),
    "qwen3.5-27b": (27, 1152), "qwen3.5-35b-a3b": (27, 1152), "qwen3.5-122b-a10b": (27, 1152),
    "qwen3.5-397b-a17b": (27, 1152),
}
# fmt: on


def _shape(name: str, sizes: _Sizes) -> ModelShape:
    layers, hidden, heads, kv_heads, head_dim, ffn, vocab, max_context = sizes
    window, window_layers = _WINDOWS.get(name, (0, 0))
    kind, recurrent, *state = _RECURRENT.get(name, ("", 0, 0, 0, 0, 0, 4.0))
    state_heads, state_head_dim, key_heads, key_dim, state_bytes = state
    return ModelShape(
        name=name,
        layers=layers,
        hidden=hidden,
        heads=heads,
        kv_heads=kv_heads,
        head_dim=head_dim,
        ffn=ffn,
        vocab=vocab,
        max_context=max_context,
        tied_embeddings=name in _TIED,
        window=window,
        window_layers=window_layers,
        encoder_params=encoder_params(*_ENCODERS.get(name, (0, 0))),
        mtp_layers=_MTP_LAYERS.get(name, 0),
        gated_attention=kind == GATED_DELTA_NET,
        recurrent_layers=recurrent,
        recurrence=kind,
        state_heads=int(state_heads),
        state_head_dim=int(state_head_dim),
        state_key_heads=int(key_heads),
        state_key_dim=int(key_dim),
        state_bytes=state_bytes,
        **_DETAILS.get(name, {}),
    )


def source_of(name: str) -> str:
    """The source of a catalog model's shape."""
    return _SOURCES[max((start for start in _SOURCES if name.startswith(start)), key=len)]


MODELS: dict[str, ModelShape] = {
    name: _shape(name, sizes) for name, sizes in (_DENSE | _MIXTURES).items()
}

_INT4_EXPERTS = {  # Kimi's own 4-bit checkpoints: experts alone, a scale for every 32
    "weight_bytes": 2.0,
    "expert_weight_bytes": 4.5 / 8,
    "matmul_precision": "bf16",
    "max_context": 256 * K,
}
_LONG = {"max_context": 256 * K}
_SHARED_INDEXERS = {"max_context": 1024 * K, "index_layers": 21}

# Checkpoints of one shape under another name, and what else is different.
_VARIANTS: dict[str, tuple[str, dict[str, Any]]] = {
    "deepseek-r1": ("deepseek-v3", {}),
    "deepseek-v3-0324": ("deepseek-v3", {}),
    "deepseek-v3.1": ("deepseek-v3", {}),
    "deepseek-v3.1-terminus": ("deepseek-v3", {}),
    "deepseek-r1-0528": ("deepseek-v3", {}),
    "deepseek-v3.2-exp": ("deepseek-v3.2", {}),
    "llama-4-scout-17b-16e": ("llama-4-scout", {}),
    "llama-4-maverick-17b-128e": ("llama-4-maverick", {}),
    "deepseek-r1-distill-llama-8b": ("llama-3.1-8b", {}),
    "deepseek-r1-distill-llama-70b": ("llama-3.3-70b", {}),
    "qwen3-4b-2507": ("qwen3-4b", _LONG),
    "qwen3-30b-a3b-2507": ("qwen3-30b-a3b", _LONG),
    "qwen3-235b-a22b-2507": ("qwen3-235b-a22b", _LONG),
    "qwen3-coder-30b-a3b": ("qwen3-30b-a3b", _LONG),
    "mistral-nemo": ("mistral-nemo-12b", {}),
    "mistral-small-3.2-24b": ("mistral-small-3.1-24b", {}),
    "kimi-k2-0905": ("kimi-k2", _LONG),
    "kimi-k2-thinking": ("kimi-k2", _INT4_EXPERTS),
    "kimi-k2.5": ("kimi-k2", _INT4_EXPERTS),
    "kimi-k2.6": ("kimi-k2", _INT4_EXPERTS),
    "glm-4.6": ("glm-4.5", {"max_context": 198 * K}),
    "glm-5.1": ("glm-5", {}),
    "glm-5.2": ("glm-5", _SHARED_INDEXERS),
    "glm-5.3": ("glm-5", _SHARED_INDEXERS),
    "nemotron-3-nano": ("nemotron-3-nano-30b-a3b", {}),
    "nvidia-nemotron-3-nano-30b-a3b": ("nemotron-3-nano-30b-a3b", {}),
    "nvidia-nemotron-3-super-120b-a12b": ("nemotron-3-super-120b-a12b", {}),
    "nvidia-nemotron-3-ultra-550b-a55b": ("nemotron-3-ultra-550b-a55b", {}),
    "nemotron-h-56b-8k": ("nemotron-h-56b", {}),
    "qwen3.6-27b": ("qwen3.5-27b", {}),
    "qwen3.6-35b-a3b": ("qwen3.5-35b-a3b", {}),
    "qwen3.8-27b": ("qwen3.5-27b", {}),
    "minimax-m2": ("minimax-m2.5", {}),
    "minimax-m2.1": ("minimax-m2.5", {}),
    "minimax-m2.7": ("minimax-m2.5", {}),
}

_REFUSED = {  # well-known families whose speed and memory are not modelled
    "falcon-h1": "attention and Mamba in the same layer",
    "kimi-k3": "Kimi delta attention beside latent attention",
    "kimi-linear": "Kimi delta attention beside latent attention",
    "minimax-m1": "lightning attention",
    "minimax-text-01": "lightning attention",
    "minimax-m3": "block-sparse attention",
    "deepseek-v4": "compressed sparse attention",
    **dict.fromkeys(
        ("gemma-4-e2b", "gemma-4-e4b"),
        "embeddings in every layer, and layers that share their keys and values",
    ),
}

# What publishers add to a name without changing the shape.
_MARKS = re.compile(
    r"-(instruct|chat|it|base|pt|hf|2407|2503|2506|2603|v0\.[0-9])(?=-|$)|^meta-(?=llama)"
)
_THINKING = re.compile(r"-thinking(?=-|$)")
_SLICE = re.compile(r"^(?P<model>.+)-tp(?P<gpus>[0-9]{1,4})-slice$")

# NVFP4 checkpoints of these keep all but the experts in 16 bits; other hybrids have attention and
# recurrences in 8 bits (of Nemotron 3, a third in 16 and the rest in 4), and some have the output
# head in 4.
_FP4_EXPERTS_ALONE = ("deepseek", "kimi", "glm", "qwen3.5", "minimax")
_FP4_HEADS = ("qwen3.6",)

# Bytes per weight of the rest, and of experts, in checkpoints by NVIDIA whose list of what stays in
# 16 bits was read (`hf_quant_config.json`, in aiconfigurator), by the start of their names.
_FP4_BY_NVIDIA = {
    "deepseek-v3.": (1.284, 0.5625),
    "gemma-4-26b": (2.0, 0.5625),
    "gemma-4-31b": (0.982, 0.5625),
    "glm-5": (1.692, 0.5625),
    **dict.fromkeys(("glm-5.1", "glm-5.2", "glm-5.3"), (1.943, 0.618)),
    "kimi-k2.5": (1.526, 0.5625),
    "kimi-k2.6": (1.939, 0.586),
    "minimax-m2": (2.0, 0.5625),
    "qwen3.5": (1.528, 0.5625),
    "nvidia-nemotron-3-nano": (0.922, 0.5625),
}


def served_name(text: str) -> str:
    """The name of a model in an API: as it was given or, for a `config.json`, that of its shape."""
    return text if _by_name(text.strip().lower()) is not None else resolve_model(text).name


def resolve_model(text: str) -> ModelShape:
    """Resolves a model's shape.

    `text` is a catalog name or Hugging Face id in any case (`llama-3.1-8b`,
    `meta-llama/Llama-3.1-8B-Instruct`, `Qwen/Qwen3-32B-FP8`), one GPU's part of such a model under
    tensor parallelism (`llama-3.1-70b-tp8-slice`), or the path of a `config.json` or of its folder.
    """
    found = _by_name(text.strip().lower())
    if found is not None:
        return found
    if text.endswith(".json") or os.path.isfile(text) or os.path.isdir(text):
        from windtunnel.models.catalog.hf_config import read_hf_config

        return read_hf_config(Path(text, "config.json") if os.path.isdir(text) else Path(text))
    key = _key(text.strip().lower())
    for family, layers in _REFUSED.items():
        if key.startswith(family) or f"-{family}" in key:
            what = f"model {text!r:.80} is not modelled: it has {layers}"
            raise InputError(
                what,
                allowed="models of full, windowed or latent attention, or of full attention "
                "beside layers of gated DeltaNet or Mamba-2",
            )
    names = [*MODELS, *_VARIANTS]
    raise InputError(
        f"model {text!r} is not in the catalog",
        allowed="a catalog name with or without its quantisation (-fp8, -nvfp4, -awq, -gptq, "
        "-w4a16, -w8a8), NAME-tpN-slice, or the path of a Hugging Face config.json",
        hint=nearest(key, names) or f"the catalog has {', '.join(sorted(MODELS))}",
    )


def _key(name: str) -> str:
    return _MARKS.sub("", name.rsplit("/", 1)[-1].replace("_", "-"))


def _by_name(name: str) -> ModelShape | None:
    """The catalog's model for a lower-case name; None if the catalog has none."""
    cut = _SLICE.match(name)
    if cut:
        whole = _by_name(cut["model"])
        return None if whole is None else whole.per_gpu(int(cut["gpus"]))
    plain, precisions = precisions_of_name(name)
    key = _key(plain)
    found = MODELS.get(key) or _variant(key) or _variant(_THINKING.sub("", key))
    return found if found is None or precisions is None else _quantised(found, precisions, name)


def _variant(key: str) -> ModelShape | None:
    if key not in _VARIANTS:
        return MODELS.get(key)
    name, changes = _VARIANTS[key]
    return msgspec.structs.replace(MODELS[name], name=key, **changes) if changes else MODELS[name]


def _quantised(shape: ModelShape, found: Precisions, name: str) -> ModelShape | None:
    """The shape of a checkpoint in the precision that its name states; None if it cannot be."""
    by_nvidia = name.startswith("nvidia/")
    name = _key(name)
    values = msgspec.structs.asdict(found)
    if not shape.is_mixture and found.weight_bytes != found.expert_weight_bytes:
        return None  # experts alone, but it has none
    read = [start for start in _FP4_BY_NVIDIA if by_nvidia and name.startswith(start)]
    if found.matmul_precision == "fp4" and read:
        both = _FP4_BY_NVIDIA[max(read, key=len)]
        values["weight_bytes"], values["expert_weight_bytes"] = both
    elif found.matmul_precision == "fp4" and name.startswith(_FP4_EXPERTS_ALONE):
        values["weight_bytes"] = PLAIN_BYTES
    elif found.matmul_precision == "fp4" and shape.recurrent_layers:
        mlps = shape.dense_layers * shape.dense_mlp_params + shape.moe_layers * shape.shared_params
        in_all = mlps * found.weight_bytes + shape.mixer_params * EIGHT_BIT_BYTES
        values["weight_bytes"] = in_all / (mlps + shape.mixer_params)
        if name.startswith(_FP4_HEADS):
            values["embedding_bytes"] = 0.5 * (PLAIN_BYTES + found.weight_bytes)
    same = all(getattr(shape, field) == value for field, value in values.items())
    return shape if same else msgspec.structs.replace(shape, name=name, **values)
