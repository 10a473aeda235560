"""KV blocks: servers have the memory that vLLM printed, and what does not fit is explained."""

import re

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from windtunnel.core.errors import InputError
from windtunnel.models.capacity import (
    GIB,
    KvCapacity,
    MemoryLimits,
    aligned_block_size,
    kv_capacity,
    kv_groups,
    limits_for,
)
from windtunnel.models.catalog.accelerators import ACCELERATORS, resolve_accelerator
from windtunnel.models.catalog.models import MODELS, resolve_model
from windtunnel.models.releases import release_of

H100 = resolve_accelerator("h100")
H200 = resolve_accelerator("h200")

# Lines that vLLM printed when it started: model, GPUs, GiB of weights, of activations and for KV,
# and tokens. H100s of 79.19 GiB, release 0.19, utilisation 0.95 and requests of 8,192 tokens unless
# said otherwise. Where the source does not say, 0.
PRINTED = [
    ("meta-llama/Llama-3.1-8B-Instruct", 1, 14.99, 1.89, 58.11, 476_016, {}),
    ("meta-llama/Llama-3.1-8B-Instruct-FP8-KV", 1, 8.49, 1.89, 64.61, 2 * 529_248, {}),
    ("meta-llama/Llama-3.1-8B-Instruct-FP8", 1, 8.49, 1.89, 64.61, 529_248, {}),
    ("RedHatAI/Llama-3.1-8B-Instruct-quantized.w4a16", 1, 5.38, 1.89, 67.71, 554_704, {}),
    ("meta-llama/Llama-3.1-8B-Instruct", 2, 7.51, 1.89, 63.76, 1_044_688, {}),
    ("meta-llama/Llama-3.1-8B-Instruct", 4, 3.77, 1.89, 67.44, 2_209_792, {}),
    ("RedHatAI/Llama-3.3-70B-Instruct-FP8-dynamic", 2, 33.88, 1.96, 37.28, 244_304, {}),
    ("RedHatAI/Llama-3.3-70B-Instruct-FP8-dynamic", 4, 16.96, 1.97, 54.09, 708_992, {}),
    ("Qwen/Qwen2.5-7B-Instruct", 1, 14.25, 2.21, 58.53, 1_096_000, {}),
    ("RedHatAI/Qwen2.5-7B-Instruct-FP8-dynamic", 1, 8.14, 2.21, 64.64, 1_210_304, {}),
    ("Qwen/Qwen2.5-72B-Instruct", 2, 67.80, 2.29, 3.04, 19_920, {}),
    ("Qwen/Qwen3-8B", 1, 15.27, 2.21, 57.50, 418_688, {}),
    ("Qwen/Qwen3-30B-A3B", 1, 56.88, 2.68, 15.41, 168_288, {}),
    ("mistralai/Mixtral-8x7B-Instruct-v0.1", 2, 43.51, 1.21, 28.44, 465_936, {}),
    ("deepseek-ai/DeepSeek-V2-Lite-Chat", 1, 29.43, 1.93, 43.61, 1_505_552, {}),
    ("moonshotai/Kimi-VL-A3B-Instruct", 2, 15.53, 2.85, 54.78, 1_890_896, {}),
    ("openai/gpt-oss-20b", 1, 13.64, 2.87, 58.47, 1_277_184, {}),
    ("openai/gpt-oss-20b", 2, 7.01, 2.87, 59.32, 2_591_776, {"memory_utilization": 0.9}),
    ("meta-llama/Llama-4-Scout-17B-16E-Instruct", 4, 53.12, 3.19, 16.75, 365_968, {}),
    ("google/gemma-2-27b-it", 1, 50.72, 3.66, 20.59, 58_672, {}),
    ("google/gemma-3-4b-it", 1, 0, 0, 62.51, 468_144, {}),
    ("google/gemma-3-12b-it", 1, 23.31, 0, 47.72, 130_304, {}),
    ("google/gemma-3-27b-it", 1, 51.45, 0, 19.53, 36_560, {}),
    ("microsoft/phi-4", 1, 27.39, 1.52, 46.08, 241_568, {}),
    ("mistralai/Mistral-Small-3.1-24B-Instruct-2503", 1, 44.76, 0, 28.19, 184_752, {}),
    (
        "RedHatAI/Mistral-Small-3.1-24B-Instruct-2503-quantized.w8a8",
        1,
        24.07,
        0,
        48.73,
        319_344,
        {},
    ),
    ("ibm-granite/granite-3.1-8b-instruct", 1, 15.25, 0.85, 58.66, 384_432, {}),
    ("Qwen/Qwen3-14B", 1, 27.52, 5.64, 41.94, 33.55 * 8192, {"version": "0.16"}),
    ("Qwen/Qwen3-14B", 1, 27.52, 2.23, 45.34, 36.27 * 8192, {"version": "0.17"}),
    ("Qwen/Qwen3-14B", 1, 27.52, 2.23, 45.23, 36.18 * 8192, {"version": "0.18"}),
    ("Qwen/Qwen3-32B", 1, 61.03, 5.64, 4.45, 0, {"version": "0.15", "memory_utilization": 0.9}),
    ("Qwen/Qwen3-32B", 2, 30.59, 5.64, 34.49, 0, {"version": "0.15", "memory_utilization": 0.9}),
    # The source says 0.9, but its own lines add up to 0.95 of the memory.
    ("openai/gpt-oss-120b", 1, 64.38, 7.38, 3.33, 0, {"version": "0.15", "max_model_len": 16_000}),
]

# Lines whose settings the source does not give, with what is assumed, held more loosely.
PARTLY_KNOWN = [
    ("moonshotai/Kimi-K2-Thinking", "h200", 8, "0.11", 262_144, 715_072, 0.05),
    ("Qwen/Qwen3-235B-A22B-FP8", "h100", 4, "0.10", 40_960, 178_880, 0.20),
]

# Hybrids on RTX 5090s of 31.4 GiB: GPUs, bytes of a cached number, release, longest request, tokens
# in a block, blocks of a longest request, tokens. That FP8 weights were served with a cache of 16
# bits follows from the tokens: a request of full length is 341 blocks.
RECURRENT = [
    ("nvidia/Qwen3.6-35B-A3B-NVFP4", 1, 1.0, "0.24", 131_072, 2096, 63 + 3 * 2, 567_978),
    ("unsloth/Qwen3.8-27B-NVFP4", 2, 1.0, "0.26", 262_144, 1568, 168 + 3 * 2, 920_517),
    ("Qwen/Qwen3.8-27B-FP8", 2, 2.0, "0.26", 262_144, 784, 335 + 3 * 2, 377_456),
]


def on_h100(model: str, gpus: int, version: str = "0.19", **settings: float) -> KvCapacity:
    limits = msgspec.structs.replace(
        limits_for(H100, version), **{"memory_utilization": 0.95, "max_model_len": 8192} | settings
    )
    return kv_capacity(resolve_model(model), H100, limits, tensor_parallel=gpus)


@pytest.mark.parametrize(
    ("model", "gpus", "weights", "activations", "kv", "tokens", "settings"), PRINTED
)
def test_memory_is_divided_as_vllm_printed(
    model: str,
    gpus: int,
    weights: float,
    activations: float,
    kv: float,
    tokens: float,
    settings: dict[str, float],
) -> None:
    found = on_h100(model, gpus, **settings)  # type: ignore[arg-type]
    assert found.left_bytes / GIB == pytest.approx(kv, rel=0.05)
    if weights:
        assert found.weight_bytes / GIB == pytest.approx(weights, rel=0.05)
    if activations:
        assert found.activation_bytes / GIB == pytest.approx(activations, rel=0.08)
    if tokens:
        assert found.tokens == pytest.approx(tokens, rel=0.05)


@pytest.mark.parametrize(
    ("model", "gpus", "gib"),
    [
        ("meta-llama/Llama-3.1-8B-Instruct", 1, 14.99),
        ("meta-llama/Llama-3.1-8B-Instruct-FP8", 1, 8.49),
        ("meta-llama/Llama-3.1-8B-Instruct", 4, 3.77),
        ("meta-llama/Llama-4-Scout-17B-16E-Instruct", 4, 53.12),
    ],
)
def test_every_gpu_loads_the_rotations_of_all_positions(model: str, gpus: int, gib: float) -> None:
    """32 MiB of Llama 3.1, 2.5 GiB of Llama 4 Scout; of its encoder each GPU has a part."""
    assert on_h100(model, gpus).weight_bytes / GIB == pytest.approx(gib, rel=0.001)


@pytest.mark.parametrize(
    ("model", "accelerator", "gpus", "version", "longest", "tokens", "within"), PARTLY_KNOWN
)
def test_partly_known_servers_are_near(
    model: str, accelerator: str, gpus: int, version: str, longest: int, tokens: int, within: float
) -> None:
    gpu = resolve_accelerator(accelerator)
    limits = msgspec.structs.replace(limits_for(gpu, version), max_model_len=longest)
    found = kv_capacity(resolve_model(model), gpu, limits, tensor_parallel=gpus)
    assert found.tokens == pytest.approx(tokens, rel=within)


@pytest.mark.parametrize(
    ("model", "sequences"), [("openai/gpt-oss-20b", 155.75), ("google/gemma-3-27b-it", 4.46)]
)
def test_hybrids_serve_as_many_long_requests_as_vllm_printed(model: str, sequences: float) -> None:
    assert on_h100(model, 1).sequences == pytest.approx(sequences, rel=0.05)


@pytest.mark.parametrize(
    ("model", "gpus", "kv", "version", "longest", "block", "request_blocks", "tokens"), RECURRENT
)
def test_states_are_pages_of_the_pool_as_vllm_printed(
    model: str,
    gpus: int,
    kv: float,
    version: str,
    longest: int,
    block: int,
    request_blocks: int,
    tokens: int,
) -> None:
    gpu = resolve_accelerator("rtx-5090")
    shape = msgspec.structs.replace(resolve_model(model), kv_bytes=kv)
    limits = msgspec.structs.replace(limits_for(gpu, version), max_model_len=longest)
    found = kv_capacity(shape, gpu, limits, tensor_parallel=gpus)
    assert (found.block_size, found.request_blocks) == (block, request_blocks)
    assert found.tokens == pytest.approx(tokens, rel=0.05)


def test_a_state_decides_the_size_of_a_block() -> None:
    """Worked by hand: Qwen3.6-35B has 10 layers of attention and 30 of gated DeltaNet."""
    shape = msgspec.structs.replace(resolve_model("qwen3.6-35b-a3b"), kv_bytes=1.0)
    state = 32 * 128 * 128 * 4 + (2 * 16 * 128 + 32 * 128) * 3 * 2
    assert shape.state_layer_bytes() == state == 2_146_304
    assert aligned_block_size(shape, 16) * 2 * 2 * 256 == state  # 2,096 tokens, without padding
    # A draft is a token more of the convolution, and another state.
    assert aligned_block_size(shape, 16, drafts=1) == 2112
    plain, drafting, uncached = (
        kv_groups(shape, MemoryLimits(draft_tokens=drafts, prefix_caching=caching))
        for drafts, caching in ((0, True), (3, True), (0, False))
    )
    assert (plain.layers, plain.full, plain.recurrent) == (10, 1, 3)
    assert (plain.states, drafting.states, uncached.states) == (2, 5, 1)


@pytest.mark.parametrize(
    ("model", "mib"), [("qwen3.5-397b-a17b", 183), ("qwen3.5-27b", 147), ("qwen3-next-80b-a3b", 74)]
)
def test_a_sequence_has_a_state_of_fixed_size(model: str, mib: int) -> None:
    """In 32 bits, as computed from the configurations by others."""
    shape = msgspec.structs.replace(MODELS[model], state_bytes=4.0)
    whole = shape.recurrent_layers * shape.state_layer_bytes()
    assert whole / 2**20 == pytest.approx(mib, abs=0.5)
    part = shape.per_gpu(2)
    assert part.state_layer_bytes() == shape.state_layer_bytes() / 2


@pytest.mark.parametrize(
    ("model", "accelerator"),
    [("llama-3.1-8b", "l4"), ("gpt-oss-120b", "h100"), ("Qwen/Qwen3.6-35B-A3B-FP8", "l40s")],
)
def test_the_longest_request_that_fits_is_the_largest_max_model_len_that_starts(
    model: str, accelerator: str
) -> None:
    shape, gpu = resolve_model(model), resolve_accelerator(accelerator)
    asked = kv_capacity(shape, gpu)
    assert not asked.starts
    assert 0 < asked.longest < asked.max_model_len == shape.max_context
    assert asked.refusal.endswith(f"is at most {asked.longest:,}")
    for length, starts in ((asked.longest, True), (asked.longest + 1, False)):
        limits = msgspec.structs.replace(limits_for(gpu), max_model_len=length)
        found = kv_capacity(shape, gpu, limits)
        assert (found.starts, found.longest, bool(found.refusal)) == (
            starts,
            asked.longest,
            not starts,
        )


def test_groups_of_layers_are_as_large_as_the_smaller_kind() -> None:
    groups = kv_groups(MODELS["gemma-3-27b"])
    assert (groups.layers, groups.full, groups.windowed) == (10, 1, 6)
    # 8,192 tokens: 512 blocks of the full group, and 513 of each windowed one
    assert groups.request_blocks(8192, 16_384, 16) == 512 + 6 * 513
    assert groups.window_blocks(1, 1024, 16) == 65
    even = kv_groups(MODELS["gpt-oss-20b"])
    assert (even.layers, even.full, even.windowed) == (12, 1, 1)
    plain = kv_groups(MODELS["llama-3.1-8b"])
    assert (plain.layers, plain.full, plain.windowed) == (32, 1, 0)


@pytest.mark.parametrize(
    ("name", "degree", "full", "windowed", "block_bytes"),
    [
        # 16,384 bytes of a token in a windowed layer, 8,192 in a full one
        ("gemma-4-31b", 1, 32, 16, 10 * 16 * 16_384),
        ("gemma-4-31b", 4, 32, 16, 10 * 16 * 4096),
        ("gemma-4-31b", 8, 16, 16, 10 * 16 * 2048),  # the last head of full layers is replicated
        ("gemma-4-31b", 16, 16, 32, 10 * 16 * 2048),
        ("gemma-4-26b-a4b", 1, 32, 16, 5 * 16 * 8192),
        ("gemma-4-26b-a4b", 8, 16, 32, 5 * 16 * 2048),
        ("gemma-3-27b", 1, 16, 16, 10 * 16 * 8192),
    ],
)
def test_blocks_of_both_kinds_of_layers_have_as_many_bytes(
    name: str, degree: int, full: int, windowed: int, block_bytes: int
) -> None:
    found = kv_capacity(MODELS[name], H200, tensor_parallel=degree)
    groups = found.groups
    assert (16 * groups.full_multiple, 16 * groups.window_multiple) == (full, windowed)
    assert found.block_bytes == block_bytes
    assert found.blocks * 16 == found.pool_blocks * full
    # Those of 8,192 tokens, and of a window that 16,384 more tokens pass through.
    blocks = groups.windowed * groups.window_blocks(16_384, 131_072, 16)
    kept = groups.windowed * (-(-(1023 + 16_384) // windowed) + 1)
    assert blocks == kept
    assert groups.request_blocks(131_072, 16_384, 16) == 131_072 // full + kept


def test_blocks_are_padded_where_neither_kind_fills_the_other() -> None:
    shape = msgspec.structs.replace(MODELS["gemma-4-31b"], full_head_dim=384)
    odd = msgspec.structs.replace(shape, full_kv_heads=8)  # 12,288 bytes beside 16,384
    groups = kv_groups(odd)
    assert (groups.full_multiple, groups.window_multiple) == (1, 1)
    assert kv_capacity(odd, H200).block_bytes == 10 * 16 * 16_384


def test_gemma_4_holds_the_requests_that_vllm_printed() -> None:
    """On an L40S with an fp8 cache of 15.18 GiB and steps of 4,096 tokens, release 0.26."""
    shape = msgspec.structs.replace(resolve_model("gemma-4-26b-a4b-fp8"), kv_bytes=1.0)
    gpu = resolve_accelerator("l40s")
    limits = msgspec.structs.replace(
        limits_for(gpu, "0.26"), max_model_len=32_768, max_num_batched_tokens=4096
    )
    found = kv_capacity(shape, gpu, limits)
    assert found.block_bytes == 5 * 16 * 4096
    printed = msgspec.structs.replace(found, pool_blocks=49_748)
    assert printed.pool_blocks * printed.block_bytes / GIB == pytest.approx(15.18, abs=0.005)
    assert (printed.tokens, round(printed.sequences, 2)) == (417_022, 12.73)


@pytest.mark.parametrize(
    ("model", "gib"),
    [
        ("google/gemma-4-26B-A4B", 48.5),
        ("gemma-4-26b-a4b-fp8", 25.67),
        ("google/gemma-4-31B-it", 58.9),
        ("nvidia/Gemma-4-31B-IT-NVFP4", 31.0),
    ],
)
def test_gemma_4_loads_what_vllm_printed(model: str, gib: float) -> None:
    """Its keys are loaded a second time as values, and its rotations in two widths."""
    assert kv_capacity(resolve_model(model), H200).weight_bytes / GIB == pytest.approx(
        gib, rel=0.015
    )


def test_sparse_attention_keeps_an_index_beside_the_latents() -> None:
    shape = MODELS["deepseek-v3.2"]
    assert shape.kv_bytes_per_token == 78_324
    assert msgspec.structs.replace(shape, kv_bytes=1.0).kv_bytes_per_token == 48_068
    assert MODELS["glm-5"].kv_bytes_per_token == 100_152


def test_releases_differ() -> None:
    old, new = limits_for(H100, "0.19"), limits_for(H100)
    assert (old.memory_utilization, new.memory_utilization) == (0.9, 0.92)
    shape = MODELS["llama-3.1-8b"]
    assert kv_capacity(shape, H100, old).graph_bytes == 0
    assert 0.5 < kv_capacity(shape, H100, new).graph_bytes / GIB < 1.9
    assert release_of("v0.19.1").logit_bytes == release_of("0.17").logit_bytes
    for version in ("0.7", "1.0", "0", "", "latest", "0." + "9" * 50):
        with pytest.raises(InputError, match=r"engine version .*a release 0\.x of vLLM from 0.8"):
            release_of(version)


@pytest.mark.parametrize(
    ("accelerator", "seqs", "tokens"),
    [("l40s", 256, 2048), ("a100-80", 256, 2048), ("h100", 1024, 8192), ("b200", 1024, 16_384)],
)
def test_batches_are_as_large_as_vllm_makes_them(accelerator: str, seqs: int, tokens: int) -> None:
    limits = limits_for(resolve_accelerator(accelerator))
    assert (limits.max_num_seqs, limits.max_num_batched_tokens) == (seqs, tokens)


@given(
    name=st.sampled_from(sorted(MODELS)),
    accelerator=st.sampled_from(sorted(ACCELERATORS)),
    degree=st.sampled_from([1, 2, 4, 8]),
    utilization=st.floats(0.5, 1.0),
)
def test_memory_is_never_oversold(
    name: str, accelerator: str, degree: int, utilization: float
) -> None:
    gpu = ACCELERATORS[accelerator]
    limits = msgspec.structs.replace(limits_for(gpu), memory_utilization=utilization)
    try:
        found = kv_capacity(MODELS[name], gpu, limits, tensor_parallel=degree)
    except InputError:
        return
    used = found.weight_bytes + found.activation_bytes + found.runtime_bytes + found.graph_bytes
    used += found.pool_blocks * found.block_bytes
    assert used <= gpu.memory_bytes * utilization * (1 + 1e-12)
    assert used + found.block_bytes > gpu.memory_bytes * utilization * (1 - 1e-12)


def test_a_model_that_does_not_fit_is_explained() -> None:
    with pytest.raises(InputError) as caught:
        kv_capacity(MODELS["llama-3.1-70b"], H100)
    sentence = str(caught.value)
    assert "llama-3.1-70b does not fit on h100-sxm: it needs 135.4 GiB" in sentence
    assert "has 72.9 GiB" in sentence
    assert "try tensor_parallel: 4 or accelerator: mi325x" in sentence


@pytest.mark.parametrize(
    ("model", "degree"), [("llama-3.1-70b", 1), ("qwen2.5-72b", 2), ("llama-4-scout", 1)]
)
def test_with_the_advice_vllm_starts(model: str, degree: int) -> None:
    """Scout's own context, 10 million tokens, fits no server of these."""
    with pytest.raises(InputError) as caught:
        kv_capacity(MODELS[model], H100, tensor_parallel=degree)
    advice = (caught.value.hint or "").removeprefix("try ").split(" or ")
    assert len(advice) == 2
    for one in advice:
        chosen: dict[str, str] = dict(re.findall(r"(\w+): ([\w-]+)", one))
        gpu = resolve_accelerator(chosen.get("accelerator", "h100"))
        longest = int(chosen.get("max_model_len", 0))
        limits = msgspec.structs.replace(limits_for(gpu), max_model_len=longest)
        wider = int(chosen.get("tensor_parallel", degree))
        found = kv_capacity(MODELS[model], gpu, limits, tensor_parallel=wider)
        assert found.starts
        assert bool(longest) == (model == "llama-4-scout")


def test_latent_attention_gains_blocks_only_from_smaller_weights() -> None:
    eight = kv_capacity(MODELS["deepseek-v3"], H200, tensor_parallel=8)
    sixteen = kv_capacity(MODELS["deepseek-v3"], H200, tensor_parallel=16)
    assert eight.block_bytes == sixteen.block_bytes
    assert sixteen.blocks > eight.blocks


@pytest.mark.parametrize(
    "setting",
    [
        {"memory_utilization": 0.0},
        {"memory_utilization": 1.5},
        {"memory_utilization": float("nan")},
        {"block_size": 0},
        {"max_num_seqs": 0},
        {"max_num_batched_tokens": -1},
    ],
)
def test_absurd_settings_are_refused(setting: dict[str, float]) -> None:
    limits = msgspec.structs.replace(limits_for(H100), **setting)
    with pytest.raises(InputError, match=next(iter(setting))):
        kv_capacity(MODELS["llama-3.1-8b"], H100, limits)


def test_a_degree_that_does_not_divide_is_refused() -> None:
    with pytest.raises(InputError, match="tensor_parallel"):
        kv_capacity(MODELS["llama-3.1-8b"], H100, tensor_parallel=3)
