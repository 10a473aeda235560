"""Engine defaults follow the accelerator and the release of vLLM, where a pool has a model."""

import pytest

from tests.twin.test_kv_cache_dtype import TEXT
from windtunnel.core.errors import InputError
from windtunnel.engine.settings import EngineSettings
from windtunnel.twin.scenario.load import load_text
from windtunnel.twin.servers.pools import limits_of, shape_of

POOL = "serving.pools.0"
LINEAR = f"{POOL}.step_time={{model: linear, fixed: 10ms}}"


def engine(*sets: str) -> EngineSettings:
    (pool,) = load_text(TEXT, sets=sets).pools
    return pool.engine


@pytest.mark.parametrize(
    ("sets", "seqs", "tokens", "used"),
    [
        ([], 1024, 8192, 0.92),
        ([f"{POOL}.engine.version='0.19'"], 1024, 8192, 0.9),
        ([f"{POOL}.accelerator=l40s"], 256, 2048, 0.92),
        ([f"{POOL}.accelerator=b200"], 1024, 16384, 0.92),
        ([f"{POOL}.accelerator=b200", f"{POOL}.engine.max_num_seqs=64"], 64, 16384, 0.92),
        ([f"{POOL}.engine.max_num_batched_tokens=512"], 512, 512, 0.92),
        ([f"{POOL}.accelerator=l40s", f"{POOL}.engine.max_num_seqs=4096"], 4096, 4096, 0.92),
        (["model=null", LINEAR, f"{POOL}.engine.kv_blocks=100"], 256, 8192, 0.9),
        ([f"{POOL}.accelerator=l40s", f"{POOL}.engine.chunked_prefill=false"], 256, 8192, 0.92),
    ],
)
def test_defaults_are_those_of_the_accelerator(
    sets: list[str], seqs: int, tokens: int, used: float
) -> None:
    found = engine(*sets)
    assert found.max_num_seqs == seqs
    assert found.max_num_batched_tokens == tokens
    assert found.memory_utilization == used


def test_a_release_that_is_none_is_a_fault_of_its_line() -> None:
    with pytest.raises(InputError, match=r"engine\.version: .*a release 0.x of vLLM from 0.8 on"):
        engine(f"{POOL}.engine.version=latest")


def test_windows_of_a_request_take_blocks() -> None:
    (pool,) = load_text(
        TEXT, sets=["model=gemma-3-27b", f"{POOL}.engine.max_model_len=1000000"]
    ).pools
    limits = limits_of(pool, shape_of(pool))
    # one full group; six windowed ones of at most 65 blocks
    assert limits.window_blocks(160) == 6 * 10
    assert limits.window_blocks(100_000) == 6 * 65
    assert "KV blocks" in limits.refusal(limits.usable_blocks * 16 - 100, 1)
    sets = ["model=gemma-4-31b", f"{POOL}.accelerator=h200", f"{POOL}.tensor_parallel=1"]
    for degree, blocks in ((1, 5 * 2 * 65), (8, 5 * 65), (16, 5 * 66 // 2)):
        (pool,) = load_text(TEXT, sets=[*sets[:2], f"{POOL}.tensor_parallel={degree}"]).pools
        limits = limits_of(pool, shape_of(pool))
        # Five windowed groups. Alone, their blocks have 16 tokens, and those of full layers 32; on
        # sixteen GPUs 32, and those of full layers 16.
        assert limits.window_blocks(100_000) == blocks
    (plain,) = load_text(TEXT).pools
    assert limits_of(plain, shape_of(plain)).window_blocks(100_000) == 0
