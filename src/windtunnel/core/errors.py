"""The one tree of expected failures; each is a sentence: where, what, what is allowed, what to do.

WindtunnelError
  InputError          something that a user wrote is wrong: file, option, value     (exit 2)
    InputFaults       several input errors, found together
  OutputError         a result cannot be written to the requested place             (exit 2)
  InvariantBroken     the program detected an impossible state                      (exit 3)
"""

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

MALFORMED: Final = (KeyError, TypeError, ValueError, AttributeError)
"""Errors raised when an object does not have the shape of its kind."""


class WindtunnelError(Exception):
    """An expected failure. `str()` is one plain sentence for a person."""

    exit_code = 2

    def __init__(
        self,
        what: str,
        *,
        where: str | None = None,
        allowed: str | None = None,
        hint: str | None = None,
    ) -> None:
        super().__init__(what)
        self.what = what
        self.where = where
        self.allowed = allowed
        self.hint = hint

    def say_of(self, whom: str) -> None:
        """Prefixes `where` with the part that failed."""
        self.where = f"{whom}: {self.where}" if self.where else whom

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickles every field, so that the error crosses processes intact; by hand, since the
        arguments are keyword-only."""
        return _again, (type(self), self.what, self.where, self.allowed, self.hint)

    def __str__(self) -> str:
        sentence = f"{self.where}: {self.what}" if self.where else self.what
        if (self.allowed or self.hint) and not sentence.endswith("..."):  # of a value cut short
            sentence = sentence.removesuffix(".")  # of what a server said
        if self.allowed:
            sentence += f"; allowed: {self.allowed}"
        if self.hint:
            sentence += f" ({self.hint})"
        return sentence


class InputError(WindtunnelError):
    """Something that a user wrote is wrong."""

    @property
    def faults(self) -> tuple["InputError", ...]:
        """The faults that this error reports: itself, unless it is several."""
        return (self,)


class InputFaults(InputError):
    """Several faults in one input, reported together, one sentence per line."""

    def __init__(self, faults: Sequence[InputError]) -> None:
        assert faults
        super().__init__(faults[0].what, where=faults[0].where)
        self._faults = tuple(faults)

    @property
    def faults(self) -> tuple[InputError, ...]:
        return self._faults

    def say_of(self, whom: str) -> None:
        super().say_of(whom)
        for fault in self._faults:
            fault.say_of(whom)

    def __reduce__(self) -> tuple[Any, ...]:
        return InputFaults, (self._faults,)

    def __str__(self) -> str:
        return "\n".join(str(fault) for fault in self._faults)


class OutputError(WindtunnelError):
    """A result cannot be written to the requested place."""


class InvariantBroken(WindtunnelError):
    """The program detected a state that must never occur."""

    exit_code = 3


class NoFixedPoint(InvariantBroken):
    """Controllers keep finding something to do in one instant; the message says how often."""


def _again(
    kind: type[WindtunnelError],
    what: str,
    where: str | None,
    allowed: str | None,
    hint: str | None,
) -> WindtunnelError:
    return kind(what, where=where, allowed=allowed, hint=hint)


def one_sentence_per(faults: Sequence[InputError]) -> InputError:
    """The fault itself when there is only one, otherwise all of them as one error."""
    return faults[0] if len(faults) == 1 else InputFaults(faults)


_UNPRINTABLE: Final = re.compile(
    r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff"
    r"\ud800-\udfff\U000e0000-\U000e007f]"
)
LONGEST_QUOTE: Final = 200


def printable(text: str, backslash: str = "\\") -> str:
    """Escapes control characters, as JSON does, in text from elsewhere that goes to a terminal.

    All text from servers, traces and result folders is shown through this. Line breaks stay.
    `backslash` is how the format of the text writes a backslash.
    """
    return _UNPRINTABLE.sub(lambda found: backslash + json.dumps(found[0])[2:-1], text)


def message(text: str) -> str:
    """A printable message; its further lines are indented, so that none of them looks like ours."""
    return printable(text).replace("\n", "\n    ")


def one_line(text: str, most: int = LONGEST_QUOTE) -> str:
    """Text from elsewhere as part of a message: one line of at most `most` characters.

    Names and messages of servers, cells of files and the like go into sentences through this, so
    that they can neither add a line that looks like ours nor steer a terminal.
    """
    text = text.strip()
    line = printable(" ".join(text[: 8 * most].split()))
    whole = len(line) <= most and len(text) <= 8 * most
    return line if whole else f"{line[: most - 3]}..."


def os_reason(error: Exception) -> str:
    """Why the system refused something, as the end of a sentence."""
    return (getattr(error, "strerror", None) or str(error)).lower()


def nearest(
    word: str, known: Iterable[str], aliases: Mapping[str, str] | None = None
) -> str | None:
    """A hint for a probable typo, or None when no known word is similar.

    For one of the `aliases` of known words, the hint has the word.
    """
    from difflib import get_close_matches

    others = aliases or {}
    close = get_close_matches(word, sorted({*known, *others}), n=2, cutoff=0.6)
    if not close:
        return None
    names = dict.fromkeys(others.get(name, name) for name in close)
    return "did you mean " + " or ".join(repr(name) for name in names) + "?"
