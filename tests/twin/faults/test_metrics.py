"""Faults of what routers, gateways and autoscalers see, with numbers worked by hand."""

from typing import Any

import pytest

from tests.core.sinks import MemorySink
from tests.twin.faults.runs import faulty, plain
from tests.twin.scaled import Script
from tests.twin.test_lifecycle import elastic
from windtunnel.core.telemetry import Event
from windtunnel.twin.results.chance import draws
from windtunnel.twin.run import run
from windtunnel.twin.scenario.load import load_text


def routed(events: list[Event]) -> list[Any]:
    """To which server requests were sent, in order."""
    return [event.data["server"] for event in events if event.kind == "request.routed"]


def test_a_server_that_no_router_sees_finishes_what_it_has() -> None:
    hidden = "at: 1100ms, kind: router-partition, select: {pool: main, server: 0}, for: 2s"
    result, events = faulty(plain(hidden, count=5, replicas=2))
    # Requests at 1, 2, ... s go round: the first to 0, then 1 alone until 3.1 s.
    assert routed(events)[:3] == [0, 1, 1]
    assert 0 in routed(events)[3:]
    assert result["requests"]["completed"] == 5
    assert result["pools"]["main"]["replicas"]["lost"] == 0
    assert result["servers"][0]["requests"] >= 1


def test_who_comes_while_no_server_is_seen_waits_for_the_end() -> None:
    hidden = "at: 500ms, kind: router-partition, for: 4s"
    result, events = faulty(plain(hidden, count=2))
    assert [event.time for event in events if event.kind == "request.routed"] == [4.5, 4.5]
    assert result["requests"]["completed"] == 2
    assert result["simulated_seconds"] == pytest.approx(5.5)


def test_a_partition_for_good_ends_the_run() -> None:
    result, _ = faulty(plain("at: 500ms, kind: router-partition", count=2))
    assert result["requests"]["unfinished"] == 2
    assert result["faults"][0]["until"] is None


def by_use(*faults: str) -> list[int]:
    """Where twenty requests go, one every 100 ms, to the server whose KV is known to be freer."""
    text = plain(*faults, count=20, rate="10/s", replicas=2, output=50)
    router = "{policy: weighted, scorers: {kv-utilization: 1}, staleness: 100ms}"
    result, events = faulty(
        text, f"serving.router={router}", "serving.pools.0.engine.max_num_seqs=1"
    )
    assert result["requests"]["completed"] == 20
    return routed(events)


def test_in_the_dark_a_router_goes_by_what_it_knew() -> None:
    """At 200 ms it saw a request on server 0 and none on the other: that is what it knows."""
    seeing = by_use("at: 1h, kind: slow-machine")
    assert 5 < sum(seeing) < 15
    assert by_use("at: 250ms, kind: metric-blackout") == [0] + [1] * 19
    for_a_while = by_use("at: 250ms, kind: metric-blackout, for: 1s")
    assert for_a_while[:12] == [0] + [1] * 11
    assert 0 in for_a_while[12:14]


def test_late_metrics_are_those_of_a_while_ago() -> None:
    """What is seen from 300 ms on is known from 800 ms on: then both had one request."""
    late = by_use("at: 250ms, kind: metric-lag, by: 500ms")
    assert late[:7] == [0] + [1] * 6
    assert 0 in late[7:]
    assert by_use("at: 250ms, kind: metric-lag, by: 1h") == [0] + [1] * 19


def test_a_router_goes_by_what_it_last_knew_of_servers_that_are_not_scraped() -> None:
    """At 200 ms it saw a request on server 0 and none on the other."""
    # Server 1 is taken to be free for good: it gets all requests while server 0 has one, until
    # 600 ms and again from 700 ms on.
    without_1 = "at: 250ms, kind: partial-scrape, select: {pool: main, server: 1}"
    assert by_use(without_1)[:12] == [0, 1, 1, 1, 1, 1, 0, 1, 1, 1, 1, 1]
    seeing = by_use("at: 1h, kind: slow-machine")
    without_0 = "at: 250ms, kind: partial-scrape, select: {pool: main, server: 0}, for: 1s"
    assert by_use(without_0)[:12] != seeing[:12]
    assert by_use(without_0)[12:] == seeing[12:]
    nobody = "at: 250ms, kind: partial-scrape, share: 1"
    assert by_use(nobody) == by_use("at: 250ms, kind: metric-blackout")
    assert by_use(f"{nobody}, readers: [routers], for: 1s")[:12] == [0] + [1] * 11


def test_a_late_scrape_that_fails_leaves_what_the_one_before_said() -> None:
    late = "at: 250ms, kind: metric-lag, by: 100ms"
    failing = "at: 450ms, kind: partial-scrape, select: {pool: main, server: 0}"
    # What was seen at 400 ms is known at 500 ms, and stays known: server 0 is never free again.
    assert 0 in by_use(late)[6:]
    assert by_use(late, failing)[:5] == by_use(late)[:5]
    assert by_use(late, failing)[6:] != by_use(late)[6:]


@pytest.mark.parametrize(("share", "missed"), [("0.01", 1), ("0.5", 3), ("0.7", 4), ("1", 6)])
def test_a_share_of_the_servers_is_not_scraped(share: str, missed: int) -> None:
    fault = f"at: 500ms, kind: partial-scrape, share: {share}, for: 1s"
    result, _ = faulty(plain(fault, count=3, replicas=6))
    assert len(result["faults"][0]["subjects"]) == missed
    assert draws(load_text(plain(fault))) == (share != "1")


def scaled_with(*faults: str, count: int = 10) -> tuple[dict[str, Any], Script, list[Event]]:
    lines = "".join(f"  - {{{fault}}}\n" for fault in faults)
    sink = MemorySink()
    script = Script(*[{"main": 1 + place} for place in range(20)])
    plan = load_text(elastic(count=count, load="0s") + "faults:\n" + lines)
    return run(plan, events=sink, check=True, scaler=script).result, script, sink.events


def looks(script: Script) -> list[float]:
    return [snapshot.taken_s for snapshot in script.seen]


def test_an_autoscaler_gets_no_snapshot_in_the_dark() -> None:
    result, script, _ = scaled_with("at: 2500ms, kind: metric-blackout, for: 3s")
    assert looks(script) == [1.0, 2.0, 6.0, 7.0, 8.0, 9.0, 10.0]
    assert result["scaling"]["ticks"] == 10


def test_an_autoscaler_gets_snapshots_late() -> None:
    _, script, events = scaled_with("at: 2500ms, kind: metric-lag, by: 1500ms, for: 2s")
    # Those of 3 s and 4 s come at 4.5 s and 5.5 s, the latter after that of 5 s.
    assert looks(script)[:5] == [1.0, 2.0, 3.0, 5.0, 4.0]
    times = [event.time for event in events if event.kind == "scaling.decided"]
    assert times[:5] == [2.0, 4.5, 5.0, 5.5, 6.0]


def test_an_autoscaler_sees_that_servers_are_missing() -> None:
    fault = "at: 2500ms, kind: partial-scrape, select: {pool: main, server: 0}, for: 3s"
    result, script, _ = scaled_with(fault)
    mains = [snapshot.models[0].variants[0] for snapshot in script.seen]
    assert [main.counts.missing for main in mains] == [0, 0, 1, 1, 1, 0, 0, 0, 0, 0]
    assert [main.ready for main in mains] == [1, *range(1, 10)]
    assert [one.name for one in mains[3].replicas] == ["main-1", "main-2"]
    # How well the pool was sized is measured on what there was, not on what was seen.
    never, _, _ = scaled_with("at: 1h, kind: slow-machine")
    assert result["scaling"] == never["scaling"]


def test_scrapes_may_fail_for_one_reader_alone() -> None:
    _, script, _ = scaled_with("at: 0s, kind: partial-scrape, readers: [routers]")
    assert all(snapshot.models[0].variants[0].counts.missing == 0 for snapshot in script.seen)


def test_only_one_reader_may_be_in_the_dark() -> None:
    _, script, _ = scaled_with("at: 0s, kind: metric-blackout, readers: [routers]")
    assert len(looks(script)) == 10


def test_an_autoscaler_that_is_away_misses_what_was_on_its_way() -> None:
    _, script, _ = scaled_with(
        "at: 2500ms, kind: controller-restart, controller: autoscaler, for: 2s"
    )
    assert looks(script) == [1.0, 2.0, 5.0, 6.0, 7.0, 8.0, 9.0, 10.0]


class Clock(Script):
    """Writes down what time it is told that it is."""

    def __init__(self) -> None:
        super().__init__({})
        self.times: list[float] = []

    def tick(self, snapshot: Any, now_s: float) -> Any:
        self.times.append(now_s)
        return super().tick(snapshot, max(now_s, snapshot.taken_s))


@pytest.mark.parametrize(
    ("skew", "times"),
    [
        ("ahead: 10s", [1.0, 2.0, 13.0, 14.0, 14.0, 14.0]),  # it stands still after the fault
        ("behind: 10s", [1.0, 2.0, 2.0, 2.0, 5.0, 6.0]),
        ("ahead: 500ms", [1.0, 2.0, 3.5, 4.5, 5.0, 6.0]),
    ],
)
def test_a_clock_that_is_off_never_runs_backwards(skew: str, times: list[float]) -> None:
    clock = Clock()
    text = elastic(count=6) + f"faults:\n  - {{at: 2500ms, kind: clock-skew, {skew}, for: 2s}}\n"
    run(load_text(text), check=True, scaler=clock)
    assert clock.times == times


def test_a_restarted_autoscaler_remembers_nothing() -> None:
    """A window of patience before a pool shrinks begins anew with every restart."""

    def final(*faults: str) -> int:
        lines = "".join(f"  - {{{fault}}}\n" for fault in faults)
        text = elastic(count=40, replicas=3, output=2, slots=8) + "faults:\n" + lines
        sets = ("scaling.stabilization={down: 10s}", "scaling.pools.main.min=1")
        result = run(load_text(text, sets=sets), check=True).result
        size: int = result["pools"]["main"]["replicas"]["final"]
        return size

    never = "at: 1h, kind: slow-machine"
    often = "every: {mean: 2s}, kind: controller-restart, controller: autoscaler"
    assert final(never) == 1
    assert final(often) == 3
