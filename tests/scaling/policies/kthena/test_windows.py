"""Windows over recommendations and sizes, held to an obvious list of everything that happened."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from windtunnel.scaling.policies.kthena.behavior import TargetHistory
from windtunnel.scaling.policies.kthena.settings import Behavior, PaceDown, PaceUp


def history(span_s: float) -> TargetHistory:
    up = PaceUp(window_s=span_s, period_s=span_s)
    return TargetHistory(Behavior(up=up, down=PaceDown(window_s=span_s, period_s=span_s)), {})


@pytest.mark.parametrize(
    ("now_s", "expected"), [(12.0, 6), (14.0, 5), (16.0, 5), (18.0, 2), (26.0, 2), (28.0, 1)]
)
def test_11_sizes_hold_until_the_next_one(now_s: float, expected: int) -> None:
    window = history(10.0)
    for at_s, size in ((1.0, 6), (3.0, 3), (5.0, 5), (7.0, 2)):
        window.add(at_s, 0, size)
    assert max(window.sizes(10.0, now_s, 1)) == expected


def test_12_a_window_of_no_length_has_no_opinion() -> None:
    window = history(0.0)
    window.add(1.0, 5, 5)
    assert window.sizes(0.0, 1.0, 5) == []
    assert window.asked(0.0, 1.0) == []
    assert history(10.0).asked(10.0, 0.0) == []


TIMELINES = st.lists(st.tuples(st.integers(0, 5), st.integers(0, 3)), max_size=12)
"""Waits and numbers; few numbers, since equal ones in a row are kept together."""


@given(TIMELINES, st.integers(1, 12), st.integers(0, 20), st.integers(0, 12))
def test_recommendations_of_a_window_are_all_those_in_the_span(
    timeline: list[tuple[int, int]], span: int, later: int, longer: int
) -> None:
    window, everything, now = history(span + longer), [], 0
    for wait, value in timeline:
        now += wait
        window.add(now, value, 0)
        everything.append((now, value))
    now += later
    assert set(window.asked(span, now)) == {value for at, value in everything if at + span >= now}


@given(TIMELINES, st.integers(1, 12), st.integers(0, 20), st.integers(0, 12))
def test_sizes_of_a_period_are_all_that_ended_in_the_span(
    timeline: list[tuple[int, int]], span: int, later: int, longer: int
) -> None:
    window, sizes, now = history(span + longer), [], 0
    for wait, value in timeline:
        now += wait
        window.add(now, 0, value)
        sizes.append((now, value))
    ends = [(end, value) for (_, value), (end, _) in itertools.pairwise(sizes)]
    now += later
    alive = [value for end, value in ends if end + span >= now]
    alive += [value for at, value in sizes[-1:] if at + 2 * span >= now]
    assert set(window.sizes(span, now, 4)) == {4, *alive}


def test_a_history_of_equal_numbers_does_not_grow() -> None:
    kept: dict[str, list[tuple[float, int]]] = {}
    window = TargetHistory(Behavior(), kept)
    for at_s in range(100):
        window.add(float(at_s), 5, 7)
    assert (len(kept["asked"]), len(kept["sizes"])) == (1, 2)
