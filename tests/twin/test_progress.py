"""A run in a livelock ends, and names the loop."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from tests.twin.scaled import Script, scaled
from windtunnel.cli.simulation.explain import explain
from windtunnel.cli.simulation.simulate import simulate
from windtunnel.core.errors import NoFixedPoint
from windtunnel.core.loop import Component
from windtunnel.core.units import format_duration
from windtunnel.twin.compose import compose
from windtunnel.twin.progress import NO_PROGRESS
from windtunnel.twin.run import breathe, run
from windtunnel.twin.scenario.load import load_text

FLAPPING = """\
name: flapping
workload:
  - {name: long, count: 3, arrivals: {process: constant, rate: 10/s}, prompt_tokens: 8,
     output_tokens: 100}
serving:
  pools:
    - {name: main, replicas: 1, engine: {kv_blocks: 100}, step_time: {model: linear, fixed: 100ms}}
  drain: {policy: immediate}
scaling: {policy: saturation, interval: 1s, pools: {main: {min: 0, max: 2}}}
"""
"""Answers take 10 s; a script takes their server away every other second."""


def flap(*sets: str) -> dict[str, Any]:
    return scaled(FLAPPING, Script({"main": 0}, {"main": 1}, again=True), *sets)[0]


def test_a_request_that_is_restarted_for_ever_ends_the_run() -> None:
    result = flap("progress.restarts=50")
    assert result["ended_by"] == NO_PROGRESS
    assert result["requests"]["unfinished"] == 3
    assert result["simulated_seconds"] == pytest.approx(101.0)
    assert result["partial"] == (
        "none of the 3 requests inside finished in the last 1 min 40 s: request 0 was "
        "restarted 51 times (153 with 2 more), every 2 s (pool main drains); pool main "
        "was resized 101 times, every 1 s (it is written) (progress.restarts: 50)"
    )


def test_a_pool_that_is_resized_for_ever_ends_the_run() -> None:
    result = flap("progress.resizes=30")
    assert "pool main was resized 31 times, every 1 s" in result["partial"]
    assert result["partial"].endswith("(progress.resizes: 30)")


def test_limits_are_counted_from_the_last_request_that_finished() -> None:
    """Short answers end between two resizes: the same limits end nothing."""
    sets = ("workload.0.output_tokens=4", "workload.0.arrivals.rate=1/s", "workload.0.count=200")
    result = flap(*sets, "progress.restarts=5", "progress.resizes=5")
    assert (result["ended_by"], result["requests"]["completed"]) == ("last request", 200)


def test_what_happens_while_nothing_is_inside_is_no_loop() -> None:
    """A pool that flaps all night waits for nobody."""
    sets = ("workload.0.output_tokens=1", "workload.0.arrivals.rate=1/m", "progress.resizes=5")
    assert flap(*sets)["ended_by"] == "last request"


def test_by_default_a_livelock_ends_too() -> None:
    result = run(load_text(FLAPPING), scaler=Script({"main": 0}, {"main": 1}, again=True)).result
    assert "request 0 was restarted 1,001 times (3,003 with 2 more)" in result["partial"]


SLOW = """\
name: slow
workload:
  - {name: long, count: 1, arrivals: {process: constant, rate: 1/s}, prompt_tokens: 8,
     output_tokens: 30}
serving:
  pools:
    - {name: main, role: prefill, engine: {kv_blocks: 99, max_num_seqs: 2,
       max_num_batched_tokens: 2}, step_time: {model: linear, fixed: 10s}}
    - {name: decode, role: decode, engine: {kv_blocks: 100},
       step_time: {model: linear, fixed: 10s}}
  disaggregation: {transfer: {bytes_per_token: 1000}}
scaling:
  {policy: saturation, interval: 1s, pools: {main: {min: 1, max: 1}, decode: {min: 1, max: 1}}}
"""
"""The autoscaler looks ten times in a step, and some 350 times before the one request finishes."""


def test_a_request_that_gets_further_is_progress_however_slow_its_steps_are() -> None:
    result = run(load_text(SLOW, sets=["progress.events=20"])).result
    assert (result["ended_by"], result["requests"]["completed"]) == ("last request", 1)


def test_a_step_longer_than_the_limit_is_none() -> None:
    result = run(load_text(SLOW, sets=["progress.events=3"])).result
    assert result["ended_by"] == NO_PROGRESS


def test_a_run_with_events_for_ever_ends_whatever_repeats() -> None:
    """No kind of loop is at its limit: events alone end it, and the loops are named."""
    result = flap("progress.events=100")
    assert result["ended_by"] == NO_PROGRESS
    assert "events; request 0 was restarted" in result["partial"]
    assert result["partial"].endswith("(progress.events: 100)")


def test_requests_that_arrive_or_finish_are_progress() -> None:
    sets = ("workload.0.output_tokens=4", "workload.0.arrivals.rate=1/s", "workload.0.count=200")
    assert flap(*sets, "progress.events=20")["ended_by"] == "last request"


def test_every_view_of_a_run_tells_that_it_ended_early(tmp_path: Path) -> None:
    (tmp_path / "lost.yaml").write_text(LOST)
    folder = str(tmp_path / "run")
    done = CliRunner().invoke(simulate, [str(tmp_path / "lost.yaml"), "-o", folder])
    assert done.exit_code == 3
    told = " ".join(done.output.split())
    assert "the results are partial: the one request inside did not finish" in told
    assert "pool main lost a server 21 times" in told
    page = (tmp_path / "run" / "report.html").read_text()
    assert "The run ended early: the one request inside did not finish" in page
    told = " ".join(CliRunner().invoke(explain, [folder]).output.split())
    assert "the run ended early the one request inside did not finish" in told


LOST = """\
name: lost
workload:
  - {name: long, count: 1, arrivals: {process: constant, rate: 10/s}, prompt_tokens: 8,
     output_tokens: 100}
serving:
  pools:
    - {name: main, replicas: 1, engine: {kv_blocks: 100}, step_time: {model: linear, fixed: 100ms}}
  retries: {attempts: 1000}
faults:
  - {kind: engine-crash, every: {mean: 3s}}
progress: {losses: 20}
"""


def test_a_sentence_has_the_counts_of_the_log_in_the_time_that_it_names(tmp_path: Path) -> None:
    """Two servers crash at a time, long before and after the one request arrives."""
    scenario = LOST.replace("replicas: 1", "replicas: 2").replace("rate: 10/s", "rate: 0.01/s")
    scenario = scenario.replace("mean: 3s}", "mean: 3s}, select: {count: all}")
    (tmp_path / "lost.yaml").write_text(scenario)
    folder = tmp_path / "run"
    done = CliRunner().invoke(
        simulate, [str(tmp_path / "lost.yaml"), "--events", "-o", str(folder)]
    )
    assert done.exit_code == 3
    result = json.loads((folder / "result.json").read_text())
    inside_s = result["simulated_seconds"] - 100.0
    events = [json.loads(line) for line in (folder / "events.jsonl").read_text().splitlines()]
    inside = [one for one in events if one["time"] >= 100.0]
    lost = [one["time"] for one in inside if one["kind"] == "replica.gone"]
    retried = [one for one in inside if one["kind"] == "request.retried"]
    assert len(lost) > len(set(lost)) == 21
    counted_s = max(lost) - min(lost)
    assert counted_s < inside_s
    assert result["partial"] == (
        f"the one request inside did not finish in the last {format_duration(counted_s)}: "
        f"pool main lost a server {len(lost)} times at 21 moments, "
        f"every {format_duration(counted_s / 20)} (its engine crashed); request 0 was restarted "
        f"{len(retried)} times, every {format_duration(period_s(retried))} (its engine crashed) "
        "(progress.losses: 20)"
    )


def period_s(events: list[dict[str, Any]]) -> float:
    return float((events[-1]["time"] - events[0]["time"]) / (len(events) - 1))


def test_a_pool_that_loses_its_servers_for_ever_ends_the_run() -> None:
    said = run(load_text(LOST)).result["partial"]
    assert said.startswith("the one request inside did not finish in the last ")
    assert "pool main lost a server 21 times" in said
    assert "request 0 was restarted 21 times" in said
    assert said.endswith("(progress.losses: 20)")


def test_servers_that_are_lost_together_are_no_loop() -> None:
    sets = ("serving.pools.0.replicas=50", "faults.0.every=null", "faults.0.at=1s")
    result = run(load_text(LOST, sets=(*sets, "faults.0.select.count=all"))).result
    assert (result["pools"]["main"]["replicas"]["lost"], result["partial"]) == (50, None)


MACHINES = """\
fleet:
  pools:
    - {name: big, accelerator: h200, machines: {max: 2}, provisioning: {mean: 1s}}
"""


def test_a_pod_that_is_gone_leaves_nothing_to_wait_for() -> None:
    """It drained within its grace of a day, and nobody starts another server."""
    sets = ("serving.pools.0.accelerator=h200", "serving.drain.policy=wait")
    text = FLAPPING.replace("count: 3", "count: 20") + MACHINES
    result = scaled(text, Script({"main": 0}), *sets)[0]
    assert (result["ended_by"], result["partial"]) == ("nothing to wait for", None)
    assert result["requests"]["completed"] > 0


class Restless(Component):
    """Always has something to do now."""

    def __init__(self, at_s: float) -> None:
        self._at_s = at_s

    def next_s(self) -> float:
        return self._at_s

    def advance(self, now_s: float) -> None:
        pass


class NeverQuiet(Restless):
    def advance(self, now_s: float) -> None:
        raise NoFixedPoint("10 rounds of clusters and machines")


def stuck(component: Component) -> tuple[str, str, bool]:
    simulation = compose(load_text(FLAPPING))
    simulation.control.components.append(component)
    simulation.run(breathe)
    assert simulation.early is not None
    return simulation.early.by, simulation.early.sentence, simulation.is_torn


def test_time_that_stands_still_ends_the_run() -> None:
    by, sentence, torn = stuck(Restless(0.5))
    assert (by, torn) == (NO_PROGRESS, False)
    assert re.match(r"time does not advance beyond 500 ms, after \d+,\d{3} events", sentence)


def test_controllers_that_never_rest_end_the_run() -> None:
    assert stuck(NeverQuiet(0.5)) == (
        NO_PROGRESS,
        "time does not advance beyond 500 ms, after 10 rounds of clusters and machines",
        True,
    )
