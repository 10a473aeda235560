"""Snapshots of pods: replicas by state, counters with resets, replicas that did not answer."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.scaling.kubernetes.pods import HPA, page, plan, pods, reading, target
from windtunnel.scaling.kubernetes.autoscaler import autoscaler_plan
from windtunnel.scaling.kubernetes.pages import page_samples, reading_of
from windtunnel.scaling.kubernetes.snapshots import (
    PodView,
    PoolObservation,
    SnapshotBuilder,
    quantile,
    share_below,
)
from windtunnel.scaling.snapshot import Model, Variant


def take(builder: SnapshotBuilder, seen: list[PodView], *args: object, at_s: float) -> Model:
    readings = args[0] if args else {}
    pools = {"main": PoolObservation(len(seen), seen)}
    return builder.take(pools, readings, 0, at_s).models[0]  # type: ignore[arg-type]


def test_pods_are_counted_by_state() -> None:
    seen = [
        PodView("1", "a", 0.0),
        PodView("2", "b", 0.0),
        PodView("3", "c", 0.0, ready=False),
        PodView("4", "d", 0.0, ready=False, bound=False),
        PodView("5", "e", 0.0, terminating=True),
        PodView("6", "f", 0.0, ended=True),
    ]
    builder = SnapshotBuilder(plan())
    pools = {"main": PoolObservation(7, seen)}
    (variant,) = builder.take(pools, {"1": reading(3, 2)}, 0, 10.0).models[0].variants
    counts = variant.counts
    assert (variant.ready, counts.missing, counts.starting, counts.draining) == (2, 1, 1, 1)
    assert counts.pending == 4  # one that is there, and three that are not
    assert [(one.name, one.waiting, one.running) for one in variant.replicas] == [("a", 3, 2)]
    assert variant.replicas[0].kv_used == 0.5


def test_pods_of_one_label_are_one_replica() -> None:
    labelled = [
        PodView(f"{group}{number}", f"{group}-{number}", 0.0, labels={"index": group})
        for group in "ab"
        for number in (0, 1)
    ]
    labelled[3] = labelled[3]._replace(ready=False)
    made = autoscaler_plan(
        "ns", "chat", {"targets": [target(replicaLabel="index")], "scaling": HPA}
    )
    answers = {"a1": reading(5, 1), "b0": reading(9, 1)}
    pools = {"main": PoolObservation(2, labelled)}
    variant: Variant = SnapshotBuilder(made).take(pools, answers, 0, 1.0).models[0].variants[0]
    assert [(one.name, one.waiting) for one in variant.replicas] == [("a", 5)]
    assert variant.counts.starting == 1


def test_traffic_is_the_increase_since_the_last_look() -> None:
    builder, seen = SnapshotBuilder(plan()), pods(1)
    first = take(builder, seen, {"uid-0": reading(2, 0, ended=100, first=110)}, at_s=100.0)
    assert first.flow.interval_s == 0.0  # nobody looked before
    flow = take(builder, seen, {"uid-0": reading(5, 0, ended=130, first=150)}, at_s=115.0).flow
    assert (flow.interval_s, flow.completed, flow.arrived) == (15.0, 30, 43)
    assert flow.lengths.prompt_tokens == 100.0
    assert flow.lengths.output_tokens == 20.0
    assert flow.latencies.ttft_s == pytest.approx(0.3)
    assert flow.ttft.p95_s == pytest.approx(0.1 + 0.4 * 0.95)


def test_a_new_pod_counts_from_nothing_and_an_old_one_from_its_first_look() -> None:
    builder, seen = SnapshotBuilder(plan()), pods(1)
    take(builder, seen, {"uid-0": reading(ended=5)}, at_s=100.0)
    more = [*seen, PodView("new", "new", 110.0), PodView("old", "old", 50.0)]
    answers = {"uid-0": reading(ended=5), "new": reading(ended=7), "old": reading(ended=90)}
    assert take(builder, more, answers, at_s=115.0).flow.completed == 7


def test_silence_changes_no_rate() -> None:
    builder, seen = SnapshotBuilder(plan()), pods(4)
    for number in range(4):
        answers = {one.uid: reading(ended=10 * number) for one in seen}
        if number == 3:
            del answers["uid-1"], answers["uid-2"]
        flow = take(builder, seen, answers, at_s=100.0 + 10.0 * number).flow
    assert flow.completed == 40
    # They answer again: what they did meanwhile is spread over the time that it took.
    back = take(builder, seen, {one.uid: reading(ended=40) for one in seen}, at_s=140.0)
    assert back.flow.completed == 40
    none = take(builder, seen, {}, at_s=150.0)
    assert none.flow.interval_s == 0.0
    assert none.variants[0].counts.missing == 4


@given(
    st.lists(
        st.lists(st.tuples(st.integers(0, 50), st.booleans()), min_size=3, max_size=3), min_size=1
    )
)
def test_counters_with_resets_add_up(steps: list[list[tuple[int, bool]]]) -> None:
    """Whatever restarts, requests that completed since are counted once."""
    builder, seen = SnapshotBuilder(plan()), pods(3)
    values = [1000] * 3
    take(builder, seen, {f"uid-{n}": reading(ended=1000) for n in range(3)}, at_s=0.5)
    counted = done = 0
    for number, step in enumerate(steps, 1):
        for pod, (more, restarted) in enumerate(step):
            shows = restarted and more < values[pod]  # else nobody could tell
            values[pod] = more if shows else values[pod] + more
            done += more
        answers = {f"uid-{n}": reading(ended=value) for n, value in enumerate(values)}
        counted += take(builder, seen, answers, at_s=0.5 + number).flow.completed
    assert counted == done


def test_a_policy_that_counts_tokens_needs_to_know_how_many_fit() -> None:
    text = b"\n".join(one for one in page(1, 1).splitlines() if b"cache_config" not in one)
    answers = {"uid-0": reading_of(page_samples(text))}
    saturation = {"policy": "saturation", "pools": {"main": {"max": 4}}}
    unknown = take(SnapshotBuilder(plan(saturation)), pods(1), answers, at_s=1.0)
    assert unknown.variants[0].counts.missing == 1
    assert take(SnapshotBuilder(plan()), pods(1), answers, at_s=1.0).variants[0].replicas
    given_ = {"targets": [target(kvTokens=5000)], "scaling": saturation}
    known = SnapshotBuilder(autoscaler_plan("ns", "chat", given_))
    assert take(known, pods(1), answers, at_s=1.0).variants[0].replicas[0].kv_tokens == 5000.0


def test_what_fits_one_pool_says_nothing_of_another() -> None:
    text = b"\n".join(one for one in page(1, 1).splitlines() if b"cache_config" not in one)
    answers = {"uid-0": reading_of(page_samples(text)), "b": reading_of(page_samples(text))}
    bounds = {"main": {"max": 4}, "other": {"max": 4}}
    spec = {
        "targets": [target(kvTokens=5000), target("other")],
        "scaling": {"policy": "saturation", "pools": bounds},
    }
    pools = {
        "main": PoolObservation(1, pods(1)),
        "other": PoolObservation(1, [PodView("b", "b", 0.0)]),
    }
    made = SnapshotBuilder(autoscaler_plan("ns", "chat", spec)).take(pools, answers, 0, 1.0)
    known, unknown = made.models[0].variants
    assert [one.kv_tokens for one in known.replicas] == [5000.0]
    assert (list(unknown.replicas), unknown.counts.missing) == ([], 1)


def test_quantiles_are_as_prometheus_has_them() -> None:
    buckets = {0.1: 10.0, 0.5: 90.0, float("inf"): 100.0}
    assert quantile(buckets, 0.5) == pytest.approx(0.3)
    assert quantile(buckets, 0.99) == 0.5
    assert quantile({}, 0.5) == 0.0
    assert share_below(buckets, 0.3) == pytest.approx(0.5)
    assert share_below(buckets, 9.0) == 0.9
    assert share_below({}, 0.3) == 1.0


def test_accelerators_that_are_free() -> None:
    limited = {**HPA, "policy": "saturation", "accelerators": {"h100": 8}}
    del limited["metrics"]
    spec = {"targets": [target(accelerator="h100", accelerators=2)], "scaling": limited}
    builder = SnapshotBuilder(autoscaler_plan("ns", "chat", spec))
    assert builder.take({"main": PoolObservation(3, pods(2))}, {}, 0, 1.0).free == {"h100": 2}
