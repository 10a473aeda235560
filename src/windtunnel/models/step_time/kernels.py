"""The time of single operators: matrix multiplications, expert groups, attention, collectives.

Each has a compute and a memory time at a fitted fraction of the accelerator's peak, never above
one, and the cost of getting the kernel going.
"""

from __future__ import annotations

import math
from typing import Final

from windtunnel.models.catalog.accelerators import Accelerator

__all__ = ["Kernels", "PhysicsParameters"]

TILE: Final = 128  # rows and columns of the output tile that one multiprocessor works on
EXPERT_ROWS: Final = 16  # a grouped multiplication pads each expert's tokens to at least these
SPLIT_ROWS: Final = 64  # query rows of an attention tile when the context is split over tiles
SPLIT_KEYS: Final = 128  # keys one split takes at least
SPLIT_LIMIT: Final = 64
WAVES_PER_UNIT: Final = 2  # attention tiles that one multiprocessor holds at a time
SPLIT_BELOW: Final = (
    0.8  # contexts are split while the tiles fill less than this part of the machine
)


class PhysicsParameters:
    """The fitted numbers of a profile: fractions of peak, seconds, and three shape constants."""

    def __init__(self, values: dict[str, float]) -> None:
        self.gemm_efficiency: float = values["gemm_efficiency"]
        self.low_precision_efficiency: float = values["low_precision_efficiency"]
        self.low_precision_launch_s: float = values["low_precision_launch_s"]
        self.gemm_bandwidth: float = values["gemm_bandwidth"]
        self.gemm_launch_s: float = values["gemm_launch_s"]
        self.gemm_wave: float = values["gemm_wave"]
        self.gemm_blend: float = values["gemm_blend"]
        self.layer_s: float = values["layer_s"]
        self.elementwise_passes: float = values["elementwise_passes"]
        self.attention_efficiency: float = values["attention_efficiency"]
        self.attention_bandwidth: float = values["attention_bandwidth"]
        self.attention_call_s: float = values["attention_call_s"]
        self.attention_ramp_keys: float = values["attention_ramp_keys"]
        self.attention_split_s: float = values["attention_split_s"]
        self.decode_rows: float = values["decode_rows"]
        self.power_knee: float = values["power_knee"]
        self.power_exponent: float = values["power_exponent"]
        self.expert_efficiency: float = values["expert_efficiency"]
        self.expert_launch_s: float = values["expert_launch_s"]
        self.all_reduce_s: float = values["all_reduce_s"]
        self.all_reduce_efficiency: float = values["all_reduce_efficiency"]


class Kernels:
    """The time of one operator on one accelerator under given parameters."""

    def __init__(
        self, parameters: PhysicsParameters, accelerator: Accelerator, precision: str = "bf16"
    ) -> None:
        self.parameters = parameters
        self.bf16_flops: float = accelerator.bf16_flops
        self.peak_flops: float = accelerator.peak_flops(precision)
        low = self.peak_flops > self.bf16_flops
        efficiency = parameters.low_precision_efficiency if low else parameters.gemm_efficiency
        self.flops: float = self.peak_flops * efficiency
        self.head_flops: float = self.bf16_flops * parameters.gemm_efficiency
        self.attention_flops: float = self.bf16_flops * parameters.attention_efficiency
        self.hbm: float = accelerator.hbm_bytes_per_s * parameters.gemm_bandwidth
        self.kv_rate: float = accelerator.hbm_bytes_per_s * parameters.attention_bandwidth
        self.link_bytes_per_s: float = accelerator.link_bytes_per_s
        self.shared_link: bool = accelerator.link == "pcie"
        self.units: int = accelerator.compute_units
        self.slots: float = float(WAVES_PER_UNIT * self.units)

    def blend(self, compute_s: float, memory_s: float) -> float:
        """Both at once, but not perfectly: above their maximum, below their sum."""
        high = compute_s if compute_s > memory_s else memory_s
        low = memory_s if compute_s > memory_s else compute_s
        if high <= 0.0:
            return 0.0
        power = self.parameters.gemm_blend
        joined: float = (1.0 + (low / high) ** power) ** (1.0 / power)
        return high * joined

    def gemm_s(
        self, rows: float, outputs: int, inputs: int, weight_bytes: float, flops: float
    ) -> float:
        """A (rows x inputs) by (inputs x outputs) multiplication; activations are 16 bit."""
        partial_wave = self.parameters.gemm_wave * self.units * TILE * TILE
        compute = 2.0 * inputs * (rows * outputs + partial_wave) / flops
        traffic = weight_bytes * outputs * inputs + 2.0 * rows * (outputs + inputs)
        launch = self.parameters.gemm_launch_s
        if weight_bytes < 2.0 and self.peak_flops > self.bf16_flops:
            # The inputs are first converted: read in 16 bit, written in 8, by a kernel of its own.
            launch += self.parameters.low_precision_launch_s + 3.0 * rows * inputs / self.hbm
        return launch + self.blend(compute, traffic / self.hbm)

    def experts_s(
        self,
        rows: float,
        touched: float,
        *,
        ffn: int,
        hidden: int,
        matrices: int,
        weight_bytes: float,
    ) -> float:
        """A mixture layer's grouped multiplications: token-expert pairs over touched experts."""
        if touched <= 0.0:
            return 0.0
        padded = rows if rows > EXPERT_ROWS * touched else EXPERT_ROWS * touched
        numbers = float(matrices * ffn * hidden)
        compute = 2.0 * padded * numbers / (self.peak_flops * self.parameters.expert_efficiency)
        traffic = touched * numbers * weight_bytes + 2.0 * rows * (2 * hidden + matrices * ffn)
        return self.parameters.expert_launch_s + self.blend(compute, traffic / self.hbm)

    def splits(self, keys: float, tiles: float) -> float:
        """Parts that a context is cut into when `tiles` alone would leave the machine empty."""
        if tiles >= SPLIT_BELOW * self.slots:
            return 1.0
        parts = keys / SPLIT_KEYS
        room = self.slots / tiles
        return max(1.0, min(parts, room, float(SPLIT_LIMIT)))

    def split_limit(self, decodes: int, kv_heads: int) -> float:
        """The most parts each context of a decode batch is cut into, however long it grows."""
        return self.splits(math.inf, float(decodes * kv_heads))

    def decode_compute_s(self, pair_flops: float, group: int, limit: float) -> float:
        """Seconds per cached token: one query row per head still fills a whole tile of rows."""
        rows = self.parameters.decode_rows
        if limit > 1.0 and rows > SPLIT_ROWS:
            rows = float(SPLIT_ROWS)
        padding = rows / group if rows > group else 1.0
        return pair_flops * padding / self.attention_flops

    def all_reduce_s(self, message_bytes: float, gpus: int) -> float:
        """A ring: every GPU sends the message almost twice."""
        if gpus == 1:
            return 0.0
        return self._start_s(gpus) + 2.0 * (gpus - 1) / gpus * message_bytes / self._link(gpus)

    def all_to_all_s(self, sent_bytes: float, gpus: int) -> float:
        """Every GPU sends what it has, less its own share, to the others."""
        if gpus == 1:
            return 0.0
        return self._start_s(gpus) + (gpus - 1) / gpus * sent_bytes / self._link(gpus)

    # Switched links hardly notice how many GPUs take part; a PCIe tree is shared between its pairs.

    def _start_s(self, gpus: int) -> float:
        return self.parameters.all_reduce_s * (0.5 * gpus if self.shared_link else 1.0)

    def _link(self, gpus: int) -> float:
        rate = self.link_bytes_per_s * self.parameters.all_reduce_efficiency
        return rate * 2.0 / gpus if self.shared_link else rate
