"""A fit finds the traffic that made a trace, and its section loads as a scenario's."""

import math
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from windtunnel.core.errors import InputError
from windtunnel.core.random import Streams
from windtunnel.core.units import parse_rate
from windtunnel.twin.scenario.limits import FASTEST_RATE
from windtunnel.twin.scenario.load import load_text
from windtunnel.workload.plan import Arrivals, Lengths, Prefix, Source
from windtunnel.workload.traces.fit import TrafficFit, fit_trace
from windtunnel.workload.traces.lengths import fit_lengths, uniform
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
    source = Source("s", "default", "standard", 0, count, arrivals, prompt, output, prefix)
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


def fitted(trace: Sequence[TraceRequest]) -> TrafficFit:
    return fit_trace(trace, "a trace.csv")


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
    assert found.source.arrivals.process in processes
    assert found.source.arrivals.rate_per_s == pytest.approx(7.0, rel=0.1)
    assert found.source.arrivals.cv == pytest.approx(arrivals.cv, rel=0.15)
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
    assert found.source.prompt.distribution == lengths.distribution
    assert found.source.prompt.mean == pytest.approx(lengths.mean, rel=0.05)
    for name in ("prompt_tokens", "output_tokens"):
        figures = found.figures[name]
        assert figures["ks"] < 0.03
        assert figures["generated_ks"] < 0.05
        assert abs(figures["mean"]["error"]) < 0.05
        assert abs(figures["p90"]["error"]) < 0.1


@pytest.mark.parametrize("prefix", [None, Prefix(300, 4)])
def test_the_section_loads_as_what_was_fitted(prefix: Prefix | None) -> None:
    found = fitted(drawn(Arrivals("gamma", 7.0, 2.0), LOGNORMAL, EXPONENTIAL, prefix))
    (loaded,) = load_text(found.section() + SERVING).sources
    assert loaded.name == "a-trace.csv"
    for name in ("count", "arrivals", "prompt", "output", "prefix"):
        assert getattr(loaded, name) == getattr(found.source, name)
    assert loaded.prefix == prefix
    assert found.figures["left_out"] == []


@given(
    st.dictionaries(st.integers(1, 10**7), st.integers(1, 50), min_size=1, max_size=30),
    st.sampled_from(["poisson", "constant"]),
)
def test_any_lengths_make_a_section_that_loads(counts: dict[int, int], process: str) -> None:
    lengths = fit_lengths(counts).lengths
    assert lengths.low == min(counts)
    assert lengths.high == max(counts)
    arrivals = Arrivals(process, 1.0, 1.0 if process == "poisson" else 0.0)
    source = Source("s", "default", "standard", 0, 9, arrivals, lengths, lengths, None)
    (loaded,) = load_text(TrafficFit(source, {}).section() + SERVING).sources
    assert (loaded.prompt, loaded.arrivals) == (lengths, arrivals)


def test_what_is_not_fitted_is_said() -> None:
    trace = [
        TraceRequest(
            number / 3,
            100 + number,
            50 + number,
            session=f"{number % 5}",
            tenant="t",
            slo="batch",
            prefix_keys=(1, 2),
            prefix_ends=(10, 20 + number),
        )
        for number in range(50)
    ]
    left_out = ["length_correlation", "prefix", "session", "slo", "tenant"]
    assert fitted(trace).figures["left_out"] == left_out


@pytest.mark.parametrize("times", [[], [1.0] * 50, [0.0, 1.0]])
def test_too_little_to_fit_is_a_sentence(times: list[float]) -> None:
    with pytest.raises(InputError, match="too few to fit"):
        fitted([TraceRequest(time, 1, 1) for time in times])


def test_a_rate_that_no_scenario_takes_is_a_sentence() -> None:
    limit = parse_rate(FASTEST_RATE)
    with pytest.raises(InputError, match=f"too many to fit; allowed: up to {limit:.0f}"):
        fitted([TraceRequest(number / (1.1 * limit), 1, 1) for number in range(50)])
    fit = fitted([TraceRequest(number / (0.9 * limit), 1, 1) for number in range(50)])
    assert fit.source.arrivals.rate_per_s < limit
