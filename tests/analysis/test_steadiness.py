"""Whether a run had settled: growing queues, and how long servers filled at first."""

from hypothesis import given
from hypothesis import strategies as st

from tests.twin.samples import sample
from windtunnel.analysis.steadiness import Steadiness, steadiness


def judged(
    waiting: list[int], running: list[int], arrived: list[int], servers: int = 1
) -> Steadiness:
    """Of samples a second apart."""
    rows = enumerate(zip(waiting, running, arrived, strict=True))
    return steadiness([sample(n + 1.0, [w], [r], 0.5, a) for n, (w, r, a) in rows], servers)


def evenly(samples: int, each: int = 100) -> list[int]:
    return [each * (n + 1) for n in range(samples)]


def test_a_queue_that_grows_to_the_end_grows() -> None:
    found = judged(list(range(40)), [8] * 40, evenly(40))
    assert found.growing
    assert found.waiting == (4.0, 13.5, 23.5, 34.0)  # samples 1 to 9, 10 to 19, 20 to 29, 30 to 40
    assert found.filled_s is None


def test_a_queue_that_is_long_all_the_time_does_not() -> None:
    assert not judged([50, 60, 40, 55] * 10, [8] * 40, evenly(40)).growing
    burst = [0] * 20 + [30] * 10 + [0] * 10
    assert not judged(burst, [8] * 40, evenly(40)).growing


def test_a_queue_of_less_than_one_a_server_is_none() -> None:
    assert not judged(list(range(40)), [8] * 40, evenly(40), servers=50).growing


def test_what_comes_after_the_last_arrival_does_not_count() -> None:
    waiting = list(range(20)) + list(range(20, 0, -1))
    arrived = evenly(20) + [2000] * 20
    found = judged(waiting, [8] * 40, arrived)
    assert found.arrivals_end_s == 20.0
    assert found.growing


def test_servers_fill_until_as_many_are_inside_as_later_on() -> None:
    running = [1, 2, 3, 4, 5, 6, 7, 8] + [10] * 32
    assert judged([0] * 40, running, evenly(40)).filled_s == 8.0
    assert judged([0] * 40, [10] * 40, evenly(40)).filled_s == 1.0


def test_a_queue_that_a_fault_left_behind_is_no_fuller_server() -> None:
    lost = [0] * 18 + [30, 60, 90, 90, 80, 60, 40, 20] + [0] * 14
    assert judged(lost, [10] * 40, evenly(40)).filled_s == 1.0


def test_traffic_that_grows_is_no_warm_up() -> None:
    running = [1, 2, 3, 4, 5, 6, 7, 8] + [10] * 32
    slow_at_first = [n * 20 for n in range(8)] + [160 + 100 * n for n in range(32)]
    assert judged([0] * 40, running, slow_at_first).filled_s is None


@given(st.lists(st.tuples(st.integers(0, 50), st.integers(0, 9), st.integers(0, 30)), min_size=1))
def test_every_run_can_be_judged(rows: list[tuple[int, int, int]]) -> None:
    arrived: list[int] = []
    for _, _, more in rows:
        arrived.append((arrived[-1] if arrived else 100) + more)
    found = judged([row[0] for row in rows], [row[1] for row in rows], arrived)
    assert len(found.waiting) in (0, 4)
    assert 0.0 < found.arrivals_end_s <= len(rows)
    assert found.filled_s is None or 0.0 < found.filled_s <= found.arrivals_end_s
