"""A long run can be interrupted or ended early, in both forms."""

import math
import signal

import pytest

from tests.twin.runs import one_server
from windtunnel.twin.run import run, simulate
from windtunnel.twin.scenario.load import load_text
from windtunnel.twin.simulation import Simulation


def test_ctrl_c_ends_a_run_that_would_go_on_for_hours() -> None:
    plan = load_text(one_server(count=10**9, rate="100/s"))
    before = signal.signal(signal.SIGALRM, signal.default_int_handler)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.05)
        with pytest.raises(KeyboardInterrupt):
            simulate(plan)
    finally:
        signal.signal(signal.SIGALRM, before)


def test_a_run_that_ends_early_has_the_results_of_its_beginning() -> None:
    plan = load_text(one_server(count=10**9, rate="100/s"), sets=["duration=10h"])

    def stop(simulation: Simulation) -> None:
        simulation.end_early("memory", "it is enough")
        simulation.end_early("another", "the first reason counts")

    result = run(plan, look=stop).result
    requests, seconds = result["requests"], result["simulated_seconds"]
    assert (result["ended_by"], result["partial"]) == ("memory", "it is enough")
    assert 0.0 < seconds < 3_600.0
    assert requests["arrived"] == pytest.approx(100.0 * seconds, abs=2)
    assert requests["unfinished"] == requests["arrived"] - requests["completed"] > 0
    assert result["trust"]["verdict"] == "doubt"
    assert result["trust"]["findings"][0]["code"] == "partial"
    # What has happened until then is what a run of that length shows.
    whole = run(plan.changed(duration_s=math.nextafter(seconds, math.inf))).result
    assert whole["partial"] is None
    for part in ("requests", "latency", "tokens"):
        assert whole[part] == result[part]
