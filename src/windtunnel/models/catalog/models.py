"""Models by name: public models, slices of them, and paths of Hugging Face configurations."""

from __future__ import annotations

import os
import re
from pathlib import Path

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
_WINDOWS = {"gemma-3-4b": (1024, 29), "gemma-3-12b": (1024, 40), "gemma-3-27b": (1024, 52)}
# fmt: on

_MIXTURES = (
    ModelShape(
        name="qwen3-30b-a3b",
        layers=48,
        hidden=2048,
        heads=32,
        kv_heads=4,
        head_dim=128,
        ffn=6144,
        vocab=151936,
        max_context=40 * K,
        experts=128,
        experts_per_token=8,
        expert_ffn=768,
    ),
    ModelShape(
        name="qwen3-235b-a22b",
        layers=94,
        hidden=4096,
        heads=64,
        kv_heads=4,
        head_dim=128,
        ffn=12288,
        vocab=151936,
        max_context=40 * K,
        experts=128,
        experts_per_token=8,
        expert_ffn=1536,
    ),
    ModelShape(
        name="mixtral-8x7b",
        layers=32,
        hidden=4096,
        heads=32,
        kv_heads=8,
        head_dim=128,
        ffn=14336,
        vocab=32000,
        max_context=32 * K,
        experts=8,
        experts_per_token=2,
        expert_ffn=14336,
    ),
    ModelShape(
        name="mixtral-8x22b",
        layers=56,
        hidden=6144,
        heads=48,
        kv_heads=8,
        head_dim=128,
        ffn=16384,
        vocab=32768,
        max_context=64 * K,
        experts=8,
        experts_per_token=2,
        expert_ffn=16384,
    ),
    ModelShape(
        name="deepseek-v3",
        layers=61,
        hidden=7168,
        heads=128,
        kv_heads=128,
        head_dim=128,
        ffn=18432,
        vocab=129280,
        max_context=160 * K,
        weight_bytes=1.0,
        expert_weight_bytes=1.0,
        matmul_precision="fp8",
        experts=256,
        experts_per_token=8,
        expert_ffn=2048,
        shared_ffn=2048,
        dense_prefix_layers=3,
        q_lora_rank=1536,
        kv_lora_rank=512,
        qk_rope_dim=64,
        qk_nope_dim=128,
        v_head_dim=128,
    ),
    ModelShape(
        name="gpt-oss-20b",
        layers=24,
        hidden=2880,
        heads=64,
        kv_heads=8,
        head_dim=64,
        ffn=2880,
        vocab=201088,
        max_context=128 * K,
        expert_weight_bytes=MXFP4_BYTES,
        experts=32,
        experts_per_token=4,
        expert_ffn=2880,
        window=128,
        window_layers=12,
    ),
    ModelShape(
        name="gpt-oss-120b",
        layers=36,
        hidden=2880,
        heads=64,
        kv_heads=8,
        head_dim=64,
        ffn=2880,
        vocab=201088,
        max_context=128 * K,
        expert_weight_bytes=MXFP4_BYTES,
        experts=128,
        experts_per_token=4,
        expert_ffn=2880,
        window=128,
        window_layers=18,
    ),
    ModelShape(
        name="llama-4-scout",
        layers=48,
        hidden=5120,
        heads=40,
        kv_heads=8,
        head_dim=128,
        ffn=16384,
        vocab=202048,
        max_context=10240 * K,
        experts=16,
        experts_per_token=1,
        expert_ffn=8192,
        shared_ffn=8192,
        window=8192,
        window_layers=36,
    ),
    ModelShape(
        name="llama-4-maverick",
        layers=48,
        hidden=5120,
        heads=40,
        kv_heads=8,
        head_dim=128,
        ffn=16384,
        vocab=202048,
        max_context=1024 * K,
        experts=128,
        experts_per_token=1,
        expert_ffn=8192,
        shared_ffn=8192,
        moe_layer_step=2,
        window=8192,
        window_layers=36,
    ),
)


def _dense_shape(name: str, sizes: _Sizes) -> ModelShape:
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
    )


MODELS: dict[str, ModelShape] = {
    **{name: _dense_shape(name, sizes) for name, sizes in _DENSE.items()},
    **{shape.name: shape for shape in _MIXTURES},
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
