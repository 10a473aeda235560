"""Operator timings of AMD's GPUs, from the kernels that ROCm's AITER library has tuned.

AITER (github.com/ROCm/aiter, MIT) publishes the time of the fastest kernel for every shape that it
tuned, one file per model and kind of kernel. They become tables as `fit_operators` reads them.
Times are of the kernels alone: neither the conversion of activations nor the sorting of tokens by
expert is in them, so that a profile from them is somewhat fast.
"""

import csv
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from windtunnel.models.calibration.operators import CHANCE

Row = dict[str, Any]

UNITS = "256"  # compute units of an MI355X; files without the chip's name have only these
CHIP = "gfx950"
GEMMS = {
    "bf16_tuned_gemm": "bfloat16",
    "a8w8_blockscale_tuned_gemm": "fp8_block",
    "a8w8_blockscale_bpreshuffle_tuned_gemm": "fp8_block",
    "a4w4_blockscale_tuned_gemm": "nvfp4",
}
EXPERTS = {
    ("torch.bfloat16", "torch.bfloat16", "No"): "bfloat16",
    ("torch.float8_e4m3fn", "torch.float8_e4m3fn", "per_1x128"): "fp8_block",
    ("torch.float4_e2m1fn_x2", "torch.float4_e2m1fn_x2", "per_1x32"): "nvfp4",
    ("torch.bfloat16", "torch.float4_e2m1fn_x2", "per_1x32"): "w4a16_mxfp4",
}
"""By types of activations and weights, and kind of scales."""


def rows_of(path: Path) -> Iterator[Row]:
    """The timed rows of the chip."""
    with path.open(newline="") as file:
        for row in csv.DictReader(file):
            if row["cu_num"] == UNITS and row.get("gfx", CHIP) == CHIP and float(row["us"]) > 0.0:
                yield row


def gemm_rows(folder: Path) -> list[Row]:
    found = []
    for path in sorted(folder.rglob("*tuned_gemm*.csv")):
        if "untuned" in path.name or "batched" in path.name:
            continue
        kinds = [kind for name, kind in GEMMS.items() if name in path.name]
        for kind in kinds[:1]:
            found += [gemm_row(row, kind) for row in rows_of(path)]
    return found


def gemm_row(row: dict[str, str], kind: str) -> Row:
    return {
        "framework": "AITER",
        "gemm_dtype": kind,
        **{name: int(row[name.upper()]) for name in ("m", "n", "k")},
        "latency": 1e-3 * float(row["us"]),
    }


def expert_rows(folder: Path) -> list[Row]:
    found = []
    for path in sorted(folder.rglob("*tuned_fmoe*.csv")):
        if "untuned" in path.name:
            continue
        for row in rows_of(path):
            scales = row["q_type"].removeprefix("QuantType.")
            kind = EXPERTS.get((row["q_dtype_a"], row["q_dtype_w"], scales))
            if kind is None or row["use_g1u1"] != "1":
                continue
            found.append(
                {
                    "moe_dtype": kind,
                    "num_tokens": int(row["token"]),
                    "hidden_size": int(row["model_dim"]),
                    "inter_size": int(row["inter_dim"]),
                    "topk": int(row["topk"]),
                    "num_experts": int(row["expert"]),
                    "moe_tp_size": 1,
                    "moe_ep_size": 1,
                    "distribution": CHANCE,
                    "kernel_source": "aiter",
                    "latency": 1e-3 * float(row["us"]),
                }
            )
    return found


def fastest(rows: list[Row]) -> list[Row]:
    """The fastest row of each shape, which several files may have."""
    found: dict[tuple[Any, ...], Row] = {}
    for row in rows:
        shape = tuple(value for name, value in row.items() if name != "latency")
        known = found.get(shape)
        if known is None or row["latency"] < known["latency"]:
            found[shape] = row
    return list(found.values())


def write_tables(checkout: Path, to: Path) -> None:
    """Writes the tables of the MI355X from a checkout of AITER."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    configs = checkout / "aiter" / "configs"
    for name, rows in (("gemm_perf", gemm_rows(configs)), ("moe_perf", expert_rows(configs))):
        pq.write_table(pa.Table.from_pylist(fastest(rows)), to / f"{name}.parquet")
