"""The quality of limits in simulated time: each case of the benchmark meets its promise."""

from collections.abc import Callable

import pytest
from benchmarks.admission_quality import (
    CASES,
    EFFICIENCY_LEAST,
    REFUSALS_PER_100_MOST,
    Client,
    Provider,
)

from windtunnel import admission


@pytest.mark.parametrize(("name", "provider", "ideal_s"), CASES, ids=[case[0] for case in CASES])
def test_limits_are_found(name: str, provider: Callable[[], Provider], ideal_s: float) -> None:
    for seed in (1, 2):
        client = Client(provider(), seed=seed).run()
        assert ideal_s / client.now >= EFFICIENCY_LEAST
        assert 100.0 * client.refused / client.answered <= REFUSALS_PER_100_MOST


def test_the_same_seed_is_the_same_run() -> None:
    for _, provider, _ in CASES:
        one, other = (Client(provider(), seed=5).run() for _ in range(2))
        assert (one.now, one.refused, one.limits) == (other.now, other.refused, other.limits)


def test_what_the_package_offers_is_there() -> None:
    assert len(set(admission.__all__)) == len(admission.__all__)
    assert all(hasattr(admission, name) for name in admission.__all__)
