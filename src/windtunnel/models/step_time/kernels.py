"""The time of single operators: matrix multiplications, expert groups, attention, collectives.

Each has a compute time and a memory time, at a fitted fraction (at most one) of the accelerator's
peak, and a launch cost.
"""

from __future__ import annotations

import math
from typing import Final

from windtunnel.models.catalog.accelerators import Accelerator

__all__ = ["Kernels", "PhysicsParameters", "Rates"]

TILE: Final = 128  # rows and columns of the output tile that one multiprocessor works on
EXPERT_ROWS: Final = 16  # a grouped multiplication pads each expert's tokens to at least these
SPLIT_ROWS: Final = 64  # query rows of an attention tile when the context is split over tiles
SPLIT_KEYS: Final = 128  # fewest keys per split
SPLIT_LIMIT: Final = 64
WAVES_PER_UNIT: Final = 2  # attention tiles that one multiprocessor holds at a time
SPLIT_BELOW: Final = (
    0.8  # contexts are split while the tiles fill less than this part of the machine
)
EIGHT_BIT: Final = 1.5  # weights of fewer bytes are multiplied in 8 bits, if the hardware can
FOUR_BIT: Final = 0.75  # the same for 4-bit numbers

# Some experts are more popular than others, so that a batch visits fewer than chance would. The
# tokens that would visit as many by chance grow as a power of the batch; both numbers are those of
# the power law (exponent 1.01) under which NVIDIA's tables were measured.
SKEW_FACTOR: Final = 1.93
SKEW_POWER: Final = 0.647


# All-gather and reduce-scatter by NCCL 2.29: within 20 % on Hopper and B200, 16 KiB to 256 MiB.
GATHER_S: Final = 4e-6
GATHER_GPU_S: Final = 1.2e-6
GATHER_SHARE: Final = 0.85  # of the rate of an all-reduce

# DeepEP on eight H200s of one node: seconds, and numbers per second of one GPU, of dispatch and of
# combine; the tables of H100 and H200 are 10 to 22 % off.
HIGH_THROUGHPUT: Final = "deepep_high_throughput"
LOW_LATENCY: Final = "deepep_low_latency"
EXCHANGES: Final = {
    LOW_LATENCY: ((45e-6, 1.0e11), (50e-6, 1.5e11)),
    HIGH_THROUGHPUT: ((240e-6, 1.4e11), (80e-6, 1.06e11)),
}
EXCHANGE_NEAR: Final = 7 / 8
EXCHANGE_LINK: Final = 450e9


def touched_experts(tokens: float, experts: int, per_token: int) -> float:
    """Mean number of experts of a layer that a batch visits."""
    first = float(min(per_token, experts))
    if tokens <= 1.0:
        return first * tokens
    further = tokens - 1.0
    skewed: float = SKEW_FACTOR * further**SKEW_POWER
    if skewed < further:
        further = skewed
    untouched: float = (1.0 - per_token / experts) ** further
    return first + (experts - first) * (1.0 - untouched)


class PhysicsParameters:
    """The fitted parameters of a profile: fractions of peak, seconds, and shape constants."""

    def __init__(self, values: dict[str, float]) -> None:
        self.values: Final = dict(values)
        self.gemm_wave: float = values["gemm_wave"]
        self.gemm_blend: float = values["gemm_blend"]
        self.step_s: float = values["step_s"]
        self.layer_s: float = values["layer_s"]
        self.elementwise_passes: float = values["elementwise_passes"]
        self.attention_efficiency: float = values["attention_efficiency"]
        self.attention_call_s: float = values["attention_call_s"]
        self.decode_call_s: float = values["decode_call_s"]
        self.attention_ramp_keys: float = values["attention_ramp_keys"]
        self.attention_split_s: float = values["attention_split_s"]
        self.decode_rows: float = values["decode_rows"]
        self.latent_efficiency: float = values["latent_efficiency"]
        self.latent_layer_s: float = values["latent_layer_s"]
        self.index_layer_s: float = values["index_layer_s"]
        self.power_knee: float = values["power_knee"]
        self.power_exponent: float = values["power_exponent"]
        self.recurrent_call_s: float = values["recurrent_call_s"]
        self.recurrent_start_s: float = values["recurrent_start_s"]
        self.recurrent_chunk_s: float = values["recurrent_chunk_s"]
        self.convolution_call_s: float = values["convolution_call_s"]
        self.all_reduce_s: float = values["all_reduce_s"]
        self.all_reduce_small_efficiency: float = values["all_reduce_small_efficiency"]
        self.all_reduce_large_s: float = values["all_reduce_large_s"]
        self.all_reduce_efficiency: float = values["all_reduce_efficiency"]


class Rates:
    """Speed of multiplications in one precision: FLOP/s, bytes/s, seconds to start one."""

    __slots__ = ("bytes_per_s", "convert_per_s", "flops", "launch_s", "visit_s", "width_s")

    def __init__(
        self,
        flops: float,
        bytes_per_s: float,
        launch_s: float,
        convert_per_s: float = 0.0,
        width_s: float = 0.0,
        visit_s: float = 0.0,
    ) -> None:
        self.flops = flops
        self.bytes_per_s = bytes_per_s
        self.launch_s = launch_s
        # Bytes/s of a separate kernel that first converts the inputs; 0: no conversion.
        self.convert_per_s = convert_per_s
        # Additional seconds to start experts, per unit of hidden width and per expert visited.
        self.width_s = width_s
        self.visit_s = visit_s


class Kernels:
    """The time of each operator on one accelerator under given parameters."""

    def __init__(
        self,
        parameters: PhysicsParameters,
        accelerator: Accelerator,
        precision: str = "bf16",
        kv_bytes: float = 2.0,
    ) -> None:
        self.parameters = parameters
        values = parameters.values
        hbm = accelerator.hbm_bytes_per_s
        bf16 = accelerator.bf16_flops
        eight = accelerator.int8_flops if precision == "int8" else accelerator.fp8_flops
        four = accelerator.fp4_flops
        launch = values["gemm_launch_s"]
        self._eight_bit: Final = precision in ("fp8", "int8", "fp4") and eight > 0.0
        self._four_bit: Final = precision == "fp4" and four > 0.0
        self._widens: Final = precision == "fp4" and four == 0.0  # 4-bit weights to 16 bits
        self._bf16: Final = Rates(
            bf16 * values["gemm_efficiency"], hbm * values["gemm_bandwidth"], launch
        )
        self._widened: Final = Rates(
            bf16 * values["gemm_efficiency"],
            hbm * values["gemm_bandwidth"],
            launch + values["fp8_launch_s"],
        )
        self._fp8: Final = Rates(
            eight * values["fp8_efficiency"],
            hbm * values["fp8_bandwidth"],
            launch + values["fp8_launch_s"],
            hbm * values["fp8_convert_bandwidth"],
        )
        self._fp4: Final = Rates(
            four * values["fp4_efficiency"],
            hbm * values["fp4_bandwidth"],
            launch + values["fp4_launch_s"],
            hbm * values["gemm_bandwidth"],
        )
        self._experts: Final = [
            Rates(
                peak * values[f"{kind}_efficiency"],
                hbm * values[f"{kind}_bandwidth"],
                values[f"{kind}_launch_s"],
                width_s=values[f"{kind}_width_s"],
                visit_s=values[f"{kind}_visit_s"],
            )
            for kind, peak in (
                ("expert", bf16),
                ("fp8_expert", eight),
                ("fp4_expert", four),
                ("weight_only_expert", bf16),
            )
        ]
        self.attention_flops: float = bf16 * parameters.attention_efficiency
        self.latent_flops: float = bf16 * parameters.latent_efficiency
        self.hbm: float = hbm * values["gemm_bandwidth"]
        kv = "fp8_attention_bandwidth" if kv_bytes < EIGHT_BIT else "attention_bandwidth"
        self.kv_rate: float = hbm * values[kv]
        self.latent_rate: float = hbm * values["latent_bandwidth"]
        self.state_rate: float = hbm * values["recurrent_bandwidth"]
        self.convolution_rate: float = hbm * values["convolution_bandwidth"]
        # One multiprocessor scans the tokens of a sequence for one head, one after the other.
        self.scan_flops: float = bf16 * values["recurrent_efficiency"] / accelerator.compute_units
        self.link_bytes_per_s: float = accelerator.link_bytes_per_s
        self.shared_link: bool = accelerator.link == "pcie"
        self.units: int = accelerator.compute_units
        self.slots: float = float(WAVES_PER_UNIT * self.units)

    def gemm_rates(self, weight_bytes: float) -> Rates:
        """Rates for weights of that size; weights without a matching matrix unit are widened."""
        if weight_bytes >= EIGHT_BIT:
            return self._bf16
        if weight_bytes < FOUR_BIT and (self._four_bit or self._widens):
            return self._fp4 if self._four_bit else self._widened
        return self._fp8 if self._eight_bit else self._widened

    def expert_rates(self, weight_bytes: float) -> Rates:
        """The same for grouped multiplications, which have their own kernels."""
        return self._experts[self.expert_class(weight_bytes)]

    def expert_class(self, weight_bytes: float) -> int:
        """0: 16 bits, 1: 8 bits, 2: 4 bits, 3: narrow weights that are widened to 16 bits."""
        if weight_bytes < FOUR_BIT:
            return 2 if self._four_bit else 3
        if weight_bytes < EIGHT_BIT:
            return 1 if self._eight_bit else 3
        return 0

    def blend(self, compute_s: float, memory_s: float) -> float:
        """Combines times that overlap imperfectly: above their maximum, below their sum."""
        high = compute_s if compute_s > memory_s else memory_s
        low = memory_s if compute_s > memory_s else compute_s
        if high <= 0.0:
            return 0.0
        power = self.parameters.gemm_blend
        joined: float = (1.0 + (low / high) ** power) ** (1.0 / power)
        return high * joined

    def gemm_s(
        self, rows: float, outputs: int, inputs: int, weight_bytes: float, rates: Rates
    ) -> float:
        """A (rows x inputs) by (inputs x outputs) multiplication; activations have 16 bits."""
        partial_wave = self.parameters.gemm_wave * self.units * TILE * TILE
        compute = 2.0 * inputs * (rows * outputs + partial_wave) / rates.flops
        traffic = weight_bytes * outputs * inputs + 2.0 * rows * (outputs + inputs)
        launch = rates.launch_s
        if rates.convert_per_s:
            launch += (2.0 + weight_bytes) * rows * inputs / rates.convert_per_s
        return launch + self.blend(compute, traffic / rates.bytes_per_s)

    def experts_s(
        self,
        rows: float,
        touched: float,
        *,
        ffn: int,
        hidden: int,
        matrices: int,
        weight_bytes: float,
        rates: Rates,
    ) -> float:
        """Grouped multiplications of a mixture layer: token-expert pairs over touched experts."""
        if touched <= 0.0:
            return 0.0
        padded = rows if rows > EXPERT_ROWS * touched else EXPERT_ROWS * touched
        numbers = float(matrices * ffn * hidden)
        compute = 2.0 * padded * numbers / rates.flops
        traffic = touched * numbers * weight_bytes + 2.0 * rows * (2 * hidden + matrices * ffn)
        start_s = rates.launch_s + hidden * rates.width_s + touched * rates.visit_s
        return start_s + self.blend(compute, traffic / rates.bytes_per_s)

    def splits(self, keys: float, tiles: float) -> float:
        """Parts that a context is split into when `tiles` alone would not fill the GPU."""
        if tiles >= SPLIT_BELOW * self.slots:
            return 1.0
        parts = min(keys / SPLIT_KEYS, self.slots / tiles)
        return max(1.0, min(parts, float(SPLIT_LIMIT)))

    def split_limit(self, decodes: int, kv_heads: int) -> float:
        """The most parts that each context of a decode batch is split into, however long it
        grows."""
        return self.splits(math.inf, float(decodes * kv_heads))

    def decode_compute_s(
        self, pair_flops: float, group: float, limit: float, flops: float
    ) -> float:
        """Seconds per cached token: a few query rows still fill a whole tile of rows."""
        rows = self.parameters.decode_rows
        if limit > 1.0 and rows > SPLIT_ROWS:
            rows = float(SPLIT_ROWS)
        padding = rows / group if rows > group else 1.0
        return pair_flops * padding / flops

    def state_update_s(self, sequences: float, state_bytes: float, queries: float = 1.0) -> float:
        """Updates the state of each sequence: it is read once, and written after every token."""
        traffic = sequences * state_bytes * (1.0 + queries)
        return self.parameters.recurrent_call_s + traffic / self.state_rate

    def state_scan_s(self, prompts: list[int], heads: int, token_flops: float) -> float:
        """Scans all tokens of some prompts: heads and prompts in parallel, tokens in sequence.

        Some kernels first prepare chunks of all prompts.
        """
        start_s, token_s = self.parameters.recurrent_start_s, token_flops / self.scan_flops
        longest, together = 0.0, 0.0
        for tokens in prompts:
            own = start_s + tokens * token_s
            together += heads * own / self.units
            longest = max(longest, own)
        chunks_s = self.parameters.recurrent_chunk_s * heads * sum(prompts)
        return max(longest, together) + chunks_s

    def convolution_s(self, numbers: float) -> float:
        """The convolution before a recurrence; `numbers` are the 16-bit numbers read or written."""
        return self.parameters.convolution_call_s + 2.0 * numbers / self.convolution_rate

    def all_reduce_s(self, message_bytes: float, gpus: int) -> float:
        """Each GPU sends a small message to each of the others, a large one almost twice in all:
        whichever is faster."""
        if gpus == 1:
            return 0.0
        p = self.parameters
        waits = self._sharing(gpus)
        whole_s = (gpus - 1) * message_bytes * waits / self.link_bytes_per_s
        small = waits * p.all_reduce_s + whole_s / p.all_reduce_small_efficiency
        large = waits * p.all_reduce_large_s + 2.0 / gpus * whole_s / p.all_reduce_efficiency
        return small if small < large else large

    def gather_s(self, gathered_bytes: float, gpus: int) -> float:
        """An all-gather or a reduce-scatter: each GPU receives the other GPUs' shares, or sends
        them."""
        if gpus == 1:
            return 0.0
        rate = self.link_bytes_per_s * self.parameters.all_reduce_efficiency * GATHER_SHARE
        sent_s = (gpus - 1) / gpus * gathered_bytes * self._sharing(gpus) / rate
        return GATHER_S + GATHER_GPU_S * gpus + sent_s

    def exchange_s(self, backend: str, tokens: float, hidden: int, visits: int, gpus: int) -> float:
        """Dispatch and combine of DeepEP, for this many tokens per GPU."""
        near = (gpus - 1) / gpus
        if backend == LOW_LATENCY:
            copies = near * visits  # a copy for every expert
        else:
            copies = (gpus - 1) * (1.0 - (1.0 - 1.0 / gpus) ** visits)  # one for every GPU
        numbers = tokens * hidden * copies / EXCHANGE_NEAR * (EXCHANGE_LINK / self.link_bytes_per_s)
        time = 0.0
        for floor_s, numbers_per_s in EXCHANGES[backend]:
            time += floor_s + numbers / numbers_per_s
        return time

    def _sharing(self, gpus: int) -> float:
        """Link contention: none on switched links, half the number of GPUs on a shared PCIe
        tree."""
        return 0.5 * gpus if self.shared_link else 1.0
