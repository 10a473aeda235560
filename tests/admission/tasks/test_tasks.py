"""Task admission: resources, leases, shares, borrowing, and the reasons it gives."""

import sys
from collections.abc import Callable
from types import FrameType

import pytest

import windtunnel
from tests.admission.tasks.admitting import admit_next
from windtunnel.admission.leases import Lease, TaskLease
from windtunnel.admission.queues.groups import GroupShare
from windtunnel.admission.reasons import ReleaseResult, TaskDenial
from windtunnel.admission.tasks.admission import LLM_WAIT, SUBMISSION, TaskAdmission
from windtunnel.admission.tasks.sharing import (
    BoundedBorrow,
    SharePolicy,
    StrictFair,
    newly_borrowed,
    reserve,
    strict_share,
)
from windtunnel.core.errors import InputError

MODEL = {SUBMISSION: 1, LLM_WAIT: 1}


class Floor:
    """Task admission with groups that are filled and run by name."""

    def __init__(self, policy: SharePolicy | None = None, **limits: int) -> None:
        self.tasks = TaskAdmission("run-1", {SUBMISSION: 1000, LLM_WAIT: 8} | limits, policy)
        self.made = 0

    def add(
        self,
        group: str,
        count: int,
        amounts: dict[str, int] = MODEL,
        *,
        weight: int = 1,
        limit: int = 4,
    ) -> None:
        spec = GroupShare(group, weight, admitted_limit=limit)
        for _ in range(count):
            self.made += 1
            self.tasks.enqueue(f"{group}{self.made}", spec, self.tasks.demand(amounts), 0.0)

    def run(self, most: int = 1000) -> list[TaskLease]:
        leases: list[TaskLease] = []
        while len(leases) < most and (lease := admit_next(self.tasks)) is not None:
            leases.append(lease)
        return leases

    def running(self, group: str) -> int:
        return sum(lease.group_key == group for lease in self.tasks.ledger.active.values())

    def debt(self, group: str, resource: str = LLM_WAIT) -> int:
        return self.tasks.queue.groups[group].account(self.tasks.resource(resource)).debt


@pytest.mark.parametrize(
    ("limit", "own", "together", "admitted", "round_up", "share"),
    [
        (8, 1, 2, 100, True, 4),
        (8, 1, 3, 100, True, 3),
        (8, 1, 3, 100, False, 2),
        (64, 64, 80, 128, True, 52),
        (64, 16, 80, 32, True, 13),
        (8, 1, 100, 100, False, 1),
        (8, 4, 5, 2, True, 2),
        (1, 1, 10, 10, True, 1),
        (0, 1, 2, 10, True, 0),
        (4, 9, 10, 100, True, 4),
    ],
)
def test_strict_shares(
    limit: int, own: int, together: int, admitted: int, round_up: bool, share: int
) -> None:
    assert strict_share(limit, own, together, admitted, round_up=round_up) == share


@pytest.mark.parametrize(
    ("amount", "projected", "strict", "debt", "fresh"),
    [(1, 4, 4, 0, 0), (1, 5, 4, 0, 1), (3, 6, 4, 0, 2), (1, 6, 4, 2, 0), (1, 6, 4, 1, 1)],
)
def test_what_a_lease_adds_to_debt(
    amount: int, projected: int, strict: int, debt: int, fresh: int
) -> None:
    assert newly_borrowed(amount, projected, strict, debt) == fresh


@pytest.mark.parametrize(
    ("limit", "fraction", "kept"), [(64, 0.0, 0), (10, 0.25, 3), (64, 0.5, 8), (8, 0.125, 1)]
)
def test_the_reserve_for_newcomers(limit: int, fraction: float, kept: int) -> None:
    assert reserve(limit, fraction) == kept


def test_a_lone_group_may_use_everything() -> None:
    for policy in (StrictFair(), BoundedBorrow()):
        floor = Floor(policy)
        floor.add("a", 20, limit=2)
        assert len(floor.run()) == 8


def test_a_full_resource_is_denied_with_its_numbers() -> None:
    floor = Floor()
    floor.add("a", 20)
    floor.run()
    denied = floor.tasks.explain_blocked()["a"]
    assert denied.reason is TaskDenial.NO_CAPACITY
    assert (denied.resource, denied.requested, denied.available) == (LLM_WAIT, 1, 0)


def test_strict_fair_yields_at_its_limit_to_those_who_could_go() -> None:
    floor = Floor(StrictFair())
    floor.add("a", 20, limit=2)
    floor.run(2)
    floor.add("b", 3, limit=4)
    assert [lease.group_key for lease in floor.run(3)] == ["b", "b", "b"]
    assert [lease.group_key for lease in floor.run()] == ["a", "a", "a"]


def test_group_cap_yields_only_to_overlapping_peers_that_could_go() -> None:
    floor = Floor(StrictFair(), **{"request:p/m": 1})
    floor.add("a", 20, limit=1)
    floor.run(1)
    floor.add("local", 5, {SUBMISSION: 1}, limit=0)
    assert floor.tasks.evaluate(floor.tasks.queue.groups["a"]) is None
    floor.add("b", 5, MODEL | {"request:p/m": 1}, limit=0)
    denied = floor.tasks.evaluate(floor.tasks.queue.groups["a"])
    assert denied is not None
    assert (denied.reason, denied.resource) == (TaskDenial.GROUP_CAP, LLM_WAIT)
    while floor.running("b") == 0:
        floor.run(1)
    assert floor.tasks.evaluate(floor.tasks.queue.groups["a"]) is None


def test_borrowing_fills_the_pool_and_debt_gives_way() -> None:
    floor = Floor(BoundedBorrow())
    floor.add("hot", 40, limit=100)
    leases = floor.run()
    assert (len(leases), floor.debt("hot")) == (8, 4)
    floor.add("peer", 10, limit=100)
    assert floor.tasks.release(leases[0], 1.0) is ReleaseResult.RELEASED
    assert floor.debt("hot") == 3
    denied = floor.tasks.evaluate(floor.tasks.queue.groups["hot"])
    assert denied is not None
    assert denied.reason is TaskDenial.BORROW_DEBT
    assert [lease.group_key for lease in floor.run()] == ["peer"]


@pytest.mark.parametrize(
    ("rule", "debts"), [("group", [4, 3, 2, 1, 0, 0]), ("lease", [4, 4, 4, 4, 4, 3])]
)
def test_group_level_borrow_debt(rule: str, debts: list[int]) -> None:
    """By group every returned lease repays; by lease only those that borrowed."""
    floor = Floor(BoundedBorrow(repayment=rule))
    floor.add("hot", 40, limit=100)
    leases = floor.run()
    seen = [floor.debt("hot")]
    for lease in leases[:5]:
        floor.tasks.release(lease, 1.0)
        seen.append(floor.debt("hot"))
    assert seen == debts


def test_a_ceiling_that_was_asked_for_is_never_passed() -> None:
    floor = Floor(BoundedBorrow(ceiling=2))
    floor.add("a", 20, limit=100)
    assert len(floor.run()) == 6
    assert floor.tasks.explain_blocked()["a"].reason is TaskDenial.BORROW_DEBT
    by_name = Floor(BoundedBorrow(ceilings={("a", LLM_WAIT): 0}))
    by_name.add("a", 20, limit=100)
    assert len(by_name.run()) == 4


def test_a_reserve_stays_free_for_newcomers() -> None:
    floor = Floor(BoundedBorrow(reserve_fraction=0.25))
    floor.add("a", 20, limit=100)
    assert len(floor.run()) == 6
    floor.add("b", 5, limit=100)
    assert [lease.group_key for lease in floor.run()] == ["b", "b"]


@pytest.mark.parametrize("rule", ["group", "lease"])
def test_bounded_borrow_leaves_no_slot_idle_with_unequal_weights(rule: str) -> None:
    floor = Floor(BoundedBorrow(repayment=rule), **{LLM_WAIT: 64})
    floor.add("a", 600, weight=64, limit=128)
    floor.add("b", 600, weight=16, limit=32)
    leases = floor.run()
    assert len(leases) == 64
    for number in range(400):
        assert floor.tasks.release(leases.pop(number * 7 % 64), 1.0) is ReleaseResult.RELEASED
        leases += floor.run()
        assert len(leases) == 64
    assert 50 <= floor.running("a") <= 53


def test_no_fair_share_is_starved_by_a_heavy_peer() -> None:
    floor = Floor(BoundedBorrow())
    floor.add("heavy", 500, weight=7, limit=100)
    leases = floor.run()
    floor.add("light", 500, limit=100)
    for _ in range(60):
        floor.tasks.release(leases.pop(0), 1.0)
        leases += floor.run()
    assert floor.running("light") == 1


def test_a_stale_selection_gives_its_lease_back() -> None:
    floor = Floor()
    floor.add("a", 2)
    selection = floor.tasks.select()
    assert selection is not None
    lease = floor.tasks.acquire(selection, 0.0)
    assert isinstance(lease, TaskLease)
    floor.add("b", 1)
    assert floor.tasks.commit(selection, 0.0) is None
    assert floor.tasks.release(lease, 0.0) is ReleaseResult.RELEASED
    assert floor.tasks.resource(LLM_WAIT).leased == 0
    assert len(floor.run()) == 3


def test_releases_are_told_apart_and_only_one_counts() -> None:
    floor = Floor()
    floor.add("a", 3)
    first, second, _ = floor.run()
    release = floor.tasks.release
    before = floor.tasks.resource(LLM_WAIT).leased
    stale = Lease(second.id, "run-1", "another task", "a", 0.0)
    foreign = Lease(second.id, "run-0", second.work_id, "a", 0.0)
    unknown = Lease(99, "run-1", "a1", "a", 0.0)
    assert release(stale, 1.0) is ReleaseResult.STALE
    assert release(foreign, 1.0) is ReleaseResult.WRONG_GENERATION
    assert release(unknown, 1.0) is ReleaseResult.UNKNOWN
    assert floor.tasks.resource(LLM_WAIT).leased == before
    assert release(first, 1.0) is ReleaseResult.RELEASED
    assert release(first, 1.0) is ReleaseResult.DUPLICATE
    assert floor.tasks.resource(LLM_WAIT).leased == before - 1
    copy = Lease(second.id, "run-1", second.work_id, "a", 5.0)
    assert release(copy, 1.0) is ReleaseResult.RELEASED
    assert floor.tasks.ledger.refused == {
        ReleaseResult.STALE: 1,
        ReleaseResult.WRONG_GENERATION: 1,
        ReleaseResult.UNKNOWN: 1,
        ReleaseResult.DUPLICATE: 1,
    }


def test_a_duplicate_release_is_known_however_late() -> None:
    """Bounded history: a duplicate older than 8192 releases was reported as unknown."""
    floor = Floor()
    floor.add("a", 10_000)
    (first,) = floor.run(1)
    floor.tasks.release(first, 0.0)
    for _ in range(9_000):
        (lease,) = floor.run(1)
        floor.tasks.release(lease, 0.0)
    assert floor.tasks.release(first, 1.0) is ReleaseResult.DUPLICATE
    assert len(floor.tasks.ledger.active) == 0


def test_shutting_down_selects_nothing_and_says_so() -> None:
    floor = Floor()
    floor.add("a", 3)
    (lease,) = floor.run(1)
    floor.tasks.shut_down()
    assert floor.tasks.select() is None
    assert floor.tasks.explain_blocked()["a"].reason is TaskDenial.SHUTDOWN
    assert floor.tasks.release(lease, 1.0) is ReleaseResult.RELEASED


def test_bad_demands_and_limits_get_a_sentence() -> None:
    floor = Floor()
    with pytest.raises(InputError, match=r"no resource 'llm_wiat'.*did you mean 'llm_wait'"):
        floor.tasks.demand({"llm_wiat": 1})
    with pytest.raises(InputError, match="0 of llm_wait cannot be asked for"):
        floor.tasks.demand({LLM_WAIT: 0})
    with pytest.raises(InputError, match="resource llm_wait: 0 is not a limit"):
        Floor(None, **{LLM_WAIT: 0})
    with pytest.raises(InputError, match="'lent' is not a debt rule; allowed: group, lease"):
        BoundedBorrow(repayment="lent")


@pytest.mark.skipif(windtunnel.FORM == "compiled", reason="compiled calls cannot be counted")
def test_a_cycle_costs_a_logarithm_of_the_groups() -> None:
    """Calls that selecting, leasing and releasing make: linear would be 500 times as many."""
    counts = []
    for groups in (10, 5000):
        floor = Floor(None, **{LLM_WAIT: 4})
        for number in range(groups):
            floor.add(f"g{number}", 2, MODEL)
        held = floor.run()
        counts.append(calls_of(cycles(floor.tasks, held)))
    assert counts[1] <= 3 * counts[0]


def cycles(tasks: TaskAdmission, held: list[TaskLease]) -> Callable[[], None]:
    def work() -> None:
        for lease in held:
            tasks.release(lease, 1.0)
            assert admit_next(tasks, 1.0) is not None

    return work


def calls_of(work: Callable[[], None]) -> int:
    made = 0

    def count(frame: FrameType, event: str, about: object) -> None:
        nonlocal made
        made += event == "call"

    sys.setprofile(count)
    try:
        work()
    finally:
        sys.setprofile(None)
    return made


def test_selecting_costs_the_same_whatever_waits_in_closed_lanes() -> None:
    """Queue scan cost: groups whose model is full are not looked at again and again."""
    limits = {f"request:p/m{number}": 1 for number in range(200)}
    floor = Floor(None, **limits, **{LLM_WAIT: 1000})
    for name in limits:
        floor.add(name, 5, MODEL | {name: 1})
    assert len(floor.run()) == 200
    bays = floor.tasks.queue._bays
    assert sum(len(bay.lanes) for bay in bays) == 0
    assert floor.tasks.select() is None
