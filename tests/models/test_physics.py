"""The physics model keeps its promises: physical, monotone, exact lines, the same in both forms."""

import math

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from windtunnel.models.calibration.evidence import profile_evidence
from windtunnel.models.catalog.accelerators import ACCELERATORS, Accelerator, resolve_accelerator
from windtunnel.models.catalog.models import MODELS, resolve_model
from windtunnel.models.catalog.shapes import ModelShape
from windtunnel.models.step_time.model import StepWork, tokens_of
from windtunnel.models.step_time.physics import Physics, busiest_rank
from windtunnel.models.step_time.profile import load_profile, physics_model

MODEL_NAMES = sorted(MODELS)
ACCELERATOR_NAMES = sorted(ACCELERATORS)


TIMES = 60


def prefill(tokens: int, cached: int = 0) -> StepWork:
    return StepWork([(tokens, cached, tokens + cached)], 0, 0, 1)


def decode(decodes: int, context: int) -> StepWork:
    return StepWork([], decodes, context, decodes)


def model_of(model: str, accelerator: str = "h200", tensor_parallel: int = 1) -> Physics:
    return physics_model(
        resolve_model(model),
        resolve_accelerator(accelerator),
        tensor_parallel=tensor_parallel,
    )


def test_sparse_attention_reads_what_its_indexer_picks() -> None:
    sparse, full = (model_of(name, tensor_parallel=8) for name in ("deepseek-v3.2", "deepseek-v3"))

    def token_s(model: Physics, context: int) -> float:
        """More for each further token in the cache, with 32 requests."""
        more = model.step_s(decode(32, 32 * 2 * context)) - model.step_s(decode(32, 32 * context))
        return more / (32 * context)

    # Beyond 2,048 tokens only the indexer reads on: 132 bytes of a layer instead of 1,152.
    assert token_s(sparse, 16_384) < token_s(full, 16_384) / 3
    index_s = 61 * 132 / 4.8e12
    assert index_s < token_s(sparse, 16_384) < 2 * index_s
    # Of eight GPUs each scores all of a prompt, with all heads of the indexer; one gains.
    alone = [
        model_of(name).step_s(prefill(2048, 100_000)) for name in ("deepseek-v3.2", "deepseek-v3")
    ]
    assert alone[0] < alone[1]
    assert sparse.step_s(decode(1, 100)) > full.step_s(decode(1, 100))
    assert sparse.parts_s(decode(32, 32 * 4096))["sparse attention"] > 0


def test_a_recurrent_layer_reads_its_state_whatever_the_context() -> None:
    """Gated DeltaNet of Qwen3.5-397B on an H200, beside vLLM's kernels in microseconds."""
    model = model_of("qwen3.5-397b-a17b")
    for batch, recurrence in ((1, 5.4), (64, 136.4), (256, 527.8)):
        parts = model.parts_s(decode(batch, batch * 1000))
        assert parts["recurrent decode"] / 45 == pytest.approx(1e-6 * recurrence, rel=0.1)
        assert parts["recurrent decode"] == model.parts_s(decode(batch, 9))["recurrent decode"]
    for prompts, tokens, recurrence in ((1, 8192, 398.1), (16, 1024, 450.2), (64, 1024, 1862.7)):
        work = StepWork([(tokens, 0, tokens)] * prompts, 0, 0, prompts)
        parts = model.parts_s(work)
        assert parts["recurrent prefill"] / 45 == pytest.approx(1e-6 * recurrence, rel=0.15)
    # 15 of 60 layers read keys and values: 2 heads of 256, 16 bits, at 84 % of 4.8 TB/s.
    longer = model.step_s(decode(64, 64 * 9000)) - model.step_s(decode(64, 64 * 8000))
    assert longer == pytest.approx(64_000 * 15 * 2 * 2 * 256 * 2 / (0.838 * 4.8e12), rel=0.05)


def test_drafts_write_a_state_each() -> None:
    model = model_of("qwen3.5-27b")
    plain, drafting = (
        model.parts_s(StepWork([], 32, 32 * 500, 32, drafted))["recurrent decode"]
        for drafted in (0, 64)
    )
    # Read once and written once, or three times.
    assert drafting / plain == pytest.approx(4 / 2, rel=0.05)


def test_mamba_is_priced_as_a_state_and_says_that_no_kernel_was_timed() -> None:
    model, gpu = model_of("nemotron-3-nano-30b-a3b"), resolve_accelerator("h200")
    work = decode(256, 256 * 1000)
    state = 2 * 256 * 64 * 64 * 128 * 4 / gpu.hbm_bytes_per_s
    assert 23 * state < model.parts_s(work)["state space"] < 1.5 * 23 * state
    found = profile_evidence(load_profile("h200"), model, resolve_model("nemotron-3-nano"), work)
    certain = model.parts_s(work)["state space"] / model.step_s(work) * 0.5
    assert found.mape is not None
    assert found.mape > certain


def peak_s(shape: ModelShape, accelerator: Accelerator, work: StepWork) -> float:
    """What the vendor's peaks allow at best: every operation and every byte once, at full rate."""
    tokens = work.decodes + sum(new for new, _, _ in work.chunks)
    experts = shape.experts_per_token * shape.expert_params
    matrices = (
        shape.layers * shape.attention_params
        + shape.dense_layers * shape.dense_mlp_params
        + shape.moe_layers * shape.shared_params
    )
    numbers = tokens * (matrices + shape.moe_layers * experts) + work.samples * shape.head_params
    best = max(accelerator.bf16_flops, accelerator.peak_flops(shape.matmul_precision))
    pairs = sum(new * cached + new * (new + 1) / 2 for new, cached, _ in work.chunks)
    pair_flops = shape.full_layers * (
        pairs * shape.prefill_pair_flops + work.context * shape.decode_pair_flops
    )
    compute = 2.0 * numbers / best + pair_flops / accelerator.bf16_flops
    read = (
        matrices * shape.weight_bytes
        + shape.moe_layers * experts * shape.expert_weight_bytes
        + shape.head_params * shape.embedding_bytes
        + work.context * shape.full_layers * shape.kv_bytes_per_token_layer
    )
    return max(compute, read / accelerator.hbm_bytes_per_s)


@pytest.mark.parametrize("accelerator", ACCELERATOR_NAMES)
@pytest.mark.parametrize("name", MODEL_NAMES)
def test_no_step_is_faster_than_the_hardware(name: str, accelerator: str) -> None:
    shape = resolve_model(name)
    hardware = resolve_accelerator(accelerator)
    model = physics_model(shape, hardware)
    works = [
        prefill(1),
        prefill(512, 4096),
        prefill(16384),
        decode(1, 1),
        decode(64, 64 * 4096),
        decode(512, 512 * 700),
        StepWork([(1000, 0, 1000), (24, 8000, 9000)], 100, 100 * 3000, 101),
    ]
    for work in works:
        assert model.step_s(work) >= peak_s(shape, hardware, work)


@given(
    name=st.sampled_from(MODEL_NAMES),
    accelerator=st.sampled_from(ACCELERATOR_NAMES),
    decodes=st.integers(1, 2048),
    context=st.integers(0, 2_000_000),
    ahead=st.floats(0, 1),
)
def test_a_decode_line_is_the_step_all_along_its_segment(
    name: str, accelerator: str, decodes: int, context: int, ahead: float
) -> None:
    model = model_of(name, accelerator)
    base, slope, until = model.decode_line(decodes, context)
    assert until > context
    last = context + 10_000_000 if math.isinf(until) else int(until) - 1
    inside = context + int(ahead * (last - context))
    assert model.decode_line(decodes, inside) == (base, slope, until)
    assert model.step_s(decode(decodes, inside)) == base + slope * inside


@given(
    name=st.sampled_from(MODEL_NAMES),
    accelerator=st.sampled_from(["h200", "a100", "l40s", "b200"]),
    decodes=st.integers(1, 600),
)
def test_decode_lines_meet_at_their_ends(name: str, accelerator: str, decodes: int) -> None:
    """A context more never makes a jump: each line starts where the one before it ends."""
    model = model_of(name, accelerator)
    context = 0
    while True:
        base, slope, until = model.decode_line(decodes, context)
        if math.isinf(until):
            break
        context = int(until)
        later, steeper, _ = model.decode_line(decodes, context)
        step = max(slope, steeper)
        assert later + steeper * context == pytest.approx(base + slope * context, abs=step)


@given(
    name=st.sampled_from(MODEL_NAMES),
    accelerator=st.sampled_from(ACCELERATOR_NAMES),
    tokens=st.integers(1, 9000),
    more=st.integers(1, 2000),
    cached=st.integers(0, 30000),
)
def test_more_prompt_never_takes_less_time(
    name: str, accelerator: str, tokens: int, more: int, cached: int
) -> None:
    model = model_of(name, accelerator)
    assert model.tokens_s(tokens + more) >= model.tokens_s(tokens)
    assert model.step_s(prefill(tokens, cached + more)) >= model.step_s(prefill(tokens, cached))
    alone = model.step_s(prefill(tokens, cached))
    joined = StepWork([(tokens, cached, tokens + cached)], 8, 8 * more, 9)
    assert model.step_s(joined) > alone


@given(
    name=st.sampled_from(MODEL_NAMES),
    decodes=st.integers(1, 500),
    context=st.integers(0, 100_000),
    more=st.integers(0, 100_000),
)
def test_more_context_never_takes_less_time(
    name: str, decodes: int, context: int, more: int
) -> None:
    model = model_of(name)
    assert model.step_s(decode(decodes, context + more)) >= model.step_s(decode(decodes, context))


def test_a_window_bounds_what_a_long_context_costs() -> None:
    model = model_of("gemma-3-27b")
    _, near, _ = model.decode_line(1, 1000)
    _, far, _ = model.decode_line(1, 100_000)
    assert far < near / 4
    shape = msgspec.structs.replace(resolve_model("gemma-3-27b"), window=0, window_layers=0)
    unbounded = physics_model(shape, resolve_accelerator("h200"))
    assert model.step_s(prefill(64, 500)) == unbounded.step_s(prefill(64, 500))
    assert model.step_s(prefill(8192, 50_000)) < 0.65 * unbounded.step_s(prefill(8192, 50_000))


def test_full_attention_layers_cost_what_their_own_heads_do() -> None:
    """As much as a model of ten full layers of that shape, and one of fifty windowed ones."""
    shape, h200 = resolve_model("gemma-4-31b"), resolve_accelerator("h200")
    own = {"full_kv_heads": 0, "full_head_dim": 0}
    windowed = msgspec.structs.replace(shape, layers=50, window_layers=50, **own)
    full = msgspec.structs.replace(shape.of_full_layers, layers=10, window_layers=0)
    whole, *parts = (physics_model(one, h200) for one in (shape, windowed, full))

    def attention_s(model: Physics, work: StepWork) -> float:
        return model.step_s(work) - model.tokens_s(tokens_of(work)) - model.head_s(work.samples)

    works = [decode(*size) for size in ((1, 300), (1, 900), (1, 90_000), (64, 9000), (64, 900_000))]
    for work in [*works, prefill(4096), prefill(777, 50_000), StepWork([], 8, 24_000, 8, 16)]:
        times = [attention_s(one, work) for one in parts]
        assert attention_s(whole, work) == pytest.approx(sum(times))
    step_s = whole.kernels.parameters.step_s
    assert whole.tokens_s(1) + step_s == pytest.approx(sum(one.tokens_s(1) for one in parts))


def test_tensor_parallel_divides_the_work_but_pays_for_collectives() -> None:
    works = [prefill(4096), decode(32, 32 * 2000)]
    for work in works:
        whole = model_of("llama-3.1-70b").step_s(work)
        slice_only = model_of("llama-3.1-70b-tp8-slice").step_s(work)
        together = model_of("llama-3.1-70b", tensor_parallel=8).step_s(work)
        assert slice_only < together < whole


def test_few_tokens_touch_few_experts() -> None:
    model = model_of("qwen3-30b-a3b")
    few, many = model.tokens_s(1), model.tokens_s(512)
    shape = resolve_model("qwen3-30b-a3b")
    all_experts = shape.moe_layers * shape.experts * shape.expert_params * 2
    assert many > all_experts / 4.8e12
    assert few < 0.35 * many


@pytest.mark.parametrize(("tokens", "ranks"), [(1, 8), (4, 8), (32, 8), (64, 16), (2048, 32)])
def test_ranks_wait_for_the_one_whose_experts_were_drawn_most(tokens: int, ranks: int) -> None:
    """Against drawn experts: 256, of which each token visits 8."""
    draw = np.random.default_rng(7)
    most_pairs = most_visited = 0
    for _ in range(TIMES):
        pairs = [0] * ranks
        visited: list[set[int]] = [set() for _ in range(ranks)]
        for _ in range(tokens):
            for expert in draw.choice(256, 8, replace=False).tolist():
                pairs[expert * ranks // 256] += 1
                visited[expert * ranks // 256].add(expert)
        most_pairs += max(pairs)
        most_visited += max(map(len, visited))
    mean = 256 / ranks * (1.0 - (1.0 - 8 / 256) ** tokens)
    load = busiest_rank(tokens * 8 / ranks, mean, 256 // ranks, ranks)
    assert load == pytest.approx((most_pairs / TIMES, most_visited / TIMES), rel=0.12)


def test_whole_experts_cost_a_small_batch_more_than_shares_of_each() -> None:
    shape, h200 = resolve_model("deepseek-v3"), resolve_accelerator("h200")
    whole = physics_model(shape, h200, tensor_parallel=8, expert_parallel=8)
    shares = physics_model(shape, h200, tensor_parallel=8)
    kind = "experts in fp8"
    few, many = decode(4, 4000), prefill(8192)
    assert whole.parts_s(few)[kind] > 1.2 * shares.parts_s(few)[kind]
    assert whole.parts_s(many)[kind] < 1.1 * shares.parts_s(many)[kind]


def test_a_different_accelerator_changes_the_speed() -> None:
    for work in (prefill(2048), decode(16, 16 * 1000)):
        times = [model_of("llama-3.1-8b", name).step_s(work) for name in ("b200", "h100", "l40s")]
        assert times == sorted(times)
        assert times[2] > 2 * times[0]


@pytest.mark.parametrize("name", ["h100", "h200", "b200", "gb200"])
def test_fp8_pays_for_prompts_and_most_where_conversions_serve_wide_outputs(name: str) -> None:
    plain = model_of("qwen3.5-27b", name)
    narrow = physics_model(resolve_model("Qwen/Qwen3.5-27B-FP8"), resolve_accelerator(name))
    assert narrow.step_s(prefill(8192)) < 0.9 * plain.step_s(prefill(8192))

    def gain(outputs: int) -> float:
        times = [
            one.kernels.gemm_s(8192, outputs, 5120, width, one.kernels.gemm_rates(width))
            for one, width in ((plain, 2.0), (narrow, 1.0))
        ]
        return times[0] / times[1]

    assert gain(1024) < 1.0
    assert gain(32768) > 1.25


def test_an_empty_step_takes_no_time() -> None:
    assert model_of("llama-3.1-8b").step_s(StepWork([], 0, 0, 0)) == 0.0


# These are the same interpreted and compiled; a change of the model or of the bundled profile
# changes them knowingly.
PINNED = {
    "llama-3.1-8b": ["0.022069059251361885", "0.007675411924983824", "0.016504219680653947"],
    "deepseek-v3": ["0.22976231880362297", "0.11119734234669751", "0.20724178888861175"],
    "gemma-3-27b": ["0.07280390457724396", "0.022630780172296163", "0.054846097791067104"],
    "gemma-4-31b": ["0.08594989408991216", "0.02933382192046337", "0.06527834356466033"],
    "gpt-oss-120b": ["0.0381581415080054", "0.020238082852318116", "0.03607350054001122"],
}


@pytest.mark.parametrize("name", sorted(PINNED))
def test_times_are_the_same_to_the_last_bit(name: str) -> None:
    model = model_of(name)
    works = [
        prefill(777, 1234),
        decode(48, 48 * 1500),
        StepWork([(512, 0, 900)], 31, 31 * 777, 31),
    ]
    assert [repr(model.step_s(work)) for work in works] == PINNED[name]


def test_the_bundled_profile_predicts_steps_it_was_fitted_to() -> None:
    """Four of the steps measured with PyTorch on an H200, in milliseconds."""
    profile = load_profile("h200-pytorch")
    model = physics_model(resolve_model("llama-3.1-8b"), resolve_accelerator("h200"), profile)
    assert model.step_s(decode(1, 1024)) * 1e3 == pytest.approx(4.9084, rel=0.05)
    assert model.step_s(decode(128, 128 * 1024)) * 1e3 == pytest.approx(13.2808, rel=0.05)
    assert model.step_s(prefill(2048)) * 1e3 == pytest.approx(55.5919, rel=0.05)
    assert model.step_s(prefill(4096, 8192)) * 1e3 == pytest.approx(167.8265, rel=0.05)
