"""The scheduler of rows and columns: order, row groups, retries, salvage; and all of it ends."""

from collections import Counter
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.admission.dataset.bench import BAD, FAILS, OK, RATE_LIMITED, Bench, seeds
from windtunnel.admission.dataset.cells import DatasetCell, FailureAction, RowSeed
from windtunnel.admission.dataset.graph import ColumnGraph
from windtunnel.admission.dataset.scheduler import CellRetries
from windtunnel.core.errors import InputError
from windtunnel.core.random import Stream

CHAIN = {"a": [], "b": ["a"], "c": ["b"]}
DIAMOND = {"a": [], "b": ["a"], "c": ["a"], "d": ["b", "c"]}


def always(cell: DatasetCell, now: float) -> str:
    return OK


def test_a_column_waits_for_the_columns_it_needs_and_rows_do_not_wait_for_each_other() -> None:
    bench = Bench(DIAMOND, seeds(20), always)
    bench.run()
    assert sorted(bench.complete) == list(range(20))
    done = {(row, column): time for time, row, column in bench.finished}
    for time, row, column in bench.started:
        assert all(done[row, above] <= time for above in bench.graph.parents[column])
    last_root = max(time for time, _, column in bench.started if column == 0)
    first_leaf = min(time for time, _, column in bench.started if column == 3)
    assert first_leaf < last_root
    assert bench.most_in_flight == 4


def test_no_slot_is_idle_while_rows_are_left() -> None:
    """20 rows of 4 cells on 4 slots at one second each: 20 s, whatever the groups."""
    bench = Bench(DIAMOND, seeds(20), always, group_rows=3)
    bench.run()
    assert bench.now == pytest.approx(20.0, abs=3.0)
    assert sum(event.kind == "row_group_ended" for event in bench.sink.events) == 7
    assert bench.kinds("row_group_ended") == sorted(bench.kinds("row_group_ended"))


def test_a_bad_row_is_dropped_alone_and_nothing_of_it_is_tried_again() -> None:
    def answer(cell: DatasetCell, now: float) -> str:
        return BAD if cell.row.seed.row == 5 and cell.column == 1 else OK

    bench = Bench(DIAMOND, seeds(10), answer)
    bench.run()
    assert bench.dropped == [5]
    assert sorted(bench.complete) == [0, 1, 2, 3, 4, 6, 7, 8, 9]
    assert (5, 3) not in {(row, column) for _, row, column in bench.started}
    assert bench.kinds("row_closed") == ["row 5"]


def test_a_failure_rests_longer_each_time_and_then_the_cell_is_salvaged_last() -> None:
    """Row 0 fails for 60 s: five tries, then parked until row 1 is done, then tried once more."""

    def answer(cell: DatasetCell, now: float) -> str:
        return FAILS if cell.row.seed.row == 0 and now < 60.0 else OK

    bench = Bench(
        {"a": []}, seeds(2), answer, service_s=lambda cell: 100.0 if cell.row.seed.row else 1.0
    )
    bench.run()
    assert bench.complete == [1, 0]
    tries = [time for time, row, _ in bench.started if row == 0]
    gaps = [later - before - 1.0 for before, later in pairwise(tries)]
    for gap, full_s in zip(gaps[:4], (2.0, 4.0, 8.0, 16.0), strict=True):
        assert full_s / 2 <= gap <= full_s
    assert bench.kinds("task_salvaged") == ["0/a"]
    assert tries[5:] == [100.0]


def test_a_rate_limited_call_is_tried_again_soon_and_uses_up_no_retry() -> None:
    def answer(cell: DatasetCell, now: float) -> str:
        return RATE_LIMITED if cell.row.seed.row == 0 and cell.tries <= 6 else OK

    bench = Bench({"a": []}, seeds(1), answer)
    bench.run()
    assert bench.complete == [0]
    tries = [time for time, _, _ in bench.started]
    rests = [later - before - 1.0 for before, later in pairwise(tries)]
    for rest_s, full_s in zip(rests, (0.0, 0.05, 0.2, 0.8, 3.2, 12.8), strict=True):
        assert full_s / 2 - 1e-9 <= rest_s <= full_s + 1e-9


def test_the_last_try_of_a_refused_call_is_made_when_its_time_is_up() -> None:
    def answer(cell: DatasetCell, now: float) -> str:
        return OK if cell.row.seed.row else RATE_LIMITED

    bench = Bench(
        {"a": []},
        seeds(2),
        answer,
        settings=CellRetries(4, 40.0),
        service_s=lambda cell: 500.0 if cell.row.seed.row else 4.0,
    )
    bench.run()
    assert bench.gave_up == [0]
    last_s = [time for time, row, _ in bench.started if row == 0][-1]
    assert last_s == pytest.approx(4.0 + 40.0), "40 s after its first refusal"


def test_a_refused_call_has_its_next_turn_before_calls_that_had_none() -> None:
    """At the end of its group, all refused calls of a job were its tail."""

    def answer(cell: DatasetCell, now: float) -> str:
        return RATE_LIMITED if cell.row.seed.row == 1 and cell.tries == 1 else OK

    bench = Bench({"a": []}, seeds(100), answer, cap=4)
    bench.run()
    assert [row for _, row, _ in bench.started].index(1, 2) < 12


@pytest.mark.parametrize("said", [FAILS, RATE_LIMITED])
def test_preserved_retryables_loop_for_ever(said: str) -> None:
    """A server that refuses for ever stalls the run when its time is up, whatever it answers."""
    bench = Bench(CHAIN, seeds(1000), lambda c, t: said, settings=CellRetries(4, 120.0))
    bench.run()
    assert bench.now == pytest.approx(121.0, abs=2.0)
    assert bench.scheduler.is_stalled(bench.now)
    assert bench.complete == []


def test_one_row_that_fails_for_ever_is_given_up_and_the_others_are_not() -> None:
    def answer(cell: DatasetCell, now: float) -> str:
        return RATE_LIMITED if cell.row.seed.row == 3 else OK

    settings = CellRetries(4, 50.0)
    bench = Bench({"a": []}, seeds(200), answer, settings=settings, service_s=lambda c: 1.0)
    bench.run()
    assert bench.gave_up == [3]
    assert len(bench.complete) == 199


def test_queueing_behind_others_is_no_failing_time() -> None:
    """Two refusals, and 100 s in line between them; what it was told to wait is 5 s of that."""
    bench = Bench({"a": []}, seeds(1), always, settings=CellRetries(4, 60.0))
    scheduler = bench.scheduler
    now, failing_s = 0.0, []
    for wait_s, in_line_s in ((5.0, 100.0), (5.0, 5.0), (30.0, 300.0)):
        cell = scheduler.next_cell(now)
        assert cell is not None
        scheduler.began(cell, now)
        now += 1.0
        assert scheduler.rate_limited(cell, now, wait_s) is FailureAction.RETRY
        failing_s.append(cell.failing_s)
        now += in_line_s
    assert failing_s == [0.0, 5.0 + 1.0, 5.0 + 1.0 + 5.0 + 1.0]


def test_a_row_whose_waits_and_calls_come_to_the_retry_time_is_given_up() -> None:
    bench = Bench({"a": []}, seeds(1), always, settings=CellRetries(4, 60.0))
    scheduler, now, verdicts = bench.scheduler, 0.0, []
    while not scheduler.is_done:
        cell = scheduler.next_cell(now)
        assert cell is not None
        scheduler.began(cell, now)
        verdicts.append(scheduler.rate_limited(cell, now + 1.0, 20.0))
        now += 21.0
    assert verdicts == [FailureAction.RETRY] * 3 + [FailureAction.GAVE_UP]


def test_a_row_that_is_refused_while_others_are_answered_is_not_asked_for_all_the_time() -> None:
    """Some servers refuse what is too large for them with a 429, every time."""

    def answer(cell: DatasetCell, now: float) -> str:
        return RATE_LIMITED if cell.row.seed.row == 3 else OK

    settings = CellRetries(4, 600.0)
    bench = Bench({"a": []}, seeds(9000), answer, settings=settings)
    bench.run()
    assert bench.gave_up == [3]
    assert len(bench.complete) == 8999
    assert sum(1 for _, row, _ in bench.started if row == 3) <= 20 + 20


@pytest.mark.parametrize(("long_s", "rows"), [(300.0, 10), (5000.0, 10)])
def test_a_run_is_not_stalled_while_a_call_is_out_that_may_succeed(
    long_s: float, rows: int
) -> None:
    """Row 0 takes long; the others fail until it is answered."""
    answered: list[float] = []

    def answer(cell: DatasetCell, now: float) -> str:
        if cell.row.seed.row == 0:
            answered.append(now)
        return OK if answered else FAILS

    bench = Bench(
        {"a": []},
        seeds(rows),
        answer,
        settings=CellRetries(1000, 60.0),
        service_s=lambda cell: long_s if cell.row.seed.row == 0 else 1.0,
    )
    bench.run()
    assert answered == [long_s]
    assert 0 in bench.complete
    assert len(bench.complete) + len(bench.gave_up) == rows


def test_slow_failures_one_after_another_stall_the_run_all_the_same() -> None:
    """Some call is always out; those that were sent after the time was up do not count."""
    bench = Bench(
        {"a": []},
        seeds(1000),
        lambda cell, now: FAILS,
        settings=CellRetries(4, 60.0),
        service_s=lambda cell: 7.0 + cell.row.seed.row % 5,
    )
    bench.run()
    assert bench.scheduler.is_stalled(bench.now)
    assert 67.0 <= bench.now <= 7.0 + 60.0 + 11.0


def test_order_dependent_roots_wait_while_holding_task_leases() -> None:
    """A hidden waiter: it held what another could use. Here order is a column that needs a column.

    Whatever has to come first, a cell gets a lease when its call can be made, and gives it back
    when the call ends: all leases are calls at every moment (`Bench.run` checks that), and slots
    go to cells that are ready however many are not.
    """
    graph = {"first": [], "second": ["first"], "third": ["second"], "free": []}
    bench = Bench(graph, seeds(12), lambda c, t: FAILS if c.tries == 1 else OK, cap=3)
    bench.run()
    assert len(bench.complete) == 12
    busy: Counter[float] = Counter(time for time, _, _ in bench.started)
    assert bench.most_in_flight == 3
    assert max(busy.values()) <= 3


def test_salvage_has_an_end() -> None:
    bench = Bench(
        {"a": []},
        seeds(40),
        lambda cell, now: FAILS if cell.row.seed.row == 7 else OK,
        settings=CellRetries(1, 1e9),
    )
    bench.run()
    assert bench.gave_up == [7]
    assert sum(1 for _, row, _ in bench.started if row == 7) == 6  # two tries in three rounds
    assert len(bench.kinds("task_salvaged")) == 2


def test_row_groups_are_admitted_as_the_models_have_room() -> None:
    """With one slot per row of a group, one group at a time would leave most slots idle."""
    bench = Bench(CHAIN, seeds(64), always, cap=16, group_rows=2, groups_max=16)
    bench.run()
    assert bench.row_groups.peak_target > 4
    assert bench.now < 64 * 3 / 16 * 1.3


def test_groups_are_read_only_as_they_are_admitted() -> None:
    bench = Bench({"a": []}, seeds(8000), always, cap=4, group_rows=10)
    bench.run(until_s=10.0)
    assert bench.scheduler.open_rows <= 40
    assert len(bench.kinds("row_group_admitted")) < 20


def test_tenants_share_by_weight() -> None:
    rows = [RowSeed(row, kind=row % 2) for row in range(400)]
    bench = Bench({"a": []}, rows, always, tenants={"x": 3, "y": 1}, group_rows=400)
    bench.run(until_s=40.0)
    served = Counter(row % 2 for _, row, _ in bench.finished)
    assert served[0] == pytest.approx(3 * served[1], rel=0.1)


def test_columns_that_are_there_already_are_not_called_for() -> None:
    rows = [RowSeed(0, finished=(0, 1)), RowSeed(1, finished=(0,)), RowSeed(2)]
    bench = Bench(DIAMOND, rows, always)
    bench.run()
    calls = sorted((row, column) for _, row, column in bench.started)
    assert calls == [(0, 2), (0, 3), (1, 1), (1, 2), (1, 3), (2, 0), (2, 1), (2, 2), (2, 3)]
    assert sorted(bench.complete) == [0, 1, 2]


def test_rows_that_wait_for_one_model_do_not_hold_back_rows_of_another() -> None:
    """Model n fails for long; groups go on for column a, which needs m."""

    def answer(cell: DatasetCell, now: float) -> str:
        return FAILS if cell.column == 1 else OK

    bench = Bench(
        {"a": [], "b": []}, seeds(64), answer, cap=4, group_rows=4, models={"b": "n"}, groups_max=16
    )
    bench.run(until_s=20.0)
    assert sum(1 for _, _, column in bench.finished if column == 0) > 40


def test_stopping_starts_nothing_more_and_what_is_in_flight_ends() -> None:
    bench = Bench({"a": []}, seeds(100), always)
    bench.run(until_s=3.5)
    started = len(bench.started)
    bench.scheduler.stop()
    bench.run(until_s=10.0)
    assert len(bench.started) == started
    assert bench.scheduler.in_flight == 0
    assert bench.tasks.ledger.active == {}
    assert len(bench.complete) == started


@given(
    seed=st.integers(0, 10_000),
    rows=st.integers(1, 60),
    cap=st.integers(1, 6),
    group_rows=st.integers(1, 20),
    columns=st.integers(1, 5),
)
def test_every_row_ends_once_whatever_happens(
    seed: int, rows: int, cap: int, group_rows: int, columns: int
) -> None:
    stream = Stream(seed, "shape")
    names = [f"c{n}" for n in range(columns)]
    needs = {
        name: [above for above in names[:number] if stream.uniform() < 0.4]
        for number, name in enumerate(names)
    }
    troubles = [OK] * 12 + [FAILS] * 4 + [RATE_LIMITED] * 2 + [BAD]

    def answer(cell: DatasetCell, now: float) -> str:
        return troubles[stream.integer(0, len(troubles) - 1)]

    bench = Bench(
        needs,
        [RowSeed(row, kind=row % 3) for row in range(rows)],
        answer,
        cap=cap,
        group_rows=group_rows,
        tenants={"x": 1, "y": 2, "z": 5},
        settings=CellRetries(stream.integer(0, 3), 40.0),
        service_s=lambda cell: stream.exponential(1.0),
        models={"c1": "n", "c3": "n"},
    )
    bench.run()
    ended = bench.complete + bench.dropped + bench.gave_up
    assert len(set(ended)) == len(ended)
    if not bench.scheduler.is_stalled(bench.now):
        assert sorted(ended) == list(range(rows))
        assert bench.tasks.ledger.active == {}
        assert len(bench.tasks.queue) == 0
        assert (bench.scheduler.in_flight, bench.scheduler.resting) == (0, 0)
        assert (bench.scheduler.parked, bench.scheduler.open_rows) == (0, 0)
    done = {(row, column): time for time, row, column in bench.finished}
    assert len(done) == len(bench.finished)
    for time, row, column in bench.started:
        assert all(done[row, above] <= time for above in bench.graph.parents[column])
    for row in bench.complete:
        assert all((row, column) in done for column in range(columns))


@pytest.mark.parametrize(
    ("needs", "sentence"),
    [
        ({}, "there are no columns"),
        ({"a": ["a"]}, "in a cycle: a needs a"),
        ({"a": ["b"], "b": ["c"], "c": ["a"], "d": ["a"]}, "a needs b, b needs c, c needs a"),
        ({"x": [], "d": ["a"], "a": ["b"], "b": ["a"]}, "in a cycle: a needs b, b needs a"),
        ({"title": [], "b": ["titel"]}, "column b: needs 'titel', which is not a column"),
    ],
)
def test_columns_that_cannot_be(needs: dict[str, list[str]], sentence: str) -> None:
    with pytest.raises(InputError) as error:
        ColumnGraph(needs)
    assert sentence in str(error.value)


@pytest.mark.parametrize(("failing", "is_blocked"), [((0, 1), True), ((0,), False)])
def test_deferred_cells_hold_rows_back_only_when_all_need_what_they_wait_for(
    failing: tuple[int, ...], is_blocked: bool
) -> None:
    def answer(cell: DatasetCell, now: float) -> str:
        return FAILS if cell.column in failing else OK

    bench = Bench(
        {"a": [], "b": []}, seeds(40), answer, cap=1, group_rows=2, models={"a": "m", "b": "n"}
    )
    bench.run(until_s=30.0)
    reasons = {event.reason for event in bench.sink.events if event.kind == "row_group_blocked"}
    assert ("deferred_tasks" in reasons) == is_blocked


def test_a_job_reports_its_start_its_end_and_its_health() -> None:
    bench = Bench({"a": []}, seeds(40), always, cap=2)
    bench.scheduler.job_started(40, 0.0)
    bench.run(until_s=1.5)
    bench.scheduler.report_health(1.5, "periodic")
    bench.run()
    bench.scheduler.job_completed("complete", bench.now)
    told = [e for e in bench.sink.events if e.kind.startswith("scheduler_")]
    assert [(e.kind, e.reason) for e in told] == [
        ("scheduler_job_started", ""),
        ("scheduler_health_snapshot", "started"),
        ("scheduler_health_snapshot", "periodic"),
        ("scheduler_health_snapshot", "completed"),
        ("scheduler_job_completed", "complete"),
    ]
    assert told[0].data["rows"] == 40
    assert (told[2].data["in_flight"], told[2].data["blocked"]) == (2, {"no_capacity": 1})
    assert told[3].data["open_rows"] == 0
