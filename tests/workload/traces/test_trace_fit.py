"""A fit finds the traffic that made a trace, and its section loads as a scenario's."""

import math
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.workload.plans import Prefix
from tests.workload.plans import source as plan_of
from windtunnel.core.errors import InputError
from windtunnel.core.random import Streams
from windtunnel.core.units import parse_rate
from windtunnel.settings.limits import FASTEST_RATE
from windtunnel.twin.scenario.load import load_text
from windtunnel.workload.distributions import Arrivals, Curve, Lengths
from windtunnel.workload.settings.sources import PrefixSettings
from windtunnel.workload.traces.fitting import traffic
from windtunnel.workload.traces.fitting.lengths import MOST_SEEN, fit_lengths, uniform
from windtunnel.workload.traces.fitting.section import section_of
from windtunnel.workload.traces.fitting.traffic import TrafficFit, fit_trace
from windtunnel.workload.traces.record import TraceRequest
from windtunnel.workload.traffic import Traffic

SERVING = """
serving:
  pools:
    - {name: main, replicas: 1, engine: {kv_blocks: 1000},
       step_time: {model: linear, fixed: 1ms}}
"""
LOGNORMAL = Lengths("lognormal", 900.0, 0.9, 16, 16384)
EXPONENTIAL = Lengths("exponential", 200.0, 1.0, 1, 4096)


def drawn(
    arrivals: Arrivals, prompt: Lengths, output: Lengths, prefix: Prefix | None = None
) -> list[TraceRequest]:
    count = 5000
    source = plan_of(count=count, arrivals=arrivals, prompt=prompt, output=output, prefix=prefix)
    traffic = Traffic((source,), Streams(3), math.inf)
    made = []
    for _ in range(count):
        request = traffic.take()
        chain = request.prefix
        keys, ends = (tuple(chain.keys), tuple(chain.ends)) if chain else ((), ())
        made.append(
            TraceRequest(
                request.arrived_s,
                request.prompt_tokens,
                request.output_tokens,
                prefix_keys=keys,
                prefix_ends=ends,
            )
        )
    return made


def fitted(trace: Sequence[TraceRequest], **how: Any) -> TrafficFit:
    return fit_trace(trace, "a trace.csv", **how)


@pytest.mark.parametrize(
    ("arrivals", "processes"),
    [
        (Arrivals("poisson", 7.0, 1.0), {"poisson"}),
        (Arrivals("constant", 7.0, 0.0), {"constant"}),
        (Arrivals("gamma", 7.0, 2.5), {"gamma"}),
        (Arrivals("weibull", 7.0, 2.5), {"weibull"}),
        (Arrivals("gamma", 7.0, 0.4), {"gamma", "weibull"}),
    ],
)
def test_arrivals_are_found(arrivals: Arrivals, processes: set[str]) -> None:
    found = fitted(drawn(arrivals, LOGNORMAL, EXPONENTIAL))
    assert found.source.arrivals.drawn().process in processes
    assert found.source.arrivals.drawn().rate_per_s == pytest.approx(7.0, rel=0.1)
    assert found.source.arrivals.drawn().cv == pytest.approx(arrivals.cv, rel=0.15)
    assert found.figures["gap_ks"] < 0.08
    assert abs(found.figures["rate_per_s"]["error"]) < 0.1


@pytest.mark.parametrize(
    "lengths",
    [
        LOGNORMAL,
        EXPONENTIAL,
        Lengths("normal", 500.0, 0.2, 1, 2000),
        uniform(10, 700),
        Lengths("constant", 64.0, 0.0, 64, 64),
    ],
    ids=lambda lengths: lengths.distribution,
)
def test_lengths_are_found(lengths: Lengths) -> None:
    found = fitted(drawn(Arrivals("poisson", 7.0, 1.0), lengths, lengths))
    assert found.source.prompt_tokens.drawn().distribution == lengths.distribution
    assert found.source.prompt_tokens.drawn().mean == pytest.approx(lengths.mean, rel=0.05)
    for name in ("prompt_tokens", "output_tokens"):
        figures = found.figures[name]
        assert figures["ks"] < 0.03
        assert figures["generated_ks"] < 0.05
        assert abs(figures["mean"]["error"]) < 0.05
        assert abs(figures["p90"]["error"]) < 0.1


@pytest.mark.parametrize("prefix", [None, Prefix(300, 4)])
def test_the_section_loads_as_what_was_fitted(prefix: Prefix | None) -> None:
    found = fitted(drawn(Arrivals("gamma", 7.0, 2.0), LOGNORMAL, EXPONENTIAL, prefix))
    (loaded,) = load_text(found.section + SERVING).sources
    assert loaded.name == "a-trace.csv"
    for name in ("count", "arrivals", "prompt_tokens", "output_tokens", "prefix"):
        assert getattr(loaded, name) == getattr(found.source, name)
    shared = prefix and PrefixSettings(tokens=prefix.tokens, groups=prefix.groups)
    assert loaded.prefix == shared
    assert found.figures["left_out"] == []


@given(
    st.dictionaries(st.integers(1, 10**7), st.integers(1, 50), min_size=1, max_size=300),
    st.sampled_from(["poisson", "constant"]),
    st.sampled_from(["auto", "formula", "seen"]),
)
def test_any_lengths_make_a_section_that_loads(
    counts: dict[int, int], process: str, kind: str
) -> None:
    lengths = fit_lengths(counts, kind).lengths
    if lengths.distribution == "empirical":
        assert kind != "formula"
        assert min(counts) <= min(lengths.values) <= max(lengths.values) <= max(counts)
    else:
        assert (lengths.low, lengths.high) == (min(counts), max(counts))
    arrivals = Arrivals(process, 1.0, 1.0 if process == "poisson" else 0.0)
    section = section_of("any", 9, arrivals, {"prompt_tokens": lengths, "output_tokens": lengths})
    (loaded,) = load_text(section + SERVING).sources
    assert (loaded.prompt_tokens.drawn(), loaded.arrivals.drawn()) == (lengths, arrivals)


def test_what_is_not_fitted_is_said() -> None:
    trace = [
        TraceRequest(
            number / 3,
            100 + number,
            50 + number,
            session=f"{number % 5}",
            tenant="t",
            slo="batch",
            adapter="poet",
            prefix_keys=(1, 2),
            prefix_ends=(10, 20 + number),
        )
        for number in range(50)
    ]
    left_out = ["length_correlation", "prefix", "session", "slo", "tenant", "adapter"]
    assert fitted(trace).figures["left_out"] == left_out


@pytest.mark.parametrize("times", [[], [1.0] * 50, [0.0, 1.0]])
def test_too_little_to_fit_is_a_sentence(times: list[float]) -> None:
    with pytest.raises(InputError, match="too few to fit"):
        fitted([TraceRequest(time, 1, 1) for time in times])


def test_a_rate_that_no_scenario_takes_is_a_sentence() -> None:
    limit = parse_rate(FASTEST_RATE)
    with pytest.raises(InputError, match=f"too many to fit; allowed: up to {limit:.0f}"):
        fitted([TraceRequest(number / (1.1 * limit), 1, 1) for number in range(50)])
    found = fitted([TraceRequest(number / (0.9 * limit), 1, 1) for number in range(50)])
    assert found.source.arrivals.drawn().rate_per_s < limit


def bimodal(count: int = 6000) -> list[TraceRequest]:
    """Short questions and long documents, one request in four, which no formula is like."""
    made = drawn(Arrivals("poisson", 7.0, 1.0), LOGNORMAL, EXPONENTIAL)
    return [
        TraceRequest(one.arrived_s, 40 + at % 9 if at % 4 else 9000 + at % 700, one.output_tokens)
        for at, one in enumerate(made[:count])
    ]


def test_lengths_that_no_formula_is_like_are_written_as_they_were_seen() -> None:
    found = fitted(bimodal())
    assert found.source.prompt_tokens.drawn().distribution == "empirical"
    assert found.source.output_tokens.drawn().distribution == "exponential"
    figures = found.figures["prompt_tokens"]
    assert figures["ks"] < 0.02
    assert figures["generated_ks"] < 0.04
    assert abs(figures["mean"]["error"]) < 0.03
    (loaded,) = load_text(found.section + SERVING).sources
    assert loaded.prompt_tokens == found.source.prompt_tokens
    formula = fitted(bimodal(), lengths="formula")
    assert formula.source.prompt_tokens.drawn().distribution != "empirical"
    assert formula.figures["prompt_tokens"]["ks"] > 0.2


def test_few_lengths_that_were_seen_are_all_there() -> None:
    found = fit_lengths({5: 3, 70: 1, 9000: 4}, "seen")
    assert (found.lengths.values, found.lengths.weights) == ((5, 70, 9000), (0.375, 0.125, 0.5))
    assert (found.ks, found.mean_error) == (0.0, 0.0)


@given(
    st.dictionaries(st.integers(1, 10**6), st.integers(1, 9), min_size=2, max_size=2000),
)
def test_lengths_that_were_seen_keep_their_mean_and_their_shape(counts: dict[int, int]) -> None:
    found = fit_lengths(counts, "seen")
    heaviest = max(counts.values()) / sum(counts.values())
    assert found.ks <= 0.02 + heaviest
    assert abs(found.mean_error) < 0.01
    assert len(found.lengths.values) <= MOST_SEEN


def day(count: int, name: str = "day") -> list[TraceRequest]:
    """An hour whose rate rises from nothing to its end, and rests in the middle."""
    ramp = Curve(points=((0.0, 0.1), (1200.0, 1.0), (1200.0, 0.0), (2400.0, 0.0), (3600.0, 4.0)))
    plan = plan_of(
        name,
        count=count,
        arrivals=Arrivals("gamma", 6.0, 1.6),
        prompt=LOGNORMAL,
        output=EXPONENTIAL,
        curve=ramp,
    )
    traffic = Traffic((plan,), Streams(3), 3600.0)
    made = []
    while traffic.next_s < math.inf:
        one = traffic.take()
        made.append(TraceRequest(one.arrived_s, one.prompt_tokens, one.output_tokens))
    return made


def test_a_curve_follows_the_rate_and_leaves_the_process_what_it_is() -> None:
    trace = day(100_000)
    flat, curved = fitted(trace), fitted(trace, curve=True)
    assert flat.source.curve is None
    assert flat.source.arrivals.drawn().cv > 3
    assert abs(flat.figures["dispersion_by_minute"]["error"]) > 0.3
    assert curved.source.arrivals.drawn().cv == pytest.approx(1.6, rel=0.1)
    assert curved.figures["window_s"] == 60.0
    assert abs(curved.figures["dispersion_by_minute"]["error"]) < 0.1
    assert abs(curved.figures["rate_per_s"]["error"]) < 0.05
    assert curved.figures["gap_ks"] < 0.1
    (loaded,) = load_text(curved.section + SERVING).sources
    assert loaded.curve == curved.source.curve
    assert loaded.arrivals == curved.source.arrivals


def test_what_a_curve_generates_comes_when_the_trace_s_did() -> None:
    trace = day(100_000)
    source = fitted(trace, curve=True, window_s=120.0).source
    traffic = Traffic((source,), Streams(8), math.inf)
    made = [traffic.take().arrived_s for _ in trace]
    for start_s in range(0, 3600, 600):
        there = sum(start_s <= one.arrived_s - trace[0].arrived_s < start_s + 600 for one in trace)
        here = sum(start_s <= time_s < start_s + 600 for time_s in made)
        assert here == pytest.approx(there, rel=0.1, abs=60)


def test_too_many_windows_are_a_sentence() -> None:
    with pytest.raises(InputError, match=r"--window: a window of 1 s makes 3\d\d\d of them"):
        fitted(day(100_000), curve=True, window_s=1.0)


@pytest.mark.parametrize("step_s", [1.0, 3.0])
def test_times_that_are_rounded_are_spread_out(step_s: float) -> None:
    made = drawn(Arrivals("poisson", 7.0, 1.0), LOGNORMAL, EXPONENTIAL)
    trace = [
        TraceRequest(math.floor(one.arrived_s / step_s) * step_s, one.prompt_tokens, 5)
        for one in made
    ]
    found = fitted(trace)
    assert found.figures["rounded_to_s"] == step_s
    assert found.source.arrivals.drawn() == Arrivals("poisson", pytest.approx(7.0, rel=0.05), 1.0)  # type: ignore[arg-type]
    assert found.figures["gap_ks"] < 0.03


def test_batches_that_really_come_at_once_stay_together() -> None:
    """Ten at a time, at times that are multiples of nothing."""
    starts = drawn(Arrivals("poisson", 1.0, 1.0), LOGNORMAL, EXPONENTIAL)[:500]
    found = fitted([TraceRequest(one.arrived_s, 9, 9) for one in starts for _ in range(10)])
    assert found.figures["rounded_to_s"] is None
    assert found.source.arrivals.drawn().cv > 3


def test_more_requests_than_can_be_fitted_are_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(traffic, "MOST_TIMES", 30)
    with pytest.raises(InputError, match="more than 30 requests are too many to fit"):
        fitted([TraceRequest(float(number), 1, 1) for number in range(31)])
