"""Timings of latent attention, one layer of DeepSeek's models, as `Physics` computes it.

Frameworks are timed as modules with projections and small kernels, as single calls, or as both.
"""

from __future__ import annotations

from typing import Any

import msgspec

from windtunnel.models.catalog.models import resolve_model
from windtunnel.models.catalog.shapes import ModelShape
from windtunnel.models.step_time.kernels import Kernels
from windtunnel.models.step_time.physics import attention_gemms, index_gemms

__all__ = [
    "latent_batch",
    "latent_call",
    "latent_call_s",
    "latent_module",
    "latent_module_s",
    "latent_s",
    "sparse_module",
    "sparse_module_s",
]

SPARSE = "DeepseekV32ForCausalLM"

Row = dict[str, Any]  # of a table; a column is a string or a number


def latent_batch(row: Row) -> bool:
    plain = row["gemm_type"] == "bfloat16" and row["kv_cache_dtype"] == "bfloat16"
    return bool(plain and row["step"] >= 128 and row["batch_size"] <= 512 and row["num_heads"] >= 8)


def latent_s(kernels: Kernels, row: Row) -> float:
    """DeepSeek-V3 attention of one layer with its projections, as `Physics` computes it."""
    heads, batch, p = row["num_heads"], row["batch_size"], kernels.parameters
    part = msgspec.structs.replace(resolve_model("deepseek-v3"), heads=heads, kv_heads=heads)
    rates = kernels.gemm_rates(2.0)
    time = 0.5 * p.layer_s + p.latent_layer_s + p.decode_call_s
    for outputs, inputs in attention_gemms(part):
        time += kernels.gemm_s(batch, outputs, inputs, 2.0, rates)
    return time + _latent_scan_s(kernels, part, batch, row["step"])


def latent_module(row: Row) -> bool:
    usual = row["isl"] >= 128 and row["batch_size"] <= 512 and row["num_heads"] >= 8
    return bool(row["gemm_type"] == "fp8_block" and row["kv_cache_dtype"] == "fp8" and usual)


def latent_module_s(kernels: Kernels, row: Row) -> float:
    """The same in fp8, as SGLang's modules are timed; their column `isl` is the context."""
    heads, batch, p = row["num_heads"], row["batch_size"], kernels.parameters
    part = msgspec.structs.replace(resolve_model("deepseek-v3"), heads=heads, kv_heads=heads)
    rates = kernels.gemm_rates(1.0)
    time = 0.5 * p.layer_s + p.latent_layer_s + p.decode_call_s
    for outputs, inputs in attention_gemms(part):
        time += kernels.gemm_s(batch, outputs, inputs, 1.0, rates)
    return time + _latent_scan_s(kernels, part, batch, row["isl"], 1.0)


def sparse_module(row: Row) -> bool:
    """Whether a module was timed as it is served: vLLM's tables have norms of many kernels."""
    served = row["framework"] != "VLLM" and row["architecture"] == SPARSE
    far = row["isl"] + row["step"] > resolve_model("deepseek-v3.2").index_topk
    usual = row["batch_size"] <= 512 and row["num_heads"] >= 8 and far
    plain = row["gemm_type"] == "fp8_block" and row["kv_cache_dtype"] == "bfloat16"
    return bool(served and plain and usual)


def sparse_module_s(kernels: Kernels, row: Row) -> float:
    """Sparse attention of one layer with its projections and its indexer, as `Physics` computes
    it."""
    heads, batch, p = row["num_heads"], row["batch_size"], kernels.parameters
    part = msgspec.structs.replace(resolve_model("deepseek-v3.2"), heads=heads, kv_heads=heads)
    rates = kernels.gemm_rates(1.0)
    time = 0.5 * p.layer_s + p.latent_layer_s + p.index_layer_s + p.decode_call_s
    for outputs, inputs in attention_gemms(part) + index_gemms(part):
        time += kernels.gemm_s(batch, outputs, inputs, 1.0, rates)
    index_flops = 2.0 * part.index_heads * part.index_dim
    index_key_s = max(part.index_bytes / kernels.hbm, index_flops / kernels.attention_flops)
    time += batch * (row["isl"] + row["step"]) * index_key_s
    return float(time + _latent_scan_s(kernels, part, batch, part.index_topk))


def _latent_scan_s(
    kernels: Kernels, part: ModelShape, batch: int, step: int, number_bytes: float = 2.0
) -> float:
    p = kernels.parameters
    limit = kernels.split_limit(batch, 1)
    flops = kernels.latent_flops
    compute = kernels.decode_compute_s(float(part.decode_pair_flops), part.heads, limit, flops)
    memory = number_bytes * (part.kv_lora_rank + part.qk_rope_dim) / kernels.latent_rate
    tokens = batch * step
    parts = kernels.splits(float(step), float(batch))
    ramp = p.attention_ramp_keys * batch
    scan = max(compute * (tokens + ramp), memory * (tokens + batch))
    return float(scan + p.attention_split_s * (parts - 1.0))


def latent_call(row: Row) -> bool:
    plain = row["kv_cache_dtype"] == "bfloat16" and row["num_heads"] >= 8
    return bool(plain and row["step"] >= 127 and row["batch_size"] <= 512)


def latent_call_s(kernels: Kernels, row: Row) -> float:
    """The same without projections and small kernels, which SGLang's table omits."""
    heads, batch, p = row["num_heads"], row["batch_size"], kernels.parameters
    part = msgspec.structs.replace(resolve_model("deepseek-v3"), heads=heads, kv_heads=heads)
    return p.decode_call_s + _latent_scan_s(kernels, part, batch, row["step"])
