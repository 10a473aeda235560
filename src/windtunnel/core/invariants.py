"""Runs invariants: each has a name, a sentence and a check.

The tables of invariants live with the state they check. A check returns None when all is well and
otherwise what it saw, so a failure reads as `name: sentence; saw ...`.
"""

from collections.abc import Callable, Sequence
from typing import Final, Generic, TypeVar

from windtunnel.core.errors import InvariantBroken

State = TypeVar("State")


class Invariant(Generic[State]):
    """A property that must always hold of a state, and its check."""

    def __init__(
        self,
        name: str,
        sentence: str,
        check: Callable[[State], str | None],
        changed: Callable[[State], str | None] | None = None,
    ) -> None:
        self.name: Final = name
        self.sentence: Final = sentence
        self.check: Final = check
        self.changed: Final = changed
        """A partial check of the latest changes only; None when there is no such check."""


class InvariantChecker(Generic[State]):
    """Runs a table of invariants and counts the checks."""

    def __init__(self, invariants: Sequence[Invariant[State]]) -> None:
        names = [invariant.name for invariant in invariants]
        assert len(set(names)) == len(names), "two invariants share a name"
        self._invariants: Final = tuple(invariants)
        self.checked = 0

    def run(self, state: State, context: str | Callable[[], str]) -> None:
        """Raises InvariantBroken for the first that fails; `context` says how to reproduce it."""
        for invariant in self._invariants:
            self.checked += 1
            seen = invariant.check(state)
            if seen is not None:
                raise _broken(invariant.name, invariant.sentence, seen, context)

    def run_changed(self, state: State, context: str | Callable[[], str]) -> None:
        """Like `run`, but checks the latest changes only, for the invariants that can."""
        for invariant in self._invariants:
            changed = invariant.changed
            if changed is not None:
                self.checked += 1
                seen = changed(state)
                if seen is not None:
                    raise _broken(invariant.name, invariant.sentence, seen, context)


def _broken(
    name: str, sentence: str, seen: str, context: str | Callable[[], str]
) -> InvariantBroken:
    return InvariantBroken(
        f"invariant {name!r} is broken: {sentence}; saw {seen}",
        where=context if isinstance(context, str) else context(),
        hint="a bug in Windtunnel: please report it with the scenario and the seed",
    )
