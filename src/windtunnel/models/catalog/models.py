"""Models by name: public models, slices of them, and paths of Hugging Face configurations."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

from windtunnel.core.errors import InputError, nearest
from windtunnel.models.catalog.hf_config import read_hf_config
from windtunnel.models.catalog.hf_quantization import MXFP4_BYTES
from windtunnel.models.catalog.shapes import ModelShape

__all__ = ["MODELS", "resolve_model"]

K = 1024


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
    "phi-4":           (40,  5120,  40, 10, 128, 17920, 100352,  16 * K),
}
_TIED = (
    "llama-3.2-1b", "llama-3.2-3b", "qwen2.5-0.5b", "qwen2.5-1.5b", "qwen2.5-3b", "qwen3-0.6b",
    "qwen3-1.7b", "qwen3-4b", "gemma-3-4b", "gemma-3-12b", "gemma-3-27b",
)
_WINDOWS = {"gemma-3-4b": (1024, 29), "gemma-3-12b": (1024, 40), "gemma-3-27b": (1024, 52),
            "gpt-oss-20b": (128, 12), "gpt-oss-120b": (128, 18),
            "llama-4-scout": (8192, 36), "llama-4-maverick": (8192, 36)}
_MIXTURES: dict[str, _Sizes] = {
    "qwen3-30b-a3b":     (48, 2048,  32,   4, 128,  6144, 151936,    40 * K),
    "qwen3-235b-a22b":   (94, 4096,  64,   4, 128, 12288, 151936,    40 * K),
    "mixtral-8x7b":      (32, 4096,  32,   8, 128, 14336,  32000,    32 * K),
    "mixtral-8x22b":     (56, 6144,  48,   8, 128, 16384,  32768,    64 * K),
    "deepseek-v3":       (61, 7168, 128, 128, 128, 18432, 129280,   160 * K),
    "gpt-oss-20b":       (24, 2880,  64,   8,  64,  2880, 201088,   128 * K),
    "gpt-oss-120b":      (36, 2880,  64,   8,  64,  2880, 201088,   128 * K),
    "llama-4-scout":     (48, 5120,  40,   8, 128, 16384, 202048, 10240 * K),
    "llama-4-maverick":  (48, 5120,  40,   8, 128, 16384, 202048,  1024 * K),
}
_DETAILS: dict[str, dict[str, Any]] = {  # experts, latent attention and precision
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
    "gpt-oss-20b": {
        "expert_weight_bytes": MXFP4_BYTES, "experts": 32, "experts_per_token": 4,
        "expert_ffn": 2880,
    },
    "gpt-oss-120b": {
        "expert_weight_bytes": MXFP4_BYTES, "experts": 128, "experts_per_token": 4,
        "expert_ffn": 2880,
    },
    "llama-4-scout": {
        "experts": 16, "experts_per_token": 1, "expert_ffn": 8192, "shared_ffn": 8192,
    },
    "llama-4-maverick": {
        "experts": 128, "experts_per_token": 1, "expert_ffn": 8192, "shared_ffn": 8192,
        "moe_layer_step": 2,
    },
}
# fmt: on


def _shape(name: str, sizes: _Sizes) -> ModelShape:
    layers, hidden, heads, kv_heads, head_dim, ffn, vocab, max_context = sizes
    window, window_layers = _WINDOWS.get(name, (0, 0))
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
        **_DETAILS.get(name, {}),
    )


MODELS: dict[str, ModelShape] = {
    name: _shape(name, sizes) for name, sizes in (_DENSE | _MIXTURES).items()
}

# Checkpoints of one shape under another name.
_ALIASES = {
    "deepseek-r1": "deepseek-v3",
    "deepseek-v3-0324": "deepseek-v3",
    "deepseek-v3.1": "deepseek-v3",
    "deepseek-r1-0528": "deepseek-v3",
    "llama-4-scout-17b-16e": "llama-4-scout",
    "llama-4-maverick-17b-128e": "llama-4-maverick",
    "deepseek-r1-distill-llama-8b": "llama-3.1-8b",
    "deepseek-r1-distill-llama-70b": "llama-3.3-70b",
}

# What publishers add to a name without changing the shape.
_MARKS = re.compile(r"-(instruct|chat|it|base|pt|hf|bf16|v0\.[0-9])(?=-|$)|^meta-(?=llama)")
_SLICE = re.compile(r"^(?P<model>.+)-tp(?P<gpus>[0-9]{1,4})-slice$")


def resolve_model(text: str) -> ModelShape:
    """The shape that `text` names.

    That is a catalog name or Hugging Face id in any case (`llama-3.1-8b`,
    `meta-llama/Llama-3.1-8B-Instruct`), one GPU's part of such a model under tensor parallelism
    (`llama-3.1-70b-tp8-slice`), or the path of a `config.json` or of the folder that holds one.
    """
    key = _catalog_key(text)
    if key in MODELS:
        return MODELS[key]
    cut = _SLICE.match(key)
    if cut and cut["model"] in MODELS:
        return MODELS[cut["model"]].per_gpu(int(cut["gpus"]))
    if os.path.isdir(text):
        return read_hf_config(Path(text) / "config.json")
    if text.endswith(".json") or os.path.isfile(text):
        return read_hf_config(Path(text))
    raise InputError(
        f"model {text!r} is not in the catalog",
        allowed="a catalog name, NAME-tpN-slice, or the path of a Hugging Face config.json",
        hint=nearest(key, [*MODELS, *_ALIASES]) or f"the catalog has {', '.join(sorted(MODELS))}",
    )


def _catalog_key(text: str) -> str:
    name = text.strip().lower().rsplit("/", 1)[-1].replace("_", "-")
    name = _MARKS.sub("", name)
    return _ALIASES.get(name, name)
