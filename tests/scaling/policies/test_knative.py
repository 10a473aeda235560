"""Knative's KPA: two windows, and a panic that never goes down."""

from typing import Any

import pytest
from pydantic import ValidationError

from tests.scaling.policies.fleets import group
from windtunnel.scaling.analyzers import Group
from windtunnel.scaling.policies.knative import Knative, KnativeSettings


def kpa(**settings: Any) -> Knative:
    """Of the KV cache; all of the target is aimed at."""
    written = {"metric": "kv_used", "target": 70.0, "utilization_percent": 100.0, **settings}
    return Knative(KnativeSettings(policy="knative", **written))


def size(knative: Knative, now_s: float, of: Group) -> int:
    return round(knative.analyze_group(of, now_s).demand)


def fed(knative: Knative, totals: list[tuple[float, float]], ready: int) -> int:
    """The answer to the last of these totals, each shared by so many ready pods."""
    answer = 0
    for now_s, total in totals:
        answer = size(knative, now_s, group([total / ready] * ready))
    return answer


def test_a_burst_above_twice_the_capacity_is_a_panic() -> None:
    # 50 on average over a minute, 300 over six seconds, a target of 70: 1 and 5 replicas.
    knative = kpa()
    minute = [(float(second), 50.0 - 250.0 * 6 / 54) for second in range(54)]
    burst = [(float(second), 300.0) for second in range(54, 60)]
    assert fed(knative, minute, 1) == 1
    assert fed(knative, burst, 2) == 5


def test_it_goes_down_by_half_at_most() -> None:
    knative = kpa()
    fed(knative, [(0.0, 70.0)], 4)  # comes up beside four pods: it holds them for a window
    assert fed(knative, [(float(second), 70.0) for second in range(1, 60)], 4) == 4
    assert fed(knative, [(float(second), 70.0) for second in range(60, 70)], 4) == 2


def test_a_panic_lasts_a_stable_window_after_its_last_reason() -> None:
    knative = kpa()
    assert fed(knative, [(0.0, 10.0), (2.0, 690.0)], 1) == 5
    assert fed(knative, [(float(second), 0.0) for second in range(4, 62, 2)], 10) == 5
    assert fed(knative, [(float(second), 0.0) for second in range(68, 140, 2)], 4) == 2


def test_a_restart_does_not_shrink_at_once() -> None:
    assert size(kpa(), 0.0, group([0.0] * 8)) == 8


def test_memory_survives() -> None:
    knative = kpa()
    fed(knative, [(0.0, 10.0), (2.0, 700.0)], 1)
    again = kpa()
    again.restore(knative.state())
    assert size(again, 4.0, group([0.0] * 2)) == 6


def test_the_way_down_may_be_delayed() -> None:
    knative = kpa(scale_down_delay_s=30.0, window_s=6.0)
    fed(knative, [(0.0, 130.0)], 1)
    assert fed(knative, [(10.0, 10.0)], 1) == 2
    assert fed(knative, [(29.0, 10.0)], 1) == 2
    assert fed(knative, [(31.0, 10.0)], 1) == 1


def test_from_zero_it_may_start_with_more() -> None:
    assert size(kpa(activation_scale=3), 0.0, group([], queued=0)) == 0
    knative = kpa(metric="waiting", target=10.0, activation_scale=3)
    assert size(knative, 0.0, group([], queued=1)) == 3


@pytest.mark.parametrize(
    "settings",
    [
        {"target": 0.0},
        {"window_s": 5.0},
        {"panic_window_percent": 0.0},
        {"panic_threshold_percent": 100.0},
        {"max_scale_down_rate": 1.0},
    ],
)
def test_what_knative_refuses_is_refused(settings: dict[str, float]) -> None:
    with pytest.raises(ValidationError):
        kpa(**settings)
