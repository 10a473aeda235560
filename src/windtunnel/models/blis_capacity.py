"""How many KV blocks the BLIS simulator gives a server: its own estimate, to compare with it.

Coarser than `capacity.py`: working space is one number for every model, whatever the batch, and
each weight, embeddings included, takes the bytes of a matrix weight.
"""

from __future__ import annotations

from typing import Final

from windtunnel.core.errors import InputError
from windtunnel.models.accelerators import Accelerator
from windtunnel.models.shapes import ModelShape

__all__ = ["blis_kv_blocks"]

GIB: Final = 1024.0**3
ACTIVATION_GIB: Final = 5.5
MIXTURE_ACTIVATION_GIB: Final = 8.0
ALONE_GIB: Final = 0.15  # outside the tensor library, on a server of one GPU
GROUPED_GIB: Final = 0.6  # the same on each GPU of several

# GiB that the peer's own hardware table has for these; round, where ours are what drivers report.
_PEER_MEMORY_GIB: Final = {"h100-sxm": 80.0, "a100-80": 80.0, "l40s": 48.0}


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
    weights_gib = _weight_bytes(shape) / GIB
    working_gib = MIXTURE_ACTIVATION_GIB if shape.is_mixture else ACTIVATION_GIB
    outside_gib = ALONE_GIB if tp == 1 else GROUPED_GIB * tp
    room_gib = memory_gib - (weights_gib + working_gib + outside_gib)
    blocks = int(room_gib * GIB) // int(_token_bytes(shape, tp) * block_size)
    if blocks < 1:
        needed_gib = weights_gib + working_gib + outside_gib
        raise InputError(
            f"{shape.name} does not fit on {tp} {accelerator.name} by BLIS's estimate: "
            f"it needs {needed_gib:.1f} GiB beside its KV cache and has {memory_gib:.1f} GiB",
            hint="raise tensor_parallel, or set kv_blocks",
        )
    return blocks


def _token_bytes(shape: ModelShape, tp: int) -> float:
    """KV bytes of a token on one GPU; latent attention keeps its cache whole on each."""
    if shape.is_latent:
        return shape.layers * (shape.kv_lora_rank + shape.qk_rope_dim) * shape.activation_bytes
    return shape.layers * 2.0 * shape.head_dim * shape.kv_heads * shape.activation_bytes / tp


def _weight_bytes(shape: ModelShape) -> int:
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
