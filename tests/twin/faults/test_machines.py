"""Faults of machines, and of engines and controllers that stand on them."""

import re
from typing import Any

import pytest

from tests.core.sinks import MemorySink
from tests.twin.infrastructure.worlds import SCALING, scenario
from windtunnel.core.errors import InputError
from windtunnel.core.telemetry import Event
from windtunnel.twin.run import run


def faulty(
    *faults: str, machines: str = "{max: 4}", more: str = "", count: int = 100, replicas: int = 2
) -> tuple[dict[str, Any], list[Event]]:
    """Two servers of a machine each, unless said otherwise; every invariant is checked."""
    lines = "faults:\n" + "".join(f"  - {{{fault}}}\n" for fault in faults)
    plan = scenario(replicas=replicas, count=count, machines=machines, more=more + lines)
    sink = MemorySink()
    return run(plan, events=sink, check=True).result, sink.events


def gone(events: list[Event]) -> list[tuple[float, str]]:
    return [(event.time, event.reason) for event in events if event.kind == "replica.gone"]


def test_a_lost_machine_takes_its_server_with_it_and_another_comes() -> None:
    loss = "at: 20s, kind: machine-loss, select: {pool: big, count: 1}"
    result, events = faulty(loss, count=500)
    (fault,) = result["faults"]
    assert fault["subjects"] in (["big-0"], ["big-1"])
    assert gone(events)[0] == (20.0, "its machine was lost")
    assert result["pools"]["main"]["replicas"]["lost"] == 1
    assert result["pools"]["main"]["replicas"]["final"] == 2
    assert result["requests"]["completed"] == 500
    assert result["fleet"]["pools"]["big"]["lost"] == 1


def test_a_rack_is_lost_whole() -> None:
    result, _ = faulty(
        "at: 20s, kind: rack-loss, select: {pool: big, rack: 1}", replicas=4, machines="{max: 8}"
    )
    assert result["faults"][0]["subjects"] == ["big-rack-1"]
    assert result["pools"]["main"]["replicas"]["lost"] == 2
    assert result["fleet"]["pools"]["big"]["lost"] == 2
    assert result["requests"]["unfinished"] == 0


@pytest.mark.parametrize(
    "fault",
    [
        "kind: rack-loss, select: {pool: big, rack: 0}",
        "kind: engine-crash, select: {pool: main, count: 2}",
    ],
)
def test_no_request_begins_anew_on_a_server_that_is_lost_with_its_own(fault: str) -> None:
    """One attempt is enough for everybody: those of the first went to the next to go once."""
    result, _ = faulty(f"at: 20s, {fault}", replicas=3, machines="{max: 8}")
    replicas = result["pools"]["main"]["replicas"]
    assert (replicas["lost"], replicas["failed"]) == (2, 0)
    assert replicas["retried"] > 2
    assert result["requests"]["completed"] == 100


@pytest.mark.parametrize(("share", "lost"), [("0.25", 1), ("0.3", 2), ("0.5", 2), ("1", 4)])
def test_a_share_of_machines_is_rounded_up(share: str, lost: int) -> None:
    fault = f"at: 20s, kind: machine-loss, select: {{share: {share}}}"
    result, _ = faulty(fault, replicas=4, machines="{max: 8}")
    assert len(result["faults"][0]["subjects"]) == lost
    assert result["pools"]["main"]["replicas"]["lost"] == lost


@pytest.mark.parametrize("kind", ["machine-loss", "rack-loss", "zone-loss"])
def test_what_was_lost_can_be_had_again_after_the_fault(kind: str) -> None:
    """All of a pool are lost, and there are no others: servers come back when it is over."""

    def back_s(length_s: float) -> float:
        fault = f"at: 20s, kind: {kind}, select: {{count: all}}, for: {length_s:g}s"
        result, events = faulty(fault, machines="{max: 2}")
        assert result["faults"][0]["until"] == 20.0 + length_s
        ready = [event.time for event in events if event.kind == "replica.ready"]
        return min(time_s for time_s in ready if time_s > 20.0)

    assert back_s(150.0) - back_s(90.0) == pytest.approx(60.0, abs=5.0)


def test_a_zone_is_lost_whole() -> None:
    result, _ = faulty("at: 20s, kind: zone-loss, select: {zone: zone-1}", machines="{max: 8}")
    assert result["faults"][0]["subjects"] == ["zone-1"]
    assert result["fleet"]["pools"]["big"]["lost"] == 2
    assert result["requests"]["unfinished"] == 0


def test_a_machine_by_its_name_or_all_of_them() -> None:
    result, _ = faulty("at: 20s, kind: machine-loss, select: {machine: big-1}")
    assert result["faults"][0]["subjects"] == ["big-1"]
    result, _ = faulty("at: 20s, kind: machine-loss, select: {count: all}")
    assert result["faults"][0]["subjects"] == ["big-0", "big-1"]


SPOT = "{max: 4}, capacity: spot"


def test_a_spot_machine_is_emptied_before_it_is_taken() -> None:
    result, events = faulty("at: 20s, kind: spot-reclaim, notice: 60s", machines=SPOT)
    draining = [event.time for event in events if event.kind == "replica.draining"]
    assert draining == [20.0]
    # It has a minute to finish what takes some seconds: nobody has to begin anew.
    assert result["pools"]["main"]["replicas"]["retried"] == 0
    assert result["fleet"]["pools"]["big"]["lost"] == 1
    assert result["requests"]["completed"] == 100


def test_another_is_ordered_when_the_notice_comes_and_not_when_it_is_taken() -> None:
    """The row of a machine that is going is kept: another row would be given that machine."""
    _, events = faulty("at: 20s, kind: spot-reclaim, notice: 5m", machines=SPOT, count=800)
    ordered = [event.time for event in events if event.kind == "fleet.provision"]
    assert len(ordered) == 1
    assert 20.0 < ordered[0] <= 40.0
    ready = [event.time for event in events if event.kind == "replica.ready"]
    assert max(ready) < 320.0


def test_without_a_notice_its_requests_begin_anew() -> None:
    result, _ = faulty("at: 20s, kind: spot-reclaim, notice: 0s", machines=SPOT)
    assert result["pools"]["main"]["replicas"]["retried"] > 0


def test_machines_do_not_come_while_their_provider_is_out() -> None:
    def ready_again(*faults: str) -> float:
        _, events = faulty("at: 20s, kind: machine-loss", *faults, count=800)
        return max(event.time for event in events if event.kind == "replica.ready")

    assert 100.0 < ready_again() < 450.0
    assert ready_again("at: 15s, kind: provider-outage, for: 8m") > 495.0


def test_nothing_more_can_be_had_when_a_quota_is_used_up() -> None:
    more = SCALING.format(most=4)
    full, _ = faulty("at: 1h, kind: provider-outage", more=more, replicas=1, count=200)
    assert full["fleet"]["pools"]["big"]["most"] > 1
    quota = "at: 0s, kind: quota-exhaustion, select: {pool: big}"
    short, _ = faulty(quota, more=more, replicas=1, count=200)
    assert short["fleet"]["pools"]["big"]["most"] == 1
    while_, _ = faulty(quota + ", for: 60s", more=more, replicas=1, count=200)
    assert while_["fleet"]["pools"]["big"]["most"] > 1


def test_a_capacity_shortage_delays_machines_and_fails_none() -> None:
    more = SCALING.format(most=4)
    shortage = "at: 0s, kind: capacity-shortage, select: {pool: big}"
    result, events = faulty(f"{shortage}, for: 60s", more=more, replicas=1, count=200)
    assert result["fleet"]["pools"]["big"]["most"] > 1
    assert not [event for event in events if event.kind == "machine.failed"]
    idle = [event.time for event in events if event.kind == "machine.idle"]
    assert min(idle) > 60.0
    short = [event.reason for event in events if event.kind == "fleet.short"]
    assert any("their provider created no machine" in reason for reason in short)
    forever, _ = faulty(shortage, more=more, replicas=1, count=200)
    assert forever["fleet"]["pools"]["big"]["most"] == 1
    assert forever["requests"]["unfinished"] == 0


def test_a_crashed_engine_is_started_again_by_its_cluster() -> None:
    result, events = faulty("at: 20s, kind: engine-crash")
    assert gone(events)[0] == (20.0, "one of its pods failed")
    asked = [event.reason for event in events if event.kind == "replica.pending" and event.time > 0]
    assert re.fullmatch(r"replaces server \d+: one of its pods failed", asked[0])
    assert result["pools"]["main"]["replicas"]["lost"] == 1
    assert result["fleet"]["pools"]["big"]["lost"] == 0
    assert result["requests"]["completed"] == 100


def test_pods_that_crash_after_every_start_are_mended() -> None:
    result, _ = faulty("at: 20s, kind: crash-loop, for: 200s", count=400)
    assert result["pools"]["main"]["replicas"]["lost"] >= 2
    assert result["pools"]["main"]["replicas"]["final"] == 2
    assert result["requests"]["unfinished"] == 0


@pytest.mark.parametrize("controller", ["gangs", "fleet"])
@pytest.mark.parametrize("skew", ["ahead: 40s", "behind: 40s"])
def test_a_controller_whose_clock_is_off_for_a_while_recovers(controller: str, skew: str) -> None:
    skewed = f"at: 15s, kind: clock-skew, controller: {controller}, {skew}, for: 60s"
    result, _ = faulty("at: 20s, kind: machine-loss", skewed, count=500)
    assert result["pools"]["main"]["replicas"]["final"] == 2
    assert result["requests"]["completed"] == 500


@pytest.mark.parametrize("controller", ["gangs", "fleet"])
def test_a_controller_that_begins_anew_changes_nothing_that_works(controller: str) -> None:
    restart = f"every: {{mean: 7s}}, kind: controller-restart, controller: {controller}"
    result, _ = faulty("at: 20s, kind: machine-loss", restart, count=500)
    assert result["pools"]["main"]["replicas"]["final"] == 2
    assert result["requests"]["completed"] == 500


@pytest.mark.parametrize(
    ("fault", "sentence"),
    [
        ("kind: machine-loss, select: {pool: bgi}", "faults[0].select.pool: the fleet has no pool"),
        ("kind: machine-loss, select: {zone: a}", "faults[0].select.zone: the fleet has no zone"),
        ("kind: rack-loss, select: {rack: 0}", "no pool that it counts in"),
        ("kind: rack-loss, select: {pool: big, rack: 2}", "the pool has 2, counted from 0"),
        ("kind: spot-reclaim", "there are no spot machines"),
        ("kind: spot-reclaim, select: {pool: big}", "big has no spot machines"),
        ("kind: machine-loss, select: {machine: big-0, count: 2}", "one machine is named"),
        ("kind: machine-loss, select: {machine: nope-7}", "never has a machine 'nope-7'"),
        ("kind: machine-loss, select: {machine: big-99}", "allowed: big-0 to big-"),
        ("kind: machine-loss, select: {machine: big-00}", "never has a machine 'big-00'"),
        ("kind: crash-loop, for: 1s, after: 1s", "it is the cluster that says"),
    ],
)
def test_what_cannot_be_is_said(fault: str, sentence: str) -> None:
    with pytest.raises(InputError) as caught:
        faulty(f"at: 1s, {fault}")
    assert sentence in str(caught.value)


def test_a_machine_that_is_not_in_its_cluster_yet_can_be_lost() -> None:
    """One is ordered for the second server; it is lost as soon as it is there, and often."""
    losses = "every: {mean: 1s, until: 3m}, kind: machine-loss"
    result, _ = faulty(losses, count=400, machines="{initial: 1, max: 4}")
    assert result["requests"]["arrived"] == 400
    assert result["requests"]["unfinished"] == 0
    assert result["fleet"]["pools"]["big"]["lost"] >= 2
