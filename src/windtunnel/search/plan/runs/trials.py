"""Runs as a search sees them: the attainment of each SLO class, and the cost.

A search is a generator: it yields the runs that it wants next and is sent their results. It keeps
them in a `TrialLedger`, and a `RunDriver` has workers execute them.
"""

from collections.abc import Callable, Generator, Mapping, Sequence
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

import windtunnel
from windtunnel.search.execution.workers import Outcome, Workers
from windtunnel.search.plan.runs.confidence import ShareBounds, exact_share, share_bounds
from windtunnel.twin.scenario.plan import ScenarioPlan

RUNNERS_UP = 3

OnProgress = Callable[[str, float, float], None]
"""Called with the current activity, the whole runs spent, and how many there may be."""


class AskedRun(Protocol):
    """A wanted run; `cost` is in whole runs."""

    @property
    def cost(self) -> float: ...


Run = TypeVar("Run", bound=AskedRun)
Seen = TypeVar("Seen")


class Trial(NamedTuple):
    """One run: the attainment and number of requests of each class, and the cost per hour."""

    attained: tuple[float, ...]
    requests: tuple[int, ...]
    cost: float
    failure: str = ""
    """Why the run has no figures; empty if it succeeded."""

    @property
    def worst(self) -> float:
        return min(self.attained, default=0.0)


class Stage(NamedTuple):
    """The length of the runs in a stage, as a share of a whole run, and their seeds."""

    share: float
    seeds: tuple[int, ...]

    def data(self) -> dict[str, Any]:
        return {"share": self.share, "seeds": list(self.seeds)}


class Rules(NamedTuple):
    """The goal of a search, its stages, and the most runs."""

    attained: float
    confidence: float
    stages: tuple[Stage, ...]
    """From short to whole runs. Candidates that attain in the last one are tested."""
    test: tuple[int, ...]
    """Seeds of the test; empty if nothing depends on chance."""
    max_runs: float
    """In whole runs; a run of a quarter of the length counts as a quarter."""
    doubtful: tuple[Stage, ...] = ()
    """Whole runs with more seeds, for candidates that miss on average but may still attain the
    goal."""
    runners_up: int = RUNNERS_UP
    """How many further kinds to find after the answer."""


class OutOfBudget(Exception):
    """The next runs would be too many."""


class TrialLedger(Generic[Run, Seen]):
    """The runs that a search has asked for, their results, and their cost."""

    def __init__(self, max_runs: float) -> None:
        self.seen: dict[Run, Seen] = {}
        self.spent = 0.0
        self._max_runs = max_runs

    def ask(self, wanted: Sequence[Run]) -> Generator[list[Run], Mapping[Run, Seen], None]:
        """Yields the runs that have no result yet; raises `OutOfBudget` if they cost too much."""
        missing = [run for run in wanted if run not in self.seen]
        cost = sum(run.cost for run in missing)
        if self.spent + cost > self._max_runs + 1e-9:
            raise OutOfBudget
        if missing:
            answers = yield missing
            self.spent += cost
            self.seen.update({run: answers[run] for run in missing})

    def of(self, wanted: Sequence[Run]) -> list[Seen]:
        return [self.seen[run] for run in wanted]


class SearchResources(NamedTuple):
    """The workers, the limit of runs and the progress callback of a search."""

    workers: Workers
    max_runs: float
    """In whole runs."""
    on_progress: OnProgress


class RunDriver(Generic[Run, Seen]):
    """Executes the runs that a search wants on workers."""

    def __init__(
        self,
        means: SearchResources,
        plan_of: Callable[[Run], ScenarioPlan],
        seen: Callable[[Run, Outcome], Seen],
        doing: Callable[[Run, Outcome], str],
    ) -> None:
        self._means = means
        self._plan_of = plan_of
        self._seen = seen
        self._doing = doing
        self.outcomes: dict[Run, Outcome] = {}
        self.spent = 0.0

    def play(self, moves: Generator[list[Run], Mapping[Run, Seen], None]) -> None:
        """Executes the runs that a search yields until it ends."""
        try:
            wanted = next(moves)
            while True:
                wanted = moves.send(self.run(wanted))
        except StopIteration:
            pass

    def run(self, wanted: Sequence[Run]) -> dict[Run, Seen]:
        workers, max_runs, on_progress = self._means
        missing = [run for run in wanted if run not in self.outcomes]
        answers: dict[int, Outcome] = {}
        for number, outcome in workers.evaluate([self._plan_of(run) for run in missing]):
            answers[number] = outcome
            self.spent += missing[number].cost
            on_progress(self._doing(missing[number], outcome), self.spent, max_runs)
        # In the order wanted, not that in which they ended: sums depend on it.
        self.outcomes |= {run: answers[number] for number, run in enumerate(missing)}
        return {run: self._seen(run, self.outcomes[run]) for run in wanted}


def head_of(plan: ScenarioPlan, find: str) -> dict[str, Any]:
    """The keys that every answer begins with."""
    return {
        "find": find,
        "name": plan.name,
        "seed": plan.seed,
        "windtunnel": windtunnel.__version__,
        "scenario_sha256": plan.sha256,
    }


def failure_of(trials: Sequence[Trial]) -> str:
    """Why one of the trials failed; empty if none did."""
    return next((trial.failure for trial in trials if trial.failure), "")


def worst_of(trials: Sequence[Trial]) -> float:
    """Mean attainment over the runs, of the class where it is lowest; 0 if a run failed."""
    if failure_of(trials):
        return 0.0
    classes = range(len(trials[0].attained))
    return min(sum(trial.attained[one] for trial in trials) / len(trials) for one in classes)


def sure_of(trials: Sequence[Trial], confidence: float, *, chance: bool) -> ShareBounds:
    """The lowest attainment of any class, and the lowest of their bounds.

    The error probability is divided among the classes. `chance`: whether results depend on the
    seed.
    """
    if failure_of(trials):
        return ShareBounds(0.0, 0.0, 0.0)
    classes = len(trials[0].attained)
    each = 1.0 - (1.0 - confidence) / classes
    found = []
    for place in range(classes):
        shares = [trial.attained[place] for trial in trials]
        counts = [trial.requests[place] for trial in trials]
        found.append(share_bounds(shares, counts, each) if chance else exact_share(shares))
    return ShareBounds(*(min(figures) for figures in zip(*found, strict=True)))
