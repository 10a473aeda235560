"""Runs many plans, here, in processes of this machine or on a Ray cluster, and measures each.

What comes of a plan does not depend on who runs it. Answers come as they are ready, with the
numbers of their plans: for equal bytes, put them in that order.
"""

from collections.abc import Sequence
from contextlib import ExitStack
from types import TracebackType
from typing import Self

from windtunnel.core.clock import monotonic_s
from windtunnel.core.errors import InputError
from windtunnel.core.processes import Died, Processes, Raised, processors
from windtunnel.search.execution.cache import Cache
from windtunnel.search.execution.ray_cluster import LOCAL, RayCluster, check_place, connected
from windtunnel.search.measure import Answers, FailedRun, MeasuredRun, Outcome, measured
from windtunnel.search.point import address_of
from windtunnel.search.repeats.runs import PAYS_FROM_S
from windtunnel.twin.scenario.plan import ScenarioPlan

__all__ = ["Workers", "evaluate", "Outcome", "MeasuredRun", "FailedRun", "Answers", "LOCAL"]


def evaluate(
    plans: Sequence[ScenarioPlan],
    *,
    on: str = LOCAL,
    jobs: int | None = None,
    cache: Cache | None = None,
) -> Answers:
    """The outcomes of all plans as they end, each with the number of its plan."""
    with Workers(on=on, jobs=jobs, cache=cache) as workers:
        yield from workers.evaluate(plans)


class Workers:
    """Runs plans; processes that were started stay until the end, for the next ones."""

    def __init__(
        self, *, on: str = LOCAL, jobs: int | None = None, cache: Cache | None = None
    ) -> None:
        """`on` is where they run: `local`, or a Ray (`ray`, `auto` or `ray://HOST:PORT`).

        `jobs` is how many run at once, None: as many as pay. What a `cache` has is not run again,
        and what ends is kept there; failures are not.
        """
        if jobs is not None and jobs < 1:
            raise InputError(f"jobs is {jobs}", allowed="1 or more, or None for as many as pay")
        check_place(on)
        self._on = on
        self._jobs = jobs
        self._cache = cache
        self.found = 0
        """How many of the last plans the cache had."""
        self._places = ExitStack()
        self._processes: Processes[ScenarioPlan, Outcome] | None = None
        self._cluster: RayCluster | None = None

    def __enter__(self) -> Self:
        if self._on != LOCAL:
            self._cluster = self._places.enter_context(connected(self._on, self._jobs))
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._places.close()

    def evaluate(self, plans: Sequence[ScenarioPlan]) -> Answers:
        """The outcomes of all plans as they end, each with the number of its plan."""
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
        jobs = processors() if self._jobs is None else self._jobs
        if jobs == 1:
            yield from _here(plans, 0)
            return
        first = 0
        if self._jobs is None and self._processes is None and plans:
            # How long the first takes tells whether processes are worth their start.
            started_s = monotonic_s()
            outcome = measured(plans[0])
            left_s = (monotonic_s() - started_s) * (len(plans) - 1)
            yield 0, outcome
            if left_s < PAYS_FROM_S:
                yield from _here(plans, 1)
                return
            first = 1
        if self._processes is None:
            self._processes = self._places.enter_context(Processes(measured, jobs))
        yield from _elsewhere(self._processes, plans, first)


def _here(plans: Sequence[ScenarioPlan], first: int) -> Answers:
    for number in range(first, len(plans)):
        yield number, measured(plans[number])


def _elsewhere(
    processes: Processes[ScenarioPlan, Outcome], plans: Sequence[ScenarioPlan], first: int
) -> Answers:
    for number, answer in processes.map(plans[first:]):
        if isinstance(answer, Raised):
            raise answer.error
        if isinstance(answer, Died):
            how = f"signal {-answer.status}" if answer.status < 0 else f"status {answer.status}"
            hint = "memory may have been short: fewer --jobs leave more to each"
            what = f"its worker process ended in the middle of it, by {how} ({hint})"
            yield first + number, FailedRun(what)
        else:
            yield first + number, answer.value
