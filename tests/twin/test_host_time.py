"""Time of a server's host around its steps: what is assumed, where, and how sure that is."""

import pytest

from tests.twin.test_kv_cache_dtype import TEXT
from windtunnel.search.repeats.intervals import add_intervals
from windtunnel.twin.run import simulate
from windtunnel.twin.scenario.load import load_text

POOL = "serving.pools.0"
ALONE = ("workload.0.count=5", "workload.0.arrivals={process: constant, rate: 1/s}")
NONE = f"{POOL}.overheads={{queueing: 0s, per_prompt_token: 0s}}"


@pytest.mark.parametrize(
    ("sets", "queueing_s", "per_prompt_token_s"),
    [
        ([], 0.0256, 2e-6),  # 32 layers
        (["model=qwen2.5-0.5b"], 0.0192, 2e-6),
        (["model=llama-3.2-1b"], 0.015, 2e-6),
        (["model=llama-3.1-405b", f"{POOL}.tensor_parallel=16"], 0.070, 2e-6),
        ([f"{POOL}.overheads.queueing=5ms"], 0.005, 2e-6),
        ([f"{POOL}.step_time={{model: roofline}}"], 0.0, 0.0),
        ([f"{POOL}.step_time={{model: linear, fixed: 9ms}}"], 0.0, 0.0),
    ],
)
def test_host_time_is_that_of_published_servers(
    sets: list[str], queueing_s: float, per_prompt_token_s: float
) -> None:
    (pool,) = load_text(TEXT, sets=sets).pools
    assert pool.overheads.queueing_s == pytest.approx(queueing_s)
    assert pool.overheads.per_prompt_token_s == per_prompt_token_s


def test_first_tokens_are_later_by_it_and_the_others_are_not() -> None:
    with_host, without = (simulate(load_text(TEXT, sets=[*ALONE, *more])) for more in ([], [NONE]))
    later_s = with_host["latency"]["ttft"]["mean"] - without["latency"]["ttft"]["mean"]
    assert later_s == pytest.approx(0.0256 + 100 * 2e-6, rel=1e-6)
    assert with_host["latency"]["tpot"]["mean"] == pytest.approx(
        without["latency"]["tpot"]["mean"], rel=1e-6
    )


def test_intervals_cover_host_time_unless_it_is_the_scenarios_own() -> None:
    def interval_s(*sets: str) -> float:
        plan = load_text(TEXT, sets=[*ALONE, *sets])
        result = simulate(plan)
        add_intervals(result, plan, 2, 0.01, lambda *_: None, workers=1)
        low, high = result["trust"]["latency_intervals"]["ttft"]["mean"]
        assert bool(result["trust"]["repeats"]["host_time"]) == (not sets)
        said = " ".join(finding["says"] for finding in result["trust"]["findings"])
        assert ("host time by half or twice" in said) == (not sets)
        return float(high - low)

    own = f"{POOL}.overheads={{queueing: 25.6ms, per_prompt_token: 2us}}"
    assert interval_s() - interval_s(own) == pytest.approx(1.5 * (0.0256 + 100 * 2e-6), rel=0.1)
