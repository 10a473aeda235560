"""A campaign: what failed before, then scenarios of many seeds, in worker processes."""

import shlex
import signal
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec

from windtunnel.core.errors import InputError, OutputError
from windtunnel.core.processes import Answer, Died, Processes, Raised
from windtunnel.fuzz.documents import read_document, write_document
from windtunnel.fuzz.draw import draw
from windtunnel.fuzz.mangle import mangle
from windtunnel.fuzz.shrink import shrink
from windtunnel.fuzz.trial import DIED, INVARIANT, REFUSED, Breach, attempt, escaped, probe
from windtunnel.settings.drawing import Values

TWICE_EVERY = 8
"""Of so many seeds, one is run a second time and must say the same."""
MANGLE_EVERY = 2
"""Of so many seeds, one is also loaded with nonsense in it."""

LONGEST_TRIAL_S = 60.0
"""CPU time of one run: code that never comes back cannot be asked to stop."""

Task = int | str
"""A seed to draw from, or the path of a scenario that failed once."""
Progress = Callable[[int, int], None]
"""Called with how many tasks have ended, and how many of them found something."""


class FuzzFinding(msgspec.Struct, frozen=True):
    """Something that broke, with the smallest scenario that breaks it."""

    task: Task
    breach: Breach
    document: Values


class Campaign:
    """What a campaign has found so far; it is complete also after an interrupt."""

    def __init__(self, output: Path, corpus: Path) -> None:
        self._output = output
        self._corpus = corpus
        self.seeds = 0
        self._failures: dict[tuple[int, str], dict[str, Any]] = {}

    @property
    def broken(self) -> int:
        return len(self._failures)

    def result(self) -> dict[str, Any]:
        """As plain data; failures of the corpus first, then by seed."""
        failures = [self._failures[key] for key in sorted(self._failures)]
        return {"seeds": self.seeds, "broken": len(failures), "failures": failures}

    def run(self, tasks: Sequence[Task], jobs: int, progress: Progress) -> None:
        """Works through all tasks; a failure is on disk before progress is reported."""
        with Processes(work, jobs) as processes:
            for done, (number, answer) in enumerate(processes.map(tasks), start=1):
                self.take(tasks[number], answer)
                progress(done, self.broken)

    def take(self, task: Task, answer: Answer[FuzzFinding | None]) -> None:
        """Counts what came of a task, and keeps it if something broke."""
        if isinstance(task, int):
            self.seeds += 1
        if isinstance(answer, Raised):
            found: FuzzFinding | None = _stumbled(task, answer.error)
        else:
            found = _died(task, answer) if isinstance(answer, Died) else answer.value
        if found is not None:
            self._keep(found)

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
        option = f" --seed {seed}" if isinstance(seed, int) else ""
        key = (-1, task) if isinstance(task, str) else (task, "")
        self._failures[key] = {
            "seed": seed if isinstance(seed, int) else task,
            "what": breach.what,
            "invariant": breach.name if breach.what == INVARIANT else None,
            "error": breach.sentence,
            "file": str(path),
            "command": f"windtunnel simulate {shlex.quote(str(path))} --check{option}",
        }


def work(task: Task) -> FuzzFinding | None:
    """What a worker does with a task. It is ended by the system where code never comes back."""
    return look_into(task, bound_time)


def bound_time(limit_s: float = LONGEST_TRIAL_S) -> None:
    """From now on this process has so much CPU time until the next call, or it ends."""
    if hasattr(signal, "setitimer"):
        signal.setitimer(signal.ITIMER_PROF, limit_s)


def look_into(task: Task, before: Callable[[], None] = lambda: None) -> FuzzFinding | None:
    """None where all is well. `before` is called before every run."""
    return _run_again(task, before) if isinstance(task, str) else examine(task, before)


def examine(seed: int, before: Callable[[], None] = lambda: None) -> FuzzFinding | None:
    """Draws the scenario of a seed, runs it, and makes it small if something breaks."""
    document = draw(seed)
    twice = seed % TWICE_EVERY == 0

    def run(scenario: Values) -> Breach | None:
        before()
        return attempt(scenario, twice=twice)

    breach = run(document)
    if breach is not None:
        document, breach = shrink(document, breach, run)
        return FuzzFinding(seed, breach, document)
    if seed % MANGLE_EVERY:
        return None
    document = mangle(document, seed)
    breach = probe(document)
    if breach is None:
        return None
    document, breach = shrink(document, breach, probe)
    return FuzzFinding(seed, breach, document)


def _run_again(path: str, before: Callable[[], None]) -> FuzzFinding | None:
    """A scenario of the corpus; one that is refused by now has nothing more to say."""
    try:
        document = read_document(Path(path))
    except InputError:
        return None
    before()
    breach = attempt(document, twice=True)
    if breach is None or breach.what == REFUSED:
        return None
    return FuzzFinding(path, breach, document)


def _stumbled(task: Task, error: Exception) -> FuzzFinding:
    """The fuzzer itself failed on a task: that is a finding, too, and the campaign goes on."""
    if isinstance(error, OutputError):
        raise error
    try:
        document = draw(task) if isinstance(task, int) else {}
    except Exception:  # noqa: BLE001 - drawing may be what failed
        document = {}
    return FuzzFinding(task, escaped(error), document)


def _died(task: Task, death: Died) -> FuzzFinding:
    """Nobody can say where it was, and trying parts of it would cost as much again."""
    why = f"status {death.status}" if death.status >= 0 else f"signal {-death.status}"
    if hasattr(signal, "SIGPROF") and death.status == -signal.SIGPROF:
        why = f"a run took {LONGEST_TRIAL_S:g} s of CPU time, and was ended"
    document = draw(task) if isinstance(task, int) else {}
    return FuzzFinding(task, Breach(DIED, "worker", f"the process died: {why}"), document)
