"""Data-parallel ranks and pipelines: memory against vLLM's own lines, and step times by parts."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from windtunnel.core.errors import InputError
from windtunnel.models.capacity import MemoryLimits, kv_capacity
from windtunnel.models.catalog.accelerators import resolve_accelerator
from windtunnel.models.catalog.models import resolve_model
from windtunnel.models.step_time.model import StepTimeModel, StepWork, largest_share
from windtunnel.models.step_time.physics import Physics, Ranks
from windtunnel.models.step_time.pipeline import HOP_S, Pipelined
from windtunnel.models.step_time.profile import physics_model

H100, H200 = resolve_accelerator("h100"), resolve_accelerator("h200")
DEEPSEEK, LLAMA, QWEN = map(resolve_model, ("deepseek-v3", "llama-3.1-8b", "qwen3-30b-a3b"))
GATHER = "allgather_reducescatter"


def ranks(count: int, backend: str = GATHER) -> Physics:
    return physics_model(DEEPSEEK, H200, None, 1, count, Ranks(count, backend))


def decode(sequences: int, drafts: int = 0) -> StepWork:
    positions = sequences * (1 + drafts)
    return StepWork([], sequences, 2000 * sequences, positions, sequences * drafts)


@pytest.mark.parametrize(("stages", "tokens"), [(1, 476_016), (2, 1_075_312), (4, 2_257_264)])
def test_a_pipelines_blocks_are_those_that_vllm_printed(stages: int, tokens: int) -> None:
    """Llama 3.1 8B on H100s, vLLM 0.19: the last stage has the output head and the sampler."""
    limits = MemoryLimits(memory_utilization=0.95, max_model_len=8192, version="0.19")
    found = kv_capacity(LLAMA, H100, limits, pipeline_parallel=stages)
    assert found.tokens == pytest.approx(tokens, rel=1e-3)


def test_ranks_hold_all_of_attention_and_a_share_of_the_experts() -> None:
    apart = kv_capacity(DEEPSEEK, H200, expert_parallel=8, data_parallel=8)
    cut = kv_capacity(DEEPSEEK, H200, data_parallel=8)
    together = kv_capacity(DEEPSEEK, H200, tensor_parallel=8)
    assert apart.weight_bytes == pytest.approx(cut.weight_bytes, rel=0.01)
    assert apart.weight_bytes > together.weight_bytes
    # Latent attention is whole on every GPU: eight ranks keep nearly eight times the tokens.
    assert 4 * together.tokens < 8 * apart.tokens < 8 * together.tokens
    with pytest.raises(InputError, match="pipeline_parallel is 40 but the model has 32 layers"):
        kv_capacity(LLAMA, H100, pipeline_parallel=40)


def test_experts_see_the_tokens_of_all_ranks_and_attention_its_own() -> None:
    one, eight = physics_model(DEEPSEEK, H200, None, 1, 1), ranks(8)
    whole, divided = (model.parts_s(decode(256)) for model in (one, eight))
    own = one.parts_s(decode(32))
    for kind in ("latent attention", "gemm in fp8"):
        assert divided[kind] == pytest.approx(own[kind], rel=0.1)
    assert whole["experts in fp8"] / 8 <= divided["experts in fp8"] < whole["experts in fp8"] / 4
    assert divided["all-to-all"] > 0.0 == divided["all-reduce"]
    assert sum(divided.values()) == pytest.approx(eight.step_s(decode(256)))
    # A lone prompt is on one rank, and the others wait for it.
    alone, spread = StepWork([(4096, 0, 4096)], 0, 0, 1), StepWork([(512, 0, 512)] * 8, 0, 0, 8)
    assert eight.step_s(alone) > 2 * eight.step_s(spread)


def test_whole_experts_of_one_group_need_no_other_collective() -> None:
    """All GPUs of a tensor-parallel group have all tokens: vLLM sums, as without."""
    cut, dealt = (physics_model(DEEPSEEK, H200, None, 8, experts) for experts in (1, 8))
    sums = [model.parts_s(decode(64))["all-reduce"] for model in (cut, dealt)]
    assert sums[0] == sums[1] > 0.0


def test_exchanges_take_what_was_measured() -> None:
    """DeepEP on eight H200s, 7,168 wide, top 8: us of dispatch and combine in the tables."""
    kernels = ranks(8).kernels
    for backend, tokens, measured in (
        ("deepep_low_latency", 32, 50 + 53),
        ("deepep_low_latency", 128, 112 + 101),
        ("deepep_high_throughput", 512, 250 + 247),
        ("deepep_high_throughput", 4096, 982 + 1452),
    ):
        took = 1e6 * kernels.exchange_s(backend, tokens, 7168, 8, 8)
        assert took == pytest.approx(measured, rel=0.3), (backend, tokens)
    # NCCL on eight H200s: 16.8 MB in 67 and 70 us.
    assert 1e6 * kernels.gather_s(2.0 * (1 << 23), 8) == pytest.approx(68, rel=0.2)


def test_a_round_takes_as_long_as_its_largest_batch() -> None:
    inner = physics_model(LLAMA, H100)
    piped = Pipelined(inner, 4, 1e-9, 2048)
    hops = 3 * (HOP_S + 16e-9)
    assert piped.step_s(decode(64)) == pytest.approx(inner.step_s(decode(16)) + hops, rel=1e-9)
    # A prompt of four batches fills all stages; one of one batch has the pipeline for itself.
    four, one = (StepWork([(tokens, 0, tokens)], 0, 0, 1) for tokens in (8192, 2048))
    last = StepWork([(2048, 6144, 8192)], 0, 0, 1)
    assert piped.step_s(one) == pytest.approx(inner.step_s(one) + 3 * (HOP_S + 2048e-9), rel=1e-9)
    assert piped.step_s(four) <= inner.step_s(last) + 3 * (HOP_S + 2048e-9)


@given(
    st.lists(st.tuples(st.integers(1, 900), st.integers(0, 900)), max_size=6),
    st.integers(0, 40),
    st.integers(1, 8),
    st.sampled_from([50, 1 << 30]),
)
def test_no_share_is_larger_than_the_whole_nor_smaller_than_the_mean(
    chunks: list[tuple[int, int]], decodes: int, parts: int, longest: int
) -> None:
    work = StepWork([(new, cached, new + cached) for new, cached in chunks], decodes, 0, 0)
    share = largest_share(work, parts, longest)
    tokens, own = (w.decodes + sum(c[0] for c in w.chunks) for w in (work, share))
    assert tokens / parts <= own <= tokens


@given(st.sampled_from(["ranks", "pipeline"]), st.integers(1, 300), st.integers(0, 3_000_000))
def test_lines_are_the_steps_of_divided_work(kind: str, decodes: int, context: int) -> None:
    model: StepTimeModel = ranks(8)
    if kind == "pipeline":
        model = Pipelined(physics_model(QWEN, H200), 4, 1e-9, 8192)
    base, slope, until = model.decode_line(decodes, context)
    assert until > context
    for there in (context, min(until - 1, context + 10_000)):
        step = model.step_s(StepWork([], decodes, int(there), decodes))
        assert step == pytest.approx(base + slope * int(there), rel=1e-9)
