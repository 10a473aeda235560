"""Runs as a search sees them: what each class of service attained, and what it cost."""

from collections.abc import Sequence
from typing import NamedTuple

from windtunnel.search.plan.confidence import ShareBounds, exact_share, share_bounds


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
    """How much of its length somebody runs who has come so far, and with which seeds."""

    share: float
    seeds: tuple[int, ...]


class Rules(NamedTuple):
    """What counts as good enough, and what may be spent on finding it."""

    attained: float
    confidence: float
    stages: tuple[Stage, ...]
    """From short to whole runs. Who attains in the last one is tested."""
    test: tuple[int, ...]
    """Seeds of the test; none where nothing is left to chance."""
    budget: float
    """Whole runs; a run of a quarter of the length is a quarter of one."""
    doubtful: tuple[Stage, ...] = ()
    """Whole runs with more seeds, for who misses on average and may yet attain."""


class OutOfBudget(Exception):
    """What is wanted next would cost more than may be spent."""


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
