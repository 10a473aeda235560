"""Applies `--set PATH=VALUE` to a scenario's data before validation.

Only the path to the value is checked here. Its last key and its value are checked with the whole
scenario; a fault is then reported at the override instead of a line. An override that cannot be
applied is reported together with the scenario's other faults.
"""

import re

from windtunnel.core.errors import InputError, nearest, one_line
from windtunnel.settings.document import DEEPEST, Document, KeyPath, Plain, parse_value
from windtunnel.settings.faults import dotted
from windtunnel.settings.fields import shown

LONGEST_PLACE = 80

_INDEX = re.compile(r"\[([0-9]+)\]")
_EXAMPLE = "PATH=VALUE, such as serving.pools.0.replicas=8"


def apply_override(document: Document, text: str) -> None:
    """Puts the value into the document's data, and records `text` as its origin.

    If that is impossible, the document keeps the fault until it is checked.
    """
    try:
        _apply(document, text)
    except InputError as error:
        document.refused.append(error)


def _apply(document: Document, text: str) -> None:
    place = "--set " + one_line(text, LONGEST_PLACE)
    path, equals, written = text.partition("=")
    if not equals:
        raise _no_override(place)
    value = parse_value(written, place)
    if value is None and written.strip() not in ("null", "~"):
        raise InputError("there is no value after the '='", where=place, allowed=_EXAMPLE)
    put_value(document, path, value, place)
    document.overrides.append(f"{path.strip()}={written.strip()}")


def put_value(document: Document, path: str, value: Plain, place: str) -> None:
    """Puts a value at a path such as `serving.pools.0.replicas`; `place` names its origin."""
    keys = _INDEX.sub(r".\1", path.strip()).split(".")
    if not all(keys) or len(keys) > DEEPEST:
        raise _no_override(place)
    _Walk(document, place).put(keys, value)


def _no_override(place: str) -> InputError:
    return InputError("this is not a path and a value", where=place, allowed=_EXAMPLE)


class _Walk:
    """Walks from the top of the data to the place of the new value."""

    def __init__(self, document: Document, place: str) -> None:
        self._document = document
        self._place = place

    def put(self, keys: list[str], value: Plain) -> None:
        node: Plain = self._document.data
        path: KeyPath = ()
        new: tuple[dict[str, Plain], str] | None = None  # the first section that is not there
        for depth, key in enumerate(keys):
            last = depth == len(keys) - 1
            step = self._step(node, path, key)
            path = (*path, step)
            if isinstance(node, list):
                assert isinstance(step, int)
                if last:
                    node[step] = value
                node = node[step]
                continue
            assert isinstance(node, dict)
            assert isinstance(step, str)
            if last and value is None:
                self._take_out(node, step)
                break
            if last:
                node[step] = value
            elif node.get(step) is None:
                new = new or (node, step)
                self._check_new(*new, path, keys[depth + 1])
                node[step] = {}
                self._document.put_place(path, self._place)
            node = node[step]
        self._document.put_place(path, self._place)

    @staticmethod
    def _take_out(node: dict[str, Plain], key: str) -> None:
        """Removes a value set to null. A missing key stays as null, to be checked for typos."""
        if key in node:
            del node[key]
        else:
            node[key] = None

    def _step(self, node: Plain, path: KeyPath, key: str) -> str | int:
        """The key or index that `key` means inside `node`."""
        if isinstance(node, dict):
            return key
        if isinstance(node, list):
            if key.isascii() and key.isdecimal() and len(key) < 10 and int(key) < len(node):
                return int(key)
            allowed = f"an index from 0 to {len(node) - 1}" if node else None
            raise self._fault(f"{dotted(path)} has no item {shown(key)}", allowed=allowed)
        what = f"{dotted(path)} is {shown(node)}, which has no {shown(key)} in it"
        raise self._fault(what)

    def _check_new(self, node: dict[str, Plain], key: str, path: KeyPath, below: str) -> None:
        """Allows a new section, but not a list created by setting one of its items.

        `key` of `node`: the first section on the way that is not there, perhaps misspelt.
        """
        if below.isdecimal():
            hint = nearest(key, [other for other in node if other != key])
            if hint:
                node.pop(key, None)  # so that it is reported once
            raise self._fault(f"there is no list {dotted(path)} to set an item of", hint=hint)

    def _fault(self, what: str, allowed: str | None = None, hint: str | None = None) -> InputError:
        return InputError(what, where=self._place, allowed=allowed, hint=hint)
