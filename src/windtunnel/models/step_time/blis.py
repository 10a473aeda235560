"""The `blis-trained-physics` step-time model: the BLIS simulator's formula, for comparison.

It is not physical. Its terms are those of a roofline, but scaled by fitted weights, one set for all
models and accelerators: prefill arithmetic counts 15%, decode arithmetic nothing, so that a long
prefill exceeds the hardware's peak several times over. Compare results with it; do not plan with
it.
"""

from __future__ import annotations

import math
from typing import Final

from windtunnel.core.errors import InputError
from windtunnel.models.catalog.accelerators import Accelerator
from windtunnel.models.catalog.shapes import ModelShape
from windtunnel.models.step_time.model import StepTimeModel, StepWork

__all__ = ["DEFAULT_ALPHA_US", "DEFAULT_BETA", "BlisTrainedPhysics"]

# Microseconds outside the step: per request before it queues, once at its end, per output token.
DEFAULT_ALPHA_US: Final = (15563.199579, 777.3455, 45.907545)

DEFAULT_BETA: Final = (
    0.152128,  # prefill arithmetic
    0.0,  # decode arithmetic
    1.36252915,  # weights
    0.752037,  # tensor-parallel communication
    32.09546717,  # us per layer
    4.41684444,  # us per sequence in the batch
    126.024825,  # us per step
    481.8613888,  # us per mixture layer, of interleaved mixtures only
    0.0,  # prefill KV writes
    1.94710771,  # decode KV reads
    0.752037,  # expert dispatch
)

US: Final = 1e-6
TICKS_PER_S: Final = 1e6
MAX_STAIR: Final = 1e12  # tokens; a wider stair is given in parts

# (FLOP/us in bf16, in fp8, HBM bytes/us) in BLIS's own hardware table.
_PEER_RATES: Final = {
    "h100-sxm": (989.5e6, 1979.0e6, 3.35e6),
    "a100-80": (312.0e6, 0.0, 2.039e6),
    "l40s": (362.05e6, 1466.0e6, 0.864e6),
}


class BlisTrainedPhysics(StepTimeModel):
    """Step times in whole microseconds, truncated as in BLIS: a decode step is a staircase in
    context."""

    def __init__(
        self,
        shape: ModelShape,
        accelerator: Accelerator,
        *,
        tensor_parallel: int = 1,
        beta: tuple[float, ...] = DEFAULT_BETA,
    ) -> None:
        _check(tensor_parallel, beta)
        flops_per_us, bytes_per_us = _rates(shape, accelerator)
        gpus = tensor_parallel
        head_dim = shape.hidden // shape.heads
        kv_dim = shape.kv_heads * head_dim
        moe_layers, shared_ffn = _mixture(shape)
        dense_layers = shape.layers - moe_layers
        attention = shape.hidden * (2 * shape.hidden + 2 * kv_dim)
        expert = 3 * shape.hidden * shape.expert_ffn
        shared = shape.layers * attention + 3 * shape.hidden * (
            moe_layers * shared_ffn + dense_layers * shape.ffn
        )
        token_flops = 2.0 * (shared / gpus + moe_layers * expert * shape.experts_per_token / gpus)
        pair_flops = 4 * shape.layers * shape.heads / gpus * head_dim
        weights = shared / gpus + moe_layers * expert * shape.experts / gpus
        weights_us = weights * shape.weight_bytes / bytes_per_us
        kv_us = 4 * shape.layers * kv_dim / gpus / bytes_per_us
        # BLIS runs tensor-parallel sums at HBM rate.
        token_us = shape.hidden * shape.activation_bytes / bytes_per_us
        shared_us = beta[3] * (2 * shape.layers * (token_us * 2 * (gpus - 1) / gpus))
        self.step_us = beta[2] * weights_us + beta[4] * shape.layers + beta[6]
        if moe_layers and dense_layers:
            self.step_us += beta[7] * moe_layers
        self.prefill_us = beta[0] * token_flops / flops_per_us + beta[8] * kv_us + shared_us
        self.pair_us = beta[0] * pair_flops / flops_per_us
        self.decode_us = beta[1] * token_flops / flops_per_us + beta[9] * kv_us + shared_us
        self.decode_us += beta[5]
        self.chunk_us = beta[5]
        self.context_us = beta[1] * pair_flops / flops_per_us + beta[9] * kv_us

    def step_s(self, work: StepWork) -> float:
        if not work.decodes and not work.chunks:
            return US
        prefill_us = 0.0
        for new, _, prompt in work.chunks:
            prefill_us += self.chunk_us + self.prefill_us * new
            prefill_us += self.pair_us * (new * (prompt + new / 2))
        total_us = self._decode_total_us(work.decodes, work.context) + prefill_us
        return max(1, int(total_us)) * US

    def ticks_per_s(self) -> float:
        return TICKS_PER_S

    def _decode_total_us(self, decodes: int, context: int) -> float:
        return self.step_us + self.decode_us * decodes + self.context_us * context

    def decode_line(self, decodes: int, context: int) -> tuple[float, float, float]:
        """One stair: a constant time up to the context where the next one begins."""
        total_us = self._decode_total_us(decodes, context)
        here = max(1, int(total_us))
        gap_us = here + 1 - total_us
        if self.context_us * MAX_STAIR <= gap_us:
            return here * US, 0.0, math.inf if self.context_us == 0.0 else context + MAX_STAIR
        edge = context + max(1, math.ceil(gap_us / self.context_us))
        # The division rounds; the edge is where the computed step first is longer.
        while edge > context + 1 and self._decode_total_us(decodes, edge - 1) >= here + 1:
            edge -= 1
        while self._decode_total_us(decodes, edge) < here + 1:
            edge += 1
        return here * US, 0.0, float(edge)


def _check(tensor_parallel: int, beta: tuple[float, ...]) -> None:
    where = "blis-trained-physics step time"
    if tensor_parallel < 1:
        what = f"tensor_parallel is {tensor_parallel}"
        raise InputError(what, where=where, allowed="a whole number of 1 or more")
    if len(beta) != len(DEFAULT_BETA) or not all(math.isfinite(b) and b >= 0.0 for b in beta):
        allowed = f"{len(DEFAULT_BETA)} finite numbers, 0 or more"
        raise InputError(f"beta is {list(beta)}", where=where, allowed=allowed)


def _rates(shape: ModelShape, accelerator: Accelerator) -> tuple[float, float]:
    """(FLOP/us, HBM bytes/us); the 8-bit rate if weights are exactly one byte each."""
    peer = _PEER_RATES.get(accelerator.name)
    if peer is None:
        rates = accelerator.bf16_flops, accelerator.fp8_flops, accelerator.hbm_bytes_per_s
        peer = (rates[0] * US, rates[1] * US, rates[2] * US)
    plain, eight_bit, bytes_per_us = peer
    uses_eight_bit = shape.weight_bytes == 1.0 and eight_bit > 0.0
    return (eight_bit if uses_eight_bit else plain), bytes_per_us


def _mixture(shape: ModelShape) -> tuple[int, int]:
    """(layers with experts, width of the shared ones), as BLIS reads a mixture.

    All layers have experts, including leading dense ones. Only Llama 4 states an interleaving n,
    which BLIS takes as n layers without experts after each layer with experts; it ignores the
    shared expert.
    """
    if not shape.is_mixture:
        return 0, 0
    if shape.name.startswith("llama-4"):
        return shape.layers // (shape.moe_layer_step + 1), 0
    return shape.layers, shape.shared_ffn
