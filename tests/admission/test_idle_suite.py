"""The idle suite in virtual time: small cases are exact, repeatable, and as good as promised."""

import msgspec
import pytest
from benchmarks.idle.cases import BEYOND, CASES, Case
from benchmarks.idle.clocks import run
from benchmarks.idle.drive import measure
from benchmarks.idle.meter import Measured, Meter
from benchmarks.idle.page import page
from benchmarks.idle.verdicts import judge
from hypothesis import given
from hypothesis import strategies as st

from windtunnel.admission.queues.groups import SharedResource

BY_NAME = {case.name: case for case in CASES + BEYOND}
SMALL = ("rows-64", "row-groups-1", "adaptive", "pressure-control", "pressure-advisory")


def measured(case: Case) -> Measured:
    return run(lambda: measure(case))


@pytest.fixture(scope="module")
def small() -> dict[str, Measured]:
    return {name: measured(BY_NAME[name]) for name in SMALL}


def test_small_cases_are_at_least_as_good_as_promised(small: dict[str, Measured]) -> None:
    rows = judge([BY_NAME[name] for name in SMALL], small)
    assert [row.case.name for row in rows] == list(SMALL)
    assert {row.case.name: row.faults for row in rows if row.faults} == {}


def test_a_wide_frontier_keeps_every_slot_serving(small: dict[str, Measured]) -> None:
    got = small["rows-64"]
    assert BY_NAME["rows-64"].is_wide
    assert got.effective >= 0.9
    assert got.effective == pytest.approx(got.utilisation) == pytest.approx(1.0)
    assert got.starved == 0.0
    # 64 rows of four pairs of 3.3 ms, on four slots.
    assert got.wall_s == pytest.approx(64 * 4 * 0.0033 / 4)


def test_one_row_at_a_time_can_use_one_slot_of_four(small: dict[str, Measured]) -> None:
    got = small["row-groups-1"]
    assert (got.utilisation, got.horizon) == pytest.approx((0.25, 0.75))
    assert got.queue_age_s_max == 0.0


def test_adaptive_row_groups_fill_the_slots_from_the_first_moment(
    small: dict[str, Measured],
) -> None:
    assert small["adaptive"].target_most == 8
    assert small["adaptive"].utilisation == pytest.approx(1.0)


def test_adaptive_row_groups_open_no_more_than_the_slots_need() -> None:
    """One group of 16 rows fills four slots by itself: eight may be open, and one is."""
    got = measured(Case("x", rows=64, group_rows=16, groups=8, adaptive=True))
    assert got.target_most == 1
    assert got.utilisation == pytest.approx(1.0)


def test_the_advisory_works_on_the_open_model_while_the_other_is_held(
    small: dict[str, Measured],
) -> None:
    control, advised = small["pressure-control"], small["pressure-advisory"]
    # 50 ms held, then 64 calls; or 32 meanwhile, 18 ms with nothing else to do, then 32.
    assert control.wall_s == pytest.approx(0.050 + 0.064)
    assert advised.wall_s == pytest.approx(0.050 + 0.032)
    assert control.leased_wait_s == pytest.approx(0.050)
    assert advised.leased_wait_s == pytest.approx(0.018)
    assert (control.first_column, advised.first_column) == ("a_pressed", "z_open")


def test_virtual_runs_are_the_same_run(small: dict[str, Measured]) -> None:
    for name in ("rows-64", "pressure-advisory"):
        assert measured(BY_NAME[name]) == small[name]


@pytest.mark.parametrize("case", BEYOND, ids=[case.name for case in BEYOND])
def test_refusals_failures_and_cancellations_leak_nothing(case: Case) -> None:
    (row,) = judge([case], {case.name: measured(case)})
    assert row.faults == []
    assert row.measured.left_over == 0


def test_what_is_worse_is_said(small: dict[str, Measured]) -> None:
    got = small["rows-64"]
    worse = msgspec.structs.replace(
        got, wall_s=2 * got.wall_s, effective=0.5, utilisation=0.5, idle=0.5, starved=0.5
    )
    (row,) = judge([BY_NAME["rows-64"]], {"rows-64": worse})
    assert len(row.faults) == 5
    assert row.faults[0] == (
        "effective use 50.0%, 50.0% of what bare sleepers reach; the target is 90%"
    )
    leaked = msgspec.structs.replace(got, left_over=1)
    (row,) = judge([BY_NAME["rows-64"]], {"rows-64": leaked})
    assert row.faults == ["1 leases or waiters are left over"]


def test_the_report_is_one_file_with_every_case(small: dict[str, Measured]) -> None:
    text = page([(False, judge([BY_NAME[name] for name in SMALL], small))])
    assert "5 of 5 cases" in text
    assert all(f"<td>{name}</td>" in text for name in SMALL)
    assert "http" not in text
    assert text.count("<rect") >= 2 * len(SMALL)


def test_every_case_of_the_others_is_there() -> None:
    assert len(CASES) == 22
    assert len({case.name for case in CASES + BEYOND}) == 26
    assert all(case.reported is not None for case in CASES)
    for case in CASES:
        assert case.reported is not None
        parts = case.reported.utilisation + case.reported.starved + case.reported.horizon
        assert parts == pytest.approx(1.0, abs=0.003)
        assert case.reported.policy_per_s <= case.most_per_s + 1.0


Step = tuple[int, int, int]


@given(st.lists(st.tuples(st.integers(0, 4), st.integers(0, 3), st.integers(1, 9)), min_size=1))
def test_the_meter_adds_up_what_an_obvious_sum_does(steps: list[Step]) -> None:
    """Each step: so many leased, so many queued, for so long."""
    resource = SharedResource("llm_wait", 0, 4)
    meter, now = Meter(resource), 0.0
    for leased, queued, lasts_s in steps:
        resource.leased, resource.queued = leased, queued
        meter.look(now)
        now += lasts_s
    meter.look(now)
    capacity = 4 * now
    busy = sum(leased * lasts for leased, _, lasts in steps) / capacity
    starved = sum((4 - leased) * lasts for leased, queued, lasts in steps if queued) / capacity
    assert meter.shares() == pytest.approx((busy, 1.0 - busy, starved))
    assert meter.in_flight_most == max(leased for leased, _, _ in steps)
