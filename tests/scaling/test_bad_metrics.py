"""Replicas that do not answer, numbers that cannot be, snapshots from another time."""

import math
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.scaling.sections import ServingPool, setup
from tests.scaling.test_every_policy import POLICIES
from tests.twin.test_lifecycle import elastic
from windtunnel.scaling.analyzers import Group
from windtunnel.scaling.build import build_scaler
from windtunnel.scaling.metrics import with_missing
from windtunnel.scaling.policies.hpa import Hpa, HpaMetric, HpaSettings
from windtunnel.scaling.scaler import Scaler
from windtunnel.scaling.snapshot import (
    Flow,
    MeanLatencies,
    Model,
    ReplicaCounts,
    ReplicaSpec,
    ReplicaView,
    RequestLengths,
    Snapshot,
    StepTimes,
    Variant,
)
from windtunnel.twin.run import run
from windtunnel.twin.scenario.load import load_text

KV = "kv_used"


def by(kind: str) -> dict[str, Any]:
    return {"metrics": [{"name": KV, "target": 0.5, "type": kind}]}


SCRAPED: dict[str, tuple[str, dict[str, Any]]] = {
    "hpa average": ("hpa", {**by("average"), "down": {"window": 0}}),
    "hpa total": ("hpa", {**by("total"), "down": {"window": 0}}),
    "hpa value": ("hpa", {**by("value"), "down": {"window": 0}}),
    "keda": ("keda", {**by("total"), "cooldown": "30s", "down": {"window": 0}}),
    "knative": ("knative", {"metric": "running", "target": 4}),
    "aibrix APA": ("aibrix", {"metrics": {KV: 0.5}}),
    "aibrix KPA": ("aibrix", {"metrics": {KV: 0.5}, "strategy": "KPA"}),
    "kthena": ("kthena-homogeneous", {"metrics": {KV: 0.5}, "history": "lost"}),
    "kthena summed": ("kthena-homogeneous", {"metrics": {KV: 0.5}, "tolerance": "summed"}),
    "saturation": ("saturation", {"stabilization": {"down": 0}}),
    "wva": ("wva", {"stabilization": {"down": 0}}),
    "wva-v1": ("wva-v1", {"stabilization": {"down": 0}}),
    "blis": ("blis", {}),
}
"""Policies that go by what replicas report, each in its least patient form."""


class Times(StepTimes):
    """An engine."""

    def step_s(self, prefill_tokens: float, decoding: float, context_tokens: float) -> float:
        return 5e-3 + 1e-5 * prefill_tokens + 1e-5 * decoding


def scaler(policy: str, written: dict[str, Any]) -> Scaler:
    written = {"policy": policy, "pools": {"v": {"min": 0, "max": 50}}, **written}
    return build_scaler(setup([ServingPool("v", 4)], **written), ["m"])


def variant(target: int, replicas: list[ReplicaView], missing: int = 0) -> Variant:
    spec = ReplicaSpec(kv_tokens=1.0, max_num_seqs=64, step_times=Times())
    counts = ReplicaCounts(target=target, missing=missing)
    return Variant("v", spec=spec, maximum=50, counts=counts, replicas=replicas)


def busy(count: int, used: float = 0.5) -> list[ReplicaView]:
    return [
        ReplicaView(f"r{number}", running=4, kv_tokens_used=used, kv_tokens=1.0)
        for number in range(count)
    ]


def after(decider: Scaler, pool: Variant, ticks: int = 60, **about: Any) -> int:
    """The size that a pool comes to when it looks the same at every tick."""
    target = pool.target
    for tick in range(1, ticks + 1):
        counts = ReplicaCounts(target=target, missing=pool.counts.missing)
        look = variant(target, pool.replicas, counts.missing)
        snapshot = Snapshot(15.0 * tick, [Model("m", [look], **about)])
        target = decider.tick(snapshot, 15.0 * tick)[0].target
    return target


@pytest.mark.parametrize("name", SCRAPED)
def test_four_silent_replicas_stay(name: str) -> None:
    assert after(scaler(*SCRAPED[name]), variant(4, [], missing=4)) == 4


@pytest.mark.parametrize(("target", "size"), [(1, 1), (4, 1), (0, 0)])
def test_the_last_silent_replica_stays(target: int, size: int) -> None:
    """Whatever a policy goes by: a replica that does not answer may have requests."""
    decider = scaler("foresight", {"schedule": {"v": [[0, 0]]}, "zero_after": "1m"})
    assert after(decider, variant(target, [], missing=1)) == size


@pytest.mark.parametrize("name", SCRAPED)
@pytest.mark.parametrize(
    "numbers",
    [
        {"kv_tokens_used": math.inf},
        {"kv_tokens_used": math.nan},
        {"running": -3, "waiting": -2},
        {"kv_tokens": math.nan},
        {"ttft_s": -1.0},
    ],
    ids=str,
)
def test_replicas_that_report_what_cannot_be_count_as_silent(
    name: str, numbers: dict[str, Any]
) -> None:
    told = {"kv_tokens_used": 0.0, "kv_tokens": 1.0, **numbers}
    junk = [ReplicaView(f"r{number}", **told) for number in range(4)]
    assert after(scaler(*SCRAPED[name]), variant(4, junk)) == 4


@pytest.mark.parametrize("name", SCRAPED)
def test_where_half_is_silent_the_rest_alone_takes_nothing_away_that_is_busy(name: str) -> None:
    """Two at their targets, two silent: at their targets too, for all that is known."""
    assert after(scaler(*SCRAPED[name]), variant(4, busy(2), missing=2)) >= 4


@pytest.mark.parametrize(
    ("current", "values", "missing", "wanted"),
    [
        (10, [0.5] * 8, 2, 6),
        (10, [2.9] * 8, 2, 24),
        (58, [2.9] * 8, 50, 58),
        (4, [], 4, 4),
    ],
)
def test_missing_pods_as_kubernetes_counts_them(
    current: int, values: list[float], missing: int, wanted: int
) -> None:
    replicas = [ReplicaView("r", kv_tokens_used=value, kv_tokens=1.0) for value in values]
    hpa = Hpa(HpaSettings(policy="hpa", metrics=[HpaMetric(name=KV, target=1.0)]))
    pool = variant(current, replicas, missing)
    finding = hpa.analyze_group(Group(Model("m", [pool]), "both", [pool], "m"), 0.0)
    assert (finding.demand if finding.known else current) == wanted


@given(
    st.lists(st.floats(0.0, 4.0), min_size=1, max_size=6),
    st.integers(0, 6),
    st.floats(0.1, 3.0),
)
def test_the_total_with_missing_replicas_is_that_of_kubernetes(
    values: list[float], missing: int, target: float
) -> None:
    """Held to the rule in the words of Kubernetes, replica by replica."""
    count = len(values) + missing
    grows = sum(values) / len(values) >= target
    filled = [*values, *([0.0 if grows else target] * missing)]
    mean = sum(filled) / count
    flips = (mean >= target) != grows
    total = with_missing(sum(values), missing, target, count)
    assert total == pytest.approx(target * count if flips else sum(filled))


def test_requests_a_second_need_no_replica_that_answers() -> None:
    flow = Flow(15.0, arrived=15)
    rate = {"metrics": [{"name": "rps", "target": 1.0, "type": "total"}], "down": {"window": 0}}
    assert after(scaler("hpa", rate), variant(4, [], missing=4), flow=flow) == 1


NUMBERS = st.sampled_from([math.inf, -math.inf, math.nan, -1.0, 0.0, 1.0, 900.0, 1e300])
COUNTS = st.sampled_from([-5, 0, 3, 40, 10**400])


@pytest.mark.parametrize("policy", [*POLICIES, "predictive", "dynamo"])
@given(data=st.data())
@settings(max_examples=10, deadline=None)
def test_no_number_breaks_a_policy(policy: str, data: st.DataObject) -> None:
    own = {key: value for key, value in POLICIES[policy].items() if key != "matched_roles"}
    if policy == "foresight":
        own = {"schedule": {"v": [["0s", 1]]}}
    if policy == "dynamo":
        own = {"adjustment": "15s", "predictor": data.draw(st.sampled_from(["constant", "kalman"]))}
    decider, target = scaler(policy, own), 4
    for tick in range(1, 9):
        draw = data.draw
        replicas = [
            ReplicaView(
                "r",
                waiting=draw(COUNTS),
                running=draw(COUNTS),
                kv_tokens_used=draw(NUMBERS),
                kv_tokens=draw(NUMBERS),
                ttft_s=draw(NUMBERS),
            )
            for _ in range(min(target, 2))
        ]
        flow = Flow(
            draw(st.sampled_from([15.0, 15.0, math.nan, 5e-324])),
            arrived=draw(COUNTS),
            completed=draw(COUNTS),
            lengths=RequestLengths(
                draw(NUMBERS),
                prompt_cv=draw(NUMBERS),
                output_tokens=draw(NUMBERS),
                prefix_hit=draw(NUMBERS),
            ),
            latencies=MeanLatencies(
                ttft_s=draw(NUMBERS), tpot_s=draw(NUMBERS), e2e_s=draw(NUMBERS)
            ),
        )
        model = Model(
            "m",
            [variant(target, replicas)],
            flow=flow,
            queued=draw(COUNTS),
            queued_prompt_tokens=draw(NUMBERS),
        )
        (decision,) = decider.tick(Snapshot(15.0 * tick, [model]), 15.0 * tick)
        assert 0 <= decision.target <= 50
        target = decision.target


@pytest.mark.parametrize("policy", ["predictive", "dynamo"])
def test_lengths_that_cannot_be_take_nothing_away(policy: str) -> None:
    def flow(prompt: float, output: float) -> Flow:
        return Flow(
            15.0,
            arrived=300,
            completed=300,
            met=300,
            lengths=RequestLengths(prompt, output_tokens=output),
            latencies=MeanLatencies(ttft_s=0.5, tpot_s=0.02, e2e_s=4.0),
        )

    decider = scaler(policy, {"adjustment": "15s"} if policy == "dynamo" else {})
    size = 4
    for tick in range(1, 41):
        bad = tick > 20
        shown = flow(math.nan, math.inf) if bad else flow(900.0, 200.0)
        snapshot = Snapshot(15.0 * tick, [Model("m", [variant(size, busy(size))], flow=shown)])
        before, size = size, decider.tick(snapshot, 15.0 * tick)[0].target
        if bad:
            assert size >= before


def test_a_prompt_length_that_falls_to_nothing_is_no_division_by_zero() -> None:
    decider, size = scaler("dynamo", {"adjustment": "15s", "predictor": "kalman"}), 4
    for tick in range(1, 30):
        lengths = RequestLengths(max(1.0, 4000.0 - 800.0 * tick), output_tokens=200.0)
        latencies = MeanLatencies(ttft_s=0.5, tpot_s=0.02, e2e_s=4.0)
        flow = Flow(15.0, arrived=300, completed=300, lengths=lengths, latencies=latencies)
        model = Model("m", [variant(size, busy(size))], flow=flow)
        size = decider.tick(Snapshot(15.0 * tick, [model]), 15.0 * tick)[0].target
    assert size >= 1


def test_a_rate_without_end_is_no_overflow_and_is_not_remembered() -> None:
    decider = scaler("dynamo", {"adjustment": "15s", "predictor": "kalman"})
    targets = []
    for tick in range(1, 20):
        flow = Flow(
            5e-324 if tick == 9 else 15.0,
            arrived=300,
            completed=300,
            lengths=RequestLengths(900.0, output_tokens=200.0),
            latencies=MeanLatencies(ttft_s=0.5, tpot_s=0.02, e2e_s=4.0),
        )
        model = Model("m", [variant(4, busy(4))], flow=flow)
        targets.append(decider.tick(Snapshot(15.0 * tick, [model]), 15.0 * tick)[0].target)
    assert targets[8] == 4
    assert targets[-1] == targets[7]


def test_snapshots_of_another_time_are_refused() -> None:
    decider = scaler(*SCRAPED["hpa average"])
    idle = [Model("m", [variant(4, busy(4, used=0.01))])]
    (future,) = decider.tick(Snapshot(31.0, idle), 30.0)
    assert (future.target, future.reason) == (
        4,
        "The snapshot is from 1 s in the future: no change.",
    )
    (taken,) = decider.tick(Snapshot(30.0, idle), 31.0)
    assert taken.target == 1
    (earlier,) = decider.tick(Snapshot(28.0, idle), 32.0)
    assert (earlier.target, earlier.reason) == (
        4,
        "The snapshot is 2 s older than the last one: no change.",
    )
    (again,) = decider.tick(Snapshot(30.0, idle), 33.0)
    assert again.target == 1


@pytest.mark.parametrize("name", ["hpa average", "keda", "aibrix APA", "knative"])
def test_a_run_in_which_no_scrape_succeeds_keeps_its_servers(name: str) -> None:
    policy, written = SCRAPED[name]
    text = elastic(count=20, rate="0.5/s", replicas=3, slots=4)
    text += "faults:\n  - {at: 0s, kind: partial-scrape, share: 1, readers: [autoscaler]}\n"
    section = {"policy": policy, "interval": "1s", "pools": {"main": {"min": 0, "max": 5}}}
    plan = load_text(text, sets=[f"scaling={ {**section, **written}!r}".replace("'", '"')])
    result = run(plan).result
    assert result["scaling"]["changes"] == 0
    assert result["pools"]["main"]["replicas"]["lost"] == 0


@pytest.mark.parametrize("name", ["ttft", "ttft_p95"])
@pytest.mark.parametrize("policy", ["hpa", "keda"])
def test_a_pool_in_which_nothing_completes_keeps_its_size(policy: str, name: str) -> None:
    """All is queued, and no time to a first token has been measured for minutes."""
    metrics = [{"name": name, "target": 0.5, "type": "value", "aggregate": "avg"}]
    more = {"cooldown": "30s"} if policy == "keda" else {}
    decider = scaler(policy, {"metrics": metrics, "down": {"window": 0}, **more})
    for tick in range(30):
        stuck = [ReplicaView(f"r{number}", waiting=9, running=9) for number in range(4)]
        model = Model("m", [variant(4, stuck)], flow=Flow(15.0, arrived=100), queued=20)
        assert decider.tick(Snapshot(15.0 * tick, [model]), 15.0 * tick)[0].target == 4
