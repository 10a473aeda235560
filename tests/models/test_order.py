"""A newer GPU is never slower, more bandwidth never hurts, and nothing jumps with the batch."""

import msgspec
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from windtunnel.core.errors import InputError
from windtunnel.models.catalog.accelerators import ACCELERATORS, resolve_accelerator
from windtunnel.models.catalog.models import MODELS, resolve_model
from windtunnel.models.step_time.model import StepWork, tokens_of
from windtunnel.models.step_time.physics import Physics
from windtunnel.models.step_time.profile import physics_model, profile_for

EIGHT = ("b200", "b300")  # whose tables of all-reduces have groups of eight, as the H200's
FASTER = [("h200", "h100"), ("h100", "a100"), ("b200", "h200"), ("gb200", "h200")]


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


@pytest.mark.parametrize(("faster", "slower"), FASTER)
@given(name=st.sampled_from(sorted(MODELS)), kv_bytes=st.sampled_from([1.0, 2.0]), work=steps())
def test_a_newer_gpu_is_not_slower(
    faster: str, slower: str, name: str, kv_bytes: float, work: StepWork
) -> None:
    new = _model(name, faster, kv_bytes=kv_bytes).step_s(work)
    old = _model(name, slower, kv_bytes=kv_bytes).step_s(work)
    assert new <= old


@pytest.mark.parametrize("tp", [2, 4, 8])
@pytest.mark.parametrize(("faster", "slower"), FASTER[:2])
@given(name=st.sampled_from(sorted(MODELS)), work=steps())
def test_nor_is_a_group_of_them_over_links_of_the_same_kind(
    faster: str, slower: str, tp: int, name: str, work: StepWork
) -> None:
    try:
        new, old = _model(name, faster, tp), _model(name, slower, tp)
    except InputError:
        assume(False)
    # An A100 multiplies fp8 weights in bf16, without converting its inputs: with little work for
    # each of eight GPUs, that may be as quick as an H100.
    other_kernels = slower == "a100" and resolve_model(name).matmul_precision == "fp8"
    assert new.step_s(work) <= old.step_s(work) * (1.1 if other_kernels else 1.0)


@pytest.mark.parametrize("tp", [2, 4, 8])
@pytest.mark.parametrize(("faster", "slower"), [*FASTER[2:], ("b300", "h200")])
@given(name=st.sampled_from(sorted(MODELS)), work=steps())
def test_blackwell_loses_to_hopper_only_by_the_start_of_all_reduces(
    faster: str, slower: str, tp: int, name: str, work: StepWork
) -> None:
    """NVLink 5 has twice the bandwidth of NVLink 4, but takes longer to start.

    Every kernel that was timed on both starts later on a B200: vLLM's, SGLang's, TensorRT-LLM's and
    NCCL's.
    """
    try:
        new, old = _model(name, faster, tp), _model(name, slower, tp)
    except InputError:
        assume(False)
    tokens = tokens_of(work)
    shape = resolve_model(name)
    calls = 2 * shape.layers - shape.bare_layers
    message = tokens * shape.hidden * shape.activation_bytes
    reduce, reduced = (one.kernels.all_reduce_s(message, tp) for one in (new, old))
    rest = new.step_s(work) - calls * reduce
    # A layer of the smallest models is less than a wave of tiles: a hundredth may be lost there.
    assert rest <= 1.01 * (old.step_s(work) - calls * reduced)
    if faster in EIGHT:
        start = new.kernels.parameters.all_reduce_s - old.kernels.parameters.all_reduce_s
        assert reduce <= reduced + start
    if faster in EIGHT and message >= 1 << 20:
        assert reduce <= reduced


@pytest.mark.parametrize("gpu", ["h200", "b200"])
@pytest.mark.parametrize("gpus", [2, 4, 8])
def test_all_reduces_of_a_decode_step_take_the_fused_kernel(gpu: str, gpus: int) -> None:
    """TensorRT-LLM's kernel on 8,192 numbers takes 2.8 to 3.6 us (H200), 4.8 to 5.7 us (B200)."""
    kernels = _model("llama-3.1-70b", gpu, gpus).kernels
    least, most = {"h200": (2.7e-6, 3.7e-6), "b200": (4.7e-6, 5.8e-6)}[gpu]
    assert least <= kernels.all_reduce_s(2.0 * 8192, gpus) <= most


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
