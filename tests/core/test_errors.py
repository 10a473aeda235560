"""An expected failure reads as one sentence: where, what, what is allowed, what to do."""

import pickle

import pytest

from windtunnel.core.errors import (
    InputError,
    InputFaults,
    InvariantBroken,
    OutputError,
    WindtunnelError,
    nearest,
    one_sentence_per,
)

FULL = InputError("'40' is no rate", where="a.yaml:3", allowed="40/s", hint="add /s")


def test_every_part_has_its_place_in_the_sentence() -> None:
    assert str(FULL) == "a.yaml:3: '40' is no rate; allowed: 40/s (add /s)"
    assert str(InputError("it is empty")) == "it is empty"


def test_several_faults_are_a_line_each() -> None:
    faults = one_sentence_per([FULL, InputError("it is empty")])
    assert isinstance(faults, InputFaults)
    assert str(faults).splitlines() == [str(FULL), "it is empty"]
    assert one_sentence_per([FULL]) is FULL


@pytest.mark.parametrize(
    ("kind", "code"), [(InputError, 2), (OutputError, 2), (InvariantBroken, 3)]
)
def test_each_kind_has_its_exit_code(kind: type[WindtunnelError], code: int) -> None:
    assert kind("x").exit_code == code


@pytest.mark.parametrize(
    ("word", "hint"),
    [("posson", "did you mean 'poisson'?"), ("zzz", None), ("constan", "did you mean 'constant'?")],
)
def test_the_nearest_known_word(word: str, hint: str | None) -> None:
    assert nearest(word, {"poisson", "constant", "gamma"}) == hint


def test_errors_survive_the_way_from_another_process() -> None:
    one = InputError("it is blue", where="a.yaml:3", allowed="green", hint="try green")
    for error in (one, InputFaults([one, InputError("so is that")]), InvariantBroken("no")):
        again = pickle.loads(pickle.dumps(error))
        assert type(again) is type(error)
        assert str(again) == str(error)
        assert again.exit_code == error.exit_code


def test_a_hint_follows_no_full_stop() -> None:
    """As that of a server's message has."""
    error = InputError("the server said: No such model.", hint="is its name right?")
    assert str(error) == "the server said: No such model (is its name right?)"
    assert str(InputError("Nothing more to say.")) == "Nothing more to say."
    cut = InputError("it is 99999...", allowed="at most 9")
    assert str(cut) == "it is 99999...; allowed: at most 9"
