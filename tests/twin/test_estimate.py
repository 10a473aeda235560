"""What a run takes is told before it starts, within a factor of a few."""

import pytest

from tests.twin.runs import BUSY, one_server, run
from windtunnel.twin.estimate import RunEstimate, estimate, mean_estimate
from windtunnel.twin.scenario.load import load_text

CURVE = ["workload.0.rate_curve=[[0s, 0], [1h, 1]]", "duration=1h"]


def test_requests_follow_from_counts_rates_and_durations() -> None:
    assert estimate(load_text(one_server(count=7))).requests == 7
    endless = one_server(count=10**9, rate="40/s")
    assert estimate(load_text(endless, sets=["duration=1h"])).requests == pytest.approx(144_000)
    assert estimate(load_text(endless, sets=CURVE)).requests == pytest.approx(72_000)
    arrived = run(BUSY)["requests"]["arrived"]
    assert estimate(load_text(BUSY)).requests == pytest.approx(arrived, rel=0.3)


def test_requests_of_a_closed_loop_follow_from_users_and_answers() -> None:
    loop = BUSY.replace("{process: poisson, rate: 100/s}", "{process: closed, users: 4, think: 2s}")
    sets = ["duration=60s", "workload.1.count=1"]
    arrived = run(loop, *sets)["requests"]["arrived"]
    assert estimate(load_text(loop, sets=sets)).requests == pytest.approx(arrived, rel=0.6)


def test_points_of_a_sweep_are_not_taken_for_its_first() -> None:
    few, many = (load_text(one_server(count=count)) for count in (10, 1000))
    both = mean_estimate([few, many])
    assert both.requests == 505
    assert both.memory_bytes == estimate(many).memory_bytes
    assert mean_estimate([few, many] * 500).requests == pytest.approx(505, rel=0.2)


def test_a_backlog_of_a_billion_is_told_and_a_short_run_is_not() -> None:
    told = estimate(load_text(one_server(count=10**9, rate="1000000/s")))
    sentence = told.sentence()
    assert sentence is not None
    assert sentence.startswith("about 1 G requests: some ")
    assert told.memory_bytes > 100 * 2**30
    assert estimate(load_text(one_server(count=1000))).sentence() is None


def test_many_short_runs_are_long_together() -> None:
    one = RunEstimate(requests=1e5, cpu_s=6.0, memory_bytes=1e8)
    assert one.sentence() is None
    assert one.sentence(40) == (
        "40 runs of about 100 k requests each: some 4 min of CPU time, and 95.4 MiB of memory "
        "each, or more where requests queue up"
    )
