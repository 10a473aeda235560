"""What is read from pods and queries, by the vectors of the reference."""

from math import inf, nan

import pytest

from windtunnel.scaling.kthena.histogram import Histogram, Readings, Unreadable, recent_quantile
from windtunnel.scaling.kthena.scrape import (
    Group,
    Pod,
    Source,
    combined,
    group_sums,
    groups,
    queried_value,
)

BOUNDS = [0.5, 0.75, inf]


def histogram(*counts: int) -> Histogram:
    return Histogram(counts[-1], BOUNDS, counts)


def sums(*pods: Pod, metrics: tuple[str, ...] = ("waiting",)) -> dict[str, float]:
    found = group_sums(metrics, pods, 100.0, {})
    assert isinstance(found, Group)
    return found.sums


def why_not(*pods: Pod, metrics: tuple[str, ...] = ("waiting",)) -> str:
    found = group_sums(metrics, pods, 100.0, {})
    assert isinstance(found, Unreadable)
    return found.reason


def test_27_shares_are_averaged_by_replicas_and_the_rest_is_summed() -> None:
    assert combined("kv_Utilization", [(0.9, 1), (0.1, 9)]) == pytest.approx(0.18)
    assert combined("cache_usage", [(0.9, 0), (0.1, 0)]) == pytest.approx(0.5)
    assert combined("request_rate", [(3.0, 1), (5.0, 9)]) == 8.0
    assert combined("x_ratio", []) == 0.0


def test_38_label_series_and_pods_are_summed() -> None:
    pods = [Pod("a", values={"waiting": [1.0, 2.0]}), Pod("b", values={})]
    assert sums(*pods) == {"waiting": 3.0}


def test_38_a_base_of_another_start_is_no_base() -> None:
    readings = Readings()
    readings.append(0.0, {("a", 10.0): histogram(2, 4, 5), ("b", 10.0): histogram(2, 4, 5)})
    now = histogram(2, 9, 10)
    pods = [
        Pod("a", started_s=10.0, values={"ttft": now}),
        Pod("b", started_s=50.0, values={"ttft": now}),
    ]
    found = group_sums(["ttft"], pods, 100.0, {"ttft": readings})
    assert isinstance(found, Group)
    recent = recent_quantile(now, histogram(2, 4, 5))
    life = recent_quantile(now, None)
    assert isinstance(recent, float)
    assert isinstance(life, float)
    assert found.sums["ttft"] == pytest.approx(recent + life)


def test_the_base_is_the_newest_reading_that_is_old_enough() -> None:
    readings = Readings(fresh_s=60.0, expire_s=300.0)
    first, second = histogram(1, 1, 1), histogram(2, 2, 2)
    readings.append(0.0, {("a", 0.0): first})
    assert readings.base(60.0, "a", 0.0) is None
    assert readings.base(61.0, "a", 0.0) is first
    readings.append(61.0, {("a", 0.0): second})
    assert readings.base(121.0, "a", 0.0) is first
    assert readings.base(122.0, "a", 0.0) is second
    assert readings.base(362.0, "a", 0.0) is None


@pytest.mark.parametrize(
    ("pod", "reason"),
    [
        (Pod("b", values=None), "b did not answer"),
        (Pod("b", restarts=1), "b was restarted 1 times"),
        (Pod("b", terminating=True), "b is terminating"),
        (Pod("b", failed=True), "b has failed"),
    ],
)
def test_39_one_pod_in_trouble_drops_its_group(pod: Pod, reason: str) -> None:
    assert why_not(Pod("a", values={"waiting": [1.0]}), pod) == reason


def test_39_who_is_not_ready_is_counted_and_not_asked() -> None:
    pods = [Pod("a", values={"waiting": [4.0]}), Pod("b", ready=False)]
    found = group_sums(["waiting"], pods, 0.0, {})
    assert isinstance(found, Group)
    assert (found.sums, found.unready) == ({"waiting": 4.0}, ["b"])
    assert why_not() == "there are no pods"


def test_40_one_question_answers_metrics_of_one_endpoint() -> None:
    sources = [
        Source("a"),
        Source("b", port=9000),
        Source("c", selector={"x": "1", "y": "2"}),
        Source("d"),
        Source("e", selector={"y": "2", "x": "1"}),
    ]
    found = [[source.metric for source in group] for group in groups(sources)]
    assert found == [["a", "d"], ["b"], ["c", "e"]]


def test_41_the_vectors_of_the_quantile() -> None:
    base, now = histogram(2, 4, 5), histogram(2, 9, 10)
    assert recent_quantile(now, base, 50) == pytest.approx(0.65)
    assert recent_quantile(histogram(0, 0, 8), None, 100) == pytest.approx(1.5)
    assert recent_quantile(now, now) == 0.0


@pytest.mark.parametrize(
    ("now", "base", "reason"),
    [
        (histogram(1, 1, 1), histogram(1, 1, 2), "the count went back from 2 to 1"),
        (Histogram(3, [inf], [3]), histogram(0, 0, 0), "the two readings have 3 and 1 buckets"),
        (histogram(5, 4, 6), None, "the bucket up to 0.75 has fewer than the one before it"),
        (Histogram(9, BOUNDS, [1, 1, 2]), None, "the buckets hold 2 of 9 requests"),
    ],
)
def test_41_what_cannot_be_is_unreadable(
    now: Histogram, base: Histogram | None, reason: str
) -> None:
    found = recent_quantile(now, base)
    assert isinstance(found, Unreadable)
    assert found.reason == reason
    pod = Pod("a", values={"ttft": now})
    if base is None:
        assert why_not(pod, metrics=("ttft",)) == f"ttft of a: {reason}"


@pytest.mark.parametrize(
    ("url", "samples"),
    [
        ("http://prometheus", []),
        ("http://prometheus", [1.0, 2.0]),
        ("http://prometheus", [nan]),
        ("https://prometheus", [inf]),
        ("ftp://prometheus", [1.0]),
    ],
)
def test_42_a_query_without_one_finite_number_is_absent(url: str, samples: list[float]) -> None:
    assert isinstance(queried_value(url, samples), Unreadable)


def test_42_a_query_with_one_number_is_it() -> None:
    assert queried_value("https://prometheus", [4.5]) == 4.5
