"""Who runs points: the same figures whoever does, and one that fails takes none with it."""

import threading
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.twin.runs import BUSY, one_server
from windtunnel.analysis.figures import figure
from windtunnel.search.execution.cache import Cache
from windtunnel.search.execution.workers import Answers, FailedRun, MeasuredRun, Workers
from windtunnel.search.measure import Metrics, measure
from windtunnel.search.point import Origin, address_of
from windtunnel.twin.run import simulate
from windtunnel.twin.scenario.plan import ScenarioPlan


def evaluate(
    plans: Sequence[ScenarioPlan],
    *,
    on: str = "local",
    jobs: int | None = None,
    cache: Cache | None = None,
    memory_bytes: int | None = None,
) -> Answers:
    """The outcomes of all plans as they end, each with the number of its plan."""
    with Workers(on=on, jobs=jobs, cache=cache, memory_bytes=memory_bytes) as workers:
        yield from workers.evaluate(plans)


DYING = """
import os
class Dies:
    def choose(self, request, servers):
        os._exit(9)
class Fails:
    def choose(self, request, servers):
        return 1 // 0
"""


@pytest.fixture
def plans(tmp_path: Path) -> list[ScenarioPlan]:
    """Two good ones, one that a fault ends, and one that takes its process with it."""
    (tmp_path / "a_dying_router.py").write_text(DYING)
    origin = Origin(one_server(count=3), str(tmp_path / "one.yaml"))
    policies = ("round-robin", "a_dying_router:Fails", "a_dying_router:Dies", "random")
    return [origin.plan((("serving.router.policy", policy),)) for policy in policies]


@pytest.mark.xdist_group("workers")
def test_a_point_that_fails_or_kills_its_worker_is_one_point(plans: list[ScenarioPlan]) -> None:
    outcomes = dict(evaluate(plans, jobs=2))
    assert sorted(outcomes) == [0, 1, 2, 3]
    assert outcomes[0] == MeasuredRun(measure(simulate(plans[0])))
    assert isinstance(outcomes[3], MeasuredRun)
    failed, died = outcomes[1], outcomes[2]
    assert isinstance(failed, FailedRun)
    assert "a_dying_router:Fails failed in choose: ZeroDivisionError" in failed.sentence
    assert isinstance(died, FailedRun)
    assert died.sentence.startswith("its worker process died during the run, by status 9 (")


def test_here_a_point_that_fails_is_one_point_too(plans: list[ScenarioPlan]) -> None:
    outcomes = [outcome for _, outcome in evaluate([plans[1], plans[0]], jobs=1)]
    assert [type(outcome) for outcome in outcomes] == [FailedRun, MeasuredRun]


def test_what_is_cached_is_not_run_again(tmp_path: Path) -> None:
    origin, cache = Origin(BUSY, "busy.yaml", ["duration=200ms"]), Cache(tmp_path / "points")
    runs = [origin.plan(seed=seed) for seed in (1, 2)]
    first = dict(evaluate(runs, jobs=1, cache=cache))
    marked: Metrics = {"requests.arrived": 12345}
    cache.keep(address_of(runs[0]), marked)
    again = dict(evaluate([*runs, origin.plan(seed=3)], jobs=1, cache=cache))
    assert again[0] == MeasuredRun(marked)
    assert again[1] == first[1]
    assert again[2] == MeasuredRun(measure(simulate(origin.plan(seed=3))))


metrics = st.dictionaries(
    st.text(max_size=12),
    st.none() | st.integers(-(2**53), 2**53) | st.floats(allow_nan=False, allow_infinity=False),
    max_size=5,
)


@given(kept=metrics)
def test_figures_come_out_of_a_cache_as_they_went_in(
    kept: dict[str, float | None], tmp_path_factory: pytest.TempPathFactory
) -> None:
    cache = Cache(tmp_path_factory.mktemp("cache"))
    cache.keep("ab" * 32, kept)
    found = cache.find("ab" * 32)
    assert found == kept
    assert [type(value) for value in found.values()] == [type(value) for value in kept.values()]


def test_a_spoilt_entry_is_none(tmp_path: Path) -> None:
    cache, address = Cache(tmp_path), "cd" * 32
    assert cache.find(address) is None
    cache.keep(address, {"cost.total": 12.5})
    (file,) = tmp_path.rglob("*.json")
    whole = file.read_bytes()
    for spoilt in (b"", whole[:-9], whole.replace(b"12.5", b"12.6"), b"[1]", b"\xff"):
        file.write_bytes(spoilt)
        assert cache.find(address) is None
    other = tmp_path / "ef" / file.name
    other.parent.mkdir()
    other.write_bytes(whole)
    assert cache.find("ef" + address[2:]) is None
    cache.keep(address, {"cost.total": 12.5})
    assert cache.find(address) == {"cost.total": 12.5}


def test_two_who_keep_the_same_at_once_leave_it_whole(tmp_path: Path) -> None:
    cache, addresses = Cache(tmp_path), [f"{number:02x}" * 32 for number in range(40)]

    def keep() -> None:
        for number, address in enumerate(addresses):
            cache.keep(address, {"cost.total": number})

    threads = [threading.Thread(target=keep) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [cache.find(address) for address in addresses] == [
        {"cost.total": number} for number in range(40)
    ]
    assert len([path for path in tmp_path.rglob("*") if path.is_file()]) == 40


def test_figures_have_flat_names_units_and_no_text() -> None:
    figures = measure(simulate(Origin(BUSY, "busy.yaml", ["duration=500ms"]).plan()))
    assert {"latency.ttft.p95", "slo.critical.attained", "cost.total"} <= set(figures)
    assert {"throughput.requests_per_s", "pools.spare.utilization"} <= set(figures)
    assert all(value is None or isinstance(value, int | float) for value in figures.values())
    assert figure("latency.ttft.p95")[1:] == ("s", "lower")
    assert figure("slo.critical.attained")[1:] == ("share", "higher")
    assert figure("slo.critical.attained_by.ttft")[1:] == ("share", "higher")
    assert figure("slo.critical.ttft.p99")[1:] == ("s", "lower")
    assert figure("cost.total")[1:] == ("$", "lower")
    assert figure("pools.spare.utilization")[1:] == ("share", None)
