"""The quality of limits in simulated time: each case of the benchmark meets its promise."""

from collections.abc import Callable

import pytest
from benchmarks import admission_quality
from benchmarks.admission_quality import (
    CASES,
    EFFICIENCY_LEAST,
    REFUSALS_PER_100_MOST,
    Client,
    Provider,
)

from windtunnel import admission
from windtunnel.core.random import Stream


@pytest.mark.parametrize(("name", "provider", "ideal_s"), CASES, ids=[case[0] for case in CASES])
def test_limits_are_found(name: str, provider: Callable[[], Provider], ideal_s: float) -> None:
    for seed in (1, 2):
        client = Client(provider(), seed=seed).run()
        assert ideal_s / client.now >= EFFICIENCY_LEAST
        assert 100.0 * client.refused / client.answered <= REFUSALS_PER_100_MOST


class Whims:
    """Refuses some calls by chance, whatever the load, and says nothing of when to come back."""

    def __init__(self, share: float) -> None:
        self.share, self.stream = share, Stream(1, "whims")

    def refuses(self, now: float) -> float | None:
        return 0.0 if self.stream.uniform() < self.share else None

    def finished(self) -> None:
        pass


@pytest.mark.parametrize(("share", "least_per_s"), [(0.01, 300.0), (0.03, 100.0)])
def test_refusals_by_chance_do_not_stop_a_fast_server(
    monkeypatch: pytest.MonkeyPatch, share: float, least_per_s: float
) -> None:
    """Of answers in 20 ms there were 69 and 37 a second, with up to 32 in flight."""
    monkeypatch.setattr(admission_quality, "SERVICE_S", 0.02)
    monkeypatch.setattr(admission_quality, "REFUSAL_S", 0.005)
    monkeypatch.setattr(admission_quality, "REQUESTS", 3000)
    client = Client(Whims(share)).run()
    assert client.answered / client.now >= least_per_s


def test_the_same_seed_is_the_same_run() -> None:
    for _, provider, _ in CASES:
        one, other = (Client(provider(), seed=5).run() for _ in range(2))
        assert (one.now, one.refused, one.limits) == (other.now, other.refused, other.limits)


def test_what_the_package_offers_is_there() -> None:
    assert len(set(admission.__all__)) == len(admission.__all__)
    assert all(hasattr(admission, name) for name in admission.__all__)
