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


@pytest.mark.parametrize(("name", "provider", "ideal_s"), CASES, ids=[case[0] for case in CASES])
def test_limits_are_found(name: str, provider: Callable[[], Provider], ideal_s: float) -> None:
    for seed in (1, 2):
        client = Client(provider(), seed=seed).run()
        assert ideal_s / client.now >= EFFICIENCY_LEAST
        assert 100.0 * client.refused / client.answered <= REFUSALS_PER_100_MOST
