"""Laws every step-time model keeps: decode lines are its steps, and none beats the hardware."""

import math

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from windtunnel.core.errors import InputError
from windtunnel.models.catalog.accelerators import (
    ACCELERATORS,
    PRECISIONS,
    Accelerator,
    resolve_accelerator,
)
from windtunnel.models.catalog.models import MODELS
from windtunnel.models.catalog.shapes import ModelShape
from windtunnel.models.step_time.blis import DEFAULT_BETA, BlisTrainedPhysics
from windtunnel.models.step_time.linear import Linear
from windtunnel.models.step_time.model import StepTimeModel, StepWork
from windtunnel.models.step_time.roofline import Roofline, all_reduce_s, causal_pairs, upper_line

H100 = resolve_accelerator("h100")
LLAMA = MODELS["llama-3.1-8b"]


def prefill(tokens: int, past: int = 0) -> StepWork:
    return StepWork([(tokens, past, past + tokens)], 0, 0, 1)


def decode(decodes: int, context: int) -> StepWork:
    return StepWork([], decodes, context, decodes)


@st.composite
def step_time_models(draw: st.DrawFn) -> StepTimeModel:
    kind = draw(st.sampled_from(["linear", "roofline", "blis"]))
    if kind == "linear":
        cost = st.floats(0.0, 1e-2)
        return Linear(
            fixed_s=draw(st.floats(1e-6, 1e-2)),
            prefill_token_s=draw(cost),
            decode_s=draw(cost),
            context_token_s=draw(cost),
        )
    shape = MODELS[draw(st.sampled_from(sorted(MODELS)))]
    accelerator = ACCELERATORS[draw(st.sampled_from(sorted(ACCELERATORS)))]
    degrees = [n for n in (1, 2, 4, 8) if shape.heads % n == 0 and not _uneven(shape, n)]
    degree = draw(st.sampled_from(degrees))
    if kind == "roofline":
        slower = slowed(accelerator, draw(st.floats(0.001, 1.0)), draw(st.floats(0.05, 1.0)))
        return Roofline(shape, slower, tensor_parallel=degree)
    beta = draw(st.sampled_from([DEFAULT_BETA, (0.5,) * 11, (0.0,) * 11]))
    return BlisTrainedPhysics(shape, accelerator, tensor_parallel=degree, beta=beta)


def slowed(accelerator: Accelerator, compute: float, bandwidth: float = 1.0) -> Accelerator:
    """The accelerator with a share of its matrix rates and of its bandwidth."""
    rates = {f"{name}_flops": compute * accelerator.peak_flops(name) for name in PRECISIONS}
    rates["hbm_bytes_per_s"] = bandwidth * accelerator.hbm_bytes_per_s
    return msgspec.structs.replace(accelerator, **rates)


def _uneven(shape: ModelShape, degree: int) -> bool:
    return bool(shape.kv_heads % degree and degree % shape.kv_heads)


@given(
    model=step_time_models(),
    decodes=st.integers(1, 2048),
    context=st.integers(0, 50_000_000),
    fractions=st.lists(st.floats(0.0, 1.0), min_size=1, max_size=4),
)
def test_a_decode_line_is_the_step_all_along_its_segment(
    model: StepTimeModel, decodes: int, context: int, fractions: list[float]
) -> None:
    for _ in range(4):
        base, slope, until = model.decode_line(decodes, context)
        assert until > context
        last = context + 10_000_000 if until == math.inf else math.ceil(until) - 1
        inside = {context, last, *(context + int(f * (last - context)) for f in fractions)}
        for point in sorted(inside):
            expected = model.step_s(decode(decodes, point))
            assert base + slope * point == pytest.approx(expected, rel=1e-12, abs=0.0)
        if until == math.inf:
            return
        context = last + 1


@given(
    model=step_time_models(),
    chunks=st.lists(st.tuples(st.integers(1, 8192), st.integers(0, 100_000)), max_size=3),
    decodes=st.integers(0, 512),
    mean=st.integers(0, 10_000),
)
def test_more_work_never_takes_less_time(
    model: StepTimeModel, chunks: list[tuple[int, int]], decodes: int, mean: int
) -> None:
    work = [(new, past, past + new) for new, past in chunks]
    samples = decodes + len(work)
    took = model.step_s(StepWork(work, decodes, decodes * mean, samples))
    assert math.isfinite(took)
    assert took > 0.0
    longer = StepWork([*work, (64, 0, 64)], decodes + 1, (decodes + 1) * mean, samples + 2)
    assert model.step_s(longer) >= took


# `linear` knows no hardware and `blis-trained-physics` is fitted past it: neither is held to this.
@pytest.mark.parametrize("accelerator", ACCELERATORS.values(), ids=lambda a: a.name)
@pytest.mark.parametrize("shape", MODELS.values(), ids=lambda s: s.name)
def test_no_roofline_step_beats_the_hardware(shape: ModelShape, accelerator: Accelerator) -> None:
    fastest = max(accelerator.peak_flops(p) for p in ("bf16", shape.matmul_precision))
    body = shape.active_params - shape.head_params - shape.norm_params
    for degree in (1, 2):
        model = Roofline(shape, accelerator, tensor_parallel=degree)
        for tokens in (1, 512, 8192):
            arithmetic_s = 2 * body * tokens / degree / fastest
            assert model.step_s(prefill(tokens)) >= arithmetic_s * (1 - 1e-9)
        for decodes in (1, 64, 1024):
            context = decodes * 2000
            step_s = model.step_s(decode(decodes, context))
            assert step_s >= 2 * body * decodes / degree / fastest * (1 - 1e-9)
            read = shape.full_layers * shape.kv_bytes_per_token_layer * context / degree
            assert step_s >= read / accelerator.hbm_bytes_per_s * (1 - 1e-9) or shape.is_latent
        read = shape.active_params * min(shape.weight_bytes, shape.expert_weight_bytes) / degree
        one_s = model.step_s(decode(1, 0))
        assert one_s >= read / accelerator.hbm_bytes_per_s * (1 - 1e-9)


def test_a_dense_decode_reads_all_weights_but_the_input_table() -> None:
    model = Roofline(LLAMA, H100)
    weights = LLAMA.total_weight_bytes - 2 * LLAMA.head_params
    kv = LLAMA.kv_bytes_per_token * 1001
    expected = (weights + kv + 2 * LLAMA.hidden) / H100.hbm_bytes_per_s
    assert model.step_s(decode(1, 1000)) == pytest.approx(expected, rel=1e-12)


def test_a_long_prefill_runs_at_peak_arithmetic() -> None:
    tokens = 8192
    body = LLAMA.active_params - LLAMA.head_params - LLAMA.norm_params
    attention = 32 * 4 * 32 * 128 * tokens * (tokens + 1) / 2
    flops = 2 * body * tokens + attention + 2 * LLAMA.head_params
    model = Roofline(LLAMA, H100)
    assert model.step_s(prefill(tokens)) == pytest.approx(flops / H100.bf16_flops, rel=1e-12)


def test_a_prompt_in_chunks_costs_the_same_arithmetic() -> None:
    model = Roofline(LLAMA, H100)
    whole = model.step_s(StepWork([(8192, 0, 8192)], 0, 0, 0))
    halves = [StepWork([(4096, past, 8192)], 0, 0, 0) for past in (0, 4096)]
    assert sum(model.step_s(half) for half in halves) == pytest.approx(whole, rel=1e-9)


def test_few_tokens_wake_few_experts() -> None:
    model = Roofline(MODELS["qwen3-30b-a3b"], H100)
    one = model.step_s(decode(1, 0))
    many = model.step_s(decode(64, 0))
    everything = MODELS["qwen3-30b-a3b"].total_weight_bytes / H100.hbm_bytes_per_s
    assert one < 0.15 * everything
    assert 0.9 * everything < many < everything


def test_experts_dealt_out_cost_what_experts_cut_do() -> None:
    shape = MODELS["mixtral-8x7b"]
    cut = Roofline(shape, H100, tensor_parallel=4)
    dealt = Roofline(shape, H100, tensor_parallel=4, expert_parallel=4)
    for work in (prefill(8192), decode(64, 64_000)):
        assert dealt.step_s(work) == pytest.approx(cut.step_s(work), rel=1e-9)


def test_windows_stop_growing() -> None:
    model = Roofline(MODELS["gpt-oss-20b"], H100)
    _, steep, until = model.decode_line(4, 0)
    assert until == 4 * 127
    _, shallow, _ = model.decode_line(4, 4 * 127)
    assert shallow == pytest.approx(steep / 2)


def test_full_attention_layers_cost_what_their_own_heads_do() -> None:
    """A key of Gemma 4 31B's ten full layers is 8,192 bytes, of its 50 windowed ones 16,384."""
    model = Roofline(MODELS["gemma-4-31b"], H100)
    _, near, until = model.decode_line(1, 0)
    assert until == 1023
    _, far, _ = model.decode_line(1, 1023)
    assert near * H100.hbm_bytes_per_s == pytest.approx(50 * 16_384 + 10 * 8192)
    assert far * H100.hbm_bytes_per_s == pytest.approx(10 * 8192)
    # Past the windows a pair is two multiplications of 32 heads of 512 in each full layer.
    more = model.step_s(prefill(8192, 100_000)) - model.step_s(prefill(8192, 50_000))
    flops = 10 * 4 * 32 * 512 * 8192 * 50_000
    assert more * H100.peak_flops("bf16") == pytest.approx(flops)


def test_a_large_batch_bends_where_arithmetic_overtakes_memory() -> None:
    model = Roofline(LLAMA, slowed(H100, 0.05))
    base, slope, until = model.decode_line(64, 0)
    assert 0 < until < math.inf
    after = model.decode_line(64, math.ceil(until))
    assert after[1] > slope
    assert base + slope * until == pytest.approx(after[0] + after[1] * until, rel=1e-9)


def test_tensor_parallelism_pays_for_its_sums() -> None:
    shape = MODELS["llama-3.1-70b"]
    slice_s = Roofline(shape.per_gpu(8), H100).step_s(decode(32, 32_000))
    whole_s = Roofline(shape, H100, tensor_parallel=8).step_s(decode(32, 32_000))
    sums_s = 160 * all_reduce_s(32 * 8192 * 2, 8, H100)
    assert whole_s - slice_s == pytest.approx(sums_s, rel=1e-9)


@given(new=st.integers(1, 60), past=st.integers(0, 60), window=st.integers(0, 80))
def test_causal_pairs_are_counted_one_by_one(new: int, past: int, window: int) -> None:
    seen = [past + i + 1 for i in range(new)]
    assert causal_pairs(new, past, window) == sum(min(k, window) if window else k for k in seen)


def test_equal_lines_take_the_steeper() -> None:
    assert upper_line(1.0, 0.0, 1.0, 1.0, 0) == (1.0, 1.0, math.inf)
    assert upper_line(2.0, 0.0, 1.0, 1.0, 0) == (2.0, 0.0, 1.0)


@pytest.mark.parametrize(
    "costs",
    [
        {"fixed_s": -1.0},
        {"fixed_s": math.nan},
        {"fixed_s": 1.0, "decode_s": math.inf},
        {"fixed_s": 0.0},
        {"fixed_s": 0.0, "decode_s": 1.0},
    ],
)
def test_linear_costs_must_make_sense(costs: dict[str, float]) -> None:
    with pytest.raises(InputError, match="linear step time"):
        Linear(**costs)


def test_linear_adds_up() -> None:
    model = Linear(fixed_s=1.0, prefill_token_s=0.5, decode_s=0.25, context_token_s=0.125)
    work = StepWork([(2, 100, 102), (4, 0, 4)], 8, 16, 10)
    assert model.step_s(work) == 1.0 + 3.0 + 2.0 + 2.0


def test_a_model_of_ones_own_is_an_ordinary_class() -> None:
    class Constant(StepTimeModel):
        def step_s(self, work: StepWork) -> float:
            return 0.01

        def decode_line(self, decodes: int, context: int) -> tuple[float, float, float]:
            return 0.01, 0.0, math.inf

    model: StepTimeModel = Constant()
    assert model.step_s(decode(1, 1)) == model.decode_line(1, 1)[0]
