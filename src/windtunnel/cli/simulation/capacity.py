"""`windtunnel capacity`: how a GPU's memory is divided, and how many KV tokens fit."""

from typing import Any

import click
import msgspec

from windtunnel.cli.options import FiniteRange, Option, json_option
from windtunnel.cli.places import Output
from windtunnel.core.errors import InputError
from windtunnel.models.capacity import GIB, KvCapacity, MemoryLimits, kv_capacity, limits_for
from windtunnel.models.catalog.accelerators import resolve_accelerator
from windtunnel.models.catalog.models import resolve_model
from windtunnel.models.catalog.shapes import ModelShape
from windtunnel.models.releases import NEWEST, release_of
from windtunnel.settings.limits import (
    LARGEST_BLOCK,
    MOST_SEQUENCES,
    MOST_TENSOR_PARALLEL,
    MOST_TOKENS,
)

KIB, MIB = 1024, 1024**2

LINES = (
    ("memory_bytes", "memory of the GPU", ""),
    ("usable_bytes", "of it, for the server", "memory_utilization"),
    ("weight_bytes", "weights as loaded", ""),
    ("activation_bytes", "activations at their peak", "max_num_seqs, max_num_batched_tokens"),
    ("runtime_bytes", "outside PyTorch: driver, NCCL", ""),
    ("graph_bytes", "CUDA graphs", ""),
    ("left_bytes", "left for the KV cache", ""),
)
"""Lines of the budget: the field, its label, and the settings that it depends on."""


def _count(name: str, most: int, says: str) -> Option:
    return click.option(name, type=click.IntRange(1, most), default=None, metavar="N", help=says)


@click.command(short_help="Show how a GPU's memory is divided.")
@click.argument("model")
@click.option(
    "--accelerator", "-a", required=True, metavar="NAME", help="GPU, such as h100 or b200."
)
@click.option("--tensor-parallel", type=click.IntRange(1, MOST_TENSOR_PARALLEL), default=1,
              show_default=True, metavar="N", help="GPUs that share each layer.")  # fmt: skip
@click.option("--data-parallel", type=click.IntRange(1, MOST_TENSOR_PARALLEL), default=1,
              show_default=True, metavar="N",
              help="Ranks that share experts; the result is for one rank.")  # fmt: skip
@click.option("--pipeline-parallel", type=click.IntRange(1, MOST_TENSOR_PARALLEL), default=1,
              show_default=True, metavar="N", help="Pipeline stages.")  # fmt: skip
@click.option("--expert-parallel", is_flag=True, help="Distribute whole experts over these GPUs.")
@click.option("--version", default=NEWEST, show_default=True, metavar="RELEASE",
              help="Release of vLLM.")  # fmt: skip
@click.option("--kv-cache-dtype", type=click.Choice(["auto", "fp8"]), default="auto",
              show_default=True, help="Data type of the KV cache.")  # fmt: skip
@click.option("--memory-utilization", type=FiniteRange(0, 1, min_open=True), metavar="SHARE",
              help="Share of memory that the server may use. [default: vLLM's]")  # fmt: skip
@_count("--max-num-seqs", MOST_SEQUENCES, "Maximum requests in a batch. [default: vLLM's]")
@_count("--max-num-batched-tokens", MOST_TOKENS, "Maximum tokens in a step. [default: vLLM's]")
@_count("--max-model-len", MOST_TOKENS, "Maximum tokens of a request. [default: the model's]")
@_count("--block-size", LARGEST_BLOCK, "Tokens in a block. [default: 16]")
@json_option("the budget as JSON")
def capacity(
    model: str,
    accelerator: str,
    tensor_parallel: int,
    data_parallel: int,
    pipeline_parallel: int,
    expert_parallel: bool,  # noqa: FBT001 - an option
    version: str,
    kv_cache_dtype: str,
    json_to: str | None,
    **given: float | None,
) -> None:
    """Show how a GPU's memory is divided, and how many tokens of KV it holds.

    MODEL is a catalog name, a Hugging Face name such as Qwen/Qwen3-32B-FP8, or the path of a
    config.json. Settings default to vLLM's. The result is what `kv_blocks: auto` uses in a
    scenario.
    """
    gpu = resolve_accelerator(accelerator)
    try:
        release_of(version)
    except InputError as error:
        raise InputError(error.what, where="--version", allowed=error.allowed) from None
    shape = resolve_model(model)
    if kv_cache_dtype == "fp8":
        if not gpu.fp8_flops:
            what = f"{gpu.name} has no fp8"
            raise InputError(what, where="--kv-cache-dtype", allowed="auto")
        shape = msgspec.structs.replace(shape, kv_bytes=1.0)
    chosen = {name: value for name, value in given.items() if value is not None}
    limits = msgspec.structs.replace(limits_for(gpu, version), **chosen)
    if data_parallel > 1 and not shape.is_mixture:
        what = f"{shape.name} has no experts to share, so that its ranks are servers of their own"
        raise InputError(what, where="--data-parallel", allowed="1, or a mixture model")
    found = kv_capacity(
        shape,
        gpu,
        limits,
        tensor_parallel=tensor_parallel,
        expert_parallel=tensor_parallel * data_parallel if expert_parallel else 1,
        data_parallel=data_parallel,
        pipeline_parallel=pipeline_parallel,
    )
    head = {
        "model": shape.name,
        "accelerator": gpu.name,
        "tensor_parallel": tensor_parallel,
        "data_parallel": data_parallel,
        "pipeline_parallel": pipeline_parallel,
    }
    data = head | _data(found, limits, shape)
    if json_to is None:
        click.echo(_table(data, found.refusal))
    with Output(json_to) as out:
        out.json(data)


def _data(found: KvCapacity, limits: MemoryLimits, shape: ModelShape) -> dict[str, Any]:
    groups = msgspec.structs.asdict(found.groups)
    return {
        "settings": msgspec.structs.asdict(limits) | {"max_model_len": found.max_model_len},
        "budget": {name: getattr(found, name) for name, _, _ in LINES},
        "kv": {
            "bytes_per_token": shape.kv_bytes_per_token,
            "state_bytes": shape.recurrent_layers * shape.state_layer_bytes(),
            "blocks": found.pool_blocks,
            "block_size": found.block_size,
            "block_bytes": found.block_bytes,
            "groups": groups,
            "tokens": found.tokens,
            "sequences": found.sequences,
            "longest_max_model_len": found.longest,
        },
    }


def _table(data: dict[str, Any], refusal: str) -> str:
    settings, kv = data["settings"], data["kv"]
    gpus = data["tensor_parallel"] * data["data_parallel"] * data["pipeline_parallel"]
    many = f" on {gpus} x {data['accelerator']}, each" if gpus > 1 else f" on {data['accelerator']}"
    lines = [f"{data['model']}{many}, vLLM {settings['version']}", ""]
    for name, says, names in LINES:
        if name == "left_bytes":
            lines.append("  " + "-" * 45)
        because = ", ".join(f"{one} {settings[one]:,}" for one in names.split(", ") if one)
        sign = (
            "-"
            if name in {"weight_bytes", "activation_bytes", "runtime_bytes", "graph_bytes"}
            else " "
        )
        row = f"  {says:<31}{sign}{data['budget'][name] / GIB:9.2f} GiB  {because}"
        lines.append(row.rstrip())
    lines += ["", f"  KV of a token, all layers and GPUs: {kv['bytes_per_token'] / KIB:,.1f} KiB"]
    groups = kv["groups"]
    if groups["recurrent"]:
        lines += [
            f"  state of a request, all layers and GPUs: {kv['state_bytes'] / MIB:,.1f} MiB",
            f"  layers in {groups['full']} attention and {groups['recurrent']} recurrent groups of "
            f"{groups['layers']};",
            f"  a request of full length takes {groups['states']} blocks of each recurrent group, "
            "and a block holds a state",
        ]
    if groups["full"] and groups["windowed"]:
        lines.append(
            f"  layers in {groups['full']} full and {groups['windowed']} windowed groups of "
            f"{groups['layers']}; a window keeps {groups['window']:,} tokens"
        )
    blocks = (
        f"  {kv['blocks']:,} blocks of {kv['block_size'] * groups['full_multiple']} tokens in a"
    )
    if groups["full_multiple"] == groups["window_multiple"]:
        lines.append(f"{blocks} group")
    else:
        windowed = kv["block_size"] * groups["window_multiple"]
        lines.append(f"{blocks} full group, or {windowed} in a windowed one")
    requests = f"{kv['sequences']:.2f} requests of {settings['max_model_len']:,} tokens at once"
    lines.append(f"  {kv['tokens']:,} tokens, or {requests}")
    if refusal:
        lines.append(f"  not one of them fits: {refusal}")
    return "\n".join(lines)
