"""A cycle of task admission, compiled: select, acquire, commit, release, with few and many groups.

Capacity is 64 and always full, so every cycle frees and takes a slot; the tasks request
`submission`, `llm_wait` and their model, and the policy is bounded borrowing, the default.
"""

from benchmarks.claim import Claim, insist_on_compiled, least_cpu_s, report
from windtunnel.admission.leases import TaskLease
from windtunnel.admission.queues.groups import GroupShare
from windtunnel.admission.tasks.admission import LLM_WAIT, SUBMISSION, TaskAdmission

CAPACITY = 64
CYCLES = 100_000


class Busy:
    """A controller at full capacity with a queue that never empties."""

    def __init__(self, groups: int, tasks: int, models: int) -> None:
        limits = {f"request:p/m{number}": CAPACITY // models or 1 for number in range(models)}
        self.admission = TaskAdmission(
            "bench", {SUBMISSION: 2 * CAPACITY, LLM_WAIT: CAPACITY} | limits
        )
        lanes = [self.admission.demand({SUBMISSION: 1, LLM_WAIT: 1, name: 1}) for name in limits]
        specs = [GroupShare(f"g{number}", admitted_limit=8) for number in range(groups)]
        for number in range(tasks):
            group = number % groups
            self.admission.enqueue(f"t{number}", specs[group], lanes[group % models], 0.0)
        self.leases: list[TaskLease] = []
        while (selection := self.admission.select()) is not None:
            self.leases.append(self.admission.admit(selection, 0.0))
        assert len(self.leases) == CAPACITY

    def cycle(self) -> None:
        """In each round one lease is released and the next task takes its place."""
        admission, leases = self.admission, self.leases
        for number in range(CYCLES):
            admission.release(leases[number % CAPACITY], 1.0)
            selection = admission.select()
            assert selection is not None
            lease = admission.acquire(selection, 1.0)
            assert isinstance(lease, TaskLease)
            admission.commit(selection, 1.0)
            leases[number % CAPACITY] = lease


def microseconds(groups: int, tasks: int, models: int = 1) -> float:
    """Microseconds per cycle: the least of three parts of a long queue."""
    busy = Busy(groups, tasks + 3 * CYCLES, models)
    return least_cpu_s(busy.cycle) / CYCLES * 1e6


def main() -> None:
    insist_on_compiled()
    for groups, tasks, most in ((10, 10_000, 4.0), (10_000, 1_000_000, 8.0)):
        claim = Claim(
            f"admission cycle, {groups:,} groups, {tasks:,} tasks wait",
            ours=microseconds(groups, tasks),
            baseline=most,
            most=1.0,
            unit="CPU us",
            against="the target",
        )
        report(claim)
    report(
        Claim(
            "admission cycle, 64 groups on 64 models",
            ours=microseconds(64, 10_000, models=64),
            baseline=microseconds(64, 10_000),
            most=1.5,
            unit="CPU us",
            against="on one model",
        )
    )


if __name__ == "__main__":
    main()
