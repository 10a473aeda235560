"""Gateways that restart, and clocks of controllers that are off."""

from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.twin.faults.runs import faulty, plain
from windtunnel.analysis.explain.request import explain_request
from windtunnel.analysis.explain.run import RunReader
from windtunnel.core.loop import SkewedClock
from windtunnel.gangs.commands import Command
from windtunnel.gangs.view import View
from windtunnel.report.files.folder import RunFolder
from windtunnel.twin.kubernetes.api_server import ApiServer
from windtunnel.twin.kubernetes.cluster import SimCluster
from windtunnel.twin.kubernetes.driver import Driver
from windtunnel.twin.run import run
from windtunnel.twin.scenario.load import load_text

RESTART = "kind: controller-restart, controller: gateway"
QUEUED = (
    "serving.admission={policy: flow-control, ttl: 30s, detector: {kind: concurrency, "
    "max_per_server: 1}}"
)


def test_requests_end_with_their_gateway_and_find_none_while_it_is_away() -> None:
    """Two arrive each second, and each takes one: of two inside, one has ended at 2.75 s."""
    text = plain(f"at: 2750ms, {RESTART}, for: 1s", count=10, rate="2/s")
    result, events = faulty(text)
    requests = result["requests"]
    assert requests["dropped"] == 2
    assert requests["rejected"] == 2
    assert requests["completed"] == 6
    ended = [one for one in events if one.kind == "request.ended"]
    reasons = {one.data["outcome"]: one.reason for one in ended if one.reason}
    assert reasons == {
        "dropped": "the gateway was restarted",
        "rejected": "the gateway is restarting",
    }


def test_requests_queued_at_a_gateway_are_lost_with_it() -> None:
    """One is served at a time: of ten that come within a second, nine are queued."""
    text = plain(f"at: 990ms, {RESTART}", count=11, rate="10/s", output=300)
    result, _ = faulty(text, QUEUED)
    assert result["gateway"]["waiting_peak"] == 8
    assert result["requests"]["dropped"] == 9
    assert result["requests"]["completed"] == 2


@pytest.mark.parametrize("policy", ["round-robin", "least-loaded", "weighted", "consistent-hash"])
def test_a_restarted_router_goes_on_choosing(policy: str) -> None:
    text = plain(f"every: {{mean: 1s}}, {RESTART}", count=40, rate="8/s", replicas=3)
    result, _ = faulty(text, f"serving.router.policy={policy}")
    requests = result["requests"]
    assert requests["completed"] > 0
    assert requests["dropped"] > 0
    assert requests["completed"] + requests["dropped"] + requests["rejected"] == 40


def test_a_restarted_gateway_is_the_cause_of_what_it_cost(tmp_path: Path) -> None:
    plan = load_text(plain(f"at: 2750ms, {RESTART}, for: 1s", count=10, rate="2/s"))
    with RunFolder(tmp_path / "out") as place:
        place.finish(run(plan, rows=place.rows(), decisions=place.control()))
    reader = RunReader(tmp_path / "out")
    explained = [explain_request(reader, number) for number in range(10)]
    lost = [one for one in explained if one.outcome != "completed"]
    assert len(lost) == 4
    assert all(one.chains[0].root.ids == ["fault-1"] for one in lost)
    kept = [one for one in explained if one.outcome == "completed"]
    assert not [cause for one in kept for cause in one.causes if cause.cause == "fault"]


def test_a_gateway_whose_clock_jumps_ahead_gives_up_what_is_queued() -> None:
    """Answers of three seconds one after the other: nobody would wait for 30 s."""
    never = "at: 1h, kind: slow-machine"
    early = "at: 5s, kind: clock-skew, controller: gateway, ahead: 40s"
    result, _ = faulty(plain(never, count=6, rate="10/s", output=300), QUEUED)
    assert result["requests"]["completed"] == 6
    result, _ = faulty(plain(early, count=6, rate="10/s", output=300), QUEUED)
    assert result["requests"]["completed"] == 2
    assert result["requests"]["rejected"] == 4


def test_a_clock_never_runs_backwards() -> None:
    clock = SkewedClock()
    assert [clock.read(1.0), clock.when(20.0)] == [1.0, 20.0]
    clock.ahead_s = 5.0
    assert [clock.read(2.0), clock.when(20.0)] == [7.0, 15.0]
    clock.ahead_s = 0.0
    assert [clock.read(3.0), clock.read(8.0)] == [7.0, 8.0]


@given(
    shown_s=st.floats(0.0, 1e6),
    ahead_s=st.one_of(st.floats(-1e5, 1e5), st.sampled_from([-7.3, -2.0, -600.0])),
)
def test_a_clock_shows_a_time_when_it_says(shown_s: float, ahead_s: float) -> None:
    clock = SkewedClock()
    clock.ahead_s = ahead_s
    assert clock.read(clock.when(shown_s)) >= shown_s


@pytest.mark.parametrize("behind", ["1s", "2s", "7300ms"])
def test_a_gateway_whose_clock_is_behind_looks_once(behind: str) -> None:
    skewed = f"at: 500ms, for: 20s, kind: clock-skew, controller: gateway, behind: {behind}"
    text = plain(skewed, count=60, rate="7/s", output=300)
    result, _ = faulty(text, QUEUED.replace("ttl: 30s", "ttl: 3s"))
    assert result["ended_by"] == "last request"


class Alarm:
    """A controller that does nothing, and looks at its clock when it shows ten."""

    def __init__(self, view: View) -> None:
        self.times: list[float] = []

    def next_s(self) -> float:
        return 10.0 if not self.times or self.times[-1] < 10.0 else float("inf")

    def reconcile(self, now_s: float) -> Sequence[Command]:
        self.times.append(now_s)
        return ()

    def refused(self, command: Command) -> None: ...

    def close(self) -> None: ...


def test_a_controller_of_gangs_goes_by_its_own_clock() -> None:
    driver = Driver(SimCluster(ApiServer()), Alarm)
    driver.clock.ahead_s = 4.0
    assert driver.next_s() == 6.0
    driver.advance(6.0)
    assert isinstance(driver.controller, Alarm)
    assert driver.controller.times[-1] == 10.0
    assert driver.next_s() == float("inf")
