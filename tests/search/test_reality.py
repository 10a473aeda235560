"""A measured trace against its simulation: what differs, whose fault it is, and what mends it."""

import io
from pathlib import Path
from typing import Any

import msgspec
import pytest
from rich.console import Console

from tests.live.observed import CLOSED, OPEN, TALKS, observe, plan_of
from windtunnel.core.errors import InputError
from windtunnel.live.observe.tally import ClassTargets, ObservationTally
from windtunnel.models.settings import LinearStepTime
from windtunnel.report.terminal.measurements import show_observation, show_reality
from windtunnel.search.repeats.reality import compare_with_reality
from windtunnel.twin.scenario.plan import ScenarioPlan
from windtunnel.workload.traces.measured import Measured, MeasuredTrace, lateness
from windtunnel.workload.traces.record import TraceRequest
from windtunnel.workload.traces.writing import write_trace

CALM = ("workload.0.arrivals.rate=2/s", "workload.0.prefix=null")


def trace_of(measured: list[Measured], folder: Path) -> Path:
    path = folder / "measured.parquet"
    with MeasuredTrace(path, replace=True) as trace:
        for one in measured:
            trace.add(one)
    return path


@pytest.mark.parametrize("text", [OPEN, CLOSED, TALKS], ids=["open", "closed", "talks"])
def test_the_loop_closes(text: str, tmp_path: Path) -> None:
    """Emulated, observed, and held against the simulation: both clocks are virtual, so exactly."""
    plan = plan_of(text)
    found = compare_with_reality(plan, trace_of(observe(plan), tmp_path))
    assert found["requests"]["compared"] == found["requests"]["measured"] > 40
    for kind in ("ttft", "tpot", "e2e"):
        for name in ("mean", "p50", "p99"):
            assert found["latency"][kind][name]["error"] == pytest.approx(0.0, abs=1e-4)
        assert found["latency"][kind]["mape"] < 1e-4
    assert found["prefix_hit"]["measured"] == pytest.approx(found["prefix_hit"]["simulated"])
    assert found["sent_late"] is None
    assert found["advice"] == []
    assert found["with_advice"] is None


def sets_of(found: dict[str, Any]) -> dict[str, list[str]]:
    return {advice["about"]: advice["set"] for advice in found["advice"]}


def test_an_overhead_is_found_and_mended(tmp_path: Path) -> None:
    server = plan_of(OPEN, *CALM, "serving.pools.0.overheads.queueing=15ms")
    found = compare_with_reality(plan_of(OPEN, *CALM), trace_of(observe(server), tmp_path))
    assert found["latency"]["ttft"]["mean"]["error"] < -0.1
    (setting,) = sets_of(found)["overheads"]
    mended = plan_of(OPEN, *CALM, setting)
    assert mended.pools[0].overheads.queueing_s == pytest.approx(0.015, rel=0.2)
    again = compare_with_reality(mended, tmp_path / "measured.parquet")
    assert again["latency"]["ttft"]["mean"]["error"] == pytest.approx(0.0, abs=0.03)
    assert found["with_advice"]["ttft"] == pytest.approx(
        again["latency"]["ttft"]["mean"]["error"], abs=1e-3
    )


@pytest.mark.parametrize("slow", ["overheads.queueing=15ms", "step_time.fixed=26ms"])
def test_nothing_is_recalibrated_where_requests_were_sent_late(slow: str, tmp_path: Path) -> None:
    """A client that sends late also reads late: what looks like the server's may be its own."""
    server = plan_of(OPEN, *CALM, f"serving.pools.0.{slow}")
    late = [one._replace(due_s=one.request.arrived_s - 0.05) for one in observe(server)]
    found = compare_with_reality(plan_of(OPEN, *CALM), trace_of(late, tmp_path))
    assert found["sent_late"] == pytest.approx({"p99": 0.05, "max": 0.05})
    assert sets_of(found) == {"client": []}
    assert found["with_advice"] is None
    lines = printed(found)
    assert lines[2] == "requests were sent late, 50 ms at the 99th percentile and 50 ms at worst"
    assert lines[-1].startswith("- measure again before you recalibrate: the client machine")


def printed(found: dict[str, Any]) -> list[str]:
    console = Console(file=io.StringIO(), width=200)
    show_reality(found, "x", console)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue().splitlines()


def test_lateness_is_a_percentile_as_everywhere(tmp_path: Path) -> None:
    """`observe` prints the p99 of what it sends: a comparison with its trace has the same."""
    rows = observe(plan_of(OPEN))
    late = [one._replace(due_s=one.request.arrived_s - 1e-3 * n) for n, one in enumerate(rows)]
    tally = ObservationTally({})
    for one in late:
        tally.add(one)
    found = lateness(trace_of(late, tmp_path))
    assert found is not None
    lag = tally.figures(1.0)["lag"]
    assert (found.p99_s, found.max_s) == pytest.approx((lag["p99"], lag["max"]))


@pytest.mark.parametrize(
    ("sets", "about", "says"),
    [
        ("serving.pools.0.step_time.fixed=200ms", "steps", "too far off to recalibrate"),
        ("serving.pools.0.overheads.queueing=3s", "overheads", "too long for an overhead"),
    ],
)
def test_what_calibration_cannot_mend_is_not_calibrated(
    sets: str, about: str, says: str, tmp_path: Path
) -> None:
    server = plan_of(OPEN, *CALM, sets)
    found = compare_with_reality(plan_of(OPEN, *CALM), trace_of(observe(server), tmp_path))
    assert sets_of(found) == {about: []}
    assert says in found["advice"][0]["says"]


def linear(plan: ScenarioPlan) -> LinearStepTime:
    step = plan.pools[0].step_time
    assert isinstance(step, LinearStepTime)
    return step


def test_slow_steps_are_found_and_mended(tmp_path: Path) -> None:
    server = plan_of(OPEN, *CALM, "serving.pools.0.step_time.fixed=26ms")
    found = compare_with_reality(plan_of(OPEN, *CALM), trace_of(observe(server), tmp_path))
    assert found["latency"]["tpot"]["mean"]["error"] < -0.15
    assert "slower" in found["advice"][0]["says"]
    (setting,) = sets_of(found)["steps"]
    mended = plan_of(OPEN, *CALM, setting)
    fixed_s = linear(mended).fixed_s
    assert fixed_s == pytest.approx(0.026, rel=0.03)
    assert abs(found["with_advice"]["tpot"]) < 0.02
    assert abs(found["with_advice"]["e2e"]) < 0.03


def test_slow_prefill_is_told_from_an_overhead(tmp_path: Path) -> None:
    calm = (*CALM, "workload.0.arrivals.rate=1/s", "workload.0.output_tokens=4")
    server = plan_of(OPEN, *calm, "serving.pools.0.step_time.per_prefill_token=150us")
    found = compare_with_reality(plan_of(OPEN, *calm), trace_of(observe(server), tmp_path))
    (setting,) = sets_of(found)["prefill"]
    per_token_s = linear(plan_of(OPEN, setting)).per_prefill_token_s
    assert per_token_s == pytest.approx(150e-6, rel=0.1)
    assert "overheads" not in sets_of(found)
    assert abs(found["with_advice"]["ttft"]) < 0.03


def test_a_slow_tokeniser_is_found_where_kernels_are_measured(tmp_path: Path) -> None:
    """Physics has no parameter for it: the host's time for each prompt token is fitted."""
    calm = (
        *CALM,
        "workload.0.output_tokens=4",
        "workload.0.prompt_tokens={distribution: uniform, min: 100, max: 4000}",
        "model=llama-3.1-8b",
        "serving.pools.0={name: main, accelerator: h200}",
    )
    slow = "serving.pools.0.overheads={queueing: 40ms, per_prompt_token: 12us}"
    found = compare_with_reality(
        plan_of(OPEN, *calm), trace_of(observe(plan_of(OPEN, *calm, slow)), tmp_path)
    )
    (per_token,), (queueing,) = sets_of(found)["prefill"], sets_of(found)["overheads"]
    own = plan_of(OPEN, *calm, per_token, queueing).pools[0].overheads
    assert own.per_prompt_token_s == pytest.approx(12e-6, rel=0.1)
    assert own.queueing_s == pytest.approx(0.040, rel=0.1)
    assert abs(found["with_advice"]["ttft"]) < 0.02


def test_a_cache_that_is_off_is_noticed(tmp_path: Path) -> None:
    server = plan_of(OPEN, "serving.pools.0.engine.prefix_caching=false")
    found = compare_with_reality(plan_of(OPEN), trace_of(observe(server), tmp_path))
    assert found["prefix_hit"]["measured"] == 0.0
    assert found["prefix_hit"]["simulated"] > 0.2
    assert "prefix cache" in sets_of(found)


def test_without_a_target_nothing_is_attained(tmp_path: Path) -> None:
    untargeted = plan_of(OPEN, "slo={standard: {priority: 0}}")
    found = compare_with_reality(untargeted, trace_of(observe(untargeted), tmp_path))
    assert found["goodput"] == {"measured": None, "simulated": None}
    assert "SLO attainment: no target" in printed(found)


@pytest.mark.parametrize("targets", [{}, {"standard": ClassTargets(tpot_s=0.05)}])
def test_an_observation_has_requests_within_a_target_only_if_there_is_one(
    targets: dict[str, ClassTargets],
) -> None:
    tally, console = ObservationTally(targets), Console(file=io.StringIO(), width=200)
    for one in observe(plan_of(OPEN)):
        tally.add(one._replace(request=msgspec.structs.replace(one.request, slo="standard")))
    show_observation(tally.figures(60.0), None, console, goodput=tally.has_targets)
    assert isinstance(console.file, io.StringIO)
    assert ("within their SLO" in console.file.getvalue()) == bool(targets)


def test_targets_are_those_of_the_scenario(tmp_path: Path) -> None:
    slow = plan_of(OPEN, "serving.pools.0.step_time.fixed=60ms")
    strict = plan_of(OPEN, "slo={critical: {tpot: 50ms}}")
    found = compare_with_reality(strict, trace_of(observe(slow), tmp_path))
    assert found["goodput"]["measured"] < 0.3
    assert found["goodput"]["simulated"] > 0.9


def test_when_all_wait_nothing_is_blamed_on_overheads(tmp_path: Path) -> None:
    text = (
        "workload.0.arrivals.rate=200/s",
        "workload.0.prefix=null",
        "workload.0.prompt_tokens=400",
    )
    server = plan_of(OPEN, *text, "serving.pools.0.overheads.queueing=15ms")
    found = compare_with_reality(plan_of(OPEN, *text), trace_of(observe(server), tmp_path))
    assert "lower rate" in str([one["says"] for one in found["advice"] if one["about"] == "queue"])


def test_what_failed_when_measured_is_left_out(tmp_path: Path) -> None:
    good = observe(plan_of(OPEN))
    row = msgspec.structs.replace(good[0].request, id="x", output_tokens=0, ttft_s=None, e2e_s=None)
    cut = msgspec.structs.replace(good[1].request, id="y", output_tokens=2, e2e_s=None)
    bad = [good[0]._replace(request=row, outcome="failed"), good[1]._replace(request=cut)]
    found = compare_with_reality(plan_of(OPEN), trace_of([*good, *bad], tmp_path))
    assert found["requests"] == {
        "measured": len(good) + 1,
        "compared": len(good),
        "not_completed_when_simulated": 0,
    }


def test_other_traces_with_latencies_will_do(tmp_path: Path) -> None:
    rows = [TraceRequest(float(n), 100, 5, ttft_s=0.03, e2e_s=0.15) for n in range(20)]
    path = tmp_path / "trace.csv"
    write_trace(rows, path)
    found = compare_with_reality(plan_of(OPEN), path)
    assert found["requests"]["compared"] == 20
    assert found["prefix_hit"]["measured"] is None


def test_a_trace_without_latencies_is_a_sentence(tmp_path: Path) -> None:
    path = tmp_path / "trace.csv"
    write_trace([TraceRequest(0.0, 100, 5)], path)
    with pytest.raises(InputError, match="measured TTFT"):
        compare_with_reality(plan_of(OPEN), path)


def test_a_scenario_that_serves_nothing_of_it_is_a_sentence(tmp_path: Path) -> None:
    path = tmp_path / "trace.csv"
    write_trace([TraceRequest(0.0, 100, 5, ttft_s=0.1, e2e_s=0.2)], path)
    tiny = plan_of(OPEN, "serving.pools.0.engine.kv_blocks=3")
    with pytest.raises(InputError, match="does the scenario describe this server"):
        compare_with_reality(tiny, path)


def test_answers_that_come_all_at_once_ask_for_no_step_without_time(tmp_path: Path) -> None:
    """A server that does not really stream, or a machine that hands everything on late."""
    fixed = ("serving.pools.0.step_time={model: linear, fixed: 10ms}", "workload.0.output_tokens=4")
    plan = plan_of(OPEN, *CALM, *fixed)
    clumped = []
    for one in observe(plan):
        row = msgspec.structs.replace(one.request, ttft_s=one.request.e2e_s)
        clumped.append(one._replace(request=row, gaps_s=[]))
    found = compare_with_reality(plan, trace_of(clumped, tmp_path))
    assert found["latency"]["tpot"]["mean"]["measured"] == pytest.approx(0.0, abs=1e-9)
    assert sets_of(found) == {"steps": []}


def test_a_scenario_that_names_its_model_is_compared(tmp_path: Path) -> None:
    rows = [TraceRequest(float(n), 100, 5, ttft_s=0.03, e2e_s=0.15) for n in range(20)]
    path = tmp_path / "trace.csv"
    write_trace(rows, path)
    found = compare_with_reality(plan_of(OPEN, "model=llama-3.1-8b"), path)
    assert found["requests"]["compared"] == 20
