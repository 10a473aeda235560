"""A rehearsal beside its simulation: what is the same, what is explained, what differs."""

from __future__ import annotations

from typing import Any

from windtunnel.analysis.rehearsal import (
    DIFFERS,
    EXPLAINED,
    SAME,
    MeasuredDelays,
    RehearsalFinding,
    Side,
    compare,
)
from windtunnel.core.telemetry import Event

QUIET = MeasuredDelays(0.002, 0.001, 0.01)
BUSY = MeasuredDelays(0.002, 0.05, 0.3)


def figures(ttft_s: float = 0.1, attained: float = 1.0, **requests: int) -> dict[str, Any]:
    latency = {kind: {"mean": ttft_s, "p50": ttft_s, "p99": ttft_s} for kind in ("ttft", "e2e")}
    latency["tpot"] = {"mean": 0.02, "p50": 0.02, "p99": 0.02}
    counts = {"sent": 200, "completed": 200, **requests}
    return {"requests": counts, "latency": latency, "attained": attained}


def side(*events: Event, **more: Any) -> Side:
    return Side(events, more.pop("figures", figures()), **more)


def routed(first: int, second: int) -> list[Event]:
    servers = ["a"] * first + ["b"] * second
    return [Event(1.0, "request.routed", "request/0", "", {"server": one}) for one in servers]


def resized(at_s: float, current: int, target: int, subject: str = "pool/main") -> Event:
    return Event(at_s, "scaling.decided", subject, "", {"current": current, "target": target})


def findings(
    ours: Side, real: Side, about: str, delays: MeasuredDelays = QUIET
) -> list[RehearsalFinding]:
    return [one for one in compare(ours, real, delays).findings if one.about == about]


def test_two_equal_sides_agree() -> None:
    ours = side(Event(5.0, "gang.Deleted", "PodGang/chat-0"), resized(9.0, 1, 2), *routed(50, 50))
    found = compare(ours, ours, QUIET, ["a note"])
    assert found.agree
    assert {one.verdict for one in found.findings} == {SAME}
    assert found.notes == ["a note"]


def test_a_decision_may_be_late_by_what_was_measured_and_no_more() -> None:
    """Names of a rehearsal begin with its namespace."""
    ours = side(Event(5.0, "gang.Deleted", "PodGang/chat-0"))
    late = side(Event(6.0, "gang.Deleted", "PodGang/space/chat-0"))
    (one,) = findings(ours, late, "gangs")
    assert one.verdict == EXPLAINED
    assert "+1.00 s at most" in one.why
    later = side(Event(7.0, "gang.Deleted", "PodGang/space/chat-0"))
    assert [one.verdict for one in findings(ours, later, "gangs")] == [EXPLAINED, DIFFERS]
    assert [one.verdict for one in findings(ours, later, "gangs", BUSY)] == [EXPLAINED]


def test_a_decision_of_one_side_alone_differs() -> None:
    ours = side(Event(5.0, "gang.Deleted", "PodGang/chat-0"))
    (missing,) = findings(ours, side(), "gangs")
    assert (missing.simulated, missing.rehearsed, missing.verdict) == (5.0, None, DIFFERS)
    (more,) = findings(side(), ours, "gangs")
    assert (more.simulated, more.rehearsed, more.verdict) == (None, 5.0, DIFFERS)
    twice = side(*ours.events, *ours.events)
    assert not compare(ours, twice, QUIET).agree


def test_sizes_are_aligned_by_what_was_decided() -> None:
    ours = side(resized(10.0, 1, 2), resized(20.0, 2, 3))
    real = side(
        resized(10.5, 1, 2, "Autoscaler space/rehearsal pool/main"),
        resized(12.0, 2, 4, "Autoscaler space/rehearsal pool/main"),
        resized(20.4, 2, 3, "Autoscaler space/rehearsal pool/main"),
    )
    found = findings(ours, real, "scaling")
    assert [(one.what, one.verdict) for one in found] == [
        ("main 1 to 2", SAME),
        ("main 2 to 4", DIFFERS),
        ("main 2 to 3", SAME),
    ]


def test_shares_may_move_by_chance() -> None:
    ours = side(*routed(100, 100))
    assert {one.verdict for one in findings(ours, side(*routed(107, 93)), "routing")} == {SAME}
    assert {one.verdict for one in findings(ours, side(*routed(120, 80)), "routing")} == {EXPLAINED}
    assert {one.verdict for one in findings(ours, side(*routed(150, 50)), "routing")} == {DIFFERS}


def test_latencies_are_explained_by_a_busy_machine_alone() -> None:
    ours, slow = side(), side(figures=figures(0.25))
    assert {one.verdict for one in findings(ours, slow, "latency")} == {SAME, DIFFERS}
    assert {one.verdict for one in findings(ours, slow, "latency", BUSY)} == {SAME, EXPLAINED}


def test_requests_that_lost_their_server_are_told() -> None:
    ours = side(Event(3.0, "request.retried", "request/7"), figures=figures(unfinished=1))
    real = side(figures=figures(completed=198, cut_off=2, attained=0.99))
    found = {one.what: one for one in findings(ours, real, "requests")}
    assert found["completed"].verdict == EXPLAINED
    assert "2 lost their server" in found["completed"].why
    assert "restarted 1" in found["completed"].why
    worse = side(figures=figures(completed=150, failed=50, attained=0.75))
    verdicts = {one.what: one.verdict for one in findings(ours, worse, "requests")}
    assert verdicts == {"sent": SAME, "completed": DIFFERS, "SLO attainment": DIFFERS}


def test_another_placement_at_the_start_differs() -> None:
    ours = side(start={"machines": {"chat-0": "h100-0", "chat-1": "h100-1"}})
    real = side(start={"machines": {"chat-0": "h100-0", "chat-1": "h100-0"}})
    (one,) = findings(ours, real, "start")
    assert (one.what, one.simulated, one.rehearsed) == ("machines: chat-1", "h100-1", "h100-0")
    assert findings(ours, ours, "start")[0].verdict == SAME


def test_a_server_that_never_took_requests_is_not_compared() -> None:
    """Between two pods of one name a real cluster has a moment without any."""
    ours = side(
        Event(0.0, "replica.ready", "a"),
        Event(5.0, "replica.gone", "a"),
        Event(5.0, "replica.pending", "a"),
        Event(9.0, "replica.ready", "a"),
    )
    real = side(
        Event(5.0, "replica.gone", "a"),
        Event(5.0, "replica.pending", "a"),
        Event(6.0, "replica.gone", "a"),
        Event(6.1, "replica.pending", "a"),
        Event(9.2, "replica.ready", "a"),
    )
    (one,) = findings(ours, real, "servers")
    assert (one.simulated, one.rehearsed, one.verdict) == (2, 2, EXPLAINED)
    (missing,) = findings(ours, side(*real.events[:-1]), "servers")[1:]
    assert (missing.what, missing.verdict) == ("a ready", DIFFERS)
