"""Fits `physics` profiles to tables of single-operator timings instead of whole steps.

A folder holds Parquet tables in the layout of NVIDIA's aiconfigurator: `gemm_perf`,
`context_attention_perf`, `generation_attention_perf`, `moe_perf`, `mla_generation_module_perf`,
`generation_mla_perf`, `wideep_generation_mla_perf`, `dsa_generation_module_perf`, `gdn_perf` and
`custom_allreduce_perf`, beside the last `nccl_perf` and, for
kernels that an engine borrows, `fused_allreduce_perf`; latencies are in milliseconds, and message
sizes in 16-bit numbers. Operator timings say nothing about the small kernels between
operators or about clocks under sustained load: those parameters come from another profile.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec

from windtunnel.core.errors import InputError
from windtunnel.models.calibration.calibrate import error_of
from windtunnel.models.calibration.latent import (
    latent_batch,
    latent_call,
    latent_call_s,
    latent_module,
    latent_module_s,
    latent_s,
    sparse_module,
    sparse_module_s,
)
from windtunnel.models.catalog.accelerators import Accelerator
from windtunnel.models.step_time.kernels import Kernels, PhysicsParameters, touched_experts
from windtunnel.models.step_time.physics import DELTA_PASSES
from windtunnel.models.step_time.profile import PARAMETERS, ErrorFigures, Profile

__all__ = ["CHANCE", "PARAMETERS_OF", "SMALLEST_SIDE", "Row", "all_reduce_rows", "fit_operators"]

ROWS_PER_FIT = 3000
SHORTEST_CALL_MS = 1e-6
LONGEST_CALL_MS = 3.6e6
FROM_MEMORY = 0.9  # of the memory peak; faster reads came from a cache, unlike in a model
MOST_TOKENS = 16384
SMALLEST_SIDE = 512
HEAD_DIM = 128
DECODE_ROWS = 64.0  # kernels that pack the query heads of a group into one tile
OUTLIER_SCALE = 0.15
# Suffixes of a kind that some frameworks time as single calls, others as modules, some as both.
CALLS, MODULES = ", calls", ", modules"
GRAPH = "_graph"  # suffix of the column `backend` if a call was timed in a CUDA graph
LEAST_START = 3e-9  # start of a fit for parameters that are 0 by default
MOST_SENT = 1 << 26  # numbers of one message; a step of 16,384 tokens sends no more
MOST_EXPERTS = 512
SKEW = "power_law_1.01"  # expert popularity; NVIDIA found it in served models
CHANCE = "chance"  # experts drawn at random, all alike

Row = dict[str, Any]  # of a table; a column is a string or a number
Timing = Callable[[Kernels, Row], float]


class _Class(msgspec.Struct, frozen=True):
    """An operator class: its table, its rows, the parameters fitted to them, and the formula."""

    table: str
    columns: tuple[str, ...]
    keep: Callable[[Row], bool]
    fitted: tuple[str, ...]
    time_s: Timing
    read_bytes: Callable[[Row], float]
    precision: str = "bf16"
    kv_bytes: float = 2.0
    one_kernel: bool = False
    beside: tuple[str, ...] = ()  # tables with the same columns: the fastest row of a shape counts


def fit_operators(
    folder: Path, accelerator: Accelerator, rest: Profile, *, name: str, origin: str
) -> Profile:
    """Fits a profile to the tables in `folder`; parameters they do not show come from `rest`."""
    values = {**rest.parameters, "decode_rows": DECODE_ROWS}
    errors: dict[str, ErrorFigures] = {}
    largest: dict[str, int] = {}
    for title, kind in _CLASSES.items():
        if accelerator.peak_flops(kind.precision) == accelerator.bf16_flops and (
            kind.precision != "bf16"
        ):
            continue
        rows = _rows(folder, kind, accelerator)
        if not rows:
            continue
        values.update(_fit(rows, kind, accelerator, values))
        error = _error(rows, kind, accelerator, values)
        errors[title.removesuffix(CALLS).removesuffix(MODULES)] = error.rounded()
        _extend(largest, title, rows)
    if not errors:
        tables = ", ".join(dict.fromkeys(f"{kind.table}.parquet" for kind in _CLASSES.values()))
        raise InputError(
            "no operator table with usable rows was found", where=str(folder), allowed=tables
        )
    return Profile(
        name=name,
        accelerator=accelerator.name,
        calibrated=True,
        origin=origin,
        parameters={key: float(f"{values[key]:.6g}") for key in PARAMETERS},
        errors={"operators": errors},
        measured=largest,
    )


def all_reduce_rows(folder: Path, accelerator: Accelerator) -> list[Row]:
    """The fastest all-reduce of each size in the tables of a folder."""
    return _rows(folder, _CLASSES["all-reduce"], accelerator)


def _rows(folder: Path, kind: _Class, accelerator: Accelerator) -> list[Row]:
    """The rows of a class, thinned evenly to the number that a fit needs."""
    rate = FROM_MEMORY * accelerator.hbm_bytes_per_s * 1e-3
    found = [
        row
        for row in _table(folder / f"{kind.table}.parquet", kind)
        if kind.read_bytes(row) < rate * row["latency"]
    ]
    if found and kind.beside:
        others = [row for name in kind.beside for row in _table(folder / f"{name}.parquet", kind)]
        found = list(_fastest([*found, *others], kind.columns).values())
    if kind.one_kernel:
        found = _of_main_kernel(found, kind.columns)
    stride = max(1, math.ceil(len(found) / ROWS_PER_FIT))
    return found[::stride]


def _table(path: Path, kind: _Class) -> list[Row]:
    """The usable rows of one table; empty if it does not exist."""
    if not path.exists():
        return []
    if not path.is_file():
        raise InputError("this is not a regular file", where=str(path))
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        table = pq.read_table(path)
    except (pa.ArrowException, OSError) as error:
        raise InputError("the file is not a Parquet table", where=str(path)) from error
    missing = [column for column in (*kind.columns, "latency") if column not in table.column_names]
    if missing:
        what = f"the table has no column {missing[0]!r}"
        raise InputError(what, where=str(path), allowed=", ".join((*kind.columns, "latency")))
    for column in (*kind.columns, "latency"):
        held = table.schema.field(column).type
        if column not in WORDS and not (pa.types.is_integer(held) or pa.types.is_floating(held)):
            what = f"the column {column!r} holds {held}"
            raise InputError(what, where=str(path), allowed="numbers")
    return [
        row
        for row in table.to_pylist()
        if _whole(row, kind.columns) and kind.keep(row) and _timed(row)
    ]


def _fastest(rows: list[Row], columns: Sequence[str]) -> dict[tuple[object, ...], Row]:
    """The fastest row of each shape."""
    found: dict[tuple[object, ...], Row] = {}
    for row in rows:
        shape = tuple(row[column] for column in columns)
        known = found.get(shape)
        if known is None or row["latency"] < known["latency"]:
            found[shape] = row
    return found


def _of_main_kernel(rows: list[Row], columns: Sequence[str]) -> list[Row]:
    """The fastest row of each shape, restricted to the kernel that is fastest for most shapes.

    A framework has other kernels for a few shapes, and slower alternatives.
    """
    fastest = _fastest(rows, columns)
    counts = Counter(row.get("kernel_source") for row in fastest.values())
    most = max(counts.values(), default=0)
    return [row for row in fastest.values() if counts[row.get("kernel_source")] == most]


def _whole(row: Row, columns: Sequence[str]) -> bool:
    """Whether a row has all values that a formula needs: sizes above 0, or for `step` 0 or more."""
    sizes = [row[column] for column in columns if column not in WORDS]
    if any(size is None or not math.isfinite(size) or size < 0 for size in sizes):
        return False
    return all(row[column] for column in columns if column != "step")


def _timed(row: Row) -> bool:
    latency = row["latency"]
    return isinstance(latency, float) and SHORTEST_CALL_MS <= latency <= LONGEST_CALL_MS


def _fit(
    rows: Sequence[Row], kind: _Class, accelerator: Accelerator, values: dict[str, float]
) -> dict[str, float]:
    import numpy as np
    from scipy.optimize import least_squares

    rules = [PARAMETERS[key] for key in kind.fitted]

    def distance(logs: Any) -> Any:
        tried = {**values, **dict(zip(kind.fitted, np.exp(logs).tolist(), strict=True))}
        kernels = _kernels(kind, accelerator, tried)
        return [math.log(kind.time_s(kernels, row) * 1e3 / row["latency"]) for row in rows]

    solution = least_squares(
        distance,
        np.log([max(rule.start, LEAST_START) for rule in rules]),
        bounds=(np.log([rule.low for rule in rules]), np.log([rule.high for rule in rules])),
        loss="soft_l1",
        f_scale=OUTLIER_SCALE,
    )
    return dict(zip(kind.fitted, np.exp(solution.x).tolist(), strict=True))


def _kernels(kind: _Class, accelerator: Accelerator, values: dict[str, float]) -> Kernels:
    return Kernels(PhysicsParameters(values), accelerator, kind.precision, kind.kv_bytes)


def _error(
    rows: Sequence[Row], kind: _Class, accelerator: Accelerator, values: dict[str, float]
) -> ErrorFigures:
    kernels = _kernels(kind, accelerator, values)
    return error_of([abs(kind.time_s(kernels, row) * 1e3 / row["latency"] - 1.0) for row in rows])


def _extend(largest: dict[str, int], title: str, rows: Sequence[Row]) -> None:
    column, key = {
        "gemm": ("m", "tokens"),
        "decode attention": ("batch_size", "decodes"),
        "prefill attention": ("isl", "context"),
    }.get(title, ("", ""))
    if key:
        largest[key] = max(int(row[column]) for row in rows)


def _large_gemm(dtype: str) -> Callable[[Row], bool]:
    def keep(row: Row) -> bool:
        wanted = dtype
        framework = row.get("framework")
        if dtype == "fp8" and framework and str(framework).upper() != "VLLM":
            wanted = "fp8_block"  # as in models; vLLM's rows of it are launch times
        n, k = row["n"], row["k"]
        sides = n >= SMALLEST_SIDE and k >= SMALLEST_SIDE and row["m"] <= MOST_TOKENS
        # Long rows of few columns do not occur in models and would only distort the fit.
        usual = max(n, k) <= 65536 and n * k <= 4e8
        return bool(row["gemm_dtype"] == wanted and sides and usual)

    return keep


WEIGHT_BYTES = {
    "bfloat16": 2.0,
    "fp8": 1.0,
    "fp8_block": 1.0,
    "nvfp4": 0.5625,
    "w4a16_mxfp4": 0.53125,
}
"""Bytes per weight, including the scales of its group."""


def _weight_bytes(row: Row) -> float:
    return float(row["n"] * row["k"]) * WEIGHT_BYTES[row["gemm_dtype"]]


def _nothing(_: Row) -> float:
    return 0.0


def _gemm_s(kernels: Kernels, row: Row) -> float:
    weight_bytes = WEIGHT_BYTES[row["gemm_dtype"]]
    rates = kernels.gemm_rates(weight_bytes)
    return kernels.gemm_s(row["m"], row["n"], row["k"], weight_bytes, rates)


def _plain_attention(row: Row) -> bool:
    window = row.get("window_size") or 0
    return bool(row["head_dim"] == HEAD_DIM and window == 0 and row["num_heads"] >= 4)


def _long_context(row: Row) -> bool:
    plain = _plain_attention(row) and row["kv_cache_dtype"] == "bfloat16"
    return bool(plain and row["isl"] >= 64)


def _decode_batch(cache: str) -> Callable[[Row], bool]:
    def keep(row: Row) -> bool:
        plain = _plain_attention(row) and row["kv_cache_dtype"] == cache
        return bool(plain and row["step"] >= 127 and row["batch_size"] <= 512)

    return keep


KV_BYTES = {"bfloat16": 2, "fp8": 1}


def _kv_bytes(row: Row) -> float:
    numbers = 2 * HEAD_DIM * row["num_key_value_heads"]
    return float(row["batch_size"] * row["step"] * numbers * KV_BYTES[row["kv_cache_dtype"]])


def _prefill_s(kernels: Kernels, row: Row) -> float:
    """Attention of whole prompts, as `Physics` computes it for one layer."""
    heads, batch, new = row["num_heads"], row["batch_size"], row["isl"]
    ramp = kernels.parameters.attention_ramp_keys
    compute = 2.0 * heads * HEAD_DIM * batch * new * (new + 1 + 2 * ramp) / kernels.attention_flops
    traffic = 2.0 * batch * new * row["num_key_value_heads"] * HEAD_DIM * 2
    return float(kernels.parameters.attention_call_s + max(compute, traffic / kernels.kv_rate))


def _decode_s(kernels: Kernels, row: Row) -> float:
    """Attention of a decode batch, as `Physics` computes it for one layer."""
    heads, kv_heads, batch = row["num_heads"], row["num_key_value_heads"], row["batch_size"]
    p = kernels.parameters
    limit = kernels.split_limit(batch, kv_heads)
    group = heads // kv_heads
    flops = kernels.attention_flops
    compute = kernels.decode_compute_s(4.0 * heads * HEAD_DIM, group, limit, flops)
    memory = 2.0 * kv_heads * HEAD_DIM * KV_BYTES[row["kv_cache_dtype"]] / kernels.kv_rate
    tokens = batch * row["step"]
    scan = max(compute * (tokens + p.attention_ramp_keys * batch), memory * (tokens + batch))
    parts = kernels.splits(float(row["step"]), float(batch * kv_heads))
    return float(p.decode_call_s + scan + p.attention_split_s * (parts - 1.0))


def _experts_in(*dtypes: str) -> Callable[[Row], bool]:
    def keep(row: Row) -> bool:
        width = row["inter_size"] // row["moe_tp_size"]
        usual = width >= 192 and row["moe_ep_size"] == 1 and row["num_tokens"] <= MOST_TOKENS
        usual = usual and row["num_experts"] <= MOST_EXPERTS
        return bool(row["moe_dtype"] in dtypes and row["distribution"] in (SKEW, CHANCE) and usual)

    return keep


def _expert_parameters(kind: str) -> tuple[str, ...]:
    names = ("efficiency", "bandwidth", "launch_s", "width_s", "visit_s")
    return tuple(f"{kind}_{name}" for name in names)


def _experts_s(kernels: Kernels, row: Row) -> float:
    weight_bytes = WEIGHT_BYTES[row["moe_dtype"]]
    tokens, experts, visits = row["num_tokens"], row["num_experts"], row["topk"]
    touched = touched_experts(tokens, experts, visits)
    if row["distribution"] == CHANCE:
        touched = experts * (1.0 - (1.0 - visits / experts) ** tokens)
    return kernels.experts_s(
        tokens * visits,
        touched,
        ffn=max(1, row["inter_size"] // row["moe_tp_size"]),
        hidden=row["hidden_size"],
        matrices=3,
        weight_bytes=weight_bytes,
        rates=kernels.expert_rates(weight_bytes),
    )


def _of_kernel(*starts: str) -> Callable[[Row], bool]:
    def keep(row: Row) -> bool:
        usual = row["num_tokens"] <= MOST_TOKENS
        return bool(row["kernel_source"].startswith(starts) and usual)

    return keep


def _state_bytes(row: Row) -> float:
    return float(4 * row["num_v_heads"] * row["head_k_dim"] * row["head_v_dim"])


def _states_moved(row: Row) -> float:
    return 2.0 * float(row["batch_size"]) * _state_bytes(row)


def _state_update_s(kernels: Kernels, row: Row) -> float:
    return kernels.state_update_s(row["batch_size"], _state_bytes(row))


def _state_scan_s(kernels: Kernels, row: Row) -> float:
    flops = DELTA_PASSES * row["head_k_dim"] * row["head_v_dim"]
    prompts = [row["seq_len"]] * row["batch_size"]
    return kernels.state_scan_s(prompts, row["num_v_heads"], flops)


def _convolved(row: Row) -> float:
    """Numbers read and written: those of the tokens and, in decode, those that the convolution
    keeps."""
    channels = 2 * row["num_k_heads"] * row["head_k_dim"] + row["num_v_heads"] * row["head_v_dim"]
    kept = 0 if row["phase"] == "context" else row["d_conv"] - 1
    return float(2 * row["num_tokens"] * channels * (1 + kept))


def _convolution_s(kernels: Kernels, row: Row) -> float:
    return kernels.convolution_s(_convolved(row))


def _reduced(row: Row) -> bool:
    """Whether a row is a 16-bit all-reduce as in a step, by a custom kernel or by NCCL."""
    usual = 1024 <= row["message_size"] <= MOST_SENT
    named = (row.get("op_name", "all_reduce"), row.get("nccl_dtype", "half"))
    graphed = str(row.get("backend", GRAPH)).endswith(GRAPH)
    return graphed and named == ("all_reduce", "half") and usual


def _all_reduce_s(kernels: Kernels, row: Row) -> float:
    return kernels.all_reduce_s(2.0 * row["message_size"], row["num_gpus"])


WORDS = (
    *("gemm_dtype", "gemm_type", "kv_cache_dtype", "moe_dtype", "distribution", "backend"),
    *("kernel_source", "phase", "architecture", "framework"),
)
"""Text columns; the others are numeric."""
_GEMM = ("gemm_dtype", "m", "n", "k")
_ATTENTION = (
    *("batch_size", "isl", "step", "num_heads", "num_key_value_heads", "head_dim"),
    "kv_cache_dtype",
)
_LATENT = ("batch_size", "step", "num_heads", "kv_cache_dtype", "gemm_type")
_EXPERTS = (
    *("moe_dtype", "num_tokens", "hidden_size", "inter_size", "topk", "num_experts"),
    *("moe_tp_size", "moe_ep_size", "distribution"),
)
_RECURRENCE = (
    *("kernel_source", "phase", "batch_size", "seq_len", "num_tokens", "d_conv"),
    *("num_k_heads", "head_k_dim", "num_v_heads", "head_v_dim"),
)

# In the order in which they are fitted: later classes build on the parameters of earlier ones.
_CLASSES: dict[str, _Class] = {
    "gemm": _Class(
        "gemm_perf",
        _GEMM,
        _large_gemm("bfloat16"),
        ("gemm_efficiency", "gemm_bandwidth", "gemm_launch_s", "gemm_wave", "gemm_blend"),
        _gemm_s,
        _weight_bytes,
    ),
    "gemm in fp8": _Class(
        "gemm_perf",
        _GEMM,
        _large_gemm("fp8"),
        ("fp8_efficiency", "fp8_bandwidth", "fp8_launch_s", "fp8_convert_bandwidth"),
        _gemm_s,
        _weight_bytes,
        precision="fp8",
    ),
    "gemm in fp4": _Class(
        "gemm_perf",
        _GEMM,
        _large_gemm("nvfp4"),
        ("fp4_efficiency", "fp4_bandwidth", "fp4_launch_s"),
        _gemm_s,
        _weight_bytes,
        precision="fp4",
    ),
    "prefill attention": _Class(
        "context_attention_perf",
        _ATTENTION,
        _long_context,
        ("attention_efficiency", "attention_call_s", "attention_ramp_keys"),
        _prefill_s,
        _nothing,
    ),
    "decode attention": _Class(
        "generation_attention_perf",
        _ATTENTION,
        _decode_batch("bfloat16"),
        ("attention_bandwidth", "decode_call_s", "attention_split_s"),
        _decode_s,
        _kv_bytes,
        kv_bytes=2.0,
    ),
    "decode attention, fp8 cache": _Class(
        "generation_attention_perf",
        _ATTENTION,
        _decode_batch("fp8"),
        ("fp8_attention_bandwidth",),
        _decode_s,
        _kv_bytes,
        kv_bytes=1.0,
    ),
    "experts": _Class(
        "moe_perf",
        _EXPERTS,
        _experts_in("bfloat16"),
        _expert_parameters("expert"),
        _experts_s,
        _nothing,
        one_kernel=True,
        precision="bf16",
    ),
    "experts in fp8": _Class(
        "moe_perf",
        _EXPERTS,
        _experts_in("fp8_block"),
        _expert_parameters("fp8_expert"),
        _experts_s,
        _nothing,
        one_kernel=True,
        precision="fp8",
    ),
    "experts in fp4": _Class(
        "moe_perf",
        _EXPERTS,
        _experts_in("nvfp4"),
        _expert_parameters("fp4_expert"),
        _experts_s,
        _nothing,
        one_kernel=True,
        precision="fp4",
    ),
    "experts of 4-bit weights": _Class(
        "moe_perf",
        _EXPERTS,
        _experts_in("w4a16_mxfp4"),
        _expert_parameters("weight_only_expert"),
        _experts_s,
        _nothing,
        one_kernel=True,
        precision="bf16",
    ),
    "latent attention": _Class(
        "mla_generation_module_perf",
        _LATENT,
        latent_batch,
        ("latent_efficiency", "latent_bandwidth", "latent_layer_s"),
        latent_s,
        _nothing,
    ),
    "latent attention" + CALLS: _Class(
        "generation_mla_perf",
        ("batch_size", "step", "num_heads", "kv_cache_dtype"),
        latent_call,
        ("latent_efficiency", "latent_bandwidth"),
        latent_call_s,
        _nothing,
    ),
    "latent attention" + MODULES: _Class(
        "wideep_generation_mla_perf",
        ("batch_size", "isl", "num_heads", "kv_cache_dtype", "gemm_type"),
        latent_module,
        ("latent_layer_s",),
        latent_module_s,
        _nothing,
        precision="fp8",
        one_kernel=True,
    ),
    "sparse attention": _Class(
        "dsa_generation_module_perf",
        (
            *("batch_size", "isl", "step", "num_heads"),
            *("kv_cache_dtype", "gemm_type", "architecture", "framework"),
        ),
        sparse_module,
        ("index_layer_s",),
        sparse_module_s,
        _nothing,
        precision="fp8",
    ),
    "recurrent decode": _Class(
        "gdn_perf",
        _RECURRENCE,
        _of_kernel("fused_recurrent"),
        ("recurrent_bandwidth", "recurrent_call_s"),
        _state_update_s,
        _states_moved,
    ),
    "recurrent prefill": _Class(
        "gdn_perf",
        _RECURRENCE,
        _of_kernel("chunk_"),
        ("recurrent_efficiency", "recurrent_start_s", "recurrent_chunk_s"),
        _state_scan_s,
        _nothing,
    ),
    "convolution": _Class(
        "gdn_perf",
        _RECURRENCE,
        _of_kernel("causal_conv1d"),
        ("convolution_bandwidth", "convolution_call_s"),
        _convolution_s,
        lambda row: 2.0 * _convolved(row),
    ),
    "all-reduce": _Class(
        "custom_allreduce_perf",
        ("num_gpus", "message_size"),
        _reduced,
        (
            "all_reduce_s",
            "all_reduce_small_efficiency",
            "all_reduce_large_s",
            "all_reduce_efficiency",
        ),
        _all_reduce_s,
        _nothing,
        beside=("nccl_perf", "fused_allreduce_perf"),
    ),
}

PARAMETERS_OF = {title: kind.fitted for title, kind in _CLASSES.items()}
"""The parameters fitted to each kind of operator."""
