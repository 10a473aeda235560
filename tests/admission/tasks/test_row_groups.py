"""Adaptive row groups: when the target rises, when it falls, and why it stays."""

import pytest

from windtunnel.admission.tasks.row_groups import (
    RowGroupAdmission,
    RowGroupReason,
    RowGroupView,
    rows_guard,
)
from windtunnel.core.errors import InputError


def view(
    *,
    active: int = 1,
    next_rows: int = 10,
    admitted_rows: int = 10,
    queued_tasks: int = 0,
    queued_llm: int = 0,
    leased_llm: int = 1,
    llm_limit: int = 8,
    deferred: bool = False,
) -> RowGroupView:
    return RowGroupView(
        active=active,
        next_rows=next_rows,
        admitted_rows=admitted_rows,
        queued_tasks=queued_tasks,
        queued_llm=queued_llm,
        leased_llm=leased_llm,
        llm_limit=llm_limit,
        is_deferred_blocking=deferred,
    )


HUNGRY = view()
FED = view(queued_tasks=3, queued_llm=7)
OVERFED = view(queued_tasks=30, queued_llm=30, leased_llm=8)


def admission(hard_cap: int = 4) -> RowGroupAdmission:
    return RowGroupAdmission(hard_cap, in_flight_max=16, rows_guard=100)


@pytest.mark.parametrize(
    ("seen", "reason"),
    [
        (view(next_rows=0), RowGroupReason.NO_PENDING),
        (view(admitted_rows=95), RowGroupReason.ADMITTED_ROWS),
        (view(active=0), RowGroupReason.BELOW_TARGET),
        (view(deferred=True), RowGroupReason.DEFERRED),
        (view(queued_tasks=64), RowGroupReason.QUEUED_TASKS),
        (view(llm_limit=0, leased_llm=0), RowGroupReason.NO_LLM_WAIT),
        (view(leased_llm=8), RowGroupReason.SATURATED),
        (view(queued_tasks=7, queued_llm=7), RowGroupReason.QUEUED_DEMAND),
        (view(queued_tasks=1, queued_llm=1), RowGroupReason.SETTLING),
        (view(admitted_rows=0, next_rows=500), RowGroupReason.HORIZON_LIMITED),
        (HUNGRY, RowGroupReason.HORIZON_LIMITED),
    ],
)
def test_each_reason(seen: RowGroupView, reason: RowGroupReason) -> None:
    groups = admission()
    decision = groups.decide(seen, 0.0)
    assert decision.reason is reason
    assert decision.target == (2 if reason is RowGroupReason.HORIZON_LIMITED else 1)


def test_the_target_rises_to_the_hard_cap_while_models_idle() -> None:
    groups = admission(3)
    targets = [groups.decide(view(active=active), 0.0).target for active in (1, 2, 3, 3, 3)]
    assert targets == [2, 3, 3, 3, 3]
    assert groups.blocked == {RowGroupReason.HARD_CAP: 3}


def test_additive_only_row_group_admission() -> None:
    """The target also falls, one at a time, while ready work only piles up."""
    groups = admission(4)
    for active in (1, 2, 3):
        groups.decide(view(active=active), 0.0)
    decisions = [groups.decide(OVERFED, 0.0) for _ in range(20)]
    assert [decision.target for decision in decisions][::4] == [4, 3, 2, 1, 1]
    assert {d.reason for d in decisions if d.target < d.before} == {RowGroupReason.OVERFED}
    assert (groups.target, groups.peak_target) == (1, 4)


def test_a_target_that_is_not_reached_does_not_rise() -> None:
    """A group that may start already is started first; one may be enough."""
    groups = admission()
    assert {groups.decide(view(active=0), 0.0).target for _ in range(9)} == {1}
    assert groups.may_admit(view(active=0))
    assert groups.decide(view(active=1), 0.0).target == 2


def test_a_bootstrap_wedge() -> None:
    """With nothing leased, queued demand must not keep the first groups out."""
    decision = admission().decide(view(leased_llm=0, queued_llm=9, queued_tasks=0), 0.0)
    assert decision.reason is RowGroupReason.HORIZON_LIMITED


def test_neither_hungry_nor_overfed_moves_nothing() -> None:
    groups = admission()
    groups.decide(HUNGRY, 0.0)
    assert {groups.decide(FED, 0.0).target for _ in range(30)} == {2}


def test_a_waver_does_not_raise_while_work_waits() -> None:
    groups = admission()
    light = view(queued_tasks=1, queued_llm=1)
    targets = [groups.decide(seen, 0.0).target for seen in (light, FED, light, FED, light, light)]
    assert targets == [1, 1, 1, 1, 1, 2]


def test_a_fixed_target_stays() -> None:
    groups = RowGroupAdmission(3, in_flight_max=16, rows_guard=100, adaptive=False)
    assert {groups.decide(seen, 0.0).target for seen in (HUNGRY, OVERFED) * 9} == {3}


def test_who_may_be_admitted() -> None:
    groups = admission()
    assert groups.may_admit(view(active=0, admitted_rows=0, next_rows=500))
    assert not groups.may_admit(view(active=0, admitted_rows=95))
    assert not groups.may_admit(view(active=1))
    assert not groups.may_admit(view(active=0, next_rows=0))


@pytest.mark.parametrize(
    ("records", "buffer_size", "guard"),
    [(100, 10, 100), (1_000_000, 1000, 8192), (1_000_000, 5000, 15000), (0, 10, 1)],
)
def test_the_guard_on_rows(records: int, buffer_size: int, guard: int) -> None:
    assert rows_guard(records, buffer_size) == guard


def test_a_bad_setting_gets_a_sentence() -> None:
    with pytest.raises(InputError, match="hard_cap: 0 is not possible"):
        RowGroupAdmission(0, 1, 1)
