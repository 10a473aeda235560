"""`engine.kv_cache_dtype: fp8`: what it changes, and where it is refused."""

import pytest

from windtunnel.core.errors import InputError
from windtunnel.engine.limits import EngineLimits
from windtunnel.models.step_time.model import StepWork
from windtunnel.twin.scenario.load import load_text
from windtunnel.twin.servers.pools import limits_of, shape_of, step_time_of
from windtunnel.twin.settings import PoolSettings

TEXT = """\
name: small
model: llama-3.1-8b
workload:
  - name: chat
    count: 10
    arrivals: {process: poisson, rate: 4/s}
    prompt_tokens: 100
    output_tokens: 20
serving:
  pools:
    - {name: main, accelerator: h100, engine: {}, step_time: {model: physics}}
"""
FP8 = "serving.pools.0.engine.kv_cache_dtype=fp8"


def pool_of(*sets: str) -> PoolSettings:
    (pool,) = load_text(TEXT, sets=sets).pools
    return pool


def limits(*sets: str) -> EngineLimits:
    pool = pool_of(*sets)
    return limits_of(pool, shape_of(pool))


def decode_s(*sets: str) -> float:
    """Of 64 requests with 8,000 tokens each in the cache."""
    pool = pool_of(*sets)
    return step_time_of(pool, shape_of(pool)).step_s(StepWork([], 64, 64 * 8_000, 64))


def test_the_same_memory_holds_twice_the_tokens() -> None:
    assert limits(FP8).kv_blocks == pytest.approx(2 * limits().kv_blocks, abs=1)


@pytest.mark.parametrize("model", ["physics", "roofline"])
def test_decoding_reads_half_the_bytes(model: str) -> None:
    step_time = f"serving.pools.0.step_time.model={model}"
    longer_s = decode_s(step_time) - decode_s(step_time, FP8)
    kv_bytes = 64 * 8_000 * 131_072
    assert longer_s == pytest.approx(kv_bytes / 2 / 3.35e12, rel=0.25)


@pytest.mark.parametrize("model", ["roofline", "blis-trained-physics"])
def test_sparse_attention_is_refused_where_it_is_not_modelled(model: str) -> None:
    sets = ["model=deepseek-v3.2", "serving.pools.0.tensor_parallel=16"]
    with pytest.raises(InputError, match="sparse attention"):
        decode_s(*sets, f"serving.pools.0.step_time.model={model}")


def test_the_default_is_no_part_of_the_digest() -> None:
    auto = FP8.replace("fp8", "auto")
    assert load_text(TEXT, sets=[auto]).sha256 == load_text(TEXT).sha256
    assert load_text(TEXT, sets=[FP8]).sha256 != load_text(TEXT).sha256


def test_hardware_and_formulas_without_it_refuse_it() -> None:
    for other, said in (
        ("accelerator=a100", "engine.kv_cache_dtype: 'fp8', but the accelerator a100 has no fp8"),
        ("step_time.model=blis-trained-physics", "assumes two bytes; allowed: auto"),
    ):
        with pytest.raises(InputError) as caught:
            load_text(TEXT, sets=[FP8, f"serving.pools.0.{other}"])
        assert said in str(caught.value)
