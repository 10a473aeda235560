"""Bounds of a share: that they hold as often as they say, and what they come to by hand."""

import pytest

from windtunnel.core.random import Streams
from windtunnel.search.plan.runs.confidence import (
    confidence_of_test,
    exact_share,
    share_bounds,
    wilson,
)


def test_by_hand() -> None:
    """Four runs of 0.96, 0.97, 0.98, 0.97: mean 0.97, error 0.004082; t of 3 is 2.353."""
    found = share_bounds([0.96, 0.97, 0.98, 0.97], [10_000] * 4, 0.95)
    assert found.share == pytest.approx(0.97)
    assert found.low == pytest.approx(0.97 - 2.3534 * 0.0040825, abs=1e-5)
    assert found.high == pytest.approx(0.97 + 2.3534 * 0.0040825, abs=1e-5)


def test_no_miss_at_all_is_not_certainty() -> None:
    found = share_bounds([1.0, 1.0, 1.0], [100, 100, 100], 0.95)
    assert found.low == pytest.approx(300 / (300 + 1.6449**2), abs=1e-4)
    assert exact_share([1.0]).low == 1.0


def test_one_run_counts_for_few_requests() -> None:
    alone = share_bounds([0.9], [800], 0.95)
    assert (alone.low, alone.high) == pytest.approx(wilson(0.9, 100, 0.95))
    assert wilson(0.5, 0, 0.95) == (0.0, 1.0)


def test_all_tests_together_have_the_confidence() -> None:
    assert confidence_of_test(0.95, 0) == pytest.approx(0.9696, abs=1e-4)
    assert sum(1.0 - confidence_of_test(0.95, test) for test in range(1000)) <= 0.05


def test_the_bound_is_wrong_as_rarely_as_it_says() -> None:
    """Runs whose shares spread around 0.95: in one of twenty cases the bound is above it."""
    stream = Streams(1)["share_bounds"]
    wrong = 0
    for _ in range(2000):
        shares = [min(1.0, stream.normal(0.95, 0.01)) for _ in range(5)]
        wrong += share_bounds(shares, [10_000] * 5, 0.95).low > 0.95
    assert 0.03 <= wrong / 2000 <= 0.07
