"""Shrinks a failing scenario: removes everything that does not change the cause of the failure."""

import copy
from collections.abc import Callable, Iterator
from typing import Any

from windtunnel.core.clock import monotonic_s
from windtunnel.fuzz.documents import FILES
from windtunnel.fuzz.trial import Breach
from windtunnel.settings.drawing import Values

MOST_TRIES = 400
"""Most runs for shrinking one failure."""
LONGEST_S = 120.0
"""Time limit, after which the smallest scenario so far is taken: an endless run takes a minute."""

KEPT = ("name", "seed")
"""Top-level keys that stay: removing them would make nothing simpler."""

ALONG = {
    "gangs": ("clique", "tensor_parallel"),
    "fleet": ("priority",),
    "scaling": ("startup", "drain"),
    "faults": ("retries",),
}
"""Keys of `serving` that are useless without a section, and are removed with it."""

Attempt = Callable[[Values], Breach | None]
Path = tuple[str | int, ...]


class Shrunk:
    """The smallest scenario so far, and the number of runs left to find a smaller one."""

    def __init__(self, document: Values, breach: Breach, attempt: Attempt, tries: int) -> None:
        self.document = document
        self.breach = breach
        self._attempt = attempt
        self.tries_left = tries
        self._until_s = monotonic_s() + LONGEST_S

    def takes(self, candidate: Values) -> bool:
        """Takes a smaller scenario if it fails for the same cause; returns whether it did."""
        if self.tries_left <= 0 or candidate == self.document:
            return False
        if monotonic_s() > self._until_s:
            self.tries_left = 0
            return False
        self.tries_left -= 1
        breach = self._attempt(candidate)
        if breach is None or breach.cause != self.breach.cause:
            return False
        self.document, self.breach = candidate, breach
        return True


def shrink(
    document: Values, breach: Breach, attempt: Attempt, tries: int = MOST_TRIES
) -> tuple[Values, Breach]:
    """The smallest scenario found that fails for the same cause.

    Unless `LONGEST_S` is reached, it depends only on the scenario.
    """
    best = Shrunk(document, breach, attempt, tries)
    smaller = True
    while smaller and best.tries_left > 0:
        smaller = _drop(best)
        smaller = _simplify(best) or smaller
    return best.document, best.breach


def _drop(best: Shrunk) -> bool:
    """Removes sections, entries and keys, the large ones first."""
    smaller = False
    paths = sorted(_paths(best.document), key=lambda path: (len(path), _order(path)))
    for path in paths:
        if path[0] in KEPT and len(path) == 1:
            continue
        if _find(best.document, path) is not _GONE and best.takes(_without(best.document, path)):
            smaller = True
    return smaller


def _order(path: Path) -> tuple[str, ...]:
    """Sort key that takes list entries from the last, so that earlier ones keep their indices."""
    return tuple(f"{10**6 - step:07}" if isinstance(step, int) else step for step in path)


def _simplify(best: Shrunk) -> bool:
    """Replaces values by simpler ones."""
    smaller = False
    for path in sorted(_paths(best.document), key=_order):
        if path[-1] in KEPT:
            continue
        value = _find(best.document, path)
        for plainer in _plainer(value):
            if best.takes(_with(best.document, path, plainer)):
                smaller = True
                break
    return smaller


def _plainer(value: Any) -> Iterator[Any]:
    """Simpler values to try, the simplest first."""
    if isinstance(value, str) and value.count("\n") > 2:  # a file: fewer lines, the first stays
        first, *lines = value.splitlines(keepends=True)
        half = len(lines) // 2
        yield from (first + "".join(part) for part in (lines[:half], lines[half:], lines[:-1]))
    elif isinstance(value, dict) and "distribution" in value:
        yield value.get("mean", value.get("value", value.get("min", 1)))
    elif isinstance(value, bool) or not isinstance(value, int | float):
        return
    elif isinstance(value, int):
        yield from dict.fromkeys(n for n in (1, value // 4, value // 2, value - 1) if n < value)
    else:
        short = float(f"{value:.1g}")
        yield from dict.fromkeys(x for x in (1.0, short) if len(repr(x)) < len(repr(value)))


class _Gone:
    """Marks a missing value, since None may be a value."""


_GONE = _Gone()


def _paths(value: Any, path: Path = ()) -> Iterator[Path]:
    """The paths of all nested values."""
    items: Any = ()
    if isinstance(value, dict):
        items = value.items()
    elif isinstance(value, list):
        items = enumerate(value)
    for key, below in items:
        yield (*path, key)
        yield from _paths(below, (*path, key))


def _find(document: Any, path: Path) -> Any:
    value = document
    for step in path:
        try:
            value = value[step]
        except (KeyError, IndexError, TypeError):
            return _GONE
    return value


def _without(document: Values, path: Path) -> Values:
    """A copy without the value at `path`, and without references to its name."""
    made = copy.deepcopy(document)
    gone = _find(made, path[:-1]).pop(path[-1])
    if len(path) == 1 and isinstance(made.get("serving"), dict):
        for key in ALONG.get(str(path[0]), ()):
            _forget(made["serving"], key)
    if isinstance(gone, dict) and isinstance(gone.get("name"), str):
        _forget(made, gone["name"])
    _drop_files(made)
    return made


def _drop_files(document: Values) -> None:
    """Removes files that the scenario no longer names."""
    rest = [value for key, value in document.items() if key != FILES]
    named = set(_texts(rest))
    files = document.get(FILES)
    if isinstance(files, dict):
        kept = {name: content for name, content in files.items() if name in named}
        document[FILES] = kept
        if not kept:
            del document[FILES]


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict | list):
        for below in value.values() if isinstance(value, dict) else value:
            yield from _texts(below)


def _forget(value: Any, name: str) -> None:
    if isinstance(value, dict):
        value.pop(name, None)
        for below in value.values():
            _forget(below, name)
    elif isinstance(value, list):
        for below in value:
            _forget(below, name)


def _with(document: Values, path: Path, value: Any) -> Values:
    made = copy.deepcopy(document)
    _find(made, path[:-1])[path[-1]] = value
    return made
