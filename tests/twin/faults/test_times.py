"""When faults happen: at a time, by chance, on a condition; and that none keeps a run alive."""

import pytest

from tests.twin.faults.runs import faulty, plain
from windtunnel.twin.results.chance import draws
from windtunnel.twin.scenario.load import load_text


def test_a_fault_is_told_listed_and_ended() -> None:
    text = plain("at: 1500ms, kind: slow-machine, name: hot, factor: 2, for: 1s", count=3)
    result, events = faulty(text)
    assert result["faults"] == [
        {
            "name": "hot",
            "kind": "slow-machine",
            "at": 1.5,
            "until": 2.5,
            "subjects": ["main-0"],
            "reason": "at 1.5 s",
        }
    ]
    assert result["decisions"]["faults"] == 1
    told = [event for event in events if event.kind.startswith("fault.")]
    assert [(one.time, one.kind, one.subject, one.reason) for one in told] == [
        (1.5, "fault.began", "fault/hot", "at 1.5 s"),
        (2.5, "fault.ended", "fault/hot", "at 1.5 s"),
    ]
    assert told[0].data == {"kind": "slow-machine", "subjects": ["main-0"], "until": 2.5}
    assert told[1].data == {"kind": "slow-machine", "subjects": ["main-0"], "at": 1.5}


def test_nothing_is_listed_where_nothing_went_wrong() -> None:
    result, _ = faulty(plain("at: 1h, kind: engine-crash"))
    assert result["faults"] == []
    assert result["simulated_seconds"] == pytest.approx(2.0)


def test_a_fault_that_nobody_is_there_for_is_listed_without_subjects() -> None:
    # The only server crashes at 1.5 s and the next is ready at 3.5 s: at 2 s nobody can be slow.
    faults = ("at: 1500ms, kind: engine-crash", "at: 2s, kind: slow-machine, for: 10s")
    result, _ = faulty(plain(*faults))
    assert [one["subjects"] for one in result["faults"]] == [["main-0"], []]
    assert result["requests"]["completed"] == 1
    assert result["simulated_seconds"] == pytest.approx(4.5)


def test_times_by_chance_are_those_of_their_own_stream() -> None:
    random = "every: {mean: 2s}, kind: slow-machine, name: random, for: 100ms"
    alone, _ = faulty(plain(random, count=20))
    other = "every: {mean: 1s}, kind: slow-machine, name: other, for: 1ms"
    beside, _ = faulty(plain(other, random, count=20))
    times = [one["at"] for one in alone["faults"]]
    assert len(times) > 5
    others = [one["at"] for one in beside["faults"] if one["name"] == "random"]
    shared = min(len(times), len(others))
    assert times[:shared] == others[:shared]
    again, _ = faulty(plain(random, count=20))
    assert again["faults"] == alone["faults"]


def test_times_by_chance_keep_their_window_and_their_number() -> None:
    every = "every: {mean: 300ms, from: 2s, until: 6s}, kind: slow-machine, for: 1ms"
    result, _ = faulty(plain(every, count=20))
    times = [one["at"] for one in result["faults"]]
    assert len(times) > 5
    assert 2.0 < min(times) < max(times) <= 6.0
    result, _ = faulty(plain("every: {mean: 1s, most: 2}, kind: engine-crash", count=9, load="0s"))
    assert len(result["faults"]) == 2


def test_a_condition_holds_for_a_while_and_again_after_it_did_not() -> None:
    # Two requests at a time are on the server in the second half of every second.
    when = "when: {metric: in_flight, above: 1, for: 200ms, interval: 100ms, most: 3}"
    text = plain(f"{when}, kind: slow-machine, factor: 1.0001, for: 1ms", count=6, output=150)
    result, _ = faulty(text)
    times = [one["at"] for one in result["faults"]]
    # Looks are at whole tenths: the first that sees both is at 2.1 s, the first after 0.2 s 2.3 s.
    assert times == pytest.approx([2.3, 3.3, 4.3], abs=0.11)
    assert result["faults"][0]["reason"] == "in_flight above 1 for 0.2 s"


@pytest.mark.parametrize(
    ("metric", "bound"),
    [
        ("queue, pool: main", "above: 2"),
        ("kv_use, pool: main", "above: 0.001"),
        ("ready", "below: 2"),
        ("arrivals", "above: 5"),
        ("inside", "above: 4"),
    ],
)
def test_every_figure_can_be_waited_for(metric: str, bound: str) -> None:
    when = f"when: {{metric: {metric}, {bound}, interval: 250ms}}"
    text = plain(f"{when}, kind: slow-machine, for: 1ms", count=8, rate="10/s", slots=2)
    result, _ = faulty(text)
    assert len(result["faults"]) == 1


@pytest.mark.parametrize(
    "fault",
    [
        "every: {mean: 1ms}, kind: slow-machine, factor: 1.5, for: 1ms",
        "every: {mean: 500ms}, kind: engine-crash",
        "when: {metric: inside, above: 0, interval: 1ms, most: 1000}, kind: slow-machine, for: 2ms",
        "at: 100d, kind: engine-crash",
    ],
)
def test_a_fault_never_keeps_a_run_alive(fault: str) -> None:
    result, events = faulty(plain(fault, count=2, load="100ms"))
    assert result["requests"]["unfinished"] == 0
    assert result["simulated_seconds"] == max(
        event.time for event in events if event.kind == "request.ended"
    )


@pytest.mark.parametrize(
    ("fault", "drawing"),
    [
        ("at: 1500ms, kind: slow-machine, select: {pool: main, server: 1}, for: 1s", False),
        ("at: 1500ms, kind: slow-machine, select: {count: all}, for: 1s", False),
        ("at: 1500ms, kind: metric-blackout, for: 1s", False),
        ("at: 1500ms, kind: slow-machine, select: {count: 1}, for: 1s", True),
        ("at: 1500ms, kind: rate-limit-storm, for: 1s", False),
        (
            "every: {mean: 1s}, kind: slow-machine, select: {pool: main, server: 1}, for: 1s",
            True,
        ),
    ],
)
def test_a_fault_by_chance_makes_runs_of_other_seeds_other_runs(fault: str, drawing: bool) -> None:
    text = plain(fault, count=8, replicas=3)
    assert draws(load_text(text)) == drawing
    results = [faulty(text, f"seed={seed}")[0]["faults"] for seed in range(4)]
    assert any(other != results[0] for other in results) == drawing


def test_a_storm_that_draws_whom_it_refuses_depends_on_the_seed() -> None:
    assert draws(load_text(plain("at: 1s, kind: rate-limit-storm, share: 0.5, for: 9s")))
