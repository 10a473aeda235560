"""Checks a whole file at once: a wrong value does not hide the faults of other parts."""

import copy
import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeVar

from pydantic import ValidationError

from windtunnel.core.errors import InputError
from windtunnel.settings.document import Document, KeyPath, parse_value
from windtunnel.settings.faults import MOST_FAULTS, Fault, checker_faults, input_error, meant_keys
from windtunnel.settings.section import Context, Section, faults_of

MOST_ROUNDS: Final = 80
MOST_WORK: Final = 200_000
"""Rounds of repair, times the values of the file."""
MOST_WORDS: Final = 24
_REMOVED: Final = object()
_WORD: Final = re.compile(r"[^\s,;'\"]+")

Kind = TypeVar("Kind", bound=Section)
Rules = Callable[[Kind], Sequence[Fault]]
MoreRules = Callable[[Kind, Sequence[Fault]], Sequence[Fault]]


def checked(
    document: Document,
    kind: type[Kind],
    rules: Rules[Kind],
    more_rules: MoreRules[Kind] | None = None,
) -> tuple[Kind, list[Fault]]:
    """Reads a document as a section, and applies the rules across its values.

    Returns the section and the notes about it; all faults are raised as one error. Where values are
    wrong, the rules are applied to two copies in which other values replace them, and a fault that
    both copies have is a fault of the file. `more_rules` are applied to a file with faults only,
    and get those of the rules: they take long, and whatever reads the section has them, too.
    """

    def all_rules(section: Kind) -> list[Fault]:
        found = list(rules(section))
        return found if more_rules is None else [*found, *more_rules(section, found)]

    try:
        section = kind.read(document.data)
    except ValidationError as error:
        faults = checker_faults(error, kind)
        hidden = _hidden(document, kind, all_rules, faults)
        raise input_error(document, [*faults, *hidden]) from None
    found = list(rules(section))
    if all(one.is_note for one in found) and not document.refused:
        return section, found
    if more_rules is not None:
        found += more_rules(section, found)
    raise input_error(document, [one for one in found if not one.is_note])


def section_of(document: Document, kind: type[Kind], folder: Path) -> Kind:
    """Reads a document as a section whose rules are its own; `folder` is that of the file."""
    return checked(document, kind, lambda one: list(faults_of(one, Context(one, folder))))[0]


class _Repaired(NamedTuple):
    section: Any
    replaced: dict[KeyPath, object]
    """The values that were wrong, by path."""
    removed: list[KeyPath]

    def causes(self, fault: Fault) -> bool:
        """Whether a fault may be a consequence of the replacements."""
        paths = (fault.path, *fault.because_of)
        return (
            any(_is_below(one, path) for one in paths for path in self.replaced)
            or any(_is_beside(fault.path, path) for path in self.removed)
            or any(f"`{path[-1]}`" in fault.what for path in self.removed)
            or any(
                isinstance(value, str) and repr(value) in fault.what
                for value in self.replaced.values()
            )
        )


def _is_below(path: KeyPath, other: KeyPath) -> bool:
    return path[: len(other)] == other


def _is_beside(path: KeyPath, other: KeyPath) -> bool:
    """Whether a path is a key of the section that contains another, or is that section."""
    section = other[:-1]
    return bool(section) and section in (path, path[:-1])


def _hidden(
    document: Document, kind: type[Kind], rules: Rules[Kind], faults: Sequence[Fault]
) -> list[Fault]:
    """The faults that the rules find beside wrong values, and that do not depend on them."""
    if len(faults) > MOST_FAULTS:
        return []
    one, other = (_repaired(document, kind, is_first=is_first) for is_first in (True, False))
    if one is None or other is None:
        return []
    try:
        found, others = rules(one.section), set(rules(other.section))
    except InputError:  # of a value in place of a wrong one
        return []
    meant = {path for fault in faults for path in meant_keys(fault)}
    return [
        fault
        for fault in found
        if fault in others
        and not (fault.is_note or one.causes(fault) or other.causes(fault))
        and meant.isdisjoint((fault.path, *fault.because_of))
    ]


def _repaired(document: Document, kind: type[Kind], *, is_first: bool) -> _Repaired | None:
    """The section with other values in place of wrong ones; None where none are found."""
    data: Any = copy.deepcopy(document.data)
    replaced: dict[KeyPath, object] = {}
    left: dict[KeyPath, Iterator[object]] = {}
    for _ in range(min(MOST_ROUNDS, MOST_WORK // document.size)):
        try:
            section = kind.read(data)
        except ValidationError as error:
            faults = checker_faults(error, kind)
        else:
            removed = [path for path in replaced if _at(data, path) is _REMOVED]
            return _Repaired(section, replaced, removed)
        done: set[KeyPath] = set()
        for fault in faults:
            path = fault.path
            while path and not any(path[:end] in done for end in range(1, len(path) + 1)):
                if path not in left:
                    value = _at(data, path)
                    replaced[path] = value
                    left[path] = _replacements(fault, value, is_first=is_first)
                new = next(left[path], None)
                if new is not None:
                    _put(data, path, new)
                    done.add(path)
                    break
                path = path[:-1]
                while path and isinstance(path[-1], int):  # the others keep their numbers
                    path = path[:-1]
            if not path:
                return None
    return None


def _replacements(fault: Fault, value: object, *, is_first: bool) -> Iterator[object]:
    """Values to try for a wrong one: those that the text about what is allowed names."""
    words = [_plain(word) for word in _WORD.findall(fault.allowed or "")[:MOST_WORDS]]
    if not is_first and isinstance(value, bool | int | float):
        yield str(value)
    yield from words if is_first else reversed(words)
    yield from (_REMOVED, [{}], {}, [])


def _plain(word: str) -> object:
    try:
        found = parse_value(word, "")
    except InputError:
        return word
    return word if found is None else found


def _at(data: Any, path: KeyPath) -> object:
    for key in path:
        try:
            data = data[key]
        except (KeyError, IndexError, TypeError):
            return _REMOVED
    return data


def _put(data: Any, path: KeyPath, value: object) -> None:
    for key in path[:-1]:
        data = data[key]
    if value is _REMOVED and isinstance(data, dict):
        data.pop(path[-1], None)
    else:
        data[path[-1]] = None if value is _REMOVED else copy.deepcopy(value)
