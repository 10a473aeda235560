"""Runs many plans in this process, in local worker processes or on a Ray cluster, and measures
each.

The result of a plan does not depend on the worker. Outcomes arrive as they are ready, each with the
index of its plan; sort by it for byte-identical output.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from functools import partial
from typing import Generic, TypeVar

from windtunnel.core.clock import cpu_s
from windtunnel.core.errors import InputError
from windtunnel.core.system.processes import Died, Processes, Raised, processors
from windtunnel.search.execution.cache import Cache
from windtunnel.search.execution.ray_cluster import LOCAL, RayCluster, check_place, connected
from windtunnel.search.measure import Answers, FailedRun, MeasuredRun, Outcome, measured
from windtunnel.search.point import address_of
from windtunnel.twin.scenario.plan import ScenarioPlan

__all__ = ["Workers", "SpreadTasks", "Outcome", "MeasuredRun", "FailedRun", "Answers", "LOCAL"]

PAYS_FROM_S = 3.0
"""The least remaining CPU time for which starting worker processes pays off."""

Task = TypeVar("Task")
Value = TypeVar("Value")


class SpreadTasks(ExitStack, Generic[Task, Value]):
    """Calls a function for many tasks in the given number of processes, or in as many as pay off.

    Without a number, the first task runs in this process, and its time estimates that of the
    others. Worker processes are kept until the context ends.
    """

    def __init__(self, call: Callable[[Task], Value], jobs: int | None) -> None:
        super().__init__()
        self._call = call
        self._jobs = jobs
        self._processes: Processes[Task, Value] | None = None

    def map(self, tasks: Sequence[Task]) -> Iterator[tuple[int, Value | Died]]:
        """Yields results as they are ready, each with the index of its task; a task's exception is
        raised."""
        most = processors() if self._jobs is None else self._jobs
        first = 1 if self._jobs is None and self._processes is None else 0
        here = len(tasks) if most == 1 else min(first, len(tasks))
        started_s = cpu_s()
        yield from self._here(tasks, 0, here)
        left = len(tasks) - here
        if first and (cpu_s() - started_s) * left < PAYS_FROM_S:
            yield from self._here(tasks, here, len(tasks))
            return
        if self._processes is None:
            self._processes = self.enter_context(Processes(self._call, most))
        for number, answer in self._processes.map(tasks[here:]):
            if isinstance(answer, Raised):
                raise answer.error
            yield here + number, answer if isinstance(answer, Died) else answer.value

    def _here(self, tasks: Sequence[Task], first: int, end: int) -> Iterator[tuple[int, Value]]:
        for number in range(first, end):
            yield number, self._call(tasks[number])


class Workers(ExitStack):
    """Runs plans and measures them; a cluster stays connected until the context ends."""

    def __init__(
        self,
        *,
        on: str = LOCAL,
        jobs: int | None = None,
        cache: Cache | None = None,
        memory_bytes: int | None = None,
    ) -> None:
        """`on` is where plans run: `local`, or a Ray cluster (`ray`, `auto` or `ray://HOST:PORT`).

        `jobs` is how many run at once (None: as many as pay off). Runs found in `cache` are not
        repeated, and finished runs are stored there, except failures. All runs on one machine may
        together use `memory_bytes` (None: most of what is available); a run that would use more
        fails.
        """
        if jobs is not None and jobs < 1:
            raise InputError(f"jobs is {jobs}", allowed="1 or more, or None for as many as pay off")
        check_place(on)
        super().__init__()
        self._on = on
        self._jobs = jobs
        self._cache = cache
        self._memory_bytes = memory_bytes
        self.found = 0
        """How many of the last plans were found in the cache."""
        most = processors() if jobs is None else jobs
        one_run = partial(measured, memory_bytes=memory_bytes, processes=most)
        self._local = self.enter_context(SpreadTasks[ScenarioPlan, Outcome](one_run, jobs))
        self._cluster: RayCluster | None = None

    def __enter__(self) -> "Workers":
        if self._on != LOCAL:
            self._cluster = self.enter_context(connected(self._on, self._jobs, self._memory_bytes))
        return self

    def evaluate(self, plans: Sequence[ScenarioPlan]) -> Answers:
        """Yields the outcomes of all plans as they end, each with the index of its plan."""
        cache = self._cache
        if cache is None:
            yield from self._run(plans)
            return
        missing = []
        self.found = 0
        addresses = [address_of(plan) for plan in plans]
        for number, address in enumerate(addresses):
            metrics = cache.find(address)
            if metrics is None:
                missing.append(number)
            else:
                self.found += 1
                yield number, MeasuredRun(metrics)
        for place, outcome in self._run([plans[number] for number in missing]):
            number = missing[place]
            if isinstance(outcome, MeasuredRun):
                cache.keep(addresses[number], outcome.metrics)
            yield number, outcome

    def _run(self, plans: Sequence[ScenarioPlan]) -> Answers:
        if self._cluster is not None:
            yield from self._cluster.evaluate(plans)
            return
        for number, answer in self._local.map(plans):
            if isinstance(answer, Died):
                how = f"signal {-answer.status}" if answer.status < 0 else f"status {answer.status}"
                hint = "memory may have been short: fewer --jobs leave more to each"
                what = f"its worker process died during the run, by {how} ({hint})"
                yield number, FailedRun(what)
            else:
                yield number, answer
