"""A newer GPU is never slower, more bandwidth never hurts, and nothing jumps with the batch."""

import msgspec
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from windtunnel.core.errors import InputError
from windtunnel.models.catalog.accelerators import ACCELERATORS, resolve_accelerator
from windtunnel.models.catalog.models import MODELS, resolve_model
from windtunnel.models.step_time.model import StepWork
from windtunnel.models.step_time.physics import Physics
from windtunnel.models.step_time.profile import physics_model, profile_for

FASTER = [
    ("h200", "h100"),
    ("h100", "a100"),
    ("b200", "h200"),
    ("gb200", "h200"),
    ("b300", "h200"),
    ("gb300", "h200"),
    ("h200", "gh200"),  # scaled, between two that were timed
    ("gh200", "h100"),
    ("mi355x", "mi350x"),
    ("mi355x", "mi325x"),
    ("mi325x", "mi300x"),
]
ROUNDED = 1 + 1e-6  # parameters have six digits


@st.composite
def steps(draw: st.DrawFn) -> StepWork:
    chunks = draw(
        st.lists(st.tuples(st.integers(1, 8192), st.sampled_from([0, 1000, 30000])), max_size=3)
    )
    decodes = draw(st.integers(0 if chunks else 1, 1024))
    context = decodes * draw(st.integers(1, 60000))
    new = [(tokens, cached, tokens + cached) for tokens, cached in chunks]
    return StepWork(new, decodes, context, decodes + len(new))


def _model(name: str, gpu: str, tp: int = 1, kv_bytes: float = 2.0) -> Physics:
    shape = msgspec.structs.replace(resolve_model(name), kv_bytes=kv_bytes)
    return physics_model(shape, resolve_accelerator(gpu), tensor_parallel=tp)


@pytest.mark.parametrize("tp", [1, 2, 4, 8])
@pytest.mark.parametrize(("faster", "slower"), FASTER)
@given(name=st.sampled_from(sorted(MODELS)), kv_bytes=st.sampled_from([1.0, 2.0]), work=steps())
def test_a_newer_gpu_is_not_slower_alone_or_in_a_group(
    faster: str, slower: str, tp: int, name: str, kv_bytes: float, work: StepWork
) -> None:
    try:
        new, old = _model(name, faster, tp, kv_bytes), _model(name, slower, tp, kv_bytes)
    except InputError:
        assume(False)
    assert new.step_s(work) <= ROUNDED * old.step_s(work)


@pytest.mark.parametrize("name", ["gemma-4-31b", "gemma-4-26b-a4b"])
@given(
    pair=st.sampled_from(FASTER),
    tp=st.sampled_from([1, 2, 4, 8, 16]),
    kv_bytes=st.sampled_from([1.0, 2.0]),
    work=steps(),
)
def test_nor_is_it_with_two_kinds_of_attention(
    name: str, pair: tuple[str, str], tp: int, kv_bytes: float, work: StepWork
) -> None:
    new, old = (_model(name, gpu, tp, kv_bytes).step_s(work) for gpu in pair)
    assert new <= ROUNDED * old


@pytest.mark.parametrize(("faster", "slower"), FASTER)
@given(kib=st.integers(1, 1 << 20), gpus=st.sampled_from([2, 4, 8]))
def test_nor_is_an_all_reduce(faster: str, slower: str, kib: int, gpus: int) -> None:
    new, old = (
        _model("llama-3.1-70b", gpu, gpus).kernels.all_reduce_s(1024.0 * kib, gpus)
        for gpu in (faster, slower)
    )
    assert new <= ROUNDED * old


@pytest.mark.parametrize("gpus", [2, 4, 8])
def test_all_reduces_of_a_decode_step_take_the_fused_kernel(gpus: int) -> None:
    """TensorRT-LLM's kernel on 8,192 numbers takes 2.8 to 3.6 us on an H200."""
    kernels = _model("llama-3.1-70b", "h200", gpus).kernels
    assert 2.7e-6 <= kernels.all_reduce_s(2.0 * 8192, gpus) <= 3.7e-6


@pytest.mark.parametrize(
    ("gpu", "kib", "measured_us"),
    [
        *(("h200", 16, 3.5), ("h200", 128, 6.4), ("h200", 256, 10.1), ("h200", 1024, 14.1)),
        *(("h200", 4096, 28.4), ("b200", 8192, 39.2), ("b200", 16384, 63.2)),
    ],
)
def test_all_reduces_of_eight_gpus_take_what_was_measured(
    gpu: str, kib: int, measured_us: float
) -> None:
    """The order shortens those of B200s below 8 MiB alone."""
    kernels = _model("llama-3.1-70b", gpu, 8).kernels
    assert kernels.all_reduce_s(1024.0 * kib, 8) == pytest.approx(1e-6 * measured_us, rel=0.12)


@given(
    name=st.sampled_from(sorted(MODELS)),
    gpu=st.sampled_from(sorted(ACCELERATORS)),
    more=st.floats(1.0, 4.0),
    work=steps(),
)
def test_more_bandwidth_is_never_slower(name: str, gpu: str, more: float, work: StepWork) -> None:
    here = ACCELERATORS[gpu]
    wider = msgspec.structs.replace(here, hbm_bytes_per_s=more * here.hbm_bytes_per_s)
    profile = profile_for(here)
    shape = resolve_model(name)
    now = physics_model(shape, here, profile).step_s(work)
    assert physics_model(shape, wider, profile).step_s(work) <= now * (1 + 1e-12)


@pytest.mark.parametrize("gpu", ["h100", "h200", "b200", "gb200"])
@pytest.mark.parametrize("tp", [1, 8])
@given(batch=st.integers(64, 384), context=st.sampled_from([500, 2000, 8000, 32000]))
def test_latent_attention_has_no_jump_with_the_batch(
    gpu: str, tp: int, batch: int, context: int
) -> None:
    model = _model("deepseek-v3", gpu, tp)

    def attention_s(decodes: int) -> float:
        work = StepWork([], decodes, decodes * context, decodes)
        return model.step_s(work) - model.tokens_s(decodes) - model.head_s(decodes)

    assert attention_s(batch + 1) <= 1.1 * attention_s(batch)
