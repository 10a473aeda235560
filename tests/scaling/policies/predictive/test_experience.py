"""What replicas carried changes what is believed of them; what they never had to does not."""

import pytest

from windtunnel.scaling.policies.predictive.experience import Experience

MISS_PRICE = 20.0


def after(loads: list[tuple[float, float]]) -> Experience:
    """Bins of a load over what step times say, and the share of answers that was late."""
    seen = Experience()
    for load, late in loads:
        seen.see(load, late, 100, 0.05)
    return seen


def test_at_first_a_little_less_than_step_times_say() -> None:
    assert 0.8 < Experience().factor(MISS_PRICE) < 1.0
    assert Experience().factor(2.0) > Experience().factor(200.0)


def test_a_bin_with_a_surge_shows_nothing() -> None:
    seen = Experience()
    before = seen.weights()
    seen.see(0.7, 0.9, 100, 0.05, surged=True)
    assert seen.weights() == before


def test_replicas_that_carried_more_are_believed_to() -> None:
    assert after([(1.5, 0.0)] * 20).factor(MISS_PRICE) > 1.35


def test_late_answers_under_a_load_that_should_be_carried_lower_it() -> None:
    assert after([(0.7, 0.5)] * 20).factor(MISS_PRICE) < 0.7


def test_a_light_load_says_nothing() -> None:
    before = Experience().factor(MISS_PRICE)
    assert after([(0.2, 0.0)] * 50).factor(MISS_PRICE) == pytest.approx(before, rel=0.03)


def test_what_is_late_while_a_queue_is_worked_off_is_laid_to_the_overload() -> None:
    overload = [(0.8, 0.0)] * 10 + [(2.0, 0.9)] * 4
    stalled = after([*overload, *[(0.5, 0.9)] * 8])
    assert stalled.factor(MISS_PRICE) > 0.75


def test_a_lasting_overload_says_little_about_how_far_below_it_the_capacity_is() -> None:
    carried = [(0.9, 0.0)] * 10
    overload = after([*carried, *[(1.3, 1.0)] * 6])
    assert overload.factor(MISS_PRICE) > 0.95 * after(carried).factor(MISS_PRICE)
    small = after([*carried, *[(1.05, 1.0)] * 6])
    assert small.factor(MISS_PRICE) < 0.95 * after(carried).factor(MISS_PRICE)


def test_answers_on_time_amid_late_ones_raise_no_capacity() -> None:
    assert after([(1.4, 0.9)] * 20).factor(MISS_PRICE) < 1.0


def test_two_late_bins_do_not_outweigh_many_on_time() -> None:
    """A rate that rises within a bin makes answers late at a load that is carried otherwise."""
    carried = [(0.85, 0.0)] * 12
    before = after(carried).factor(MISS_PRICE)
    assert after([*carried, (0.8, 0.9), (1.0, 1.0), *carried]).factor(MISS_PRICE) > 0.9 * before


def test_a_share_that_is_late_under_any_load_does_not_drive_it_down() -> None:
    assert after([(0.6, 0.03)] * 100).factor(MISS_PRICE) > 0.7


def test_memory_survives_a_restart() -> None:
    seen, again = after([(0.9, 0.01), (1.1, 0.4)]), Experience()
    again.restore(seen.state())
    assert again.factor(MISS_PRICE) == seen.factor(MISS_PRICE)
