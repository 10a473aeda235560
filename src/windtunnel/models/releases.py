"""What changed between releases of vLLM that a simulation depends on: defaults and memory.

Each row holds from its release on. Figures are from vLLM's own start-up lines on H100s (0.15 to
0.19) and from its sources; a release older or newer than the table takes the nearest row.
"""

from __future__ import annotations

import re
from functools import cache

import msgspec

from windtunnel.core.errors import InputError
from windtunnel.models.catalog.accelerators import Accelerator

__all__ = ["NEWEST", "EngineDefaults", "Release", "engine_defaults", "release_of"]

GIB = 1024.0**3
NEWEST = "0.27"
OLDEST = "0.8"

LARGE_MEMORY_BYTES = 70 * GIB
HUGE_MEMORY_BYTES = 160 * GIB


class Release(msgspec.Struct, frozen=True, kw_only=True):
    """One release of vLLM, as far as memory goes."""

    version: str
    memory_utilization: float  # the default of --gpu-memory-utilization
    logit_bytes: float  # of the sampler's peak, per sequence and vocabulary entry
    runtime_bytes: float  # outside PyTorch: driver context, libraries
    group_runtime_bytes: float  # the same on each GPU of several, with NCCL's buffers
    counts_graphs: bool  # whether CUDA graphs are taken off before KV blocks are counted
    logs_sequences: bool  # whether the logged tokens are sequences of full length, not blocks


_SINCE: tuple[tuple[tuple[int, int], dict[str, float | bool]], ...] = (
    (
        (0, 8),
        {
            "memory_utilization": 0.9,
            "logit_bytes": 37.9,
            "runtime_bytes": 0.13 * GIB,
            "group_runtime_bytes": 0.54 * GIB,
            "counts_graphs": False,
            "logs_sequences": False,
        },
    ),
    ((0, 17), {"logit_bytes": 14.3}),
    ((0, 18), {"runtime_bytes": 0.25 * GIB, "group_runtime_bytes": 2.12 * GIB}),
    ((0, 20), {"logs_sequences": True}),
    ((0, 21), {"counts_graphs": True}),
    ((0, 22), {"memory_utilization": 0.92}),
)

_VERSION = re.compile(r"v?([0-9]{1,3})\.([0-9]{1,4})(\.[0-9]{1,4})?([a-z.+-][0-9a-z.+-]{0,40})?")


@cache
def release_of(version: str) -> Release:
    """What holds for a release such as `0.19` or `v0.19.1`."""
    found = _VERSION.fullmatch(version.strip().lower())
    if found is None or int(found[1]) > 0 or int(found[2]) < 8:
        what = f"engine version {version!r:.60}"
        raise InputError(what, allowed=f"a release of vLLM from {OLDEST} on, such as {NEWEST}")
    number = (int(found[1]), int(found[2]))
    facts: dict[str, float | bool] = {}
    for since, changed in _SINCE:
        if number >= since:
            facts |= changed
    return msgspec.convert({"version": f"{number[0]}.{number[1]}", **facts}, Release)


class EngineDefaults(msgspec.Struct, frozen=True, kw_only=True):
    """The settings that vLLM's API server chooses by itself."""

    max_num_seqs: int
    max_num_batched_tokens: int
    memory_utilization: float


def engine_defaults(accelerator: Accelerator, version: str = NEWEST) -> EngineDefaults:
    """Of a release on an accelerator: larger memories get larger batches, but not on an A100."""
    memory = accelerator.memory_bytes
    seqs, tokens = 256, 2048
    if memory >= LARGE_MEMORY_BYTES and not accelerator.name.startswith("a100"):
        seqs, tokens = 1024, 16_384 if memory >= HUGE_MEMORY_BYTES else 8192
    return EngineDefaults(
        max_num_seqs=seqs,
        max_num_batched_tokens=tokens,
        memory_utilization=release_of(version).memory_utilization,
    )
