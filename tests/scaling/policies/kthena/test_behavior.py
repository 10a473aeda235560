"""Windows, rates and panic between a recommendation and a size, by the vectors of the reference."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.scaling.policies.kthena.paces import pace_down, pace_up
from windtunnel.scaling.policies.kthena.behavior import (
    DOWN_WINDOW,
    PANIC_HOLD,
    UP_RATE,
    BehaviorStep,
    TargetHistory,
    reach,
    steps,
)
from windtunnel.scaling.policies.kthena.settings import Behavior, Panic


def down(instances: int, percent: int, select: str = "Or", window_s: float = 0.0) -> Behavior:
    return Behavior(down=pace_down(instances, percent, 60.0, window_s, select))


def up(instances: int, percent: int, select: str = "Or", window_s: float = 0.0) -> Behavior:
    return Behavior(up=pace_up(instances, percent, 60.0, window_s, select))


def panic(percent: int, hold_s: float = 60.0, period_s: float = 60.0) -> Behavior:
    return Behavior(panic=Panic(percent=percent, period_s=period_s, hold_s=hold_s))


def history_of(behavior: Behavior) -> TargetHistory:
    return TargetHistory(behavior, {})


def bound(
    history: TargetHistory,
    recommended: int,
    current: int,
    *,
    panic: bool = False,
    now_s: float = 100.0,
) -> list[BehaviorStep]:
    """The steps that change the recommendation."""
    found, size = [], recommended
    for step in steps(history, now_s, recommended, current, panic=panic):
        if step.apply(size) != size:
            found.append(step)
        size = step.apply(size)
    return found


def corrected(
    history: TargetHistory,
    recommended: int,
    current: int,
    *,
    panic: bool = False,
    now_s: float = 100.0,
) -> int:
    size = recommended
    for step in steps(history, now_s, recommended, current, panic=panic):
        size = step.apply(size)
    return size


@pytest.mark.parametrize(("select", "expected"), [("Or", 6), ("And", 9)])
def test_13_down_by_the_looser_or_the_stricter_limit(select: str, expected: int) -> None:
    assert corrected(history_of(down(1, 40, select)), 5, 10) == expected


def test_14_a_higher_recommendation_of_the_window_holds_a_shrinking_target() -> None:
    history = history_of(down(0, 100, window_s=300.0))
    history.add(0.0, 9, 9)
    assert corrected(history, 5, 10, now_s=240.0) == 9
    held = bound(history, 5, 10, now_s=240.0)
    assert [(step.name, step.reason) for step in held] == [
        (DOWN_WINDOW, "9 were recommended within the last 300 s.")
    ]
    assert corrected(history, 5, 10, now_s=300.0) == 9
    assert corrected(history, 5, 10, now_s=300.5) == 5


def test_down_counts_from_the_largest_size_of_the_period() -> None:
    history = history_of(down(3, 25))
    history.add(90.0, 12, 12)
    assert corrected(history, 5, 10) == 9


def test_a_window_never_turns_a_shrinking_target_round() -> None:
    history = history_of(down(0, 100, window_s=300.0))
    history.add(90.0, 40, 40)
    assert corrected(history, 5, 10) == 10


@pytest.mark.parametrize(("select", "expected"), [("Or", 10), ("And", 8)])
def test_15_up_by_the_looser_or_the_stricter_limit(select: str, expected: int) -> None:
    assert corrected(history_of(up(3, 100, select)), 20, 5) == expected


def test_16_a_second_step_of_a_period_counts_from_its_start() -> None:
    history = history_of(up(2, 50))
    history.add(95.0, 6, 6)
    assert corrected(history, 20, 10) == 10
    held = bound(history, 20, 10)
    assert [(step.name, step.reason) for step in held] == [
        (UP_RATE, "Within 60 s, 2 or 50% may be added to 6 replicas.")
    ]

    fresh = history_of(up(4, 0))
    fresh.add(0.0, 5, 5)
    sizes = [5]
    for now_s in (0.0, 15.0, 30.0, 45.0, 60.0, 75.0, 90.0):
        size = corrected(fresh, 20, sizes[-1], now_s=now_s)
        fresh.record(now_s, 20, sizes[-1], size)
        sizes.append(size)
    # Four come at once; the next four when the five of the start are a period ago.
    assert sizes == [5, 9, 9, 9, 9, 9, 13, 13]


def test_the_up_window_waits_for_a_wish_that_lasts() -> None:
    history = history_of(up(100, 1000, window_s=30.0))
    history.add(80.0, 7, 7)
    assert corrected(history, 20, 5) == 7
    assert corrected(history, 20, 9) == 9


def test_17_panic_starts_in_the_same_look_and_lasts_after_the_last_one() -> None:
    history = history_of(panic(1000))
    assert history.panics(0.0, 10, 5)
    history.record(0.0, 10, 5, 10)
    assert not history.panics(61.0, 10, 10)
    assert history.panics(60.0, 10, 10)
    history.record(40.0, 30, 10, 30)
    assert history.panics(100.0, 10, 30)
    assert not history.panics(100.1, 10, 30)


def test_18_a_panic_never_shrinks() -> None:
    assert corrected(history_of(panic(100)), 3, 10, panic=True) == 10
    held = bound(history_of(panic(100)), 3, 10, panic=True)
    assert [step.name for step in held] == [PANIC_HOLD]


def test_19_without_a_hold_there_is_no_panic() -> None:
    history = history_of(Behavior())
    assert not history.panics(0.0, 100, 1)
    history.record(0.0, 100, 1, 100)
    assert not history.panics(0.0, 100, 1)


@pytest.mark.parametrize(
    ("percent", "past", "recommended", "current", "expected"),
    [(1000, None, 15, 5, 15), (100, None, 15, 5, 10), (100, 6, 30, 10, 12), (100, None, 5, 0, 5)],
)
def test_20_a_panic_has_a_rate_of_its_own_but_not_from_zero(
    percent: int, past: int | None, recommended: int, current: int, expected: int
) -> None:
    history = history_of(panic(percent))
    if past is not None:
        history.add(90.0, past, past)
    assert corrected(history, recommended, current, panic=True) == expected
    assert history.panics(100.0, recommended, 0)


def test_a_panic_without_a_period_has_no_rate() -> None:
    assert corrected(history_of(panic(0, period_s=0.0)), 40, 5, panic=True) == 40


def test_a_seeded_history_does_not_shrink_at_once() -> None:
    history, empty = history_of(Behavior()), history_of(Behavior())
    history.add(0.0, 10, 10)
    assert corrected(history, 2, 10, now_s=15.0) == 10
    assert corrected(history, 2, 10, now_s=315.0) == 2
    assert corrected(empty, 2, 10, now_s=15.0) == 2


def test_21_a_history_comes_back_through_a_file_and_into_other_settings() -> None:
    kept: dict[str, Any] = {}
    history = TargetHistory(panic(1000), kept)
    history.add(0.0, 4, 4)
    history.record(15.0, 12, 4, 12)
    longer = Behavior(down=pace_down(0, 100, 60.0, 600.0), panic=panic(1000).panic)
    edited = TargetHistory(longer, json.loads(json.dumps(kept)))
    assert edited.panics(75.0, 1, 12)
    assert not edited.panics(75.1, 1, 12)
    assert corrected(history, 2, 12, now_s=400.0) == 2
    assert corrected(edited, 2, 12, now_s=400.0) == 12


@given(
    st.lists(st.integers(0, 30), min_size=1, max_size=15),
    st.sampled_from(["Or", "And"]),
    st.integers(0, 5),
    st.sampled_from([0, 50, 100]),
    st.sampled_from([0.0, 20.0, 60.0]),
    st.booleans(),
)
def test_a_size_goes_towards_its_recommendation_and_never_past_it(
    wishes: list[int], select: str, instances: int, percent: int, window_s: float, hold: bool
) -> None:
    behavior = Behavior(
        up=pace_up(instances, percent, 30.0, window_s, select),
        down=pace_down(instances, percent, 30.0, window_s, select),
        panic=Panic(percent=100, period_s=15.0, hold_s=30.0) if hold else None,
    )
    history, size = history_of(behavior), 5
    for look, wish in enumerate(wishes):
        now_s = 15.0 * look
        panics = history.panics(now_s, wish, size)
        new = corrected(history, wish, size, panic=panics, now_s=now_s)
        lowest, highest = reach(history, now_s, size, panic=panics)
        assert min(size, wish) <= new <= max(size, wish)
        assert lowest <= new <= highest
        assert not (panics and new < size)
        history.record(now_s, wish, size, new)
        size = new
