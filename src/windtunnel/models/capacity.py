"""How many KV-cache blocks a server has: the GPU memory that weights and working space leave.

Each GPU of a tensor-parallel group holds its own part of every block, so the group has as many
blocks as one GPU. Latent attention is not divided: every GPU keeps the whole compressed cache.

`blis_kv_blocks` is the BLIS simulator's estimate, to compare with it. It is coarser: working space
is one number for every model, whatever the batch, and each weight, embeddings included, takes the
bytes of a matrix weight.
"""

from __future__ import annotations

import math

import msgspec

from windtunnel.core.errors import InputError
from windtunnel.models.catalog.accelerators import ACCELERATORS, Accelerator
from windtunnel.models.catalog.shapes import ModelShape

__all__ = ["KvCapacity", "blis_kv_blocks", "kv_capacity"]

GIB = 1024.0**3

RUNTIME_BYTES = 0.6 * GIB  # driver context, library workspaces, allocator slack
GRAPH_BYTES = 0.5 * GIB  # captured graphs
COLLECTIVE_BYTES = 0.8 * GIB  # communication buffers of a group of GPUs
LOGIT_BYTES = 8  # per sampled sequence and vocabulary entry: 32-bit logits and a sorted copy

# A sliding-window layer keeps at most its window of each sequence; blocks are counted in tokens
# of whole sequences: it costs the share that its window is of a sequence of this length.
WINDOW_SEQUENCE_TOKENS = 4096

MAX_TENSOR_PARALLEL = 64


class KvCapacity(msgspec.Struct, frozen=True, kw_only=True):
    """The memory of one GPU of the group, in bytes, and the blocks that it leaves."""

    blocks: int
    block_size: int
    block_bytes: float
    usable_bytes: float
    weight_bytes: float
    activation_bytes: float
    runtime_bytes: float
    adapter_bytes: float = 0.0

    @property
    def tokens(self) -> int:
        return self.blocks * self.block_size


class _Limits(msgspec.Struct, frozen=True):
    """The engine's settings that decide its working space."""

    memory_utilization: float
    block_size: int
    max_num_batched_tokens: int
    max_num_seqs: int
    adapter_bytes: float


def kv_capacity(
    shape: ModelShape,
    accelerator: Accelerator,
    *,
    tensor_parallel: int = 1,
    expert_parallel: int = 1,
    memory_utilization: float = 0.9,
    block_size: int = 16,
    max_num_batched_tokens: int = 8192,
    max_num_seqs: int = 256,
    adapter_bytes: float = 0.0,
) -> KvCapacity:
    """The KV blocks of a server, or an error that says what is missing and what would fit.

    `adapter_bytes` are set aside on each GPU for LoRA adapters.
    """
    if not 0.0 < memory_utilization <= 1.0:
        what = f"memory_utilization is {memory_utilization}"
        raise InputError(what, allowed="above 0, at most 1")
    limits = _Limits(
        memory_utilization, block_size, max_num_batched_tokens, max_num_seqs, adapter_bytes
    )
    for name in ("block_size", "max_num_batched_tokens", "max_num_seqs"):
        if getattr(limits, name) < 1:
            raise InputError(f"{name} is {getattr(limits, name)}", allowed="1 or more")
    part = shape.per_gpu(tensor_parallel, expert_parallel)
    gpus = max(tensor_parallel, expert_parallel)
    found = _divide_memory(shape, part, accelerator, gpus, limits)
    if found.blocks < 1:
        hints = [
            *_wider(shape, accelerator, tensor_parallel, limits),
            *_larger(shape, part, gpus, limits),
        ]
        raise _does_not_fit(shape, accelerator, tensor_parallel, found, hints)
    return found


def _divide_memory(
    shape: ModelShape, part: ModelShape, accelerator: Accelerator, gpus: int, limits: _Limits
) -> KvCapacity:
    usable = accelerator.memory_bytes * limits.memory_utilization
    activation = _activation_bytes(shape, part, limits)
    runtime = RUNTIME_BYTES + GRAPH_BYTES + (COLLECTIVE_BYTES if gpus > 1 else 0.0)
    block_bytes = limits.block_size * kv_bytes_per_token(part)
    room = usable - part.total_weight_bytes - activation - runtime - limits.adapter_bytes
    return KvCapacity(
        blocks=max(0, math.floor(room / block_bytes)),
        block_size=limits.block_size,
        block_bytes=block_bytes,
        usable_bytes=usable,
        weight_bytes=part.total_weight_bytes,
        activation_bytes=activation,
        runtime_bytes=runtime,
        adapter_bytes=limits.adapter_bytes,
    )


def kv_bytes_per_token(part: ModelShape) -> float:
    """KV bytes of a cached token; window layers count the share they keep.

    Of a model's shape: on all its GPUs together. Of the part that one GPU has: on that one.
    """
    share = min(1.0, part.window / WINDOW_SEQUENCE_TOKENS)
    layers = part.full_layers + part.window_layers * share
    return layers * part.kv_bytes_per_token_layer


def _activation_bytes(shape: ModelShape, part: ModelShape, limits: _Limits) -> float:
    """The peak of one step's intermediate results, with the largest batch the engine may form.

    Alive together: the residual stream and its normed copy, attention's input or output, and an
    MLP's gate, up and product; a mixture holds those for each expert a token visits.
    """
    width = max(part.ffn if part.dense_layers else 0, part.shared_ffn)
    width = max(width, part.expert_ffn * shape.experts_per_token)
    per_token = (4 * shape.hidden + part.mlp_matrices * width) * shape.activation_bytes
    logits = limits.max_num_seqs * shape.vocab * LOGIT_BYTES
    return limits.max_num_batched_tokens * per_token + logits


def _wider(
    shape: ModelShape, accelerator: Accelerator, tensor_parallel: int, limits: _Limits
) -> list[str]:
    """The least doubling of tensor_parallel with which the model fits, as a setting."""
    degree = 2 * tensor_parallel
    while degree <= MAX_TENSOR_PARALLEL:
        try:
            part = shape.per_gpu(degree)
        except InputError:  # this degree does not divide the heads, nor will its doubles
            return []
        if _divide_memory(shape, part, accelerator, degree, limits).blocks:
            return [f"tensor_parallel: {degree}"]
        degree *= 2
    return []


def _larger(shape: ModelShape, part: ModelShape, gpus: int, limits: _Limits) -> list[str]:
    """The smallest accelerator on which the model fits as it is divided now, as a setting."""
    by_memory = sorted(ACCELERATORS.values(), key=lambda other: (other.memory_bytes, other.name))
    for other in by_memory:
        if _divide_memory(shape, part, other, gpus, limits).blocks:
            return [f"accelerator: {other.name}"]
    return []


def _does_not_fit(
    shape: ModelShape, accelerator: Accelerator, tp: int, found: KvCapacity, hints: list[str]
) -> InputError:
    needed = found.weight_bytes + found.activation_bytes + found.runtime_bytes + found.block_bytes
    needed += found.adapter_bytes
    adapters = f", adapters {found.adapter_bytes / GIB:.1f}" if found.adapter_bytes else ""
    each = "" if tp == 1 else f" on each of {tp} GPUs"
    return InputError(
        f"{shape.name} does not fit on {accelerator.name}: it needs {needed / GIB:.1f} GiB{each}"
        f" (weights {found.weight_bytes / GIB:.1f}, activations {found.activation_bytes / GIB:.1f},"
        f" runtime {found.runtime_bytes / GIB:.1f}{adapters}, the rest KV cache)"
        f" and has {found.usable_bytes / GIB:.1f} GiB",
        hint="try " + (" or ".join(hints) or "a smaller or quantised model"),
    )


# The estimate of BLIS

BLIS_ACTIVATION_GIB = 5.5
BLIS_MIXTURE_ACTIVATION_GIB = 8.0
BLIS_ONE_GPU_GIB = 0.15  # outside the tensor library, on a server of one GPU
BLIS_GROUP_GIB = 0.6  # the same on each GPU of several

# GiB that the peer's own hardware table has for these; round, where ours are what drivers report.
_PEER_MEMORY_GIB = {"h100-sxm": 80.0, "a100-80": 80.0, "l40s": 48.0}


def blis_kv_blocks(
    shape: ModelShape,
    accelerator: Accelerator,
    *,
    tensor_parallel: int = 1,
    memory_utilization: float = 0.9,
    block_size: int = 16,
) -> int:
    """The blocks of one server, or an error that says what the model takes and what there is."""
    tp = tensor_parallel
    own_gib = accelerator.memory_bytes / GIB
    memory_gib = _PEER_MEMORY_GIB.get(accelerator.name, own_gib) * memory_utilization * tp
    weights_gib = _blis_weight_bytes(shape) / GIB
    working_gib = BLIS_MIXTURE_ACTIVATION_GIB if shape.is_mixture else BLIS_ACTIVATION_GIB
    outside_gib = BLIS_ONE_GPU_GIB if tp == 1 else BLIS_GROUP_GIB * tp
    room_gib = memory_gib - (weights_gib + working_gib + outside_gib)
    blocks = int(room_gib * GIB) // int(_blis_token_bytes(shape, tp) * block_size)
    if blocks < 1:
        needed_gib = weights_gib + working_gib + outside_gib
        raise InputError(
            f"{shape.name} does not fit on {tp} {accelerator.name} by BLIS's estimate: "
            f"it needs {needed_gib:.1f} GiB beside its KV cache and has {memory_gib:.1f} GiB",
            hint="raise tensor_parallel, or set kv_blocks",
        )
    return blocks


def _blis_token_bytes(shape: ModelShape, tp: int) -> float:
    """KV bytes of a token on one GPU; latent attention keeps its cache whole on each."""
    if shape.is_latent:
        return shape.layers * (shape.kv_lora_rank + shape.qk_rope_dim) * shape.activation_bytes
    return shape.layers * 2.0 * shape.head_dim * shape.kv_heads * shape.activation_bytes / tp


def _blis_weight_bytes(shape: ModelShape) -> int:
    """Queries are as wide as the model, whatever its heads are.

    Every layer of a mixture has experts, but for leading dense ones.
    """
    hidden = shape.hidden
    head_dim = hidden // shape.heads if shape.is_latent else shape.head_dim
    attention = 2 * hidden * (hidden + shape.kv_heads * head_dim)
    dense = 3 * hidden * shape.ffn
    mlp = shape.layers * dense
    if shape.is_mixture:
        shared_ffn = 0 if shape.name.startswith("llama-4") else shape.shared_ffn
        mixture = 3 * hidden * (shape.experts * shape.expert_ffn + shared_ffn)
        mixture += shape.experts * hidden
        prefix = shape.dense_prefix_layers
        mlp = prefix * dense + (shape.layers - prefix) * mixture
    params = shape.embedding_params + shape.norm_params + shape.layers * attention + mlp
    return int(params * shape.weight_bytes)
