"""What is told of gangs and machines leads from a server to its machine, and to the decision."""

from hypothesis import given
from hypothesis import strategies as st

from tests.twin.infrastructure.worlds import SCALING, scenario, told
from windtunnel.twin.fleet.meter import MOST_LEVELS, Levels


def test_a_server_is_traced_to_its_machine_and_to_the_decision() -> None:
    result, events = told(scenario(replicas=1, count=400, more=SCALING.format(most=4)))
    decided = next(event for event in events if event.kind == "scaling.decided")
    applied = next(event for event in events if event.kind == "scaling.applied")
    assert applied.data["id"] == decided.data["id"]
    assert decided.data["seen"] == 15.0 * round(decided.time / 15.0)
    started = [event for event in events if event.kind == "replica.starting"][1]
    machines, pods = started.data["machines"], started.data["pods"]
    assert isinstance(machines, list)
    assert isinstance(pods, list)
    (machine,) = machines
    ordered = next(event for event in events if event.subject == f"machine/{machine}")
    assert (ordered.kind, ordered.data["pool"], ordered.data["kind"]) == (
        "fleet.provision",
        "main",
        "big",
    )
    assert ordered.data["pod"] in pods
    ids = [event.data["id"] for event in events if event.kind.startswith("fleet.") and event.data]
    assert ids == [f"fleet-{number}" for number in range(1, len(ids) + 1)]
    sizes = result["fleet"]["pools"]["big"]["sizes"]
    assert sizes[0] == [0.0, 0, 0, 0, 1, 0, 0, 0, 36.0]
    assert max(row[4] for row in sizes) == result["fleet"]["pools"]["big"]["most"]
    steps = result["gangs"]["clusters"]["main"]["sizes"]
    assert steps[0] == [0.0, 0, 0, 1, 0, 0]
    assert max(row[1] for row in steps) > 0


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 3))))
def test_levels_are_what_was_noted_last_of_every_instant(steps: list[tuple[int, int]]) -> None:
    levels, now_s, last = Levels(), 0, {}
    for later, value in steps:
        now_s += later
        levels.note(float(now_s), [value])
        last[now_s] = value
    for at_s in range(now_s + 1):
        known = [value for time, value in last.items() if time <= at_s]
        shown = [row[1] for row in levels.rows if row[0] <= at_s]
        if known:
            assert shown[-1] == known[-1]


def test_levels_are_bounded() -> None:
    levels = Levels()
    for number in range(10 * MOST_LEVELS):
        levels.note(float(number), [number % 7])
    rows = levels.rows
    assert len(rows) < 2 * MOST_LEVELS
    assert rows[0] == [0.0, 0]
