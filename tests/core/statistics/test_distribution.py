"""Percentiles: linear between ranks, exact of few values, right to half a percent of many."""

import math
import statistics
import sys

import numpy as np  # noqa: F401 - where it is there, arrays are used
import pytest
from hypothesis import given
from hypothesis import strategies as st

from windtunnel.core.random import Stream
from windtunnel.core.statistics.distribution import (
    FEW_VALUES,
    PERCENTILES,
    WORTH_AN_ARRAY,
    Distribution,
    quantile_of,
    summary,
    together,
)
from windtunnel.core.statistics.histogram import Histogram

times = st.floats(1e-4, 1e4)


def exact(values: list[float], share: float) -> float:
    """By the definition, and by no code of ours."""
    if len(values) == 1:
        return values[0]
    cuts = statistics.quantiles(values, n=1000, method="inclusive")
    return cuts[round(1000 * share) - 1]


@given(st.lists(times, min_size=1, max_size=300))
def test_few_values_have_exact_percentiles_wherever_they_are_counted(values: list[float]) -> None:
    few, whole = Distribution(FEW_VALUES), Distribution()
    for value in values:
        few.add(value)
        whole.add(value)
    assert summary(few) == summary(whole)
    for name, share in PERCENTILES:
        assert summary(few)[name] == pytest.approx(exact(values, share), rel=1e-9)


@given(st.lists(times, min_size=1, max_size=300))
def test_a_histogram_is_right_to_half_a_percent_of_any_sample(values: list[float]) -> None:
    histogram = Histogram()
    for value in values:
        histogram.add(value, 1)
    for share in (0.0, 0.001, 0.5, 0.9, 0.95, 0.99, 1.0):
        wanted = quantile_of(sorted(values), share)
        assert histogram.quantile(share) == pytest.approx(wanted, rel=0.00501)


def test_the_p99_of_a_hundred_values_is_not_the_value_before_the_last() -> None:
    histogram, few = Histogram(), Distribution(10)
    for value in [*[1.0] * 98, 2.0, 10.0]:
        histogram.add(value, 1)
        few.add(value)
    assert histogram.quantile(0.99) == pytest.approx(2.08, rel=0.005)
    assert few.quantile(0.99) == histogram.quantile(0.99)


def test_what_is_folded_keeps_mean_and_extremes() -> None:
    parts = [Distribution(10), Distribution(10)]
    for number in range(1, 31):
        parts[number % 2].add(float(number))
    whole = together(parts)
    assert whole.count == 30
    assert whole.mean() == pytest.approx(15.5)
    assert (whole.quantile(0.0), whole.quantile(1.0)) == (1.0, 30.0)
    assert math.isnan(quantile_of([], 0.5))
    assert math.isnan(Histogram().quantile(0.5))


def test_many_values_have_the_percentiles_of_their_order(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = Stream(1, "many")
    values = [stream.uniform() for _ in range(WORTH_AN_ARRAY)]
    many, listed = Distribution(), Distribution()
    for value in values:
        many.add(value)
        listed.add(value)
    found = summary(many), many.quantile(0.123), many.quantile(0.5)
    monkeypatch.delitem(sys.modules, "numpy")
    assert found == (summary(listed), listed.quantile(0.123), listed.quantile(0.5))
    assert many.values().tolist() == values, "in the order in which they came"
