"""Runs many plans and keeps part of each result, on several processors where that pays off.

The results are byte-identical to those of one processor: a run depends on its plan alone, and
results are returned in the order of the plans.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple, TypeVar

from windtunnel.core.errors import WindtunnelError
from windtunnel.core.system.processes import Died, processors
from windtunnel.search.execution.workers import SpreadTasks
from windtunnel.twin.ceiling import MemoryCeiling
from windtunnel.twin.run import run
from windtunnel.twin.scenario.plan import ScenarioPlan

T = TypeVar("T")
Want = Callable[[dict[str, Any]], T]
"""Extracts what to keep of a result. A worker imports it, so it must be a module-level function."""
RepeatProgress = Callable[[int, int], None]
"""Called with the number of finished runs, and the total."""


class RunStopped(WindtunnelError):
    """A run ended early, so its figures cannot be compared with others."""

    exit_code = 3


class Repeat(NamedTuple):
    """A plan to run, optionally with the step times of some pools scaled."""

    plan: ScenarioPlan
    step_scales: Mapping[str, float] = {}
    name: str | None = None
    """The name of the design, for errors."""


def run_all(
    repeats: Sequence[Repeat],
    want: Want[T],
    done: RepeatProgress,
    workers: int | None = None,
) -> list[T]:
    """Runs all, in `workers` processes, or in as many as pay off."""
    answers: dict[int, T] = {}
    one_run = partial(_one, want=want, processes=workers or processors())
    with SpreadTasks[Repeat, T](one_run, workers) as spread:
        for number, answer in spread.map(repeats):
            if isinstance(answer, Died):
                what = "a worker process ended before its run did"
                hint = "memory may be short: --jobs 1 runs one at a time"
                raise RunStopped(what, hint=hint)
            answers[number] = answer
            done(len(answers), len(repeats))
    return [answers[number] for number in range(len(repeats))]


def _one(repeat: Repeat, want: Want[T], processes: int) -> T:
    look = MemoryCeiling.of(None, processes).look
    try:
        result = run(repeat.plan, step_scales=repeat.step_scales, look=look).result
        if result["partial"] is not None:
            where = None if repeat.name is not None else f"seed {repeat.plan.seed}"
            raise RunStopped(f"the run ended early: {result['partial']}", where=where)
        return want(result)
    except WindtunnelError as error:
        if repeat.name is not None:
            error.say_of(repeat.name)
        raise
