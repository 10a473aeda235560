"""Windows over recommendations and sizes, held to an obvious list of everything that happened."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from windtunnel.scaling.policies.kthena.windows import SizeWindow, Window


@pytest.mark.parametrize(
    ("now_s", "expected"), [(12.0, 6), (14.0, 5), (16.0, 5), (18.0, 2), (26.0, 2), (28.0, 1)]
)
def test_11_sizes_hold_until_the_next_one(now_s: float, expected: int) -> None:
    window = SizeWindow(10.0, largest=True)
    for at_s, size in ((1.0, 6), (3.0, 3), (5.0, 5), (7.0, 2)):
        window.append(at_s, size)
    assert window.best(now_s, 1) == expected


def test_12_a_window_of_no_length_has_no_opinion() -> None:
    sizes, asked = SizeWindow(0.0, largest=False), Window(0.0, largest=True)
    sizes.append(1.0, 5)
    asked.append(1.0, 5)
    assert sizes.best(1.0, 5) is None
    assert asked.best(1.0) is None
    assert Window(10.0, largest=True).best(0.0) is None


TIMELINES = st.lists(st.tuples(st.integers(0, 5), st.integers(0, 9)), max_size=12)


@given(TIMELINES, st.integers(1, 12), st.integers(0, 20), st.booleans())
def test_the_best_is_that_of_all_entries_in_the_span(
    timeline: list[tuple[int, int]], span: int, later: int, largest: bool
) -> None:
    window, everything, now = Window(span, largest=largest), [], 0
    for wait, value in timeline:
        now += wait
        window.append(now, value)
        everything.append((now, value))
    now += later
    alive = [value for at, value in everything if at + span >= now]
    best = max if largest else min
    assert window.best(now) == (best(alive) if alive else None)


@given(TIMELINES, st.integers(1, 12), st.integers(0, 20), st.booleans())
def test_the_best_size_is_that_of_all_sizes_that_ended_in_the_span(
    timeline: list[tuple[int, int]], span: int, later: int, largest: bool
) -> None:
    window, sizes, now = SizeWindow(span, largest=largest), [], 0
    for wait, value in timeline:
        now += wait
        window.append(now, value)
        sizes.append((now, value))
    ends = [(end, value) for (_, value), (end, _) in itertools.pairwise(sizes)]
    now += later
    alive = [value for end, value in ends if end + span >= now]
    alive += [value for at, value in sizes[-1:] if at + 2 * span >= now]
    best = max if largest else min
    assert window.best(now, 4) == best([4, *alive])


def test_a_window_comes_back_from_plain_data() -> None:
    window, copy = SizeWindow(10.0, largest=True), SizeWindow(30.0, largest=True)
    for at_s, size in ((1.0, 6), (3.0, 3)):
        window.append(at_s, size)
    copy.restore(window.state())
    assert (window.best(12.0, 1), copy.best(12.0, 1), copy.best(30.0, 1)) == (6, 6, 6)
