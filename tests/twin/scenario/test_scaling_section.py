"""The `scaling` section: what it comes to, and what is told of faults."""

from pathlib import Path
from typing import Any

import pytest
from pydantic import TypeAdapter

from windtunnel.scaling.build import BUILDERS, build_scaler, notes_of
from windtunnel.scaling.plan import BoundsPlan, PolicyPlan, SaturationPlan
from windtunnel.settings.faults import dotted
from windtunnel.twin.scenario.scaler_spec import ScalerSpec
from windtunnel.twin.scenario.scaling import scaling_faults, scaling_plan
from windtunnel.twin.scenario.scaling_spec import PolicySpec
from windtunnel.twin.scenario.serving_spec import PoolSpec

POOLS = [PoolSpec(name="main", replicas=2), PoolSpec(name="spare", replicas=1)]
SPEC: TypeAdapter[ScalerSpec] = TypeAdapter(PolicySpec)


def section(**written: Any) -> ScalerSpec:
    return SPEC.validate_python({"policy": "saturation", **written})


def faults(**written: Any) -> list[tuple[str, str]]:
    return [(dotted(fault.path), fault.what) for fault in scaling_faults(section(**written), POOLS)]


def test_defaults_are_filled_in() -> None:
    plan = scaling_plan(section(pools={"main": {"max": 8}}), POOLS, Path())
    assert plan.policy == SaturationPlan(0.8, 0.4, 0.8, 512.0, 5, True)
    assert plan.bounds == {"main": BoundsPlan(1, 8), "spare": BoundsPlan(1, 100_000)}
    assert plan.timing.interval_s == 15.0
    assert build_scaler(plan, ["m"]).timing.freshness_s == 45.0


@pytest.mark.parametrize("policy", ["saturation", "wva", "wva-v1", "blis"])
def test_every_policy_is_built(policy: str) -> None:
    plan = scaling_plan(
        section(
            policy=policy,
            optimizer={"order": "price"},
            stabilization={"up": "30s", "down": "1m"},
            rate={"up": 2},
        ),
        POOLS,
        Path(),
    )
    assert not faults(policy=policy)
    assert build_scaler(plan, ["m"]).timing.interval_s == 15.0


def test_no_patience_at_all_is_said_once() -> None:
    def notes(**written: Any) -> list[str]:
        return notes_of(scaling_plan(section(**written), POOLS, Path()))

    assert notes() == notes(stabilization={"up": "0s", "down": "1s"}) == []
    (note,) = notes(stabilization={"down": "0s"})
    assert note.startswith("stabilization.down is 0s")
    assert notes(policy="blis") == [note]
    listed = [{"name": "num_requests_waiting", "target": 2}]
    for policy in ("hpa", "keda"):
        assert notes(policy=policy, metrics=listed) == []
        (note,) = notes(policy=policy, metrics=listed, down={"window": "0s"})
        assert note.startswith("down.window is 0s: servers go")
    waiting = {"num_requests_waiting": 2}
    for policy in ("kthena-homogeneous", "kthena-heterogeneous", "kthena-disaggregated"):
        assert notes(policy=policy, metrics=waiting) == []
        (note,) = notes(policy=policy, metrics=waiting, behavior={"down": {"window": "0s"}})
        assert note.startswith("behavior.down.window is 0s: servers go")


def test_every_plan_has_a_builder() -> None:
    assert set(BUILDERS) == set(PolicyPlan.__subclasses__())


@pytest.mark.parametrize(
    ("written", "where", "what"),
    [
        ({"up": 0.3}, "scaling.down", "0.4 is not below up, which is 0.3"),
        ({"down": 0.9}, "scaling.down", "0.9 is not below up, which is 0.8"),
        (
            {"policy": "wva-v1", "kv_spare": 0.8},
            "scaling.kv_spare",
            "0.8 is not below kv_threshold, which is 0.8",
        ),
        ({"pools": {"mian": {}}}, "scaling.pools.mian", "there is no such pool"),
        (
            {"pools": {"main": {"min": 3, "max": 2}}},
            "scaling.pools.main.min",
            "3 is more than max, which is 2",
        ),
        (
            {"pools": {"main": {"min": 3}}},
            "serving.pools[0].replicas",
            "2 is outside the bounds of its scaling",
        ),
        ({"rate": {}}, "scaling.rate", "neither up nor down is limited"),
        ({"zero_after": "5m"}, "scaling.zero_after", "no pool may go to zero"),
        ({"matched_roles": True}, "scaling.matched_roles", "all pools have the same role"),
        (
            {"freshness": "5s", "scrape_delay": "10s"},
            "scaling.freshness",
            "less than scrape_delay, which is 10 s: nothing would ever be believed",
        ),
    ],
)
def test_faults_are_told_with_their_place(written: dict[str, Any], where: str, what: str) -> None:
    assert faults(**written) == [(where, what)]


@pytest.mark.parametrize("written", [{"kv_spare": 0.8}, {"queue_spare": 5}])
def test_what_is_spared_has_a_hint_of_its_own(written: dict[str, Any]) -> None:
    (fault,) = scaling_faults(section(policy="wva-v1", **written), POOLS)
    assert fault.hint == "no replica ever has as much to spare: it would grow without end"


NONE = {"min": 0, "max": 0}


@pytest.mark.parametrize(
    ("none", "roles", "does"),
    [
        (["a"], {"a": "both"}, "computes prompts"),
        (["a"], {"a": "prefill", "b": "decode"}, "computes prompts"),
        (["b"], {"a": "prefill", "b": "decode"}, "writes answers"),
        (["b"], {"a": "both", "b": "decode"}, None),
        (["a"], {"a": "both", "b": "both"}, None),
    ],
)
def test_somebody_must_be_allowed_to_serve(
    none: list[str], roles: dict[str, Any], does: str | None
) -> None:
    pools = [
        PoolSpec(name=name, role=role, replicas=0 if name in none else 1)
        for name, role in roles.items()
    ]
    found = list(scaling_faults(section(pools=dict.fromkeys(none, NONE)), pools))
    told = [(dotted(fault.path), fault.what) for fault in found]
    what = f"no pool that {does} may have a server: nothing would ever be served"
    assert told == ([] if does is None else [(f"scaling.pools.{none[0]}.max", what)])


@pytest.mark.parametrize(
    ("written", "told"),
    [
        ({"accelerators": {"h100": 10}}, []),
        (
            {"accelerators": {"h10": 9}},
            [("scaling.accelerators.h10", "no pool has this accelerator")],
        ),
        (
            {"accelerators": {"h100": 9}},
            [
                (
                    "scaling.accelerators.h100",
                    "9 are fewer than the pools have at the start, which is 10",
                )
            ],
        ),
        (
            {"policy": "blis", "accelerators": {"h100": 10}},
            [("scaling.accelerators", "blis grows whether accelerators are free or not")],
        ),
        (
            {
                "policy": "kthena-homogeneous",
                "metrics": {"vllm:num_requests_waiting": 3},
                "accelerators": {"h100": 10},
            },
            [
                (
                    "scaling.accelerators",
                    "kthena-homogeneous grows whether accelerators are free or not",
                )
            ],
        ),
    ],
)
def test_accelerators_are_of_pools_and_of_use(
    written: dict[str, Any], told: list[tuple[str, str]]
) -> None:
    pools = [
        PoolSpec(name="main", replicas=2, accelerator="h100", tensor_parallel=4),
        PoolSpec(name="spare", replicas=2, accelerator="h100"),
    ]
    found = list(scaling_faults(section(**written), pools))
    assert [(dotted(fault.path), fault.what) for fault in found] == told


@pytest.mark.parametrize(
    "written",
    [
        {"interval": "0s"},
        {"up": float("nan")},
        {"down": float("inf")},
        {"kv_threshold": -0.1},
        {"rate": {"up": 0}},
        {"pools": {"main": {"min": -1}}},
        {"stabilization": {"down": "-1s"}},
    ],
)
def test_values_out_of_range_are_refused(written: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="1 validation error"):
        section(**written)
