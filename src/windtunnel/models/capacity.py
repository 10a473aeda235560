"""The KV-cache blocks of a server: the GPU memory that vLLM finds left beside the weights.

Each GPU of a tensor-parallel group holds its own part of every block, so the group has as many
blocks as one GPU. Latent attention is not divided: every GPU keeps the whole compressed cache.

Full-attention and sliding-window layers form groups that share one pool of blocks, as in vLLM: a
block holds tokens of as many layers as the smaller kind has, and a request takes blocks from each
group, but from a windowed group no more than its window needs. Recurrent layers are groups of the
same pool: their state is a page, and token blocks are made at least as large.

`blis_kv_blocks` is the BLIS simulator's estimate, for comparison. It is coarser: working space is
one constant for dense models and one for mixtures, whatever the batch, and each weight, including
embeddings, takes the bytes of a matrix weight.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Iterable, Iterator

import msgspec

from windtunnel.core.errors import InputError
from windtunnel.models.catalog.accelerators import ACCELERATORS, Accelerator
from windtunnel.models.catalog.drafters import Drafter
from windtunnel.models.catalog.hf_quantization import MXFP4_BYTES
from windtunnel.models.catalog.shapes import ModelShape
from windtunnel.models.releases import (
    NEWEST,
    PCIE_GROUP_RUNTIME_BYTES,
    EngineRelease,
    engine_defaults,
    release_of,
)

__all__ = [
    "KvCapacity",
    "KvGroups",
    "MemoryLimits",
    "aligned_block_size",
    "blis_kv_blocks",
    "kv_capacity",
    "kv_groups",
]

GIB = 1024.0**3

SAMPLER_BYTES = 0.14 * GIB  # the sampler's peak, independent of the batch
ENCODER_BYTES = 0.2 * GIB  # what a profile run of a vision encoder leaves behind
GRAPH_BYTES = 0.30 * GIB  # captured graphs of a model without layers
LAYER_GRAPH_BYTES = 0.019 * GIB  # plus this for each layer
PADDED_WIDTH = 256  # kernels for MXFP4 experts need widths that are multiples of this
BATCHES_IN_FLIGHT = 2  # with asynchronous scheduling: one runs, one is planned

# Groups have as many layers as the rarer kind, or as the more frequent one if that is close.
LITTLE_LARGER = 1.5

# Transfers and offloads count a window by its share of a sequence of this length.
WINDOW_SEQUENCE_TOKENS = 4096

MAX_TENSOR_PARALLEL = 64


class MemoryLimits(msgspec.Struct, frozen=True, kw_only=True):
    """Engine settings that determine how memory is divided."""

    memory_utilization: float = 0.92
    block_size: int = 16
    max_num_batched_tokens: int = 8192
    max_num_seqs: int = 1024
    max_model_len: int = 0  # 0: the model's own
    adapter_bytes: float = 0.0  # set aside on each GPU for LoRA adapters
    drafter_bytes: float = 0.0  # weights of a drafter on each GPU
    drafter_token_bytes: float = 0.0  # its KV bytes per token on each GPU
    draft_tokens: int = 0  # drafted in a step; a recurrence keeps a state for each
    prefix_caching: bool = True  # a recurrence keeps the state before its last block, too
    version: str = NEWEST

    def check(self) -> None:
        """Rejects values with which no engine would start."""
        if not 0.0 < self.memory_utilization <= 1.0:
            what = f"memory_utilization is {self.memory_utilization}"
            raise InputError(what, allowed="above 0, at most 1")
        for name in ("block_size", "max_num_batched_tokens", "max_num_seqs"):
            if getattr(self, name) < 1:
                raise InputError(f"{name} is {getattr(self, name)}", allowed="1 or more")


def limits_for(accelerator: Accelerator, version: str = NEWEST) -> MemoryLimits:
    """Memory limits with vLLM's defaults for an accelerator."""
    chosen = engine_defaults(accelerator, version)
    return MemoryLimits(version=version, **msgspec.structs.asdict(chosen))


class KvGroups(msgspec.Struct, frozen=True, kw_only=True):
    """How the layers of a model share one pool of KV blocks."""

    layers: int  # in one block
    full: int  # groups of layers that attend to the whole context
    windowed: int  # groups of layers that keep a window
    window: int  # its tokens
    full_multiple: int = 1  # of `block_size`: tokens in a block of full-attention layers
    window_multiple: int = 1  # the same of windowed layers
    recurrent: int = 0  # groups of layers that keep a state
    states: int = 0  # states per such group that vLLM counts for a request

    def window_blocks(self, in_flight: int, longest: int, block_size: int) -> int:
        """Blocks of one windowed group that a request of `longest` tokens may hold."""
        kept = min(self.window - 1 + in_flight, longest)
        return -(-kept // (block_size * self.window_multiple)) + 1

    def request_blocks(self, longest: int, in_flight: int, block_size: int) -> int:
        """Blocks that vLLM counts for a request of `longest` tokens, over all groups."""
        blocks = self.full * -(-longest // (block_size * self.full_multiple))
        if self.windowed:
            blocks += self.windowed * self.window_blocks(in_flight, longest, block_size)
        return blocks + self.recurrent * self.states


def kv_groups(shape: ModelShape, limits: MemoryLimits | None = None) -> KvGroups:
    """Groups of layers, by vLLM's rule; the last group of a kind may be padded.

    Where a token takes fewer bytes in layers of one kind, their blocks hold as many more tokens as
    make blocks of both kinds equally large; if that is no whole multiple, they are padded.
    """
    limits = MemoryLimits() if limits is None else limits
    full, windowed, recurrent = shape.full_layers, shape.window_layers, shape.recurrent_layers
    others = windowed + recurrent  # no model has both
    if not others or not full:
        size = shape.layers
    else:
        fewer, more = sorted((full, others))
        size = more if more < LITTLE_LARGER * fewer else fewer
    full_multiple = window_multiple = 1
    if full and windowed:
        full_bytes = shape.of_full_layers.kv_bytes_per_token_layer
        window_bytes = shape.kv_bytes_per_token_layer
        full_multiple = 1 if window_bytes % full_bytes else int(window_bytes // full_bytes)
        window_multiple = 1 if full_bytes % window_bytes else int(full_bytes // window_bytes)
    return KvGroups(
        layers=size,
        full=-(-full // size),
        windowed=-(-windowed // size),
        window=shape.window,
        full_multiple=full_multiple,
        window_multiple=window_multiple,
        recurrent=-(-recurrent // size),
        states=(1 + limits.prefix_caching + limits.draft_tokens) if recurrent else 0,
    )


def aligned_block_size(part: ModelShape, block_size: int, drafts: int = 0) -> int:
    """Tokens per block: `block_size`, or the least multiple of it that holds a recurrent state."""
    if not part.recurrent_layers:
        return block_size
    block_bytes = block_size * part.kv_bytes_per_token_layer
    return block_size * math.ceil(part.state_layer_bytes(drafts) / block_bytes)


class KvCapacity(msgspec.Struct, frozen=True, kw_only=True):
    """The memory of one GPU of the group, in bytes by use, and the blocks that fit."""

    memory_bytes: float
    usable_bytes: float
    weight_bytes: float
    activation_bytes: float
    runtime_bytes: float
    graph_bytes: float
    adapter_bytes: float
    block_bytes: float
    pool_blocks: int  # of `groups.layers` layers each
    groups: KvGroups
    block_size: int
    max_model_len: int
    in_flight: int  # tokens of unfinished steps, which windows keep as well
    logs_sequences: bool

    @property
    def left_bytes(self) -> float:
        """Memory left for KV blocks."""
        return self.usable_bytes - (
            self.weight_bytes
            + self.activation_bytes
            + self.runtime_bytes
            + self.graph_bytes
            + self.adapter_bytes
        )

    @property
    def blocks(self) -> int:
        """Blocks of `block_size` tokens, each covering all full-attention layers."""
        groups = self.groups
        return self.pool_blocks * groups.full_multiple // max(1, groups.full)

    @property
    def request_blocks(self) -> int:
        """Blocks of the pool for a request of max_model_len, as vLLM counts them."""
        return self.groups.request_blocks(self.max_model_len, self.in_flight, self.block_size)

    @property
    def starts(self) -> bool:
        """Whether one request of max_model_len fits; otherwise vLLM refuses to start."""
        return self.request_blocks <= self.pool_blocks

    @property
    def longest(self) -> int:
        """The largest max_model_len, up to the one given, with which vLLM starts; 0: none."""
        return bisect_right(
            range(1, self.max_model_len + 1),
            self.pool_blocks,
            key=lambda length: self.groups.request_blocks(length, self.in_flight, self.block_size),
        )

    @property
    def refusal(self) -> str:
        """Why vLLM refuses to start; empty if it starts."""
        if self.starts:
            return ""
        if not self.longest:
            return "vLLM refuses to start with any --max-model-len"
        return f"vLLM refuses to start unless --max-model-len is at most {self.longest:,}"

    @property
    def sequences(self) -> float:
        """The "maximum concurrency" that vLLM prints: requests of max_model_len at once."""
        return self.pool_blocks / self.request_blocks

    @property
    def tokens(self) -> int:
        """The "GPU KV cache size" that vLLM prints, in tokens."""
        groups = self.groups
        if self.logs_sequences and (groups.windowed or groups.recurrent):
            return math.floor(self.sequences * self.max_model_len)
        kinds = groups.full + groups.windowed + groups.recurrent
        return self.pool_blocks // kinds * self.block_size


def kv_capacity(
    shape: ModelShape,
    accelerator: Accelerator,
    limits: MemoryLimits | None = None,
    *,
    tensor_parallel: int = 1,
    expert_parallel: int = 1,
    data_parallel: int = 1,
    pipeline_parallel: int = 1,
    drafter: Drafter | None = None,
) -> KvCapacity:
    """The KV blocks of a server; raises an error that says what is missing and what would fit.

    `limits` default to vLLM's for the accelerator. A drafter has weights and KV of its own, divided
    like the model's. Blocks are those of one data-parallel rank; in a pipeline, those of the stage
    with the least memory left, whose GPUs hold its layers of every block.
    """
    limits = limits_for(accelerator) if limits is None else limits
    limits.check()
    if drafter is not None:
        own = drafter.shape.per_gpu(
            tensor_parallel, min(expert_parallel, drafter.shape.experts) or 1
        )
        limits = msgspec.structs.replace(
            limits,
            drafter_bytes=drafter.own_weight_bytes
            * (own.total_weight_bytes / drafter.shape.total_weight_bytes),
            drafter_token_bytes=own.kv_bytes_per_token,
        )
    part = shape.per_gpu(tensor_parallel, expert_parallel, data_parallel)
    part = part.per_stage(pipeline_parallel)
    gpus = tensor_parallel * data_parallel
    found = _divide_memory(shape, part, accelerator, gpus, limits)
    if found.blocks < 1:
        hints = [
            *_first_that_starts(_wider(shape, accelerator, tensor_parallel, limits)),
            *_first_that_starts(_larger(shape, part, gpus, limits)),
        ]
        raise _does_not_fit(shape, accelerator, tensor_parallel, found, hints)
    return found


def _divide_memory(
    shape: ModelShape, part: ModelShape, accelerator: Accelerator, gpus: int, limits: MemoryLimits
) -> KvCapacity:
    release = release_of(limits.version)
    block_size = aligned_block_size(part, limits.block_size, limits.draft_tokens)
    limits = msgspec.structs.replace(limits, block_size=block_size)
    groups = kv_groups(part, limits)
    longest = limits.max_model_len or shape.max_context
    found = KvCapacity(
        memory_bytes=accelerator.memory_bytes,
        usable_bytes=accelerator.memory_bytes * limits.memory_utilization,
        weight_bytes=_loaded_bytes(part) + limits.drafter_bytes,
        activation_bytes=_activation_bytes(shape, part, limits, release),
        runtime_bytes=_runtime_bytes(release, accelerator, gpus),
        graph_bytes=_graph_bytes(part) if release.counts_graphs else 0.0,
        adapter_bytes=limits.adapter_bytes,
        block_bytes=_block_bytes(part, groups, limits),
        pool_blocks=0,
        groups=groups,
        block_size=limits.block_size,
        max_model_len=longest,
        in_flight=BATCHES_IN_FLIGHT * limits.max_num_batched_tokens,
        logs_sequences=release.logs_sequences,
    )
    blocks = max(0, math.floor(found.left_bytes / found.block_bytes))
    return msgspec.structs.replace(found, pool_blocks=blocks)


def _runtime_bytes(release: EngineRelease, accelerator: Accelerator, gpus: int) -> float:
    if gpus == 1:
        return release.runtime_bytes
    if accelerator.link == "pcie":
        return min(release.group_runtime_bytes, PCIE_GROUP_RUNTIME_BYTES)
    return release.group_runtime_bytes


def _block_bytes(part: ModelShape, groups: KvGroups, limits: MemoryLimits) -> float:
    """Bytes of one block of the pool; the drafter's layers are spread over the full-attention
    groups."""
    full_bytes = part.of_full_layers.kv_bytes_per_token_layer * groups.full_multiple
    window_bytes = part.kv_bytes_per_token_layer * groups.window_multiple
    layer_bytes = max(full_bytes if groups.full else 0.0, window_bytes if groups.windowed else 0.0)
    token_bytes = groups.layers * layer_bytes
    token_bytes += limits.drafter_token_bytes * groups.full_multiple / max(1, groups.full)
    return token_bytes * limits.block_size


def kv_bytes_per_token(part: ModelShape) -> float:
    """KV bytes of a token that is transferred or offloaded; window layers count by the share they
    keep.

    For a whole model's shape, on all its GPUs together; for one GPU's part, on that GPU.
    """
    share = min(1.0, part.window / WINDOW_SEQUENCE_TOKENS)
    full = part.full_layers * part.of_full_layers.kv_bytes_per_token_layer
    return full + part.window_layers * share * part.kv_bytes_per_token_layer


def _loaded_bytes(part: ModelShape) -> float:
    """Bytes of the weights as loaded: MXFP4 experts are padded to the width that their kernels
    need.

    A rotary table for every position is loaded as well (two, where heads of full-attention layers
    have a width of their own), whole on each GPU: 2.5 GiB for Llama 4 Scout, whose context is 10
    million tokens. Recurrent models rotate little or nothing.
    """
    loaded = part.total_weight_bytes
    if not part.recurrent_layers:
        rotated = part.qk_rope_dim or part.head_dim + part.full_head_dim
        loaded += part.max_context * rotated * part.activation_bytes
    if part.is_mixture and part.expert_weight_bytes == MXFP4_BYTES:
        wide = -(-part.expert_ffn // PADDED_WIDTH) * PADDED_WIDTH
        experts = part.moe_layers * part.experts * part.expert_params * part.expert_weight_bytes
        loaded += experts * (wide / part.expert_ffn - 1.0)
    return loaded


def _graph_bytes(part: ModelShape) -> float:
    """Captured CUDA graphs: 0.51 to 1.85 GiB were measured, most within 0.15 GiB of this line."""
    return GRAPH_BYTES + part.layers * LAYER_GRAPH_BYTES


def _activation_bytes(
    shape: ModelShape, part: ModelShape, limits: MemoryLimits, release: EngineRelease
) -> float:
    """The peak of the profile run: the largest step, or the sampler with the largest batch.

    Live at the same time in a step are the residual stream and its normed copy, attention's input
    or output, and an MLP's gate, up and product. The workspace of experts stays allocated during
    sampling.
    """
    width = max(part.ffn if part.dense_layers else 0, part.shared_ffn)
    per_token = (4 * shape.hidden + part.mlp_matrices * width) * shape.activation_bytes
    forward = limits.max_num_batched_tokens * per_token
    encoder = ENCODER_BYTES if shape.encoder_params else 0.0
    sampler = SAMPLER_BYTES + limits.max_num_seqs * shape.vocab * release.logit_bytes
    return max(forward, sampler) + encoder + _expert_workspace_bytes(shape, part, limits)


def _expert_workspace_bytes(shape: ModelShape, part: ModelShape, limits: MemoryLimits) -> float:
    """Workspace of fused experts for each token-expert pair; 4-bit kernels need none."""
    if not part.is_mixture or part.expert_weight_bytes < 1.0:
        return 0.0
    into = (part.mlp_matrices - 1) * part.expert_ffn
    per_pair = max(into, shape.hidden) + part.expert_ffn
    pairs = limits.max_num_batched_tokens * shape.experts_per_token
    return pairs * per_pair * shape.activation_bytes


Option = tuple[str, KvCapacity]
"""A setting on which a model may fit, and the memory then."""


def _wider(
    shape: ModelShape, accelerator: Accelerator, tensor_parallel: int, limits: MemoryLimits
) -> Iterator[Option]:
    """Every doubling of `tensor_parallel`."""
    degree = 2 * tensor_parallel
    while degree <= MAX_TENSOR_PARALLEL:
        try:
            part = shape.per_gpu(degree)
        except InputError:  # neither this degree nor its doubles divide the heads
            return
        yield (
            f"tensor_parallel: {degree}",
            _divide_memory(shape, part, accelerator, degree, limits),
        )
        degree *= 2


def _larger(
    shape: ModelShape, part: ModelShape, gpus: int, limits: MemoryLimits
) -> Iterator[Option]:
    """Every accelerator with the current parallelism, the smallest first."""
    by_memory = sorted(ACCELERATORS.values(), key=lambda other: (other.memory_bytes, other.name))
    for other in by_memory:
        usual = engine_defaults(other, limits.version)  # they apply there unless they are set
        own = msgspec.structs.replace(
            limits,
            max_num_seqs=max(limits.max_num_seqs, usual.max_num_seqs),
            max_num_batched_tokens=max(limits.max_num_batched_tokens, usual.max_num_batched_tokens),
        )
        yield f"accelerator: {other.name}", _divide_memory(shape, part, other, gpus, own)


def _first_that_starts(options: Iterable[Option]) -> list[str]:
    """The first setting with which vLLM starts; if none, the one with the longest requests."""
    fitting = [(setting, found) for setting, found in options if found.blocks and found.longest]
    for setting, found in fitting:
        if found.starts:
            return [setting]
    longest = max(fitting, key=lambda one: one[1].longest, default=None)
    return [f"{longest[0]} with max_model_len: {longest[1].longest}"] if longest else []


def _does_not_fit(
    shape: ModelShape, accelerator: Accelerator, tp: int, found: KvCapacity, hints: list[str]
) -> InputError:
    needed = found.usable_bytes - found.left_bytes + found.block_bytes
    adapters = f", adapters {found.adapter_bytes / GIB:.1f}" if found.adapter_bytes else ""
    each = "" if tp == 1 else f" on each of {tp} GPUs"
    runtime = found.runtime_bytes + found.graph_bytes
    return InputError(
        f"{shape.name} does not fit on {accelerator.name}: it needs {needed / GIB:.1f} GiB{each}"
        f" (weights {found.weight_bytes / GIB:.1f}, activations {found.activation_bytes / GIB:.1f},"
        f" runtime {runtime / GIB:.1f}{adapters}, the rest KV cache)"
        f" and has {found.usable_bytes / GIB:.1f} GiB",
        hint="try " + (" or ".join(hints) or "a smaller or quantised model"),
    )


# BLIS's estimate

BLIS_ACTIVATION_GIB = 5.5
BLIS_MIXTURE_ACTIVATION_GIB = 8.0
BLIS_ONE_GPU_GIB = 0.15  # outside the tensor library, on a server of one GPU
BLIS_GROUP_GIB = 0.6  # the same on each GPU of several

# GiB in BLIS's own hardware table: nominal sizes, where ours are what drivers report.
_PEER_MEMORY_GIB = {"h100-sxm": 80.0, "a100-80": 80.0, "l40s": 48.0}


def blis_kv_blocks(
    shape: ModelShape,
    accelerator: Accelerator,
    *,
    tensor_parallel: int = 1,
    memory_utilization: float = 0.9,
    block_size: int = 16,
) -> int:
    """The blocks of one server by BLIS's estimate; raises an error with the memory needed and
    available."""
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
    """KV bytes of a token on one GPU; latent attention keeps the whole cache on each."""
    if shape.is_latent:
        return shape.layers * (shape.kv_lora_rank + shape.qk_rope_dim) * shape.activation_bytes
    return shape.layers * 2.0 * shape.head_dim * shape.kv_heads * shape.activation_bytes / tp


def _blis_weight_bytes(shape: ModelShape) -> int:
    """Weight bytes by BLIS's formula, in which queries are as wide as the model, whatever its
    heads.

    Every layer of a mixture has experts, except leading dense ones.
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
