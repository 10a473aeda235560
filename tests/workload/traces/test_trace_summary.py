"""The figures of a trace are what one would count by hand."""

import math
import statistics

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.workload.traces.trace_files import any_trace
from windtunnel.workload.traces.record import TraceRequest
from windtunnel.workload.traces.summary import MOST_BUCKETS, RateProfile, summarise


def chained(time_s: float, *keys: int) -> TraceRequest:
    ends = tuple(100 * (at + 1) for at in range(len(keys)))
    return TraceRequest(time_s, 400, 10, prefix_keys=keys, prefix_ends=ends)


def test_rates_and_bursts() -> None:
    times = [10.0, 10.5, 10.9, 12.0, 70.5]
    figures = summarise([TraceRequest(time, 5, 5) for time in times]).figures()
    assert figures["requests"] == 5
    assert (figures["start_s"], figures["span_s"]) == (10.0, 60.5)
    assert figures["rate_per_s"] == pytest.approx(4 / 60.5)
    gaps = [0.5, 0.4, 1.1, 58.5]
    assert figures["gap_cv"] == pytest.approx(statistics.pstdev(gaps) / statistics.mean(gaps))
    assert figures["by_second"]["peak_rate_per_s"] == 3
    counts = [3, 0, 1, *[0] * 57]
    dispersion = statistics.pvariance(counts) / statistics.mean(counts)
    assert figures["by_second"]["dispersion"] == pytest.approx(dispersion)
    assert figures["by_minute"] == {"peak_rate_per_s": 4 / 60, "dispersion": None}


def test_a_window_that_the_trace_ends_in_is_left_out() -> None:
    even = summarise([TraceRequest(number / 2, 5, 5) for number in range(500)]).figures()
    assert even["by_minute"] == {"peak_rate_per_s": 2.0, "dispersion": 0.0}
    assert even["by_second"] == {"peak_rate_per_s": 2.0, "dispersion": 0.0}
    short = summarise([TraceRequest(number / 10, 5, 5) for number in range(50)]).figures()
    assert short["by_minute"] == {"peak_rate_per_s": None, "dispersion": None}
    assert short["by_second"]["peak_rate_per_s"] == 10


def test_lengths_and_their_correlation() -> None:
    pairs = [(1, 30), (2, 20), (3, 10), (100, 5)]
    figures = summarise([TraceRequest(0.0, *pair) for pair in pairs]).figures()
    assert figures["prompt_tokens"]["total"] == 106
    assert figures["prompt_tokens"]["p50"] == 2.5
    assert figures["output_tokens"]["mean"] == 16.25
    expected = statistics.correlation(*zip(*pairs, strict=True))
    assert figures["length_correlation"] == pytest.approx(expected)
    assert figures["rate_per_s"] is None


def test_an_endless_cache_finds_what_came_before() -> None:
    trace = [chained(0, 1, 2), chained(1, 1, 2, 3), chained(2, 2, 3), chained(3, 1, 3)]
    figures = summarise(trace).figures()["prefix"]
    assert figures["segments"] == 9
    assert figures["segment_hit_rate"] == 3 / 9
    assert figures["hit_rate"] == (200 + 100) / 1600
    assert figures["distinct_segments"] == 6


def test_names_are_counted() -> None:
    named = [TraceRequest(0.0, 1, 1, tenant=t, session=s) for t in "ab" for s in ("x", "y", "z")]
    figures = summarise([*named, TraceRequest(0.0, 1, 1, adapter="poet")]).figures()
    assert (figures["tenants"], figures["sessions"], figures["models"]) == (2, 3, 0)
    assert figures["adapters"] == 1
    assert figures["at_least"] == []


@given(trace=any_trace())
def test_figures_are_there_whatever_the_trace(trace: list[TraceRequest]) -> None:
    figures = summarise(trace).figures()
    assert list(figures) == list(summarise([]).figures())
    assert figures["requests"] == len(trace) == sum(figures["rate_over_time"]["requests"])
    if trace:
        assert figures["output_tokens"]["max"] == max(r.output_tokens for r in trace)
        assert 0 <= (figures["prefix"]["hit_rate"] or 0) <= 1


@given(st.lists(st.floats(0, 1e7), min_size=1))
def test_the_rate_over_time_counts_everything_in_few_buckets(times: list[float]) -> None:
    profile = RateProfile()
    for time in sorted(times):
        profile.add(time)
    assert sum(profile.counts) == len(times)
    assert len(profile.counts) <= MOST_BUCKETS
    assert math.log2(profile.width_s).is_integer()
    assert profile.counts[int(max(times) / profile.width_s)] > 0
