"""Servers that are gone at once with all they had: nobody is lost with them, and all is counted."""

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.core.sinks import MemorySink
from tests.twin.runs import ONE_SERVER, one_server
from tests.twin.scaled import Script
from tests.twin.test_termination import cases, check_counts
from windtunnel.core.invariants import InvariantChecker
from windtunnel.core.telemetry import Event, Telemetry
from windtunnel.twin.checks import INVARIANTS
from windtunnel.twin.compose import compose
from windtunnel.twin.results.result import result_of
from windtunnel.twin.run import breathe
from windtunnel.twin.scenario.load import load_text
from windtunnel.twin.servers.replicas import GONE, READY, STATES
from windtunnel.twin.simulation import Simulation

REASON = "the engine crashed"


def lossy(
    text: str,
    after: Callable[[Simulation], None],
    *sets: str,
    script: Script | None = None,
) -> tuple[dict[str, Any], list[Event]]:
    """A run in which `after` may do something after every event; every invariant is checked."""
    sink = MemorySink()
    plan = load_text(text, sets=sets)
    checker = InvariantChecker(INVARIANTS)
    told = Telemetry(sink)
    simulation = compose(plan, telemetry=told, scaler=script, scaling=told)

    def look(state: Simulation) -> None:
        after(state)
        checker.run(state, f"event {state.events}")

    simulation.run(breathe, look)
    checker.run(simulation, "the end")
    return result_of(plan, simulation, checker.checked), sink.events


class Loser:
    """Loses a server after some of the events, and starts another in its place."""

    def __init__(self, losses: dict[int, int], *, restarts: bool = True) -> None:
        self._losses = losses  # by event, who of those that are there
        self._restarts = restarts
        self.seen: list[str] = []  # in which states they were

    def __call__(self, simulation: Simulation) -> None:
        who = self._losses.get(simulation.events)
        there = [one for one in simulation.cluster.replicas if one.state != GONE]
        if who is None or not there:
            return
        replica = there[who % len(there)]
        self.seen.append(STATES[replica.state])
        simulation.lifecycle.lose(replica, simulation.now_s, REASON)
        simulation.control.settle(simulation.now_s)
        assert replica.state == GONE
        assert not replica.server.load
        assert replica.server.kv_used(simulation.now_s) == 0.0
        assert replica.server.wake_s == float("inf")
        if self._restarts:
            simulation.lifecycle.fill(replica.pool, simulation.now_s, REASON)
            simulation.control.settle(simulation.now_s)


@settings(max_examples=60)
@given(cases(), st.dictionaries(st.integers(1, 150), st.integers(0, 9), max_size=12))
def test_nobody_is_lost_with_a_server(case: tuple[str, Script], losses: dict[int, int]) -> None:
    text, script = case
    loser = Loser(losses)
    result, events = lossy(text, loser, script=script)
    check_counts(result, events)
    assert result["requests"]["unfinished"] == 0
    counts = [pool["replicas"] for pool in result["pools"].values()]
    assert sum(one["lost"] for one in counts) == len(loser.seen)
    assert sum(one["retried"] for one in counts) == _told(events, "request.retried")
    given_up = [event for event in events if event.reason == "its server was lost"]
    assert sum(one["failed"] for one in counts) == len(given_up)
    assert all(event.data["outcome"] == "dropped" for event in given_up)


def _told(events: list[Event], kind: str) -> int:
    return sum(event.kind == kind for event in events)


def at(time_s: float, restarts: bool = False) -> Callable[[Simulation], None]:
    """Loses server 0 after the first event that is not before a time."""
    done: list[float] = []

    def after(simulation: Simulation) -> None:
        if simulation.now_s >= time_s and not done:
            done.append(simulation.now_s)
            replica = simulation.cluster.replicas[0]
            assert replica.state == READY
            simulation.lifecycle.lose(replica, simulation.now_s, REASON)
            if restarts:
                simulation.lifecycle.fill(replica.pool, simulation.now_s, REASON)
            simulation.control.settle(simulation.now_s)

    return after


def test_a_request_begins_anew_on_another_server_and_its_work_is_lost() -> None:
    # A prompt of 8 is a step of 18 ms, a token after it 12 ms and 0.1 ms for each token before.
    # Two requests, half a second apart, one on each server; as the second comes, the first has had
    # its prompt and 30-odd tokens. It begins anew beside the second.
    text = one_server(count=2, rate="2/s", output=60)
    result, events = lossy(text, at(1.0), "serving.pools.0.replicas=2")
    assert result["requests"]["completed"] == 2
    replicas = result["pools"]["main"]["replicas"]
    assert (replicas["lost"], replicas["retried"], replicas["failed"]) == (1, 1, 0)
    assert 30 < replicas["lost_tokens"] < 50
    (again,) = [event for event in events if event.kind == "request.retried"]
    assert (again.time, again.reason, again.data) == (1.0, REASON, {"server": 0})
    assert result["servers"][0]["requests"] == 0
    # It is paid for until it is gone.
    assert result["pools"]["main"]["replica_seconds"] == pytest.approx(
        result["simulated_seconds"] + 1.0
    )


def test_who_was_lost_too_often_is_dropped() -> None:
    text = one_server(count=1, output=100)
    losses = Loser({2: 0, 4: 0})
    result, events = lossy(text, losses)
    assert losses.seen == ["ready", "ready"]
    assert result["requests"] == {
        "arrived": 1,
        "completed": 0,
        "rejected": 0,
        "timed_out": 0,
        "dropped": 1,
        "unfinished": 0,
    }
    assert result["reasons"]["dropped"] == {"its server was lost": 1}
    assert _told(events, "request.retried") == 1


def test_without_anybody_who_restarts_it_the_run_ends() -> None:
    result, _ = lossy(one_server(count=3), Loser({1: 0}, restarts=False))
    assert result["requests"]["unfinished"] == 3
    assert result["reasons"]["unfinished"] == {"the run ended before a server was ready": 3}


def test_deadlines_keep_running() -> None:
    text = ONE_SERVER.format(
        count=1, rate="1/s", prompt=8, output=100, overlapped="false", host="0s"
    ).replace("    output_tokens: 100", "    output_tokens: 100\n    timeout: 1s")
    result, events = lossy(text, at(1.0, restarts=True))
    assert result["requests"]["timed_out"] == 1
    assert events[-1].time == 2.0
