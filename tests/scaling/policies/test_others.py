"""KEDA, AIBrix and Dynamo's planner, by the numbers they are known for."""

import sys
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest
from pydantic import ValidationError

from tests.scaling.policies.fleets import context, group, limited
from tests.scaling.policies.predictive.test_capacity import Line
from tests.scaling.sections import ServingPool, faults_beside, section
from windtunnel.scaling.analyzers import Group
from windtunnel.scaling.policies.aibrix import Aibrix, AibrixCooldown, AibrixSettings
from windtunnel.scaling.policies.dynamo import Dynamo, DynamoSettings, EngineProfile
from windtunnel.scaling.policies.keda.policy import KedaActivation, KedaMetric, KedaSettings
from windtunnel.scaling.policies.load_predictors import PACKAGES, predictor_of
from windtunnel.scaling.snapshot import (
    Flow,
    MeanLatencies,
    Model,
    ReplicaCounts,
    ReplicaSpec,
    ReplicaView,
    RequestLengths,
    Variant,
)


def keda_of(*names: str, **settings: Any) -> KedaActivation:
    metrics = [KedaMetric(name=name, target=1.0) for name in names]
    return KedaActivation(KedaSettings(policy="keda", metrics=metrics, **settings))


def aibrix(strategy: str = "APA") -> Aibrix:
    settings = {"policy": "aibrix", "metrics": {"kv_used": 1.0}, "strategy": strategy}
    return Aibrix(AibrixSettings(**settings))


def dynamo(**settings: Any) -> Dynamo:
    return Dynamo(DynamoSettings(policy="dynamo", **settings))


def test_keda_wakes_at_once_and_sleeps_after_its_cooldown() -> None:
    keda = keda_of("waiting", cooldown_s=300.0)
    assert limited(keda, 0.0, 0, 0, queued=1) == 1
    assert limited(keda, 10.0, 1, 0) == 1
    assert limited(keda, 299.0, 1, 0) == 1
    assert limited(keda, 300.0, 1, 0) == 0
    assert limited(keda, 310.0, 0, 0) == 0


def test_keda_has_a_size_for_idle_times() -> None:
    keda = keda_of("waiting", cooldown_s=0.0, idle=2)
    assert limited(keda, 0.0, 5, 3) == 2
    assert keda.why(3, 2, 0, context(0.0, 5)) == "waiting has not been active for 0 s."


def test_without_an_activation_of_its_own_only_the_first_metric_activates_keda() -> None:
    assert limited(keda_of("kv_used", "waiting"), 0.0, 0, 0, queued=1) == 0
    assert limited(keda_of("waiting", "kv_used"), 0.0, 0, 0, queued=1) == 1


def test_keda_keeps_a_minimum_while_any_trigger_is_active() -> None:
    metrics = [KedaMetric(name=name, target=1.0, activation=0.0) for name in ("kv_used", "waiting")]
    settings = {"cooldown_s": 60.0, "idle": 0, "least": 2}
    keda = KedaActivation(KedaSettings(policy="keda", metrics=metrics, **settings))
    assert limited(keda, 0.0, 0, 0, queued=1) == 2
    assert limited(keda, 59.0, 2, 0) == 2
    assert limited(keda, 60.0, 2, 0) == 0


def apa(mean: float, current: int) -> int:
    found = aibrix().analyze_group(group([mean] * current), 0.0)
    return round(found.demand)


@pytest.mark.parametrize(
    ("mean", "current", "size"),
    [(1.05, 10, 10), (1.5, 10, 15), (5.0, 10, 20), (0.95, 10, 10), (0.75, 10, 8), (0.1, 10, 5)],
)
def test_apa_takes_the_ratio_within_double_and_half(mean: float, current: int, size: int) -> None:
    assert apa(mean, current) == size


def test_kpa_of_aibrix_takes_a_mean_for_a_total() -> None:
    kpa = aibrix("KPA")
    assert round(kpa.analyze_group(group([3.0] * 4), 0.0).demand) == 3
    assert round(kpa.analyze_group(group([1.05] * 4), 1000.0).demand) == 4


def test_aibrix_smooths_over_three_minutes() -> None:
    slow = aibrix()
    slow.analyze_group(group([1.0] * 10), 0.0)
    assert round(slow.analyze_group(group([1.6] * 10), 10.0).demand) == 13
    again = aibrix()
    again.restore(slow.state())
    assert round(again.analyze_group(group([1.6] * 10), 20.0).demand) == 14


def test_the_cooldown_of_aibrix_goes_to_the_lowest() -> None:
    cooldown = AibrixCooldown(0.0, 300.0)
    assert limited(cooldown, 0.0, 10, 6) == 6
    assert limited(cooldown, 10.0, 10, 8) == 6
    assert limited(cooldown, 310.0, 10, 8) == 8


def roles(prefill: int, decode: int, *, arrived: int = 100) -> list[Group]:
    def variant(role: str, ready: int, accelerators: int) -> Variant:
        return Variant(
            role,
            role=role,
            spec=ReplicaSpec(
                accelerators=accelerators, kv_tokens=200_000.0, max_num_seqs=128, step_times=Line()
            ),
            counts=ReplicaCounts(target=ready),
            replicas=[ReplicaView(f"{role}{number}") for number in range(ready)],
        )

    flow = Flow(
        180.0,
        arrived=arrived,
        completed=arrived,
        lengths=RequestLengths(prompt_tokens=1024.0, output_tokens=256.0),
        latencies=MeanLatencies(ttft_s=0.0316, tpot_s=0.0061, e2e_s=1.6),
    )
    variants = [variant("prefill", prefill, 1), variant("decode", decode, 2)]
    model = Model("m", variants, flow=flow)
    return [Group(model, each.role, [each], each.role) for each in variants]


def test_dynamo_shares_its_budget_as_the_planner_does() -> None:
    planner = dynamo(accelerator_budget=8)
    assert planner._within_budget(roles(1, 1), [4, 6]) == [2, 3]


def test_dynamo_sizes_both_roles_for_what_it_predicts() -> None:
    # 55.6/s of 1024+256: a prompt alone takes 31.6 ms, so 1.76 replicas; at 50 ms per token 128
    # sequences take 11.1 ms each step, so 11,512 tokens/s a replica and 1.24 replicas.
    planner = dynamo(accelerator_budget=100, correct=False)
    sizes = [round(found.demand) for found in planner.analyze(roles(1, 1, arrived=10_000), 180.0)]
    assert sizes == [2, 2]
    corrected = dynamo(accelerator_budget=100).analyze(roles(1, 1, arrived=10_000), 180.0)
    assert corrected[0].evidence["prefill_correction"] == pytest.approx(1.0, rel=1e-3)


def test_dynamo_waits_for_its_next_adjustment() -> None:
    planner = dynamo()
    planner.analyze(roles(1, 1), 180.0)
    held = planner.analyze(roles(3, 4), 195.0)
    assert [round(found.demand) for found in held] == [3, 4]
    assert "next adjustment is in 165 s" in held[0].sentence


def test_a_profile_is_read_between_its_points() -> None:
    profile = EngineProfile(roles(1, 1)[0].variants[0])
    assert profile.ttft_s(1024.0) == pytest.approx(6e-3 + 25e-6 * 1024)
    assert profile.ttft_s(1536.0) == pytest.approx(6e-3 + 25e-6 * 1536)
    assert profile.ttft_s(1.0) == profile.ttft_s(32.0)


def predicted(kind: str, values: Sequence[float]) -> float:
    predictor = predictor_of(kind, 60.0)
    for value in values:
        predictor.see(value)
    return predictor.next()


def test_predictors_begin_with_the_first_traffic() -> None:
    for kind in ("constant", "kalman", "arima", "prophet"):
        assert predicted(kind, []) == 0.0
        assert predicted(kind, [0.0, 0.0, 7.0, 3.0]) == 3.0  # too few for anything else


def test_a_filter_follows_a_trend() -> None:
    assert predicted("constant", range(40)) == 39.0
    assert predicted("kalman", range(40)) == pytest.approx(40.0, abs=0.5)


@pytest.mark.parametrize(("kind", "package"), PACKAGES.items())
def test_arima_and_prophet_follow_a_trend(kind: str, package: str) -> None:
    pytest.importorskip(package)
    assert predicted(kind, range(1, 31)) == pytest.approx(31.0, abs=1.0)
    assert predicted(kind, [5.0] * 9) == pytest.approx(5.0, abs=0.1)


class FakeArima:
    """In place of pmdarima: order (0, 0, 0) of plain values, and updates that may fail."""

    def __init__(self, values: list[float], *, fails: bool) -> None:
        self.order = (0, 0, 0) if max(values) > 10.0 else (1, 0, 0)
        self.values, self.fails = values, fails

    def update(self, values: list[float]) -> None:
        if self.fails:
            raise ValueError("singular matrix")
        self.values += values

    def predict(self, n_periods: int) -> list[float]:
        return [self.values[-n_periods]]


@pytest.mark.parametrize(("fails", "then"), [(False, 90.0), (True, 90.0)])
def test_arima_of_logarithms_goes_on_when_an_update_fails(
    monkeypatch: pytest.MonkeyPatch, *, fails: bool, then: float
) -> None:
    def auto_arima(values: list[float], **options: object) -> FakeArima:
        return FakeArima(values, fails=fails)

    monkeypatch.setitem(sys.modules, "pmdarima", SimpleNamespace(auto_arima=auto_arima))
    predictor = predictor_of("arima", 60.0)
    for value in (20.0, 40.0, 30.0, 60.0, 50.0):
        predictor.see(value)
    assert predictor.next() == pytest.approx(50.0)
    predictor.see(then)
    assert predictor.next() == pytest.approx(then)


def test_arima_without_a_model_predicts_the_last_value(monkeypatch: pytest.MonkeyPatch) -> None:
    def auto_arima(values: list[float], **options: object) -> FakeArima:
        raise ValueError("no viable model")

    monkeypatch.setitem(sys.modules, "pmdarima", SimpleNamespace(auto_arima=auto_arima))
    assert predicted("arima", [1.0, 5.0, 2.0, 8.0, 3.0]) == 3.0


def test_a_predictor_that_is_not_installed_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    pools = [ServingPool("main")]
    (fault,) = faults_beside(pools, section(policy="dynamo", predictor="arima"))
    assert fault.path == ("scaling", "predictor")
    assert fault.what == "the package pmdarima is not installed"
    assert "planner" in (fault.hint or "")
    assert not faults_beside(pools, section(policy="dynamo", predictor="kalman"))


def test_unknown_names_are_refused() -> None:
    with pytest.raises(ValidationError, match="predictor"):
        dynamo(predictor="oracle")
    with pytest.raises(ValidationError, match="strategy"):
        aibrix("HPA")
