"""The predictive analyzer: what it expects, what it knows of replicas, and what it learns."""

import pytest
from pydantic import ValidationError

from tests.scaling.policies.predictive.test_capacity import Line
from windtunnel.scaling.analyzers import Finding, Group
from windtunnel.scaling.policies.predictive.analyzer import (
    Predictive,
    PredictiveSettings,
    TrafficHistory,
)
from windtunnel.scaling.policies.predictive.capacity import capacity_of
from windtunnel.scaling.policies.predictive.mix import RequestMix
from windtunnel.scaling.snapshot import (
    Flow,
    Model,
    Objective,
    ReplicaCounts,
    ReplicaSpec,
    ReplicaView,
    RequestLengths,
    Variant,
)

PROMISE = Objective(ttft_s=0.5, tpot_s=0.012)


def variant(ready: int, *, starting: int = 0, waiting: int = 0, role: str = "both") -> Variant:
    return Variant(
        role,
        role=role,
        replicas=[ReplicaView(f"{role}-{number}", waiting=waiting) for number in range(ready)],
        counts=ReplicaCounts(starting=starting, target=ready + starting),
        spec=ReplicaSpec(
            startup_s=60.0,
            kv_tokens=1e9,
            max_num_seqs=256,
            max_num_batched_tokens=8192,
            step_times=Line(),
        ),
    )


def groups(
    variants: list[Variant], rate: float, *, late: float = 0.0, queued: int = 0
) -> list[Group]:
    count = round(rate * 15.0)
    flow = Flow(
        15.0,
        arrived=count,
        completed=count,
        met=round(count * (1.0 - late)),
        lengths=RequestLengths(prompt_tokens=600.0, output_tokens=200.0, prompt_cv=0.8),
    )
    model = Model("m", variants, flow=flow, objective=PROMISE, queued=queued)
    return [Group(model, each.role, [each], each.role) for each in variants]


def after(
    predictive: Predictive, rates: list[float], variants: list[Variant], late: float = 0.0
) -> list[Finding]:
    found: list[Finding] = []
    for tick, rate in enumerate(rates):
        found = predictive.analyze(groups(variants, rate, late=late), 15.0 * tick)
    return found


def predictive(missed_slo: float | None = None) -> Predictive:
    return Predictive(PredictiveSettings(policy="predictive", missed_slo=missed_slo, season_s=0.0))


def test_a_replica_carries_what_its_step_times_say() -> None:
    finding = after(predictive(), [40.0] * 20, [variant(4)])[0]
    carried = capacity_of(variant(4), RequestMix(600.0, 200.0), PROMISE, 4)
    believed = finding.per_replica[0] / finding.evidence["trust"]
    assert believed == pytest.approx(carried.rate, rel=0.1)
    assert finding.supply == pytest.approx(4 * finding.per_replica[0])
    # In whole replicas: as many as carry it.
    assert 40.0 <= finding.demand < 40.0 + finding.per_replica[0]


def test_a_ramp_is_met_before_it_is_there() -> None:
    rates = [20.0 + tick for tick in range(40)]
    finding = after(predictive(), rates, [variant(4)])[0]
    assert finding.evidence["rate_forecast"] > rates[-1] + 3.0
    assert finding.demand > rates[-1] + 3.0


def test_a_ramp_back_to_an_earlier_height_is_expected_to_end_there() -> None:
    rates = [*[60.0] * 8, *[20.0] * 12, *[20.0 + 3.0 * tick for tick in range(13)]]
    heading = [
        found.evidence["rate_planned"] + found.evidence["rate_surge"]
        for found in (
            after(predictive(1e-5), seen, [variant(4)])[0]
            for seen in (rates, [*[20.0] * 20, *rates[20:]])
        )
    ]
    assert heading[0] < heading[1]


def test_a_dearer_miss_plans_for_more() -> None:
    rates = [30.0 + 10.0 * (tick * 7 % 5 - 2) for tick in range(60)]
    careful = after(predictive(1.0), rates, [variant(4)])[0]
    daring = after(predictive(1e-5), rates, [variant(4)])[0]
    assert careful.evidence["miss_price"] > daring.evidence["miss_price"]
    assert careful.demand > daring.demand


def test_the_last_replica_stays_while_little_is_expected_and_goes_when_next_to_nothing_is() -> None:
    light = [0.2, 0.33, 0.0, 0.4, 0.13] * 12
    assert after(predictive(), light, [variant(1)])[0].spare < 1e-6
    assert after(predictive(1e-5), light, [variant(1)])[0].spare > 0.0  # by the price that is given
    assert after(predictive(), [0.2, *[0.0] * 300], [variant(1)])[0].demand == 0.0


def test_yesterday_teaches_how_high_bursts_are_and_that_they_are_short() -> None:
    yesterday = ([10.0] * 9 + [40.0] * 2) * 8
    history = TrafficHistory(rates=yesterday, every_s=15.0)
    knows = Predictive(PredictiveSettings(policy="predictive", season_s=0.0, history=history))
    calm = after(knows, [10.0] * 4, [variant(4)])[0]
    assert calm.evidence["rate_planned"] > 35.0
    assert calm.evidence["surges_lasting"] < 0.25
    assert after(predictive(), [10.0] * 4, [variant(4)])[0].evidence["rate_planned"] < 15.0
    # Half a minute at a time: the same in other bins.
    assert TrafficHistory(rates=[1.0, 3.0], every_s=30.0).binned(15.0) == [1.0, 1.0, 3.0, 3.0]
    assert TrafficHistory(rates=[1.0, 3.0, 5.0, 7.0], every_s=5.0).binned(10.0) == [2.0, 6.0]


def test_nothing_goes_before_traffic_was_observed_for_as_long_as_a_start_takes() -> None:
    """A history says nothing about answers, of which only short ones have ended by then."""
    history = TrafficHistory(rates=[20.0] * 60, every_s=15.0)
    settings = PredictiveSettings(policy="predictive", season_s=0.0, history=history)
    for made in (Predictive(settings), predictive()):
        found = [after(made, [20.0], [variant(8)])[0] for _ in range(6)]
        assert [finding.spare > 0.0 for finding in found] == [False] * 5 + [True]


def test_what_is_on_its_way_is_not_asked_for_again() -> None:
    short = after(predictive(), [60.0] * 20, [variant(1)])[0]
    coming = after(predictive(), [60.0] * 20, [variant(1, starting=5)])[0]
    assert short.required > 0.0
    assert coming.required == 0.0


def test_what_waits_must_be_worked_off_too() -> None:
    calm = predictive()
    after(calm, [40.0] * 20, [variant(4)])
    finding = calm.analyze(groups([variant(4)], 40.0, queued=6000), 300.0)[0]
    assert finding.evidence["backlog_expected"] > 1000.0
    assert finding.required > 0.0


def test_what_waits_at_replicas_costs_no_more_than_their_capacity() -> None:
    """It cannot be moved: while they work it off, others take what comes."""
    stuck = predictive()
    after(stuck, [40.0] * 20, [variant(4)])
    finding = stuck.analyze(groups([variant(4, waiting=50_000)], 40.0), 300.0)[0]
    assert finding.evidence["backlog_expected"] > 100_000.0
    assert finding.demand == pytest.approx(finding.evidence["rate_forecast"] + finding.supply)


def test_the_margin_of_a_plan_works_off_a_queue_too() -> None:
    bursts = [*([20.0] * 8 + [60.0] * 2) * 6, *[20.0] * 6]
    found = []
    for queued in (0, 1200, 6000):
        made = predictive()
        after(made, bursts, [variant(2)])
        found.append(made.analyze(groups([variant(2)], 20.0, queued=queued), 1000.0)[0])
    none, short, long = found
    assert 0.0 == none.evidence["backlog_expected"] < short.evidence["backlog_expected"]
    assert short.demand == none.demand
    assert long.demand > none.demand


def test_it_learns_from_what_replicas_carried() -> None:
    believed = predictive(), predictive()
    late = after(believed[0], [20.0] * 20, [variant(1)], late=0.9)[0]
    fine = after(believed[1], [20.0] * 20, [variant(1)])[0]
    assert late.evidence["trust"] < 0.8 * fine.evidence["trust"]


def test_a_surge_is_planned_for_at_its_first_look_and_explained() -> None:
    finding = after(predictive(), [*[20.0] * 20, 30.0], [variant(4)])[0]
    # A line of ten in a window would end far up: no more than twice what it is.
    assert finding.demand >= 60.0
    assert "more for a surge" in finding.sentence
    calm = after(predictive(), [*[20.0] * 20, 22.0], [variant(4)])[0]
    assert calm.evidence["rate_surge"] == 0.0
    assert "surge" not in calm.sentence


def test_roles_are_sized_apart_for_the_same_traffic() -> None:
    pair = [variant(1, role="prefill"), variant(1, role="decode")]
    prefill, decode = after(predictive(), [60.0] * 20, pair)
    assert prefill.evidence["rate_forecast"] == decode.evidence["rate_forecast"]
    for role in (prefill, decode):
        assert 60.0 <= role.demand < 60.0 + role.per_replica[0]  # whole replicas
    assert prefill.per_replica[0] > decode.per_replica[0]


def test_a_promise_that_nobody_can_keep_still_keeps_queues_short() -> None:
    hard = Objective(tpot_s=0.001)
    each = variant(2)
    flow = Flow(15.0, arrived=300, lengths=RequestLengths(prompt_tokens=600.0, prompt_cv=0.8))
    model = Model("m", [each], flow=flow, objective=hard)
    finding = predictive().analyze([Group(model, "both", [each], "both")], 15.0)[0]
    assert finding.known
    assert finding.per_replica[0] > 0.0


def test_without_traffic_or_step_times_nothing_is_said() -> None:
    blind = Variant("v", counts=ReplicaCounts(target=1), replicas=[ReplicaView("a")])
    model = Model(
        "m", [blind], flow=Flow(15.0, arrived=10, lengths=RequestLengths(prompt_tokens=5.0))
    )
    assert not predictive().analyze([Group(model, "both", [blind], "v")], 0.0)[0].known
    assert not after(predictive(), [0.0], [variant(1)])[0].known
    quiet = Model("m", [variant(1)])
    assert not predictive().analyze([Group(quiet, "both", quiet.variants, "v")], 0.0)[0].known


def test_a_moment_with_a_request_is_no_flood() -> None:
    hasty = Predictive(PredictiveSettings(policy="predictive", season_s=0.0, interval_s=0.05))
    each = variant(1)
    found: list[Finding] = []
    for tick in range(400):
        flow = Flow(0.05, arrived=int(tick % 20 == 0), lengths=RequestLengths(prompt_tokens=600.0))
        model = Model("m", [each], flow=flow, objective=PROMISE)
        found = hasty.analyze([Group(model, "both", [each], "both")], 0.05 * tick)
        assert found[0].known is (tick >= 299)
    assert found[0].demand < 3.0  # one a second


def test_memory_survives_a_restart() -> None:
    rates = [20.0 + tick for tick in range(40)]
    first = predictive()
    after(first, rates, [variant(4)], late=0.2)
    again = predictive()
    again.restore(first.state())
    going_on = first.analyze(groups([variant(4)], 60.0), 600.0)[0]
    restarted = again.analyze(groups([variant(4)], 60.0), 600.0)[0]
    assert restarted.evidence == going_on.evidence


@pytest.mark.parametrize(
    "settings", [{"missed_slo": 0.0}, {"missed_slo": -1.0}, {"drain_s": float("nan")}]
)
def test_settings_that_make_no_sense_are_refused(settings: dict[str, float]) -> None:
    with pytest.raises(ValidationError):
        PredictiveSettings(policy="predictive", **settings)
