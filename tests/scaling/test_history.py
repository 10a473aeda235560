"""Recent numbers: extremes of a window, with equal numbers in a row kept once."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from windtunnel.scaling.history import History

KEY = "pool"
TIMELINES = st.lists(st.tuples(st.integers(0, 5), st.integers(0, 3)), max_size=20)
"""Waits and numbers."""


@given(TIMELINES, st.integers(1, 12), st.integers(0, 12))
def test_noted_numbers_have_the_values_of_added_ones(
    timeline: list[tuple[int, int]], window_s: int, since_s: int
) -> None:
    every, noted, now_s = History(window_s, {}), History(window_s, {}), 0
    for wait_s, number in timeline:
        now_s += wait_s
        every.add(KEY, now_s, number)
        noted.note(KEY, now_s, number)
        start_s = now_s - min(since_s, window_s)
        assert set(noted.since(KEY, start_s)) == set(every.since(KEY, start_s))


def test_equal_numbers_in_a_row_are_kept_once() -> None:
    kept: dict[str, Any] = {}
    history = History(300.0, kept)
    for at_s in range(100):
        history.note(KEY, float(at_s), 4.0 if at_s < 60 else 5.0)
    assert kept == {KEY: [[59.0, 4.0], [99.0, 5.0]]}
