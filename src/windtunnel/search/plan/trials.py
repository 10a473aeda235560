"""Runs as a search sees them: what each class of service attained, and what it cost.

A search is a generator: it yields the runs that it wants next, and is sent what came of them. It
keeps them in a `Ledger`, and a `RunDriver` has workers run them.
"""

from collections.abc import Callable, Generator, Mapping, Sequence
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

import windtunnel
from windtunnel.search.execution.workers import Outcome, Workers
from windtunnel.search.plan.confidence import ShareBounds, exact_share, share_bounds
from windtunnel.twin.scenario.plan import ScenarioPlan

RUNNERS_UP = 3

Told = Callable[[str, float, float], None]
"""Hears what is being done, and how many whole runs of how many have been spent."""


class AskedRun(Protocol):
    """A run that is wanted; `cost` is in whole runs."""

    @property
    def cost(self) -> float: ...


Run = TypeVar("Run", bound=AskedRun)
Seen = TypeVar("Seen")


class Trial(NamedTuple):
    """One run: what each class attained of how many requests, and dollars an hour."""

    attained: tuple[float, ...]
    requests: tuple[int, ...]
    cost: float
    failure: str = ""
    """Why there is nothing to know of it."""

    @property
    def worst(self) -> float:
        return min(self.attained, default=0.0)


class Stage(NamedTuple):
    """What part of its length an entrant runs at this point, and with which seeds."""

    share: float
    seeds: tuple[int, ...]

    def data(self) -> dict[str, Any]:
        return {"share": self.share, "seeds": list(self.seeds)}


class Rules(NamedTuple):
    """What counts as good enough, and what may be spent on finding it."""

    attained: float
    confidence: float
    stages: tuple[Stage, ...]
    """From short to whole runs. Candidates that attain in the last one are tested."""
    test: tuple[int, ...]
    """Seeds of the test; none where nothing is left to chance."""
    budget: float
    """Whole runs; a run of a quarter of the length is a quarter of one."""
    doubtful: tuple[Stage, ...] = ()
    """Whole runs with more seeds, for candidates that miss on average and may yet attain."""
    runners_up: int = RUNNERS_UP
    """How many more kinds are wanted once there is an answer."""


class OutOfBudget(Exception):
    """What is wanted next would cost more than may be spent."""


class TrialLedger(Generic[Run, Seen]):
    """The runs that a search has asked for, what came of them, and what they cost."""

    def __init__(self, budget: float) -> None:
        self.seen: dict[Run, Seen] = {}
        self.spent = 0.0
        self._budget = budget

    def ask(self, wanted: Sequence[Run]) -> Generator[list[Run], Mapping[Run, Seen], None]:
        """Asks for those that are not there yet; `OutOfBudget` if they cost too much."""
        missing = [run for run in wanted if run not in self.seen]
        cost = sum(run.cost for run in missing)
        if self.spent + cost > self._budget + 1e-9:
            raise OutOfBudget
        if missing:
            answers = yield missing
            self.spent += cost
            self.seen.update({run: answers[run] for run in missing})

    def of(self, wanted: Sequence[Run]) -> list[Seen]:
        return [self.seen[run] for run in wanted]


class SearchResources(NamedTuple):
    """What a search may use."""

    workers: Workers
    budget: float
    """Whole runs."""
    told: Told


class RunDriver(Generic[Run, Seen]):
    """Has workers run whatever a search wants."""

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
        """Runs what a search asks for until it ends."""
        try:
            wanted = next(moves)
            while True:
                wanted = moves.send(self.run(wanted))
        except StopIteration:
            pass

    def run(self, wanted: Sequence[Run]) -> dict[Run, Seen]:
        workers, budget, told = self._means
        missing = [run for run in wanted if run not in self.outcomes]
        answers: dict[int, Outcome] = {}
        for number, outcome in workers.evaluate([self._plan_of(run) for run in missing]):
            answers[number] = outcome
            self.spent += missing[number].cost
            told(self._doing(missing[number], outcome), self.spent, budget)
        # In the order in which they were wanted, not in which they ended: sums depend on it.
        self.outcomes |= {run: answers[number] for number, run in enumerate(missing)}
        return {run: self._seen(run, self.outcomes[run]) for run in wanted}


def head_of(plan: ScenarioPlan, find: str) -> dict[str, Any]:
    """What every answer begins with."""
    return {
        "find": find,
        "name": plan.name,
        "seed": plan.seed,
        "windtunnel": windtunnel.__version__,
        "scenario_sha256": plan.sha256,
    }


def failure_of(trials: Sequence[Trial]) -> str:
    """Why one of them failed; empty where none did."""
    return next((trial.failure for trial in trials if trial.failure), "")


def worst_of(trials: Sequence[Trial]) -> float:
    """The mean over the runs, of the class for which that is least; 0 where one failed."""
    if failure_of(trials):
        return 0.0
    classes = range(len(trials[0].attained))
    return min(sum(trial.attained[one] for trial in trials) / len(trials) for one in classes)


def sure_of(trials: Sequence[Trial], confidence: float, *, chance: bool) -> ShareBounds:
    """That every class attains: the least share of any, and the least bounds.

    Each class has its part of what may go wrong. `chance`: whether other seeds would bring others.
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
