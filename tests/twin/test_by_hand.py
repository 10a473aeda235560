"""Runs small enough to be computed by hand, in the test, from the rules of a step."""

from itertools import pairwise
from typing import Any

import pytest

from tests.twin.runs import one_server, run
from windtunnel.twin.results.accounts import RecordNames
from windtunnel.twin.run import run as run_plan
from windtunnel.twin.scenario.load import load_text
from windtunnel.workload.request import UNSET, Request

FIXED, PREFILL, DECODE, CONTEXT = 10e-3, 1e-3, 2e-3, 100e-6
"""The step times of `one_server`, in seconds."""


def prompt_step(tokens: int) -> float:
    return FIXED + PREFILL * tokens


def decode_step(*contexts: int) -> float:
    return FIXED + DECODE * len(contexts) + CONTEXT * sum(contexts)


def assert_figures(figures: dict[str, float], values: list[float], *, exact: bool = True) -> None:
    """Mean and extremes are exact; the gaps' percentiles come from buckets of one percent."""
    assert figures["mean"] == pytest.approx(sum(values) / len(values), rel=1e-12)
    assert figures["max"] == pytest.approx(max(values), rel=1e-12)
    if exact:
        ordered = sorted(values)
        middle = (ordered[(len(ordered) - 1) // 2] + ordered[len(ordered) // 2]) / 2
        assert figures["p50"] == pytest.approx(middle, rel=1e-12)


def test_one_request_alone() -> None:
    """A prompt of 8 tokens gives the first token; each of two decode steps gives another."""
    steps = [prompt_step(8), decode_step(8), decode_step(9)]
    for overlapped in (False, True):
        result = run(one_server(output=3, overlapped=overlapped))
        latency = result["latency"]
        assert_figures(latency["ttft"], steps[:1])
        assert_figures(latency["e2e"], [sum(steps)])
        assert_figures(latency["tpot"], [sum(steps[1:]) / 2])
        assert_figures(latency["itl"], steps[1:], exact=False)
        assert_figures(latency["queue"], [0.0])
        assert result["simulated_seconds"] == pytest.approx(1.0 + sum(steps), rel=1e-12)
        busy = sum(steps) / result["simulated_seconds"]
        assert result["pools"]["main"]["utilization"] == pytest.approx(busy, rel=1e-12)
        assert result["pools"]["main"]["kv_peak"] == pytest.approx(1 / 999)
        assert result["tokens"] == {"prompt": 8, "output": 3, "prefix_hit": 0}


def test_a_single_token_has_no_time_per_further_token() -> None:
    latency = run(one_server(output=1))["latency"]
    assert_figures(latency["ttft"], [prompt_step(8)])
    assert_figures(latency["e2e"], [prompt_step(8)])
    assert set(latency["tpot"].values()) == set(latency["itl"].values()) == {None}


@pytest.mark.parametrize("host_s", [0.0, 0.004, 0.05])
def test_the_host_is_added_when_it_waits_and_hidden_when_it_overlaps(host_s: float) -> None:
    host = f"{host_s * 1000:g}ms"
    steps = [prompt_step(8), decode_step(8), decode_step(9)]
    waiting = run(one_server(host=host))["latency"]
    assert_figures(waiting["ttft"], [steps[0] + host_s])
    assert_figures(waiting["e2e"], [sum(steps) + 3 * host_s])
    hidden = run(one_server(host=host, overlapped=True))["latency"]
    longer = [max(step, host_s) for step in steps]
    # After an idle time nothing hides the planning of the first step.
    assert_figures(hidden["ttft"], [host_s + longer[0]])
    assert_figures(hidden["e2e"], [host_s + sum(longer)])
    assert_figures(hidden["queue"], [host_s])


def arrivals(gap_s: float, count: int) -> list[float]:
    return [gap_s * (number + 1) for number in range(count)]


def test_an_arrival_joins_the_next_step_or_with_overlap_the_one_after() -> None:
    """Two requests, 25 ms apart; the second comes during the first's second step."""
    text = one_server(count=2, rate="40/s", output=5, overlapped=False)
    first, second = arrivals(0.025, 2)
    ends = [first + prompt_step(8)]
    ends.append(ends[-1] + decode_step(8))
    assert ends[0] < second < ends[1]
    joined = FIXED + DECODE + CONTEXT * 9 + PREFILL * 8
    # Both run in one batch from here on: the first has two tokens to go, the second four.
    tail = [joined, decode_step(10, 8), decode_step(11, 9), decode_step(10), decode_step(11)]
    result = run(text)
    assert_ends(result, first, second, ends, tail, shared=2)

    result = run(text, "serving.pools.0.engine.async_scheduling=true")
    ends.append(ends[-1] + decode_step(9))  # planned before the second came
    joined = FIXED + DECODE + CONTEXT * 10 + PREFILL * 8
    tail = [joined, decode_step(11, 8), decode_step(9), decode_step(10), decode_step(11)]
    assert_ends(result, first, second, ends, tail, shared=1)


def assert_ends(
    result: dict[str, Any],
    first: float,
    second: float,
    alone: list[float],
    tail: list[float],
    *,
    shared: int,
) -> None:
    """`alone`: ends of the first one's own steps; `tail`: steps from the one where both are in."""
    ends = list(alone)
    for step in tail:
        ends.append(ends[-1] + step)
    joined = len(alone)
    first_ends = ends[: joined + 1 + shared]
    second_ends = ends[joined:]
    assert len(first_ends) == len(second_ends) == 5
    latency = result["latency"]
    assert_figures(latency["ttft"], [first_ends[0] - first, second_ends[0] - second])
    assert_figures(latency["e2e"], [first_ends[-1] - first, second_ends[-1] - second])
    assert_figures(latency["queue"], [0.0, alone[-1] - second])
    gaps = [
        later - earlier for one in (first_ends, second_ends) for earlier, later in pairwise(one)
    ]
    assert_figures(latency["itl"], gaps, exact=False)


def test_slo_targets_are_kept_or_missed_by_arithmetic() -> None:
    ttft, e2e = prompt_step(8), prompt_step(8) + decode_step(8) + decode_step(9)
    for target, limit, kept in [
        ("ttft", ttft, True),
        ("ttft", ttft, False),
        ("e2e", e2e, True),
        ("tpot", (e2e - ttft) / 2, False),
    ]:
        bound = limit * (1.001 if kept else 0.999)
        result = run(one_server(), f"slo={{standard: {{{target}: {bound:.9f}}}}}")
        assert result["slo"]["standard"]["attained"] == float(kept)
        goodput = result["throughput"]["goodput_requests_per_s"]
        assert goodput == (result["throughput"]["requests_per_s"] if kept else 0.0)


def test_overheads_are_seen_by_clients_and_not_by_the_engine() -> None:
    plain = run(one_server())
    sets = "serving.pools.0.overheads={queueing: 5ms, per_token: 1ms, completion: 2ms}"
    around = run(one_server(), sets)
    steps = [prompt_step(8), decode_step(8), decode_step(9)]
    assert_figures(around["latency"]["queue"], [0.005])
    assert_figures(around["latency"]["ttft"], [0.005 + steps[0] + 0.001])
    assert_figures(around["latency"]["e2e"], [0.005 + sum(steps) + 0.001 + 0.002])
    assert_figures(around["latency"]["tpot"], [sum(steps[1:]) / 2])
    assert_figures(around["latency"]["itl"], steps[1:], exact=False)
    busy = [result["pools"]["main"]["utilization"] for result in (plain, around)]
    seconds = [result["simulated_seconds"] for result in (plain, around)]
    assert busy[0] * seconds[0] == pytest.approx(busy[1] * seconds[1], rel=1e-12)


@pytest.mark.parametrize("until", ["workload.0.timeout=3ms", "duration=1.003"])
def test_who_goes_before_the_step_that_was_planned_for_it_was_never_in_one(until: str) -> None:
    """The host needs 50 ms before the first step; whoever goes before that has only waited."""
    ended: list[Request] = []

    class Sink:
        def write(self, requests: list[Request], outcomes: list[str], names: RecordNames) -> None:
            ended.extend(requests)

    plan = load_text(one_server(output=10, overlapped=True, host="50ms"), sets=[until])
    result = run_plan(plan, rows=Sink(), check=True).result
    (request,) = ended
    assert result["requests"]["completed"] == 0
    assert request.scheduled_s == UNSET
    assert request.reason in ("", "the client left before prefill began")
