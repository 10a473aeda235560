"""The `roofline` step-time model: the longer of a step's arithmetic and memory traffic, at peak
rates.

It is a lower bound: what the hardware could do if kernels were perfect, compute and loads
overlapped fully, and intermediate results never left the chip. Tensor-parallel all-reduces are
added.
"""

from __future__ import annotations

import math
from typing import Final

from windtunnel.models.catalog.accelerators import Accelerator
from windtunnel.models.catalog.shapes import ModelShape
from windtunnel.models.step_time.model import StepTimeModel, StepWork

__all__ = ["Roofline", "all_reduce_s", "causal_pairs"]

ALL_REDUCES_PER_LAYER: Final = 2  # after attention, and after the MLP

STATE_PASSES: Final = 4.0  # the least arithmetic of a recurrence: a token is added, and read out

# The time of a message too small to load the links, in a captured graph: switched links hardly
# depend on the number of GPUs, a shared PCIe tree serves them one after the other.
SWITCHED_LATENCY_S: Final = 5e-6
PCIE_LATENCY_S_PER_GPU: Final = 3e-6


def all_reduce_latency_s(gpus: int, accelerator: Accelerator) -> float:
    if gpus <= 1:
        return 0.0
    return PCIE_LATENCY_S_PER_GPU * gpus if accelerator.link == "pcie" else SWITCHED_LATENCY_S


def all_reduce_s(message_bytes: float, gpus: int, accelerator: Accelerator) -> float:
    """Latency, plus the least traffic of an all-reduce at the links' full rate.

    Each GPU must send (n-1)/n of the message once to reduce it and once more to share the sum.
    """
    if gpus <= 1:
        return 0.0
    sent_bytes = 2 * (gpus - 1) / gpus * message_bytes
    return all_reduce_latency_s(gpus, accelerator) + sent_bytes / accelerator.link_bytes_per_s


def causal_pairs(new: int, past: int, window: int) -> int:
    """(query, key) pairs when `new` tokens attend to `past` cached ones and causally to each other.

    With a `window` above 0 a token sees that many keys at most, itself included.
    """
    if window <= 0 or past + new <= window:
        return new * past + new * (new + 1) // 2
    growing = max(0, window - past)
    return growing * past + growing * (growing + 1) // 2 + (new - growing) * window


class Roofline(StepTimeModel):
    """max(arithmetic / peak FLOP/s, bytes / peak bandwidth) + collectives, for one GPU of the
    group.

    Every weight matrix is read once per step, but routed experts only in the expected number that
    any token chose, and the output head only if a token is sampled. Matrix work runs at the model's
    own precision, attention and the head in bf16. A step without chunks is piecewise linear in the
    total context: it bends where memory traffic and arithmetic cross, and where the mean context
    exceeds a sliding window (exact if all contexts are on one side of the window, otherwise
    slightly slow).
    """

    def __init__(
        self,
        shape: ModelShape,
        accelerator: Accelerator,
        *,
        tensor_parallel: int = 1,
        expert_parallel: int = 1,
    ) -> None:
        part = shape.per_gpu(tensor_parallel, expert_parallel)
        matmul_flops = accelerator.peak_flops(shape.matmul_precision)
        bf16_flops = accelerator.peak_flops("bf16")
        self._set_arithmetic(shape, part, expert_parallel, matmul_flops, bf16_flops)
        self._set_traffic(shape, part, accelerator.hbm_bytes_per_s)
        self.window = shape.window if shape.window_layers else 0
        self.window_layers = float(shape.window_layers)
        # As the number of windowed layers that would cost as much, where their heads are others.
        full, layers = part.of_full_layers, float(shape.full_layers)
        self.full_flop_layers = layers * (full.decode_pair_flops / part.decode_pair_flops)
        kv_ratio = full.kv_bytes_per_token_layer / part.kv_bytes_per_token_layer
        self.full_kv_layers = layers * kv_ratio
        reduces = ALL_REDUCES_PER_LAYER * shape.layers - shape.bare_layers
        token_bytes = shape.hidden * shape.activation_bytes
        latency_s = all_reduce_latency_s(tensor_parallel, accelerator)
        token_s = all_reduce_s(token_bytes, tensor_parallel, accelerator) - latency_s
        self.collective_s = reduces * latency_s
        self.collective_token_s = reduces * token_s

    def _set_arithmetic(
        self, shape: ModelShape, part: ModelShape, ep: int, matmul_flops: float, bf16_flops: float
    ) -> None:
        """Sets the seconds of arithmetic: per token, per sample, per (query, key) pair of one
        layer."""
        routed = shape.experts_per_token / ep * part.expert_params
        per_token = (
            part.mixer_params
            + part.dense_layers * part.dense_mlp_params
            + part.moe_layers * (routed + part.shared_params + shape.router_params)
        )
        self.token_flop_s = 2.0 * per_token / matmul_flops
        numbers = part.state_heads * part.state_head_dim * part.state_key_dim
        self.token_flop_s += STATE_PASSES * part.recurrent_layers * numbers / bf16_flops
        self.past_token_flop_s = 2.0 * part.layers * part.latent_up_params / matmul_flops
        self.sample_flop_s = 2.0 * part.head_params / bf16_flops
        self.prefill_pair_flop_s = part.prefill_pair_flops / bf16_flops
        self.decode_pair_flop_s = part.decode_pair_flops / bf16_flops

    def _set_traffic(self, shape: ModelShape, part: ModelShape, bandwidth: float) -> None:
        """Sets the seconds of memory traffic: weights per step, and KV per token and layer."""
        dense = (
            part.mixer_params
            + part.dense_layers * part.dense_mlp_params
            + part.moe_layers * part.shared_params
        )
        plain = part.norm_params + part.moe_layers * shape.router_params
        expert_bytes = part.moe_layers * part.expert_params * part.expert_weight_bytes
        self.weights_s = (dense * part.weight_bytes + plain * part.embedding_bytes) / bandwidth
        self.head_s = part.head_params * part.embedding_bytes / bandwidth
        self.experts_s = part.experts * expert_bytes / bandwidth  # if every expert is chosen
        self.unwanted = 1.0  # probability that a token does not choose a given expert
        if shape.experts:
            self.unwanted = 1.0 - shape.experts_per_token / shape.experts
        self.lookup_s = shape.hidden * shape.embedding_bytes / bandwidth
        self.kv_s = part.kv_bytes_per_token_layer / bandwidth
        # A state is read and written once for every sequence of a step.
        self.state_s = 2.0 * part.recurrent_layers * part.state_layer_bytes() / bandwidth

    def _shared_s(self, tokens: int, samples: int) -> tuple[float, float]:
        """(arithmetic, traffic) seconds of all work that does not depend on context."""
        compute_s = self.token_flop_s * tokens + self.sample_flop_s * samples
        memory_s = self.weights_s + self.lookup_s * tokens
        memory_s += self.experts_s * (1.0 - self.unwanted ** float(tokens))
        if samples:
            memory_s += self.head_s
        return compute_s, memory_s

    def _decode_keys(self, decodes: int, context: int, full_layers: float) -> float:
        """Keys that decoding sequences attend to, summed over layers, including their own new
        ones."""
        keys = full_layers * (context + decodes)
        if self.window:
            seen = min(context, decodes * (self.window - 1)) + decodes
            keys += self.window_layers * seen
        return keys

    def step_s(self, work: StepWork) -> float:
        tokens = work.decodes + work.drafted
        pairs = 0.0
        prefill_keys = 0.0
        past_tokens = 0
        for new, past, _ in work.chunks:
            tokens += new
            past_tokens += past
            pairs += self.full_flop_layers * causal_pairs(new, past, 0)
            prefill_keys += self.full_kv_layers * (past + new)
            if self.window:
                pairs += self.window_layers * causal_pairs(new, past, self.window)
                prefill_keys += self.window_layers * (min(past, self.window - 1) + new)
        compute_s, memory_s = self._shared_s(tokens, work.samples)
        keys = self._decode_keys(work.decodes, work.context, self.full_flop_layers)
        queries = 1.0 + work.drafted / work.decodes if work.drafted else 1.0
        compute_s += self.decode_pair_flop_s * keys * queries + self.prefill_pair_flop_s * pairs
        compute_s += self.past_token_flop_s * past_tokens
        keys = self._decode_keys(work.decodes, work.context, self.full_kv_layers)
        memory_s += self.kv_s * (keys + prefill_keys)
        memory_s += self.state_s * (work.decodes + len(work.chunks))
        return max(compute_s, memory_s) + self.collective_s + self.collective_token_s * tokens

    def decode_line(self, decodes: int, context: int) -> tuple[float, float, float]:
        until = math.inf
        growing = 0.0  # windowed layers whose keys grow with the context here
        bounded = 0.0  # keys seen whatever the context
        if self.window:
            filled = decodes * (self.window - 1)
            if context < filled:
                growing = self.window_layers
                until = float(filled)
            else:
                bounded = self.window_layers * filled
        compute_s, memory_s = self._shared_s(decodes, decodes)
        constant = bounded + (self.full_flop_layers + self.window_layers) * decodes
        compute_s += self.decode_pair_flop_s * constant
        constant = bounded + (self.full_kv_layers + self.window_layers) * decodes
        memory_s += self.kv_s * constant + self.state_s * decodes
        compute_slope = self.decode_pair_flop_s * (self.full_flop_layers + growing)
        memory_slope = self.kv_s * (self.full_kv_layers + growing)
        base, slope, crossing = upper_line(
            compute_s, compute_slope, memory_s, memory_slope, context
        )
        collective_s = self.collective_s + self.collective_token_s * decodes
        return base + collective_s, slope, min(until, crossing)


def upper_line(
    base_a: float, slope_a: float, base_b: float, slope_b: float, context: int
) -> tuple[float, float, float]:
    """The greater of two lines at `context`, and where the other overtakes it."""
    at_a = base_a + slope_a * context
    at_b = base_b + slope_b * context
    if at_b > at_a or (at_b == at_a and slope_b > slope_a):
        base_a, slope_a, base_b, slope_b = base_b, slope_b, base_a, slope_a
    if slope_b <= slope_a:
        return base_a, slope_a, math.inf
    crossing = (base_a - base_b) / (slope_b - slope_a)
    # Rounding may put the crossing at or before this context, where both lines are equal anyway.
    return base_a, slope_a, max(crossing, context + 1.0)
