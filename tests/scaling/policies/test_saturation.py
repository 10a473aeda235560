"""The saturation analyzers: tokens against capacity, by hand."""

from typing import Any

import pytest

from tests.scaling.worlds import variant
from windtunnel.scaling.analyzers import Finding, Group
from windtunnel.scaling.policies.saturation.analyzer import Counting, Saturation, derived_capacity
from windtunnel.scaling.policies.spare_capacity import SpareCapacity, SpareCapacitySettings
from windtunnel.scaling.snapshot import (
    Flow,
    Model,
    ReplicaCounts,
    ReplicaSpec,
    ReplicaView,
    RequestLengths,
    Variant,
)


def group(
    *variants: Variant, role: str = "both", flow: Flow | None = None, queued: int = 0
) -> Group:
    model = Model("m", list(variants), flow=flow or Flow(), queued=queued)
    return Group(model, role, list(variants), f"m/{role}")


def found(analyzer: Saturation, *variants: Variant, **about: object) -> Finding:
    return analyzer.analyze_group(group(*variants, **about), 0.0)  # type: ignore[arg-type]


def saturation(**settings: Any) -> Saturation:
    defaults = {
        "up": 0.8,
        "down": 0.4,
        "kv_threshold": 0.8,
        "average_prompt": 512.0,
        "full_queue": 5,
    }
    return Saturation(**{**defaults, **settings})


def wva(**settings: Any) -> Saturation:
    return saturation(up=0.85, down=0.7, **settings)


@pytest.mark.parametrize(
    ("used", "required", "spare"), [(90_000, 25_882, 0), (30_000, 0, 37_143), (60_000, 0, 0)]
)
def test_the_numbers_of_wva(used: float, required: int, spare: int) -> None:
    finding = found(wva(), variant(used=used))  # one replica of 100,000 tokens: 80,000 count
    assert finding.supply == 80_000
    assert round(finding.required) == required
    assert round(finding.spare) == spare


@pytest.mark.parametrize(
    ("ready", "used", "required", "spare"),
    [
        (2, 70_000, 15_000, 0),  # 140,000 / 0.8 - 160,000
        (2, 40_000, 0, 0),  # 80,000 / 0.4 is more than 160,000
        (4, 20_000, 0, 120_000),  # 320,000 - 80,000 / 0.4
        (1, 10_000, 0, 0),  # never from one to none
        (2, 17_000, 0, 0),  # 85,000 are enough, and the last 80,000 are not
    ],
)
def test_the_numbers_of_blis(ready: int, used: float, required: float, spare: float) -> None:
    analyzer = saturation(
        counting=Counting(compute_bound=False, check_last=True, measured_prompt=False)
    )
    finding = found(analyzer, variant(ready=ready, used=used))
    assert finding.required == pytest.approx(required)
    assert finding.spare == pytest.approx(spare)


def test_what_waits_counts_as_average_prompts_until_lengths_are_known() -> None:
    analyzer = saturation(counting=Counting(compute_bound=False))
    waiting = variant(waiting=3)
    assert found(analyzer, waiting).demand == 3 * 512
    known = Flow(15.0, lengths=RequestLengths(prompt_tokens=1000.0, output_tokens=200.0))
    assert found(analyzer, waiting, flow=known).demand == 3 * 1200
    assert found(analyzer, waiting).demand == 3 * 1200  # nothing came since: as last seen
    assert found(saturation(), waiting, flow=known, role="prefill").demand == 3 * 1000


def test_the_gateway_counts_less_what_caches_save() -> None:
    flow = Flow(
        15.0, lengths=RequestLengths(prompt_tokens=1000.0, output_tokens=200.0, prefix_hit=0.25)
    )
    finding = found(saturation(), variant(), flow=flow, queued=4)
    assert finding.demand == 4 * 750 + 4 * 200
    assert (
        found(saturation(counting=Counting(gateway=False)), variant(), flow=flow, queued=4).demand
        == 0
    )


def test_what_is_coming_counts_and_is_not_asked_for_again() -> None:
    finding = found(saturation(), variant(ready=1, starting=2, used=90_000))
    assert (finding.supply, finding.required) == (80_000, 0)
    assert finding.evidence["coming_tokens"] == 160_000


def test_what_was_told_to_go_is_not_counted_again() -> None:
    finding = found(saturation(), variant(ready=4, target=1, used=8_000))
    assert finding.supply == 80_000
    assert finding.spare == 0.0  # 32,000 / 0.4 is all of it


@pytest.mark.parametrize(
    ("budget", "slots", "prompt", "output", "expected"),
    [
        (8192, 256, 900.0, 250.0, 262_400.0),  # 256 slots, of 1,025 tokens each
        (2048, 256, 4000.0, 100.0, 202_302.4),  # 49.95 run, of 4,050 each
        (0, 256, 900.0, 250.0, 0.0),
        (8192, 256, 900.0, 0.0, 0.0),
    ],
)
def test_the_compute_bound_capacity_of_limits(
    budget: int, slots: int, prompt: float, output: float, expected: float
) -> None:
    limits = Variant("v", spec=ReplicaSpec(max_num_batched_tokens=budget, max_num_seqs=slots))
    assert derived_capacity(limits, prompt, output) == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize("accelerator", ["", "h100"])
def test_a_variant_learns_nothing_from_one_of_another_kind(accelerator: str) -> None:
    seen = ReplicaView("r", waiting=9, running=2, kv_tokens_used=300.0, kv_tokens=16_000.0)
    small = Variant(
        "small",
        spec=ReplicaSpec(accelerator=accelerator, max_num_seqs=2),
        counts=ReplicaCounts(target=1),
        replicas=[seen],
    )
    idle = ReplicaView("s", kv_tokens=16_000.0)
    large = Variant(
        "large",
        spec=ReplicaSpec(accelerator=accelerator, max_num_seqs=64),
        counts=ReplicaCounts(target=1),
        replicas=[idle],
    )
    analyzer = saturation()
    for _ in range(2):
        assert found(analyzer, small, large).per_replica == [300.0, 0.8 * 16_000]


def test_a_full_queue_shows_the_compute_bound_capacity_and_it_is_remembered() -> None:
    analyzer = saturation()
    flow = Flow(15.0, lengths=RequestLengths(prompt_tokens=500.0, output_tokens=50.0))
    assert found(analyzer, variant(waiting=5, used=30_000), flow=flow).supply == 30_000
    assert found(analyzer, variant(waiting=6, used=20_000), flow=flow).supply == 20_000
    assert found(analyzer, variant(waiting=0, used=1_000), flow=flow).supply == 25_000
    longer = Flow(
        15.0, lengths=RequestLengths(prompt_tokens=500.0, output_tokens=400.0)
    )  # another kind of traffic
    assert found(analyzer, variant(waiting=0, used=1_000), flow=longer).supply == 80_000
    after = saturation()
    after.restore(analyzer.state())
    assert found(after, variant(waiting=0, used=1_000), flow=flow).supply == 25_000


def test_a_variant_without_replicas_is_known_from_before_or_from_its_memory() -> None:
    analyzer = saturation()
    assert found(analyzer, variant(ready=0)).per_replica == [80_000]
    small = ReplicaView("r", kv_tokens=50_000.0)
    found(analyzer, Variant("v", counts=ReplicaCounts(target=1), replicas=[small]))
    assert found(analyzer, variant(ready=0)).per_replica == [40_000]


def test_missing_replicas_never_make_it_smaller() -> None:
    half = Variant(
        "v",
        counts=ReplicaCounts(target=2, missing=1),
        replicas=[ReplicaView("r", kv_tokens=100_000.0)],
    )
    finding = found(saturation(), half)
    assert (finding.supply, finding.spare) == (160_000, 0)
    none = Variant(
        "v", counts=ReplicaCounts(target=2, missing=2), spec=ReplicaSpec(kv_tokens=100_000.0)
    )
    assert not found(saturation(), none).known
    assert not found(
        saturation(), Variant("v", counts=ReplicaCounts(target=1), replicas=[ReplicaView("r")])
    ).known


@pytest.mark.parametrize(
    ("loads", "wanted"),
    [
        ([(0.5, 0), (0.5, 0)], 2),  # on one: 1.0, so that it is not safe
        ([(0.2, 0), (0.2, 0)], 1),  # on one: 0.4, and 0.4 to spare
        ([(0.75, 0), (0.75, 0)], 3),  # 0.05 to spare
        ([(0.1, 3), (0.1, 3)], 3),  # 2 places of the queue to spare
        ([(0.9, 0), (0.1, 7)], 3),  # both saturated
        ([(0.1, 0)], 1),  # the last one stays
        ([(0.3, 1), (0.3, 1), (0.3, 1)], 2),  # on two: 0.45 and 1.5
        ([(0.3, 2), (0.3, 2), (0.3, 2)], 3),  # on two: 3 waiting leave 2
    ],
)
def test_the_rules_of_the_first_analyzer_of_wva(
    loads: list[tuple[float, int]], wanted: int
) -> None:
    ready = [
        ReplicaView(str(number), kv_tokens_used=kv * 100, kv_tokens=100.0, waiting=waiting)
        for number, (kv, waiting) in enumerate(loads)
    ]
    fleet_of = group(Variant("v", counts=ReplicaCounts(target=len(ready)), replicas=ready))
    first = SpareCapacity(SpareCapacitySettings(policy="wva-v1"))
    (finding,) = first.analyze([fleet_of], 0.0)
    assert finding.demand == wanted


def test_the_first_analyzer_waits_for_replicas_that_start() -> None:
    (finding,) = SpareCapacity(SpareCapacitySettings(policy="wva-v1")).analyze(
        [group(variant(ready=1, starting=1, used=95_000))], 0.0
    )
    assert finding.required == 0
    assert "are starting or draining" in finding.sentence
