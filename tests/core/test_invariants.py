"""A broken invariant names itself, what it saw, and how to get there again."""

import pytest

from windtunnel.core.errors import InvariantBroken
from windtunnel.core.invariants import Invariant, InvariantChecker

POSITIVE = Invariant[int]("positive", "the number is positive", lambda n: None if n > 0 else str(n))
EVEN = Invariant[int]("even", "the number is even", lambda n: f"{n}" if n % 2 else None)


def test_all_is_well_and_counted() -> None:
    checker = InvariantChecker([POSITIVE, EVEN])
    checker.run(2, "seed 7")
    checker.run(4, "seed 7")
    assert checker.checked == 4


def test_the_first_that_fails_speaks() -> None:
    with pytest.raises(InvariantBroken) as caught:
        InvariantChecker([EVEN, POSITIVE]).run(-3, "seed 7, event 12")
    sentence = str(caught.value)
    assert sentence.startswith(
        "seed 7, event 12: invariant 'even' is broken: the number is even; saw -3"
    )
    assert caught.value.exit_code == 3


def test_two_of_one_name_are_refused() -> None:
    with pytest.raises(AssertionError, match="share a name"):
        InvariantChecker([EVEN, EVEN])
