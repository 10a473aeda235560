"""How full the fleet is: what is seen, what was sent since, and what nobody can see."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.admission.gateway.fleet import signals
from windtunnel.admission.gateway.detectors import Concurrency, Detector, Utilization
from windtunnel.core.signals import Signals


def test_never_is_never_unless_there_is_nobody() -> None:
    detector = Detector()
    assert detector.saturation(5) == math.inf
    detector.look(signals(9, waiting=9, kv_used=1.0), 9)
    assert detector.saturation(1000) == 0.0
    assert (detector.look_every_s, detector.reads_signals) == (math.inf, False)


def test_concurrency_counts_what_is_in_flight() -> None:
    detector = Concurrency(10)
    detector.look(signals(0, 0, 0), 0)
    assert detector.saturation(15) == 0.5
    assert detector.saturation(30) == 1.0
    assert not detector.reads_signals
    detector.look(signals(), 0)
    assert detector.saturation(0) == math.inf


def test_utilization_is_the_mean_of_queue_or_cache_whichever_is_worse() -> None:
    detector = Utilization(5.0, 0.8, 0.05)
    seen = signals(6, 6)
    seen.running[0], seen.waiting[0] = 4, 2  # 2 / 5
    seen.kv_used[1] = 0.6  # 0.75
    detector.look(seen, 12)
    assert detector.saturation(12) == pytest.approx((0.4 + 0.75) / 2)
    assert (detector.look_every_s, detector.reads_signals) == (0.05, True)


def test_what_was_sent_since_counts_as_queued() -> None:
    detector = Utilization(5.0, 0.8, 0.05)
    detector.look(signals(0, 0), 0)
    assert detector.saturation(0) == 0.0
    assert detector.saturation(5) == 0.5
    assert detector.saturation(10) == 1.0


def test_what_is_on_its_way_counts_as_queued() -> None:
    detector = Utilization(5.0, 0.8, 0.05)
    seen = signals(7)
    seen.running[0], seen.waiting[0] = 2, 0
    detector.look(seen, 7)
    assert detector.saturation(7) == 1.0


def test_a_view_that_is_no_newer_changes_nothing() -> None:
    detector = Utilization(5.0, 0.8, 0.05)
    seen = signals(0, staleness_s=1.0)
    detector.look(seen, 0)
    detector.look(seen, 4)
    assert detector.saturation(4) == pytest.approx(0.8), "4 were sent since the view was taken"
    seen.taken_s = 1.0
    seen.in_flight[0] = seen.running[0] = 4
    detector.look(seen, 4)
    assert detector.saturation(4) == 0.0, "and now they are seen to run"


@given(
    st.lists(st.tuples(st.integers(0, 20), st.floats(0, 1)), min_size=1, max_size=6),
    st.integers(0, 20),
)
def test_sending_one_more_never_makes_the_fleet_look_emptier(
    servers: list[tuple[int, float]], sent: int
) -> None:
    detector = Utilization(5.0, 0.8, 0.05)
    seen = signals(*[count for count, _ in servers])
    for number, (count, kv_used) in enumerate(servers):
        seen.waiting[number], seen.running[number] = count // 2, count - count // 2
        seen.kv_used[number] = kv_used
    detector.look(seen, 3)
    assert detector.saturation(3 + sent + 1) >= detector.saturation(3 + sent)


def test_servers_that_only_compute_prompts_are_no_room() -> None:
    seen = Signals([10, 10, 10], 0.0, answering=[2])
    seen.in_flight[2] = seen.waiting[2] = 4
    for detector in (Concurrency(8), Utilization(8.0, 0.8, 0.05)):
        detector.look(seen, 4)
        assert detector.servers == 1
        assert detector.saturation(4) == 0.5
