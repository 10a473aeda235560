"""Facts about vLLM releases that a simulation uses: defaults, memory, host time.

Each row applies from its release on. Memory is from vLLM's own start-up logs on H100s (0.15 to
0.19) and from its sources. Host time is the part of published TTFTs beyond kernels: the constant
that aiconfigurator fitted to its corpus of vLLM runs and, per prompt token, the remainder of the
TTFTs of small models on large GPUs; no difference between releases is known. A release 0.x newer
than the table takes its last row; 1.0 and later are rejected.
"""

from __future__ import annotations

import re
from functools import cache

import msgspec

from windtunnel.core.errors import InputError
from windtunnel.models.catalog.accelerators import Accelerator
from windtunnel.models.catalog.shapes import ModelShape

__all__ = [
    "NEWEST",
    "PCIE_GROUP_RUNTIME_BYTES",
    "EngineDefaults",
    "HostTimes",
    "EngineRelease",
    "engine_defaults",
    "host_times",
    "release_of",
]

GIB = 1024.0**3
NEWEST = "0.27"
OLDEST = "0.8"

LEAST_HOST_S, MOST_HOST_S = 0.015, 0.070
"""Limits on the host time of a request, for any model."""

LARGE_MEMORY_BYTES = 70 * GIB
HUGE_MEMORY_BYTES = 160 * GIB


class EngineRelease(msgspec.Struct, frozen=True, kw_only=True):
    """Facts about one release of vLLM."""

    version: str
    memory_utilization: float  # the default of --gpu-memory-utilization
    logit_bytes: float  # of the sampler's peak, per sequence and vocabulary entry
    runtime_bytes: float  # outside PyTorch: driver context, libraries
    group_runtime_bytes: float  # the same on each GPU of several, with NCCL's buffers for NVLink
    counts_graphs: bool  # whether CUDA graphs are subtracted before KV blocks are counted
    logs_sequences: bool  # whether the logged tokens are sequences of full length, not blocks
    launch_s: float  # host time of a first token, for each layer of the model
    prompt_token_s: float  # to tokenise a prompt and hand it to the engine, for each token


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
            "launch_s": 0.8e-3,
            "prompt_token_s": 2e-6,
        },
    ),
    ((0, 17), {"logit_bytes": 14.3}),
    ((0, 18), {"runtime_bytes": 0.25 * GIB, "group_runtime_bytes": 2.12 * GIB}),
    ((0, 20), {"logs_sequences": True}),
    ((0, 21), {"counts_graphs": True}),
    ((0, 22), {"memory_utilization": 0.92}),
)

PCIE_GROUP_RUNTIME_BYTES = 0.54 * GIB
"""Limit for GPUs without NVLink, which have none of its buffers: two RTX 5090s under 0.26 have as
much memory left as H100s had before these buffers were introduced."""

_VERSION = re.compile(r"v?([0-9]{1,3})\.([0-9]{1,4})(\.[0-9]{1,4})?([a-z.+-][0-9a-z.+-]{0,40})?")


@cache
def release_of(version: str) -> EngineRelease:
    """The facts about a release such as `0.19` or `v0.19.1`."""
    found = _VERSION.fullmatch(version.strip().lower())
    if found is None or int(found[1]) > 0 or int(found[2]) < 8:
        what = f"engine version {version!r:.60}"
        raise InputError(what, allowed=f"a release 0.x of vLLM from {OLDEST} on, such as {NEWEST}")
    number = (int(found[1]), int(found[2]))
    facts: dict[str, float | bool] = {}
    for since, changed in _SINCE:
        if number >= since:
            facts |= changed
    return msgspec.convert({"version": f"{number[0]}.{number[1]}", **facts}, EngineRelease)


def host_times(shape: ModelShape, version: str = NEWEST) -> HostTimes:
    """Host time added to a first token: API server, tokenisation, IPC, launches."""
    release = release_of(version)
    request_s = min(max(shape.layers * release.launch_s, LEAST_HOST_S), MOST_HOST_S)
    return HostTimes(queueing_s=request_s, per_prompt_token_s=release.prompt_token_s)


class HostTimes(msgspec.Struct, frozen=True, kw_only=True):
    """Seconds until a request is in the engine's queue, named as in `overheads`."""

    queueing_s: float
    per_prompt_token_s: float


class EngineDefaults(msgspec.Struct, frozen=True, kw_only=True):
    """The settings that vLLM's API server chooses on its own."""

    max_num_seqs: int
    max_num_batched_tokens: int
    memory_utilization: float


def engine_defaults(accelerator: Accelerator, version: str = NEWEST) -> EngineDefaults:
    """vLLM's defaults on an accelerator: more memory gives larger batches, except on an A100."""
    memory = accelerator.memory_bytes
    seqs, tokens = 256, 2048
    if memory >= LARGE_MEMORY_BYTES and not accelerator.name.startswith("a100"):
        seqs, tokens = 1024, 16_384 if memory >= HUGE_MEMORY_BYTES else 8192
    return EngineDefaults(
        max_num_seqs=seqs,
        max_num_batched_tokens=tokens,
        memory_utilization=release_of(version).memory_utilization,
    )
