"""A campaign: runs earlier failures again, then scenarios of many seeds, in worker processes."""

import shlex
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import msgspec

from windtunnel.core.errors import InputError, OutputError
from windtunnel.core.system.processes import Answer, Died, Processes, Raised
from windtunnel.fuzz.documents import read_document, write_document
from windtunnel.fuzz.draw import draw
from windtunnel.fuzz.mangle import mangle
from windtunnel.fuzz.shrink import MOST_TRIES, shrink
from windtunnel.fuzz.trial import (
    DIED,
    ENDLESS,
    INVARIANT,
    LIMITS,
    OUT_OF_TIME,
    REFUSED,
    Breach,
    escaped,
    probe,
    with_limits,
)
from windtunnel.fuzz.worker import (
    CAN_FORK,
    attempt_apart,
    attempt_in_time,
    bound_memory,
    bounded_time,
    collect_cycles,
    death,
)
from windtunnel.settings.drawing import Values

TWICE_EVERY = 8
"""One in this many seeds is run a second time and must give the same result."""
MANGLE_EVERY = 2
"""One in this many seeds is also loaded with invalid values in it."""
MOST_TRIES_APART = 60
"""Most runs for shrinking a failure that ends its process or uses up its time limit."""


class Revisit(msgspec.Struct, frozen=True):
    """A task whose worker died: it is shrunk with a process of its own for each run."""

    task: int | str
    status: int


Task = int | str | Revisit
"""A seed to draw from, the path of a scenario that failed before, or either of them again."""
CampaignProgress = Callable[[int, int], None]
"""Called with the number of tasks that have ended, and the number of failures so far."""


class FuzzFinding(msgspec.Struct, frozen=True):
    """A failure, with the smallest scenario that causes it."""

    task: int | str
    breach: Breach
    document: Values


class Campaign:
    """The findings of a campaign so far; they are consistent even after an interrupt."""

    def __init__(self, output: Path, corpus: Path) -> None:
        self._output = output
        self._corpus = corpus
        self.seeds = 0
        self._failures: dict[tuple[int, str], dict[str, Any]] = {}

    @property
    def broken(self) -> int:
        return len(self._failures)

    def result(self) -> dict[str, Any]:
        """The findings as plain data; failures of the corpus come first, then those by seed."""
        failures = [self._failures[key] for key in sorted(self._failures)]
        return {"seeds": self.seeds, "broken": len(failures), "failures": failures}

    def run(self, tasks: Iterable[Task], jobs: int, progress: CampaignProgress) -> None:
        """Runs all tasks; a failure is on disk before progress is reported."""
        agenda = _Agenda(tasks)
        with Processes(work, jobs) as processes:
            for done, (number, answer) in enumerate(processes.map(agenda), start=1):
                task = agenda.given.pop(number)
                again = self.take(task, answer)
                if again is not None:
                    agenda.add(again)
                progress(done, self.broken)

    def take(self, task: Task, answer: Answer[FuzzFinding | None]) -> Revisit | None:
        """Counts a task and stores its failure, if any; returns a task to run again."""
        if isinstance(task, int):
            self.seeds += 1
        named = task.task if isinstance(task, Revisit) else task
        if isinstance(answer, Raised):
            self._keep(_stumbled(named, answer.error))
        elif not isinstance(answer, Died):
            if answer.value is not None:
                self._keep(answer.value)
        else:
            # What is known is kept at once: it may end its next worker, too.
            status = task.status if isinstance(task, Revisit) else answer.status
            self._keep(FuzzFinding(named, death(status), _drawn(named)))
            if CAN_FORK and not isinstance(task, Revisit):
                return Revisit(named, status)
        return None

    def _keep(self, found: FuzzFinding) -> None:
        task, breach = found.task, found.breach
        seed = found.document.get("seed", task)
        if isinstance(task, str):
            path = Path(task)
        else:
            path = self._output / f"{task}.yaml"
            note = f"{breach.what}: {breach.name}\n{breach.sentence}"
            write_document(path, found.document, note)
            write_document(self._corpus / path.name, found.document, note)
        options = [f"--seed {seed}"] if isinstance(seed, int) else []
        if breach.what == ENDLESS:
            limits = with_limits(found.document)["progress"]
            options += [f"--set progress.{name}={limits[name]}" for name in LIMITS]
        key = (-1, task) if isinstance(task, str) else (task, "")
        self._failures[key] = {
            "seed": seed if isinstance(seed, int) else task,
            "what": breach.what,
            "invariant": breach.name if breach.what == INVARIANT else None,
            "error": breach.sentence,
            "file": str(path),
            "command": " ".join(
                ("windtunnel simulate", shlex.quote(str(path)), "--check", *options)
            ),
        }


class _Agenda(Iterator[Task]):
    """Tasks by number, as they are handed out; more can be added during the campaign."""

    def __init__(self, tasks: Iterable[Task]) -> None:
        self._tasks = iter(tasks)
        self._more: deque[Task] = deque()
        self._count = 0
        self.given: dict[int, Task] = {}

    def add(self, task: Task) -> None:
        self._more.append(task)

    def __next__(self) -> Task:
        task = self._more.popleft() if self._more else next(self._tasks)
        self.given[self._count] = task
        self._count += 1
        return task


def work(task: Task) -> FuzzFinding | None:
    """Runs a task in a worker, within its limits of time and memory."""
    bound_memory()
    collect_cycles()
    return look_into(task)


def look_into(task: Task) -> FuzzFinding | None:
    """Runs a task; None if nothing failed."""
    if isinstance(task, Revisit):
        return _revisit(task)
    return _run_again(task) if isinstance(task, str) else examine(task)


def examine(seed: int) -> FuzzFinding | None:
    """Draws and runs the scenario of a seed, and shrinks it if something fails."""
    document = draw(seed)
    twice = seed % TWICE_EVERY == 0

    def run(scenario: Values) -> Breach | None:
        collect_cycles()
        return attempt_in_time(scenario, twice=twice)

    breach = attempt_in_time(document, twice=twice, as_text=twice)
    if breach is not None:
        tries = MOST_TRIES_APART if breach.name == OUT_OF_TIME else MOST_TRIES
        document, breach = shrink(document, breach, run, tries)
        return FuzzFinding(seed, breach, document)
    if seed % MANGLE_EVERY:
        return None
    document = mangle(document, seed)
    with bounded_time():
        breach = probe(document, as_text=twice)
    if breach is None:
        return None
    document, breach = shrink(document, breach, probe)
    return FuzzFinding(seed, breach, document)


def _run_again(path: str) -> FuzzFinding | None:
    """Runs a scenario of the corpus; one that is now rejected is no finding."""
    try:
        document = read_document(Path(path))
    except InputError:
        return None
    breach = attempt_in_time(document, twice=True)
    if breach is None or breach.what == REFUSED:
        return None
    return FuzzFinding(path, breach, document)


def _revisit(again: Revisit) -> FuzzFinding:
    """Shrinks a scenario that ended its worker, with a process of its own for each run."""
    document = _drawn(again.task)
    twice = isinstance(again.task, str) or again.task % TWICE_EVERY == 0

    def run(scenario: Values) -> Breach | None:
        return attempt_apart(scenario, twice=twice)

    breach = run(document)
    if breach is None:  # it needs what the worker had done before, or was ended from outside
        died = death(again.status)
        said = f"{died.sentence}; it passes when run alone"
        return FuzzFinding(again.task, Breach(DIED, died.name, said), document)
    document, breach = shrink(document, breach, run, MOST_TRIES_APART)
    return FuzzFinding(again.task, breach, document)


def _drawn(task: int | str) -> Values:
    """The scenario of a task; empty if it cannot be drawn or read."""
    try:
        return draw(task) if isinstance(task, int) else read_document(Path(task))
    except Exception:  # noqa: BLE001 - drawing may be what failed
        return {}


def _stumbled(task: int | str, error: Exception) -> FuzzFinding:
    """Turns a failure of the fuzzer itself into a finding, so that the campaign continues."""
    if isinstance(error, OutputError):
        raise error
    return FuzzFinding(task, escaped(error), _drawn(task))
