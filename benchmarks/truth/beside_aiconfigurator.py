"""The published points in NVIDIA's AIConfigurator, to be printed beside ours.

It needs `aiconfigurator` (PyPI, 0.12) and nothing of Windtunnel, so that it can run in its own
environment: python -m benchmarks.truth.beside_aiconfigurator FILE.json; then python -m
benchmarks.truth --beside FILE.json. AIConfigurator has tables of vLLM, SGLang and TensorRT-LLM, and
is queried for the engine that was measured; without a network it knows only the models it ships
with.
"""

import json
import logging
import statistics
import sys
from pathlib import Path
from typing import Any

from benchmarks.truth.points import LLAMA, R1, R1_FP4, Point, points

SYSTEMS = {"h100": "h100_sxm", "h200": "h200_sxm", "b200": "b200_sxm", "b300": "b300_sxm"}
BACKENDS = {"vLLM": "vllm", "SGLang": "sglang", "TRT-LLM": "trtllm"}
SAME_SHAPE = {
    LLAMA: "meta-llama/Meta-Llama-3.1-8B",
    R1: "deepseek-ai/DeepSeek-R1",
    R1_FP4: "nvidia/DeepSeek-V3.1-NVFP4",
}


def is_mixture(point: Point) -> bool:
    return "mixture" in point.family or "-A" in point.model


def estimate(point: Point) -> dict[str, float]:
    from aiconfigurator.cli.api import cli_estimate

    model = SAME_SHAPE.get(point.model, point.model.replace("Qwen3.6", "Qwen3.5"))
    ways = (1, point.tp) if point.ep else (point.tp, 1)
    experts = dict(zip(("moe_tp_size", "moe_ep_size"), ways, strict=True))
    prompt, output = point.isl, point.osl
    if point.lengths:
        columns = zip(*point.lengths, strict=True)
        prompt, output = (round(statistics.median(some)) for some in columns)
    quantised = "fp8_block" if model.endswith("-FP8") else None
    found: Any = cli_estimate(
        model.removesuffix("-FP8"),
        SYSTEMS[point.gpu],
        backend_name=BACKENDS[point.engine],
        isl=prompt,
        osl=output,
        batch_size=point.users // point.ranks,
        tp_size=point.tp // point.ranks,
        attention_dp_size=point.ranks,
        **(experts if is_mixture(point) else {}),
        gemm_quant_mode=quantised,
        moe_quant_mode=quantised,
        kvcache_quant_mode="fp8" if point.kv == "fp8" else None,
    )
    rate = 1e3 * point.users * output / (found.ttft + found.tpot * (output - 1))
    return {"ttft": 1e-3 * found.ttft, "tpot": 1e-3 * found.tpot, "throughput": rate}


def main() -> None:
    try:
        import aiconfigurator  # noqa: F401
    except ImportError:
        print("skipped: aiconfigurator is not installed here")
        return
    logging.disable(logging.CRITICAL)
    outcomes = []
    for point in points():
        row: dict[str, Any] = {"title": point.title, "measured": point.measured()}
        if point.gpu not in SYSTEMS or point.engine not in BACKENDS:
            row["refused"] = f"no tables of {point.engine} on {point.gpu}"
        else:
            try:
                row["simulated"] = estimate(point)
            except Exception as error:  # noqa: BLE001, theirs are of many kinds
                row["refused"] = f"{type(error).__name__}: {error}"[:200]
        print(row["title"], row.get("simulated") or row.get("refused"), flush=True)
        outcomes.append(row)
    Path(sys.argv[1]).write_text(json.dumps(outcomes, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
