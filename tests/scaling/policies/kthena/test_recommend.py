"""What the metrics ask for: the vectors of the reference, and what each assumption does."""

import pytest

from windtunnel.scaling.policies.kthena.recommend import (
    LARGEST,
    NoData,
    Reading,
    Recommended,
    for_total,
    recommend,
    whole_above,
)

PODS_19_3_7 = [{"m": 19.1}, {"m": 3.1}, {"m": 7.1}]


def size(
    reading: Reading,
    targets: dict[str, float] | None = None,
    *,
    tolerance: float = 0.1,
    minimum: int = 1,
    maximum: int = 1000,
) -> int:
    found = recommend(reading, targets or {"m": 1.0}, tolerance, minimum, maximum)
    assert isinstance(found, Recommended)
    return found.size


def pods(count: int, value: float) -> list[dict[str, float]]:
    return [{"m": value}] * count


def test_01_outside_the_bounds_no_metric_is_needed() -> None:
    assert size(Reading(4), minimum=5, maximum=10) == 5
    assert size(Reading(11), minimum=5, maximum=10) == 10


def test_02_without_any_metric_nothing_is_decided() -> None:
    found = recommend(Reading(3, [{}, {}]), {"m": 1.0, "n": 2.0}, 0.1, 1, 10)
    assert isinstance(found, NoData)
    assert found.reason == "No value of m, n could be read."


def test_03_of_several_metrics_the_largest_wish_wins() -> None:
    entries = [{"a": 6.0, "b": 500.0, "c": 20.0}] * 3
    found = recommend(Reading(3, entries), {"a": 3.0, "b": 5.0, "c": 4.0}, 0.1, 1, 1000)
    assert isinstance(found, Recommended)
    assert found.size == 300
    assert found.reason == "b requires 300 replicas at a target of 5 per replica."


@pytest.mark.parametrize(("value", "expected"), [(0.51, 10), (0.49, 5), (1.49, 10), (1.51, 16)])
def test_04_inside_the_tolerance_the_size_is_kept(value: float, expected: int) -> None:
    assert size(Reading(10, pods(10, value)), tolerance=0.5) == expected


@pytest.mark.parametrize(
    ("unready", "value", "current", "expected"),
    [(50, 0.15, 58, 2), (10, 3.9, 18, 32), (50, 3.9, 58, 58)],
)
def test_05_who_is_not_ready_counts_as_idle_when_growing(
    unready: int, value: float, current: int, expected: int
) -> None:
    assert size(Reading(current, pods(8, value), unready=unready)) == expected


@pytest.mark.parametrize(
    ("missing", "value", "current", "expected"),
    [(2, 0.5, 10, 6), (2, 2.9, 10, 24), (50, 2.9, 58, 58)],
)
def test_06_who_did_not_answer_is_on_target_or_idle(
    missing: int, value: float, current: int, expected: int
) -> None:
    entries = pods(8, value) + [{}] * missing
    assert size(Reading(current, entries)) == expected


@pytest.mark.parametrize("target", [0.0, 1e-100])
def test_07_a_target_near_nothing_asks_for_the_maximum(target: float) -> None:
    assert size(Reading(3, PODS_19_3_7), {"m": target}, maximum=50) == 50


def test_08_the_tolerance_works_per_pod_and_not_on_sums() -> None:
    assert size(Reading(10, [{"m": 105.0}]), {"m": 10.0}) == 11
    assert size(Reading(10, pods(10, 10.5)), {"m": 10.0}) == 10


def test_09_sums_for_one_replica_keep_any_size() -> None:
    assert size(Reading(5, [{"m": 10.2}]), {"m": 10.0}) == 5
    assert size(Reading(5, pods(5, 2.04)), {"m": 10.0}) == 2


@pytest.mark.parametrize(
    ("total", "tolerance", "expected"), [(14.9, 0.51, 10), (14.9, 0.49, 5), (44.9, 0.1, 15)]
)
def test_10_an_external_value_is_a_total(total: float, tolerance: float, expected: int) -> None:
    assert for_total(total, 3.0, 10, tolerance) == expected
    reading = Reading(10, pods(4, 100.0), external={"m": total})
    assert size(reading, {"m": 3.0}, tolerance=tolerance) == expected


def test_10_from_zero_the_total_decides() -> None:
    assert for_total(14.9, 3.0, 0, 0.1) == 5
    assert for_total(0.0, 3.0, 0, 0.1) == 0


def test_loads_that_differ_are_summed() -> None:
    assert size(Reading(3, PODS_19_3_7)) == 30


def test_sums_with_replicas_that_are_not_ready_never_shrink() -> None:
    """Two are coming, so that 1 + 2 replicas are assumed to share the sum."""
    assert size(Reading(5, [{"m": 20.0}], unready=2), {"m": 10.0}) == 5
    assert size(Reading(5, [{"m": 70.0}], unready=2), {"m": 10.0}) == 7
    assert size(Reading(5, [{"m": 9.0}], unready=2), {"m": 10.0}, tolerance=0.0) == 1


@pytest.mark.parametrize(
    ("amount", "expected"),
    [
        (float("nan"), 0),
        (-3.2, 0),
        (2.1 / 0.3, 7),
        (7.01, 8),
        (1e-30, 1),
        (float("inf"), LARGEST),
        (1e30, LARGEST),
    ],
)
def test_the_next_whole_number_has_a_floor_a_ceiling_and_no_noise(
    amount: float, expected: int
) -> None:
    assert whole_above(amount) == expected
