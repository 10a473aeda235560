"""Task admission against an oracle that looks at everything every time, and what always holds."""

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from tests.admission.invariants import TASK_INVARIANTS
from tests.admission.queues.reference_queue import ReferenceQueue
from tests.admission.tasks.admitting import admit_next
from windtunnel.admission.leases import TaskLease
from windtunnel.admission.queues.groups import (
    READY,
    REFUSED,
    YIELDING,
    DemandLane,
    GroupShare,
    QueuedWork,
)
from windtunnel.admission.reasons import ReleaseResult
from windtunnel.admission.tasks.admission import LLM_WAIT, SUBMISSION, TaskAdmission
from windtunnel.admission.tasks.sharing import BoundedBorrow, SharePolicy, StrictFair, strict_share
from windtunnel.core.invariants import InvariantChecker

LIMITS = {SUBMISSION: 6, LLM_WAIT: 4, "request:p/m": 2, "request:p/n": 3}
DEMANDS: list[dict[str, int]] = [
    {SUBMISSION: 1},
    {SUBMISSION: 1, LLM_WAIT: 1},
    {SUBMISSION: 1, LLM_WAIT: 1, "request:p/m": 1},
    {SUBMISSION: 1, LLM_WAIT: 1, "request:p/n": 1},
    {SUBMISSION: 2, LLM_WAIT: 2, "request:p/n": 2},
]
GROUPS = [
    GroupShare(f"g{n}", weight=1 + n % 4, admitted_limit=(0, 1, 2, 8)[n % 4]) for n in range(7)
]
CEILINGS = {("g2", LLM_WAIT): 0, ("g3", "request:p/n"): 1}


class Oracle:
    """Scans the queue and the leases to judge each head, by the formulas of the policies."""

    def __init__(self, policy: str, machine: "TaskMachine") -> None:
        self.policy = policy
        self.machine = machine

    def available(self, name: str) -> int:
        taken = sum(lease.amounts().get(name, 0) for lease in self.machine.leases)
        return self.machine.limits[name] - taken

    def fits(self, head: QueuedWork) -> bool:
        return all(self.available(name) >= n for name, n in head.lane.request().items())

    def rivals(self, head: QueuedWork, name: str) -> list[int]:
        """Weights of other groups whose head wants the resource and lacks nothing narrow."""
        slow = self.machine.slow
        return [
            slow.spec(other.group.key).weight
            for other in slow.heads()
            if other.group.key != head.group.key
            and name in other.lane.request()
            and all(
                self.available(narrow) >= amount
                for narrow, amount in other.lane.request().items()
                if narrow not in (SUBMISSION, LLM_WAIT)
            )
        ]

    def standing(self, head: QueuedWork) -> int:
        spec, request = head.group, head.lane.request()
        if spec.admitted_limit == 0:
            return READY
        considered = [name for name in request if name != SUBMISSION] or [SUBMISSION]
        mine = [lease for lease in self.machine.leases if lease.group_key == spec.key]
        if self.policy == "strict":
            pressed = any(self.rivals(head, name) for name in considered)
            return YIELDING if pressed and len(mine) >= spec.admitted_limit else READY
        for name in sorted(request, key=lambda n: (n == SUBMISSION, n == LLM_WAIT, n)):
            amount = request[name]
            projected = amount + sum(lease.amounts().get(name, 0) for lease in mine)
            weights = self.rivals(head, name)
            together = sum(weights) + spec.weight if weights else 2 * spec.weight
            limit = self.machine.limits[name]
            strict = strict_share(limit, spec.weight, together, spec.admitted_limit, round_up=True)
            debt = self.machine.debt(spec.key, name)
            if name in considered and weights:
                if debt > 0 or projected > strict:
                    return YIELDING
            else:
                fresh = max(0, min(amount, projected - strict - debt))
                ceiling = CEILINGS.get((spec.key, name), max(0, limit - strict))
                if fresh > 0 and debt + fresh > ceiling:
                    return REFUSED
        return READY


class TaskMachine(RuleBasedStateMachine):
    @initialize(policy=st.sampled_from(["strict", "group", "lease"]))
    def start(self, policy: str) -> None:
        chosen: SharePolicy = (
            StrictFair()
            if policy == "strict"
            else BoundedBorrow(repayment=policy, ceilings=CEILINGS)
        )
        self.tasks = TaskAdmission("run-1", LIMITS, chosen)
        self.limits = dict(LIMITS)
        self.lanes: list[DemandLane] = [self.tasks.demand(demand) for demand in DEMANDS]
        self.slow = ReferenceQueue()
        self.leases: list[TaskLease] = []
        self.oracle = Oracle(policy, self)
        self.now = 0.0

    def debt(self, group: str, resource: str) -> int:
        state = self.tasks.queue.groups.get(group)
        index = self.tasks.resource(resource).index
        return state.accounts[index].debt if state and index in state.accounts else 0

    @rule(number=st.integers(0, 60), group=st.sampled_from(GROUPS), lane=st.integers(0, 4))
    def enqueue(self, number: int, group: GroupShare, lane: int) -> None:
        item = QueuedWork(str(number), group, self.lanes[lane], None)
        accepted = self.tasks.enqueue(str(number), group, self.lanes[lane], self.now)
        assert accepted == self.slow.enqueue(item)

    @rule(number=st.integers(0, 60))
    def discard(self, number: int) -> None:
        assert self.tasks.discard(str(number), self.now) == self.slow.discard(str(number))

    @rule()
    def admit(self) -> None:
        expected = self.slow.select(self.oracle.fits, self.oracle.standing)
        lease = admit_next(self.tasks, self.now)
        if expected is None:
            assert lease is None
            return
        assert lease is not None
        assert lease.work_id == expected[0].id
        assert self.slow.commit(*expected)
        self.leases.append(lease)

    @precondition(lambda self: len(self.leases) > 0)
    @rule(pick=st.integers(0, 20))
    def release(self, pick: int) -> None:
        lease = self.leases.pop(pick % len(self.leases))
        assert self.tasks.release(lease, self.now) is ReleaseResult.RELEASED
        assert self.tasks.release(lease, self.now) is ReleaseResult.DUPLICATE

    @invariant()
    def its_own_invariants_hold(self) -> None:
        if hasattr(self, "tasks"):
            InvariantChecker(TASK_INVARIANTS).run(self.tasks, "a test")

    @invariant()
    def leases_are_conserved_and_never_too_many(self) -> None:
        if not hasattr(self, "tasks"):
            return
        assert sorted(self.tasks.ledger.active) == sorted(lease.id for lease in self.leases)
        for resource in self.tasks.resources():
            held = [lease.amounts().get(resource.name, 0) for lease in self.leases]
            assert resource.leased == sum(held)
            debts = 0
            for key in {spec.key for spec in GROUPS}:
                debt = self.debt(key, resource.name)
                mine = [lease for lease in self.leases if lease.group_key == key]
                assert 0 <= debt <= sum(lease.amounts().get(resource.name, 0) for lease in mine)
                debts += debt
            assert debts <= resource.leased

    @invariant()
    def the_queue_agrees_on_demand(self) -> None:
        if hasattr(self, "tasks"):
            queued = {r.name: r.queued for r in self.tasks.resources() if r.queued}
            assert queued == self.slow.demand()


TestTaskMachine = TaskMachine.TestCase
TestTaskMachine.settings = settings(stateful_step_count=80)
