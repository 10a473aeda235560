"""What must always hold, by name: each invariant is a name, a sentence and a check.

The tables of invariants live with the state they check; this module runs them. A check returns
None when all is well and otherwise what it saw, so a failure reads as `name: sentence; saw ...`.
"""

from collections.abc import Callable, Sequence
from typing import Final, Generic, TypeVar

from windtunnel.core.errors import InvariantBroken

State = TypeVar("State")


class Invariant(Generic[State]):
    """One thing that must hold of a state, and how to see whether it does."""

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
        """Sees as much of it as follows from what has changed lately; None: it sees nothing."""


class InvariantChecker(Generic[State]):
    """Runs a table of invariants and counts what it did."""

    def __init__(self, invariants: Sequence[Invariant[State]]) -> None:
        names = [invariant.name for invariant in invariants]
        assert len(set(names)) == len(names), "two invariants share a name"
        self._invariants: Final = tuple(invariants)
        self.checked = 0

    def run(self, state: State, context: str | Callable[[], str]) -> None:
        """Raises InvariantBroken for the first that fails; `context` says how to get there."""
        for invariant in self._invariants:
            self.checked += 1
            seen = invariant.check(state)
            if seen is not None:
                raise _broken(invariant.name, invariant.sentence, seen, context)

    def run_changed(self, state: State, context: str | Callable[[], str]) -> None:
        """The same of what has changed lately, as far as invariants can see that by itself."""
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
