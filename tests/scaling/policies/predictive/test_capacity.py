"""What a replica carries: worked numbers, and what must hold of any of them."""

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from windtunnel.scaling.policies.predictive.capacity import capacity_of
from windtunnel.scaling.policies.predictive.mix import DrawnRequests, RequestMix
from windtunnel.scaling.snapshot import Objective, ReplicaSpec, StepTimes, Variant


class Line(StepTimes):
    """A step takes a fixed time, and more with what it computes."""

    def __init__(self, fixed_s: float = 6e-3, token_s: float = 25e-6, decode_s: float = 40e-6):
        self.fixed_s = fixed_s
        self.token_s = token_s
        self.decode_s = decode_s

    def step_s(self, prefill_tokens: float, decoding: float, context_tokens: float) -> float:
        return self.fixed_s + self.token_s * prefill_tokens + self.decode_s * decoding


def variant(
    role: str = "both", kv_tokens: float = 1e9, seqs: int = 256, line: Line | None = None
) -> Variant:
    return Variant(
        "v",
        role=role,
        spec=ReplicaSpec(
            kv_tokens=kv_tokens,
            max_num_seqs=seqs,
            max_num_batched_tokens=8192,
            step_times=line or Line(),
        ),
    )


def test_full_steps_bound_a_replica_without_targets() -> None:
    # 128 sequences all the time: a step decodes 128 tokens and computes 128/200 of a prompt of 100
    # tokens, which takes 6 ms + 128 * 40 us + 64 * 25 us = 12.7 ms; 0.64 requests end in it.
    mix = RequestMix(100, 200, prompt_cv=0.0)
    capacity = capacity_of(variant(seqs=128), mix, Objective())
    assert capacity.rate == pytest.approx(0.95 * 0.64 / 12.72e-3, rel=0.05)
    assert capacity.bound == "sequences"


def test_the_tail_of_a_queue_bounds_prompts_alone() -> None:
    # Equal prompts of 8,000 tokens, one by one, take 206 ms each, so TTFT is within 0.45 s after a
    # wait of 1.18 services. Of an M/D/1 queue with load r, (1 - r) (exp(1.18 r) - 0.18 r exp(0.18
    # r)) wait no longer, which is 95% at r = 0.32.
    mix = RequestMix(8000, 1, prompt_cv=0.0)
    capacity = capacity_of(variant("prefill"), mix, Objective(ttft_s=0.45))
    assert capacity.rate == pytest.approx(0.32 / 0.206, rel=0.1)
    assert capacity.bound == "ttft"


def test_draws_repeat_and_have_exact_means() -> None:
    drawn, again = (DrawnRequests(RequestMix(800, 250), "both") for _ in range(2))
    drawn.draw()
    again.draw()
    assert drawn.outputs == again.outputs
    assert sum(drawn.gaps) / len(drawn.gaps) == pytest.approx(1.0, rel=0.01)
    assert sum(drawn.prompts) / len(drawn.prompts) == pytest.approx(800, rel=0.01)
    assert sum(drawn.outputs) / len(drawn.outputs) == pytest.approx(250, rel=0.01)


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
    carried = capacity_of(variant(role, kv_tokens, seqs), RequestMix(300, 200), objective)
    assert carried.bound == bound
    assert carried.rate > 0.0


def test_if_no_replica_can_keep_a_promise_queues_are_kept_from_growing() -> None:
    mix = RequestMix(300, 200)
    capacity = capacity_of(variant(), mix, Objective(tpot_s=0.001))
    unbound = capacity_of(variant(), mix, Objective())
    assert capacity == (unbound.rate, capacity.running, "tpot", False)
    assert capacity.running > 0.9 * unbound.running


def test_a_decode_replica_takes_a_new_sequence_at_the_next_step() -> None:
    # 2 slots of answers of 200 tokens at 6.08 ms per step of two: 2 / (200 * 6.08 ms).
    pair = capacity_of(variant("decode", seqs=2), RequestMix(300, 200), Objective())
    assert pair.rate == pytest.approx(0.95 * 2.0 / (200 * 6.08e-3), rel=0.1)
    # One answer of 30 tokens takes 0.18 s: much is carried before it takes 0.8 s.
    goal = Objective(e2e_s=0.8)
    assert capacity_of(variant("decode", seqs=64), RequestMix(300, 30), goal).reached


def test_more_prefix_hits_leave_less_to_compute() -> None:
    drawn = [DrawnRequests(RequestMix(1000, 10, hit), "both") for hit in (0.5, 0.95, 1.0)]
    for each in drawn:
        each.draw()
    shares = [sum(each.new) / sum(each.prompts) for each in drawn]
    assert shares == [
        pytest.approx(0.5, abs=0.05),
        pytest.approx(0.05, abs=0.01),
        pytest.approx(0.001, rel=0.01),
    ]


@pytest.mark.parametrize("role", ["both", "prefill", "decode"])
@pytest.mark.parametrize(("prompt", "output"), [(300, 200), (3000, 150), (400, 600), (60, 30)])
def test_more_is_carried_of_less(prompt: float, output: float, role: str) -> None:
    def carried(mix: RequestMix, slower: float = 1.0, replicas: int = 1) -> float:
        goal = Objective(0.5 * slower, 0.03 * slower)
        return capacity_of(variant(role), mix, goal, replicas).rate

    base = carried(RequestMix(prompt, output))
    slack = 1.03  # bisection ends within 2.5%
    assert carried(RequestMix(1.3 * prompt, output)) <= base * slack
    assert carried(RequestMix(prompt, output, prefix_hit=0.5)) >= base / slack
    assert carried(RequestMix(prompt, output), slower=1.5) >= base / slack
    assert carried(RequestMix(prompt, output), replicas=4) >= base / slack


@settings(max_examples=25, deadline=None)
@given(
    st.floats(1, 1e9),
    st.floats(1, 1e9),
    st.floats(0, 1),
    st.floats(0, 50),
    st.sampled_from(["both", "prefill", "decode"]),
    st.sampled_from([0, 1, 700, 1e9]),
    st.sampled_from([0, 1, 64]),
    st.sampled_from([0.0, 1e-6, 0.2, 1e3]),
)
def test_any_mix_on_any_replica_has_a_capacity(
    prompt: float,
    output: float,
    hit: float,
    cv: float,
    role: str,
    kv_tokens: float,
    seqs: int,
    target_s: float,
) -> None:
    mix = RequestMix(prompt, output, hit, cv)
    capacity = capacity_of(variant(role, kv_tokens, seqs), mix, Objective(target_s, target_s))
    assert 0.0 < capacity.rate < math.inf
    assert 0.0 <= capacity.running <= (seqs or 256)


def test_steps_without_duration_do_not_go_on_forever() -> None:
    assert (
        capacity_of(variant(line=Line(0.0, 0.0, 0.0)), RequestMix(300, 200), Objective()).rate > 0
    )
