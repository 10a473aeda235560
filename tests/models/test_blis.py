"""The peer's own step times, to the microsecond."""

import math

import msgspec
import pytest

from windtunnel.core.errors import InputError
from windtunnel.models.capacity import blis_kv_blocks
from windtunnel.models.catalog.accelerators import resolve_accelerator
from windtunnel.models.catalog.models import MODELS
from windtunnel.models.step_time.blis import DEFAULT_ALPHA_US, DEFAULT_BETA, BlisTrainedPhysics
from windtunnel.models.step_time.model import StepWork

LLAMA = MODELS["llama-3.1-8b"]
H100 = resolve_accelerator("h100")


def microseconds(model: BlisTrainedPhysics, work: StepWork) -> int:
    return round(model.step_s(work) * 1e6)


@pytest.mark.parametrize(("tokens", "us"), [(512, 7965), (2048, 11737), (8000, 31741)])
def test_prefill_steps_are_the_peers(tokens: int, us: int) -> None:
    model = BlisTrainedPhysics(LLAMA, H100)
    assert microseconds(model, StepWork([(tokens, 0, tokens)], 0, 0, 1)) == us


def test_a_decode_step_is_the_peers() -> None:
    model = BlisTrainedPhysics(LLAMA, H100)
    assert microseconds(model, StepWork([], 1, 8000, 1)) == 7444


def test_decode_is_a_staircase_of_whole_microseconds() -> None:
    model = BlisTrainedPhysics(LLAMA, H100)
    base, slope, until = model.decode_line(1, 8000)
    assert (round(base * 1e6), slope) == (7444, 0.0)
    assert microseconds(model, StepWork([], 1, int(until) - 1, 1)) == 7444
    assert microseconds(model, StepWork([], 1, int(until), 1)) == 7445


def test_prefill_beats_the_hardware_so_it_is_not_for_planning() -> None:
    model = BlisTrainedPhysics(LLAMA, H100)
    step_s = model.step_s(StepWork([(8000, 0, 8000)], 0, 0, 1))
    assert 2 * LLAMA.params * 8000 / step_s > 4 * H100.bf16_flops


def test_interleaved_mixtures_pay_per_mixture_layer() -> None:
    """The peer takes an interleaving of two for one mixture layer in three, so 16 of 48."""
    shape = MODELS["llama-4-maverick"]
    without = tuple(0.0 if i == 7 else b for i, b in enumerate(DEFAULT_BETA))
    work = StepWork([], 1, 100, 1)
    full = BlisTrainedPhysics(shape, H100, tensor_parallel=8)
    bare = BlisTrainedPhysics(shape, H100, tensor_parallel=8, beta=without)
    extra = microseconds(full, work) - microseconds(bare, work)
    assert extra == pytest.approx(16 * DEFAULT_BETA[7], abs=1)


@pytest.mark.parametrize("beta", [(), (1.0,) * 10, (math.nan,) * 11, (-1.0,) * 11])
def test_a_faulty_beta_is_refused(beta: tuple[float, ...]) -> None:
    with pytest.raises(InputError, match="11 finite numbers"):
        BlisTrainedPhysics(LLAMA, H100, beta=beta)


def test_a_faulty_degree_is_refused() -> None:
    with pytest.raises(InputError, match="tensor_parallel is 0"):
        BlisTrainedPhysics(LLAMA, H100, tensor_parallel=0)


@pytest.mark.parametrize(("accelerator", "blocks"), [("h100", 26312), ("l40s", 11567)])
def test_kv_blocks_are_the_peers(accelerator: str, blocks: int) -> None:
    assert blis_kv_blocks(LLAMA, resolve_accelerator(accelerator)) == blocks


def test_the_peers_time_to_first_token_adds_its_overheads() -> None:
    """As published: 512, 2048 and 8000 tokens take 23.573, 27.345 and 47.349 ms."""
    around = int(DEFAULT_ALPHA_US[0]) + int(DEFAULT_ALPHA_US[2])
    model = BlisTrainedPhysics(LLAMA, H100)
    for tokens, ttft_us in ((512, 23573), (2048, 27345), (8000, 47349)):
        assert microseconds(model, StepWork([(tokens, 0, tokens)], 0, 0, 1)) + around == ttft_us


def test_a_wider_group_has_more_than_twice_the_blocks() -> None:
    one, two = (blis_kv_blocks(LLAMA, H100, tensor_parallel=tp) for tp in (1, 2))
    assert two > 2 * one


def test_a_model_that_is_too_large_is_refused_in_a_sentence() -> None:
    with pytest.raises(InputError, match=r"does not fit on 1 h100-sxm.*raise tensor_parallel"):
        blis_kv_blocks(MODELS["llama-3.1-70b"], H100)


def test_a_step_without_work_takes_the_least_there_is() -> None:
    assert microseconds(BlisTrainedPhysics(LLAMA, H100), StepWork([], 0, 0, 0)) == 1


def test_leading_dense_layers_count_as_mixture_layers() -> None:
    shape = MODELS["deepseek-v3"]
    work = StepWork([(100, 0, 100)], 0, 0, 1)
    all_alike = msgspec.structs.replace(shape, dense_prefix_layers=0)
    one, other = (BlisTrainedPhysics(s, H100, tensor_parallel=8) for s in (shape, all_alike))
    assert microseconds(one, work) == microseconds(other, work)
