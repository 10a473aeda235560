"""Whole policies over snapshots: what the controller would do, tick after tick."""

import json
from collections.abc import Sequence

import pytest

from tests.scaling.policies.kthena.paces import AT_ONCE, FREE_DOWN, FREE_UP, pace_up
from windtunnel.scaling.build import POLICIES, ScalingSetup, build_scaler, word_of
from windtunnel.scaling.decision import Decision
from windtunnel.scaling.manifests.fields import Assignment
from windtunnel.scaling.policies.kthena.analyzer import combined
from windtunnel.scaling.policies.kthena.settings import (
    Band,
    Behavior,
    Coordination,
    KthenaSettings,
    Panic,
    Ratio,
)
from windtunnel.scaling.scaler import Scaler
from windtunnel.scaling.settings import ScalerTiming
from windtunnel.scaling.snapshot import (
    Flow,
    Model,
    ReplicaCounts,
    ReplicaSpec,
    ReplicaView,
    Snapshot,
    Variant,
)

HOMOGENEOUS = "kthena-homogeneous"
HETEROGENEOUS = "kthena-heterogeneous"
DISAGGREGATED = "kthena-disaggregated"
LOST, SUMMED = "lost", "summed"
INTERVAL_S = 15.0
WAITING = "vllm:num_requests_waiting"
PANICS = Panic(percent=1000, period_s=0.0, threshold=200, hold_s=60.0)


def plan(policy: str = HOMOGENEOUS, **changes: object) -> KthenaSettings:
    kind = next(one for one in POLICIES if word_of(one) == policy)
    assert issubclass(kind, KthenaSettings)
    written = {"policy": policy, "metrics": {WAITING: 10.0}, "behavior": AT_ONCE, **changes}
    return kind(**written)


def scaler(settings: KthenaSettings, models: Sequence[str] = ("m",)) -> Scaler:
    return build_scaler(ScalingSetup(ScalerTiming(), (Assignment("", settings),), {}), models)


def preferred(**bands: tuple[float, float]) -> Coordination:
    return Coordination(
        mode="Preferred",
        preferredRatio={name: Band(min=low, max=high) for name, (low, high) in bands.items()},
    )


def ratio(low: float, high: float, rule: str = "exact") -> Ratio:
    return Ratio(
        numerator="prefill",
        denominator="decode",
        min=low,
        max=high,
        rule=rule,
    )


def pool(
    name: str,
    waiting: Sequence[float],
    *,
    target: int | None = None,
    bounds: tuple[int, int] = (1, 100),
    price: float = 1.0,
    role: str = "both",
    kv: float = 0.0,
    coming: int = 0,
) -> Variant:
    replicas = [
        ReplicaView(
            f"{name}-{number}", waiting=int(count), kv_tokens=100.0, kv_tokens_used=100.0 * kv
        )
        for number, count in enumerate(waiting)
    ]
    return Variant(
        name,
        role=role,
        spec=ReplicaSpec(price_per_hour=price),
        minimum=bounds[0],
        maximum=bounds[1],
        counts=ReplicaCounts(
            target=len(waiting) + coming if target is None else target, starting=coming
        ),
        replicas=replicas,
    )


def ask(
    autoscaler: Scaler, *pools: Variant, now_s: float = 0.0, rate: float = 0.0, queued: int = 0
) -> list[Decision]:
    flow = Flow(10.0, arrived=int(rate * 10))
    model = Model("m", list(pools), flow=flow, queued=queued)
    return autoscaler.tick(Snapshot(now_s, [model]), now_s)


def sizes(decisions: list[Decision]) -> dict[str, int]:
    return {decision.variant: decision.target for decision in decisions}


def test_02_without_metrics_nothing_happens_and_nothing_is_remembered() -> None:
    autoscaler = scaler(plan())
    (decision,) = ask(autoscaler, pool("a", [], target=3))
    assert (decision.target, decision.changes) == (3, False)
    assert decision.reason == f"No value of {WAITING} could be read."
    assert autoscaler.state()["policies"][0]["parts"]["scale-down window"] == {}  # type: ignore[index]


def test_08_the_tolerance_per_pod_and_as_shipped() -> None:
    loaded = pool("a", [10, 11] * 5)
    assert sizes(ask(scaler(plan()), loaded)) == {"a": 10}
    assert sizes(ask(scaler(plan(tolerance=SUMMED)), loaded)) == {"a": 11}


def test_09_as_shipped_the_load_of_one_replica_keeps_five() -> None:
    loaded = pool("a", [2, 2, 2, 2, 2])
    assert sizes(ask(scaler(plan(tolerance=SUMMED)), loaded)) == {"a": 5}
    assert sizes(ask(scaler(plan()), loaded)) == {"a": 1}


def test_each_pool_of_a_homogeneous_policy_is_alone() -> None:
    found = ask(scaler(plan()), pool("a", [40]), pool("b", [10, 10]))
    assert sizes(found) == {"a": 4, "b": 2}
    assert found[0].reason == f"{WAITING} requires 4 replicas at a target of 10 per replica."
    assert found[0].metrics == {WAITING: 40.0}


def test_a_rate_is_a_total() -> None:
    settings = plan(metrics={"request_rate": 4.0})
    assert sizes(ask(scaler(settings), pool("a", [0, 0]), rate=30.0)) == {"a": 8}


@pytest.mark.parametrize(("how", "expected"), [("sum", 9), ("avg", 3), ("max", 5)])
def test_10_a_query_is_a_total_whatever_it_asks_for(how: str, expected: int) -> None:
    """An average is taken for the load of the whole pool, too: a query must sum."""
    settings = plan(queries={WAITING: how})
    assert sizes(ask(scaler(settings), pool("a", [20, 20, 50]))) == {"a": expected}
    (held,) = ask(scaler(settings), pool("a", [], target=2))
    assert not held.changes


def test_27_shares_of_several_pools_are_averaged_by_replicas() -> None:
    """0.9 on one replica and 0.1 on nine: 0.18, where a sum would be 1."""
    kv = "kv_cache_utilization"
    settings = plan(HETEROGENEOUS, metrics={kv: 0.05}, queries={kv: "avg"})
    pools = [pool("a", [0], kv=0.9), pool("b", [0] * 9, kv=0.1)]
    assert sum(sizes(ask(scaler(settings), *pools)).values()) == 4


def test_27_shares_are_averaged_by_replicas_and_the_rest_is_summed() -> None:
    assert combined("kv_Utilization", [(0.9, 1), (0.1, 9)]) == pytest.approx(0.18)
    assert combined("cache_usage", [(0.9, 0), (0.1, 0)]) == pytest.approx(0.5)
    assert combined("request_rate", [(3.0, 1), (5.0, 9)]) == 8.0
    assert combined("x_ratio", []) == 0.0


def test_14_a_peak_holds_for_five_minutes() -> None:
    autoscaler = scaler(plan(behavior=Behavior()))
    assert sizes(ask(autoscaler, pool("a", [20, 20]))) == {"a": 4}
    (held,) = ask(autoscaler, pool("a", [1, 1, 1, 1]), now_s=240.0)
    assert held.target == 4
    assert [limit.as_data() for limit in held.limits] == [
        {
            "name": "scale-down window",
            "before": 1,
            "after": 4,
            "without": 1,
            "reason": "4 were recommended within the last 300 s.",
        }
    ]
    assert sizes(ask(autoscaler, pool("a", [1, 1, 1, 1]), now_s=301.0)) == {"a": 1}


def test_17_and_18_panic_grows_at_once_and_does_not_shrink() -> None:
    slow = pace_up(1, 0, 60.0, 60.0, "And")
    behavior = Behavior(up=slow, down=FREE_DOWN, panic=PANICS)
    autoscaler = scaler(plan(behavior=behavior, history=LOST))
    (grown,) = ask(autoscaler, pool("a", [20, 20]))
    assert grown.target == 4
    assert grown.reason.endswith("Panic mode is active.")
    (held,) = ask(autoscaler, pool("a", [0, 0, 0, 1]), now_s=60.0)
    assert (held.target, held.limits[0].name, held.limits[0].without) == (4, "panic hold", 1)
    assert sizes(ask(autoscaler, pool("a", [0, 0, 0, 1]), now_s=61.0)) == {"a": 1}


def test_21_memory_survives_a_restart_and_an_edit_and_is_lost_as_shipped() -> None:
    autoscaler = scaler(plan(behavior=Behavior()))
    ask(autoscaler, pool("a", [20, 20]))
    memory = json.loads(json.dumps(autoscaler.state()))
    edited = scaler(plan(behavior=Behavior(), tolerance_percent=20))
    edited.restore(memory)
    quiet = pool("a", [1, 1, 1, 1])
    assert sizes(ask(edited, quiet, now_s=299.0)) == {"a": 4}
    assert sizes(ask(edited, quiet, now_s=301.0)) == {"a": 1}
    # Without its memory, a policy takes the present size for the last wish; as shipped it does not.
    assert sizes(ask(scaler(plan(behavior=Behavior())), quiet, now_s=301.0)) == {"a": 4}
    forgetful = scaler(plan(behavior=Behavior(), history=LOST))
    assert sizes(ask(forgetful, quiet, now_s=301.0)) == {"a": 1}


def kinds(h100: Sequence[float], a100: Sequence[float]) -> tuple[Variant, Variant]:
    bounds = (0, 10)
    return (
        pool("h100", h100, price=30.0, bounds=bounds),
        pool("a100", a100, price=10.0, bounds=bounds),
    )


def test_22_a_heterogeneous_total_is_split_by_cost() -> None:
    found = ask(scaler(plan(HETEROGENEOUS)), *kinds([], [60, 60]))
    assert sizes(found) == {"h100": 2, "a100": 10}
    assert [decision.recommended for decision in found] == [2, 10]


def test_22_costs_may_be_written() -> None:
    settings = plan(HETEROGENEOUS, costs={"h100": 1.0, "a100": 9.0})
    assert sizes(ask(scaler(settings), *kinds([], [60, 60]))) == {"h100": 10, "a100": 2}


def test_25_a_fleet_comes_down_again_after_a_peak() -> None:
    autoscaler = scaler(plan(HETEROGENEOUS, behavior=Behavior()))
    now_s, state, totals = 0.0, {"h100": 0, "a100": 2}, []
    for tick in range(60):
        load = 100.0 if tick < 4 else 1.0
        pools = kinds([0.0] * state["h100"], [load] + [0.0] * (state["a100"] - 1))
        state = sizes(ask(autoscaler, *pools, now_s=now_s))
        totals.append(sum(state.values()))
        now_s += INTERVAL_S
    # The peak ends at 45 s; what it asked for last holds for 300 s, and then the minimum is there.
    assert totals[3:24] == [6] * 21
    assert state == {"h100": 0, "a100": 1}


def test_26_replicas_that_nobody_could_ask_still_count() -> None:
    """Three h100 gave no answer: they are taken to be on target, not to be gone."""
    silent = pool("h100", [], target=3, price=30.0, bounds=(0, 10))
    found = ask(
        scaler(plan(HETEROGENEOUS, tolerance=SUMMED)), silent, pool("a100", [3, 3], bounds=(0, 10))
    )
    assert sum(decision.current for decision in found) == 5
    assert sizes(found) == {"h100": 0, "a100": 2}


def test_coordination_moves_replicas_and_never_the_total() -> None:
    section = preferred(p=(20, 40), d=(60, 80))
    pools = [
        pool("p", [30], role="prefill", bounds=(0, 100), price=7.0),
        pool("d", [10] * 9, role="decode", bounds=(0, 100)),
    ]
    plain = ask(scaler(plan(HETEROGENEOUS)), *pools)
    moved = ask(scaler(plan(HETEROGENEOUS, coordination=section)), *pools)
    assert sum(sizes(plain).values()) == sum(sizes(moved).values()) == 12
    assert sizes(plain) == {"p": 1, "d": 11}
    assert sizes(moved) == {"p": 3, "d": 9}  # 20% of 12 are more than 2
    assert moved[0].reason.endswith("Split: preferred shares: p 20.0%, d 80.0%.")


def test_of_roles_that_share_a_total_each_has_a_replica_where_there_is_work() -> None:
    prefill = pool("p", [1], role="prefill", bounds=(0, 9))
    asleep = pool("d", [], role="decode", bounds=(0, 9), price=2.0)
    dearer = pool("e", [], role="decode", bounds=(0, 9), price=3.0)
    decisions = ask(scaler(plan(HETEROGENEOUS)), prefill, asleep, dearer, queued=3)
    assert sizes(decisions) == {"p": 1, "d": 1, "e": 0}
    assert [limit.name for limit in decisions[1].limits] == ["work"]
    idle = ask(scaler(plan(HETEROGENEOUS)), prefill, asleep, dearer)
    assert sizes(idle) == {"p": 1, "d": 0, "e": 0}


def test_36_coordination_is_left_out_in_panic() -> None:
    section = preferred(p=(90, 100), d=(0, 10))
    behavior = Behavior(up=FREE_UP, down=FREE_DOWN, panic=PANICS)
    settings = plan(HETEROGENEOUS, coordination=section, behavior=behavior)
    calm = [pool("p", [12] * 2, price=9.0), pool("d", [12] * 8)]
    loaded = [pool("p", [12], price=9.0), pool("d", [54, 54])]
    assert sizes(ask(scaler(settings), *calm)) == {"p": 11, "d": 1}
    assert sizes(ask(scaler(settings), *loaded)) == {"p": 1, "d": 11}


RATIO = ratio(0.25, 1.0)


def roles(
    prefill: Sequence[float], decode: Sequence[float], fixed: int = 0
) -> tuple[Variant, Variant]:
    return (
        pool("prefill", prefill, role="prefill", bounds=(fixed or 1, fixed or 8)),
        pool("decode", decode, role="decode", bounds=(1, 16)),
    )


def test_28_roles_keep_their_ratio() -> None:
    found = ask(scaler(plan(DISAGGREGATED, ratio=RATIO)), *roles([60], [20]))
    assert sizes(found) == {"prefill": 6, "decode": 6}
    assert [limit.as_data() for limit in found[1].limits] == [
        {
            "name": "ratio",
            "before": 2,
            "after": 6,
            "without": 2,
            "reason": "prefill to decode must be 0.25 to 1: 4 more are needed to keep it.",
        }
    ]


def test_30_a_narrow_band_holds_exactly_and_not_as_shipped() -> None:
    half = ratio(0.5, 0.5)
    loaded = roles([10], [30])
    assert sizes(ask(scaler(plan(DISAGGREGATED, ratio=half)), *loaded)) == {
        "prefill": 2,
        "decode": 4,
    }
    shipped = plan(DISAGGREGATED, ratio=ratio(0.5, 0.5, "as-shipped"))
    assert sizes(ask(scaler(shipped), *loaded)) == {"prefill": 2, "decode": 3}


def test_the_ratio_is_no_way_around_the_rates() -> None:
    behavior = Behavior(up=pace_up(2, 0, 60.0, 0.0), down=FREE_DOWN)
    loaded = roles([80], [10])
    settings = plan(DISAGGREGATED, ratio=RATIO, behavior=behavior)
    assert sizes(ask(scaler(settings), *loaded)) == {"prefill": 3, "decode": 3}
    tight = plan(DISAGGREGATED, ratio=ratio(0.25, 0.25), behavior=behavior)
    assert sizes(ask(scaler(tight), *loaded)) == {"prefill": 3, "decode": 3}


def test_31_a_fixed_role_is_left_alone() -> None:
    found = ask(scaler(plan(DISAGGREGATED)), *roles([], [50], fixed=2))
    assert sizes(found) == {"prefill": 2, "decode": 5}
    again = ask(scaler(plan(DISAGGREGATED)), *roles([90, 90], [50], fixed=2))
    assert again[0].reason == "Its size is fixed: 2."
    assert not again[0].changes


def test_32_where_one_role_has_no_metrics_nothing_changes() -> None:
    prefill, decode = roles([], [50])
    silent = pool("prefill", [], target=1, role="prefill")
    found = ask(scaler(plan(DISAGGREGATED)), silent, decode)
    assert not any(decision.changes for decision in found)
    assert found[1].reason == "prefill has no metrics, so no role is changed."
    assert prefill.name == "prefill"


def test_34_what_stays_is_no_change() -> None:
    found = ask(scaler(plan(DISAGGREGATED, ratio=RATIO)), *roles([10], [20, 20]))
    assert [decision.changes for decision in found] == [False, True]


def test_roles_may_have_metrics_of_their_own() -> None:
    settings = plan(DISAGGREGATED, metrics_of={"decode": {"vllm:kv_cache_usage_perc": 0.5}})
    prefill = pool("prefill", [30], role="prefill")
    decode = pool("decode", [90, 90], role="decode", kv=0.8)
    assert sizes(ask(scaler(settings), prefill, decode)) == {"prefill": 3, "decode": 4}


@pytest.mark.parametrize(("target", "expected"), [(1e9, 1), (0.1, 5)])
def test_45_a_huge_target_is_the_minimum_and_a_tiny_one_the_maximum(
    target: float, expected: int
) -> None:
    settings = plan(metrics={WAITING: target})
    assert sizes(ask(scaler(settings), pool("a", [7, 7, 7], bounds=(1, 5)))) == {"a": expected}


def test_45_without_a_policy_replicas_stay() -> None:
    assert sizes(ask(scaler(plan(), ["other"]), pool("a", [90, 90]))) == {"a": 2}
