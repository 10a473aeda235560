"""What a run takes is told before it starts, within a factor of a few."""

import pytest

from tests.twin.runs import BUSY, one_server, run
from windtunnel.twin.estimate import RunEstimate, estimate
from windtunnel.twin.scenario.load import load_text

CURVE = ["workload.0.rate_curve=[[0s, 0], [1h, 1]]", "duration=1h"]


def test_requests_follow_from_counts_rates_and_durations() -> None:
    assert estimate(load_text(one_server(count=7))).requests == 7
    endless = one_server(count=10**9, rate="40/s")
    assert estimate(load_text(endless, sets=["duration=1h"])).requests == pytest.approx(144_000)
    assert estimate(load_text(endless, sets=CURVE)).requests == pytest.approx(72_000)
    arrived = run(BUSY)["requests"]["arrived"]
    assert estimate(load_text(BUSY)).requests == pytest.approx(arrived, rel=0.3)


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
