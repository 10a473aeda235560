"""Kubernetes' HPA: its ratios, its tolerance, its windows and behaviours."""

import pytest
from pydantic import ValidationError

from tests.scaling.policies.fleets import context, group, limited
from windtunnel.scaling.policies.hpa import (
    Hpa,
    HpaBehavior,
    HpaDown,
    HpaMetric,
    HpaRule,
    HpaSettings,
    HpaUp,
    HpaWindows,
)


def target(name: str, value: float, kind: str = "average") -> HpaMetric:
    return HpaMetric(name=name, target=value, type=kind)


def hpa_of(*metrics: HpaMetric) -> Hpa:
    return Hpa(HpaSettings(policy="hpa", metrics=list(metrics)))


def behavior_of(up: HpaUp | None = None, down: HpaDown | None = None) -> HpaBehavior:
    return HpaBehavior(up or HpaUp(), down or HpaDown())


def wanted(hpa: Hpa, values: list[float], *, starting: int = 0, target: int | None = None) -> int:
    finding = hpa.analyze_group(group(values, starting=starting, target=target), 0.0)
    assert finding.known
    return round(finding.demand)


@pytest.mark.parametrize(
    ("values", "goal", "size"),
    [
        ([0.12] * 10, 0.1, 12),  # in thousandths; floating point says 13
        ([0.105] * 10, 0.1, 10),  # within the tolerance
        ([0.111] * 10, 0.1, 12),
        ([0.05] * 10, 0.1, 5),
        ([0.091] * 10, 0.1, 10),
        ([19.1, 3.1, 7.1], 1.0, 30),
    ],
)
def test_the_mean_of_pods_is_brought_to_its_target(
    values: list[float], goal: float, size: int
) -> None:
    assert wanted(hpa_of(target("kv_used", goal)), values) == size


def test_pods_that_start_count_as_idle_when_it_would_grow() -> None:
    hpa = hpa_of(target("kv_used", 1.0))
    assert wanted(hpa, [3.9] * 8, starting=10) == 32
    assert wanted(hpa, [3.9] * 8, starting=50) == 58  # then it would shrink: nothing is done
    assert wanted(hpa, [0.15] * 8, starting=50) == 2  # going down, they do not count


def test_a_total_is_shared_by_replicas() -> None:
    total = hpa_of(target("kv_used", 3.0, "total"))
    assert wanted(total, [44.9], target=10) == 15
    assert wanted(total, [28.0], target=10) == 10  # 2.8 each of 3: within the tolerance
    value = hpa_of(target("kv_used", 2.0, "value"))
    assert wanted(value, [1.0, 2.0, 1.0], target=3) == 6


def test_the_largest_of_several_counts() -> None:
    hpa = hpa_of(target("kv_used", 1.0), target("rps", 1.0, "total"))
    assert wanted(hpa, [2.0] * 3) == 10


def test_nothing_shrinks_while_a_metric_is_not_known() -> None:
    hpa = hpa_of(target("kv_used", 1.0), target("rps", 1.0, "total"))
    no_pod_is_ready = hpa.analyze_group(group([], starting=20), 0.0)
    assert not no_pod_is_ready.known
    assert "no replica is removed" in no_pod_is_ready.sentence


def test_zero_replicas_are_a_pause() -> None:
    assert not hpa_of(target("kv_used", 1.0)).analyze_group(group([], target=0), 0.0).known


def test_down_waits_for_its_window_and_up_does_not() -> None:
    windows = HpaWindows(0.0, 300.0)
    assert limited(windows, 0.0, 10, 14) == 14
    assert limited(windows, 15.0, 14, 6) == 14
    assert limited(windows, 299.0, 14, 6) == 14
    assert limited(windows, 300.0, 14, 6) == 6


def test_a_window_for_growth_takes_the_lowest() -> None:
    windows = HpaWindows(60.0, 300.0)
    assert limited(windows, 0.0, 4, 9) == 4  # it was 4 when the controller came up
    assert limited(windows, 30.0, 4, 7) == 4
    assert limited(windows, 61.0, 4, 9) == 7


def test_windows_survive_a_restart() -> None:
    windows = HpaWindows(0.0, 300.0)
    limited(windows, 0.0, 10, 14)
    again = HpaWindows(0.0, 300.0)
    again.restore(windows.state())
    assert limited(again, 15.0, 14, 6) == 14


def test_the_default_behavior_is_four_or_double() -> None:
    assert limited(behavior_of(), 0.0, 1, 40) == 5
    assert limited(behavior_of(), 0.0, 10, 40) == 20
    assert limited(behavior_of(), 0.0, 10, 0) == 0


def test_steps_within_a_period_count_from_its_start() -> None:
    up, down = HpaRule(pods=4, period_s=60.0), HpaRule(percent=10, period_s=60.0)
    behavior = behavior_of(HpaUp(rules=[up]), HpaDown(rules=[down]))
    assert limited(behavior, 0.0, 10, 13) == 13
    assert limited(behavior, 15.0, 13, 30) == 14
    assert limited(behavior, 30.0, 14, 30) == 14
    assert limited(behavior, 61.0, 14, 30) == 17  # the step of one at 15 s is still in it
    assert limited(behavior_of(down=HpaDown(rules=[down])), 0.0, 20, 1) == 18


@pytest.mark.parametrize(("select", "size"), [("Max", 20), ("Min", 12), ("Disabled", 10)])
def test_one_of_several_rules_is_selected(select: str, size: int) -> None:
    rules = [HpaRule(pods=2, period_s=60.0), HpaRule(percent=100, period_s=60.0)]
    up = HpaUp(rules=rules, select=select)
    assert limited(behavior_of(up), 0.0, 10, 40) == size


def test_limits_say_why() -> None:
    windows, behavior = HpaWindows(0.0, 300.0), behavior_of()
    limited(windows, 0.0, 10, 14)
    assert windows.why(6, 14, 0, context(15.0, 14)) == (
        "14 was recommended within the last 300 s; now it is 6."
    )
    assert behavior.why(40, 20, 0, context(0.0, 10)) == (
        "The limit on scaling up allows 20 now; 40 were recommended."
    )


@pytest.mark.parametrize(
    "made",
    [
        lambda: target("kv_used", 0.0),
        lambda: target("kv_used", float("nan")),
        lambda: target("kv_used", 1.0, "mean"),
        lambda: HpaDown(window_s=3601.0),
        lambda: HpaRule(percent=0),
        lambda: HpaRule(percent=1, period_s=0.0),
        lambda: HpaUp(select="Most"),
    ],
)
def test_what_makes_no_sense_is_refused(made: object) -> None:
    assert callable(made)
    with pytest.raises(ValidationError):
        made()


def test_each_direction_may_have_a_tolerance_of_its_own() -> None:
    def size(value: float) -> int:
        settings = HpaSettings(
            policy="hpa",
            metrics=[target("kv_used", 0.1)],
            up=HpaUp(tolerance=0.5),
            down=HpaDown(tolerance=0.0),
        )
        return wanted(Hpa(settings), [value] * 10)

    assert (size(0.14), size(0.16)) == (10, 16)
    assert size(0.095) == 10  # 9.5 replicas, rounded up
    assert size(0.085) == 9
