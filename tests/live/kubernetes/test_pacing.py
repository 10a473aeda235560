"""Rate limit and backoff, worked by hand."""

from hypothesis import given
from hypothesis import strategies as st

from windtunnel.core.random import Streams
from windtunnel.live.kubernetes.pacing import Backoff, RequestPacer


def test_a_burst_goes_at_once_and_the_rest_at_the_rate() -> None:
    limit = RequestPacer(per_s=10.0, burst=3)
    waits = [round(limit.take(50.0), 6) for _ in range(6)]
    assert waits == [0.0, 0.0, 0.0, 0.1, 0.2, 0.3]
    assert limit.take(60.0) == 0.0


def test_a_pause_holds_everything_back() -> None:
    limit = RequestPacer(per_s=10.0, burst=3)
    limit.pause(50.0, 4.0)
    assert limit.take(51.0) == 3.0
    assert limit.paused_s(51.5) == 2.5
    assert limit.take(54.0) == 0.0


@given(st.lists(st.floats(0, 0.5), min_size=1, max_size=200))
def test_no_window_has_more_than_burst_and_rate_allow(gaps: list[float]) -> None:
    limit = RequestPacer(per_s=8.0, burst=4)
    now_s = 0.0
    sent = []
    for gap_s in gaps:
        now_s += gap_s
        sent.append(now_s + limit.take(now_s))
    for first, begin_s in enumerate(sent):
        within = sum(begin_s <= one <= begin_s + 1.0 for one in sent[first:])
        assert within <= 4 + 8 + 1


def test_delays_double_to_their_most_and_start_again_after_health() -> None:
    backoff = Backoff(Streams(1)["x"], first_s=1.0, most_s=8.0, healthy_s=100.0)
    delays = [backoff.failed(0.0) for _ in range(6)]
    for delay, least in zip(delays, (1.0, 2.0, 4.0, 8.0, 8.0, 8.0), strict=True):
        assert least <= delay <= 1.5 * least
    assert backoff.failed(50.0) >= 8.0
    assert backoff.failed(200.0) <= 1.5
