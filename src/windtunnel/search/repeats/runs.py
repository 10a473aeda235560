"""Runs many plans and keeps what is wanted of each, on more than one processor where that pays.

The answers are those of one processor, to the byte: a run depends on its plan alone, and answers
come back in the order of the plans.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple, TypeVar

from windtunnel.core.clock import cpu_s
from windtunnel.core.errors import WindtunnelError
from windtunnel.core.processes import Died, Processes, Raised, processors
from windtunnel.twin.run import run
from windtunnel.twin.scenario.plan import ScenarioPlan

T = TypeVar("T")
Want = Callable[[dict[str, Any]], T]
"""What is kept of a result. A worker imports it, so it must be a function of a module."""
Progress = Callable[[int, int], None]
"""Called with the number of runs that have ended, and with that of all runs."""

PAYS_FROM_S = 3.0
"""CPU time still to come from which on other processes are worth starting."""


class Repeat(NamedTuple):
    """A plan to run, perhaps with the step times of some pools scaled."""

    plan: ScenarioPlan
    step_scales: Mapping[str, float] = {}
    name: str | None = None
    """The name of the design, for errors."""


def run_all(
    repeats: Sequence[Repeat],
    want: Want[T],
    done: Progress,
    workers: int | None = None,
) -> list[T]:
    """Runs all, with as many `workers` as given, or with as many as pay.

    Without a number, the first runs in this process, and its time estimates that of the others.
    """
    most = processors() if workers is None else workers
    first = len(repeats) if most == 1 else 1 if workers is None else 0
    started_s = cpu_s()
    answers = _here(repeats[:first], want, lambda count: done(count, len(repeats)))
    rest = repeats[first:]
    left_s = (cpu_s() - started_s) * len(rest)

    def more(count: int) -> None:
        done(first + count, len(repeats))

    if rest and (workers is not None or (len(rest) > 1 and left_s >= PAYS_FROM_S)):
        return answers + _elsewhere(rest, want, more, most)
    return answers + _here(rest, want, more)


def _here(repeats: Sequence[Repeat], want: Want[T], done: Callable[[int], None]) -> list[T]:
    answers = []
    for repeat in repeats:
        answers.append(_one(repeat, want))
        done(len(answers))
    return answers


def _one(repeat: Repeat, want: Want[T]) -> T:
    try:
        return want(run(repeat.plan, step_scales=repeat.step_scales).result)
    except WindtunnelError as error:
        if repeat.name is not None:
            error.say_of(repeat.name)
        raise


def _elsewhere(
    repeats: Sequence[Repeat], want: Want[T], done: Callable[[int], None], workers: int
) -> list[T]:
    """Runs all in worker processes; they end with this process."""
    answers: dict[int, T] = {}
    with Processes(partial(_one, want=want), min(workers, len(repeats))) as processes:
        for number, answer in processes.map(repeats):
            if isinstance(answer, Died):
                what = "a worker process ended before its run did"
                hint = "memory may be short: --workers 1 runs one at a time"
                raise WindtunnelError(what, hint=hint)
            if isinstance(answer, Raised):
                raise answer.error
            answers[number] = answer.value
            done(len(answers))
    return [answers[number] for number in range(len(repeats))]
