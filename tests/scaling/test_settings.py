"""The `scaling` section: what it comes to, and what is told of faults."""

from typing import Any

import pytest

from tests.scaling.sections import ServingPool, faults_beside, section, setup, told
from windtunnel.scaling.build import POLICIES, build_scaler, word_of
from windtunnel.scaling.policies.saturation.policy import KvSaturationSettings
from windtunnel.scaling.settings import PolicySettings, PoolBounds

POOLS = [ServingPool("main", 2), ServingPool("spare", 1)]


def saturation(**written: Any) -> PolicySettings:
    return section(**{"policy": "saturation", **written})


def faults(**written: Any) -> list[tuple[str, str]]:
    return told(POOLS, **{"policy": "saturation", **written})


def test_defaults_are_filled_in() -> None:
    made = setup(POOLS, policy="saturation", pools={"main": {"max": 8}})
    (assignment,) = made.policies
    assert assignment.policy == KvSaturationSettings(
        policy="saturation",
        up=0.8,
        down=0.4,
        kv_threshold=0.8,
        average_prompt=512.0,
        full_queue=5,
        compute_bound=True,
        pools={"main": PoolBounds(max=8)},
    )
    assert made.bounds == {"main": PoolBounds(min=1, max=8), "spare": PoolBounds(min=1)}
    assert made.bounds["spare"].max == 100_000
    assert made.timing.interval_s == 15.0
    assert build_scaler(made, ["m"]).oldest_s == 45.0


@pytest.mark.parametrize("policy", ["saturation", "wva", "wva-v1", "blis"])
def test_every_policy_is_built(policy: str) -> None:
    made = setup(
        POOLS,
        policy=policy,
        optimizer={"order": "price"},
        stabilization={"up": "30s", "down": "1m"},
        rate={"up": 2},
    )
    assert not faults(policy=policy)
    assert build_scaler(made, ["m"]).oldest_s == 45.0


def test_no_patience_at_all_is_said_once() -> None:
    def notes(**written: Any) -> list[str]:
        return setup(POOLS, **{"policy": "saturation", **written}).notes()

    assert notes() == notes(stabilization={"up": "0s", "down": "1s"}) == []
    (note,) = notes(stabilization={"down": "0s"})
    assert note.startswith("stabilization.down is 0s")
    assert notes(policy="blis") == [note]
    listed = [{"name": "num_requests_waiting", "target": 2}]
    for policy in ("hpa", "keda"):
        assert notes(policy=policy, metrics=listed) == []
        (note,) = notes(policy=policy, metrics=listed, down={"window": "0s"})
        assert note.startswith("down.window is 0s: servers are removed")
    waiting = {"num_requests_waiting": 2}
    for policy in ("kthena-homogeneous", "kthena-heterogeneous", "kthena-disaggregated"):
        assert notes(policy=policy, metrics=waiting) == []
        (note,) = notes(policy=policy, metrics=waiting, behavior={"down": {"window": "0s"}})
        assert note.startswith("behavior.down.window is 0s: servers are removed")


def test_every_policy_has_a_row_and_a_word_of_its_own() -> None:
    def leaves(kind: type[PolicySettings]) -> set[type[PolicySettings]]:
        below = {kind} if "policy" in kind.__annotations__ else set()
        return below.union(*[leaves(one) for one in kind.__subclasses__()])

    assert leaves(PolicySettings) == set(POLICIES)
    assert len({word_of(one) for one in POLICIES}) == len(POLICIES)


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


def test_an_unknown_pool_does_not_hide_the_fault_of_its_bounds() -> None:
    assert faults(pools={"mian": {"min": 3, "max": 2}}) == [
        ("scaling.pools.mian", "there is no such pool"),
        ("scaling.pools.mian.min", "3 is more than max, which is 2"),
    ]


@pytest.mark.parametrize("written", [{"kv_spare": 0.8}, {"queue_spare": 5}])
def test_what_is_spared_has_a_hint_of_its_own(written: dict[str, Any]) -> None:
    (fault,) = faults_beside(POOLS, section(policy="wva-v1", **written))
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
        ServingPool(name, role=role, replicas=0 if name in none else 1)
        for name, role in roles.items()
    ]
    found = told(pools, policy="saturation", pools=dict.fromkeys(none, NONE))
    what = f"no pool that {does} may have a server: nothing would ever be served"
    assert found == ([] if does is None else [(f"scaling.pools.{none[0]}.max", what)])


@pytest.mark.parametrize(
    ("written", "expected"),
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
    written: dict[str, Any], expected: list[tuple[str, str]]
) -> None:
    pools = [
        ServingPool("main", 2, accelerator="h100", gpus=4),
        ServingPool("spare", 2, accelerator="h100"),
    ]
    assert told(pools, **{"policy": "saturation", **written}) == expected


@pytest.mark.parametrize(
    "written",
    [
        {"interval": "0s"},
        {"up": float("nan")},
        {"down": float("inf")},
        {"kv_threshold": -0.1},
        {"rate": {"up": 0}},
        {"pools": {"main": {"min": -1}}},
        {"interval": "-1s"},
        {"interval": float("nan")},
        {"stabilization": {"up": float("inf")}},
        {"stabilization": {"down": "-1s"}},
        {"rate": {"up": 1, "period": "0s"}},
        {"zero_after": float("nan")},
        {"average_prompt": -1.0},
        {"optimizer": {"order": "cheapest"}},
        {"optimizer": {"engine": "v8"}},
    ],
)
def test_values_out_of_range_are_refused(written: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="1 validation error"):
        saturation(**written)
