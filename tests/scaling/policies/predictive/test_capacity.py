"""What a replica carries: worked numbers, and what must hold of any of them."""

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from windtunnel.scaling.policies.predictive.capacity import Carrier, RequestMix
from windtunnel.scaling.snapshot import Objective, ReplicaSpec, StepTimes, Variant


class Line(StepTimes):
    """A step takes a fixed time, and more with what it computes."""

    def __init__(self, fixed_s: float = 6e-3, token_s: float = 25e-6, decode_s: float = 40e-6):
        self.fixed_s = fixed_s
        self.token_s = token_s
        self.decode_s = decode_s

    def step_s(self, prefill_tokens: float, decoding: float, context_tokens: float) -> float:
        return self.fixed_s + self.token_s * prefill_tokens + self.decode_s * decoding


def variant(role: str = "both", kv_tokens: float = 1e9, seqs: int = 256) -> Variant:
    return Variant(
        "v",
        role=role,
        spec=ReplicaSpec(
            kv_tokens=kv_tokens, max_num_seqs=seqs, max_num_batched_tokens=8192, step_times=Line()
        ),
    )


def test_a_steady_state_is_where_load_and_step_time_agree() -> None:
    # 10/s of 100+200 tokens: T = 6 ms + 25 us * 10 * 100 * T + 40 us * n with n = 10 * 200 * T,
    # so T = 6 ms / (1 - 0.025 - 0.08) = 6.704 ms and n = 13.4. Then the busier tail of n.
    sure = Objective(attained=0.5)
    state = Carrier(variant(), RequestMix(100, 200, prompt_cv=0.0), sure).operation(10.0)
    assert state is not None
    assert state.step_s == pytest.approx(6.704e-3, rel=1e-3)
    assert state.decoding == pytest.approx(13.41, rel=1e-3)


def test_beyond_the_engine_there_is_no_steady_state() -> None:
    # Decoding alone: n = rate * 200 * (6 ms + 40 us * n) has no solution from 125/s on.
    carrier = Carrier(variant(seqs=100_000), RequestMix(1, 200), Objective(attained=0.5))
    assert carrier.operation(130.0) is None


@pytest.mark.parametrize(
    ("role", "objective", "kv_tokens", "seqs", "bound"),
    [
        ("both", Objective(tpot_s=0.008), 1e9, 4096, "tpot"),
        ("both", Objective(ttft_s=0.06), 1e9, 4096, "ttft"),
        ("both", Objective(e2e_s=1.6), 1e9, 4096, "e2e"),
        ("both", Objective(), 5_000.0, 4096, "kv"),
        ("both", Objective(), 1e9, 8, "sequences"),
        ("prefill", Objective(ttft_s=0.06), 1e9, 256, "ttft"),
        ("prefill", Objective(), 1e9, 256, "busy"),
        ("decode", Objective(tpot_s=0.008), 1e9, 4096, "tpot"),
    ],
)
def test_what_binds_is_named(
    role: str, objective: Objective, kv_tokens: float, seqs: int, bound: str
) -> None:
    carried = Carrier(variant(role, kv_tokens, seqs), RequestMix(300, 200), objective).carried()
    assert carried.bound == bound
    assert carried.rate > 0.0


def test_a_promise_that_no_replica_can_keep_carries_nothing() -> None:
    carried = Carrier(variant(), RequestMix(300, 200), Objective(tpot_s=0.001)).carried()
    assert (carried.rate, carried.bound) == (0.0, "tpot")


@settings(max_examples=20)
@given(
    st.floats(16, 8000),
    st.floats(1, 2000),
    st.floats(0.007, 0.1),
    st.sampled_from(["both", "prefill", "decode"]),
)
def test_more_is_carried_of_less(prompt: float, output: float, tpot_s: float, role: str) -> None:
    def carried(shape: RequestMix, promise_s: float, replicas: float = 1.0) -> float:
        return Carrier(variant(role), shape, Objective(0.5, promise_s)).carried(replicas).rate

    base = carried(RequestMix(prompt, output), tpot_s)
    slack = 1.005
    assert math.isfinite(base)
    assert carried(RequestMix(prompt * 1.3, output), tpot_s) <= base * slack
    # A longer answer sees more prompts pass, so its luck is more even: that is worth a little.
    assert carried(RequestMix(prompt, output * 1.3), tpot_s) <= base * 1.1
    assert carried(RequestMix(prompt, output, prefix_hit=0.5), tpot_s) >= base / slack
    assert carried(RequestMix(prompt, output), tpot_s * 1.5) >= base / slack
    assert carried(RequestMix(prompt, output), tpot_s, 16.0) >= base / slack
