"""Reads YAML text into plain data, and records where each value was written.

The text is composed here from the parser's events, so that everything is bounded: size, depth,
nodes, alias expansion. Plain scalars hold no surprises: only true, false, null and decimal numbers
are converted; `on`, `no` and `12:30` are text.
"""

import copy
import re
from collections.abc import Callable
from pathlib import Path
from typing import TypeAlias

import yaml

from windtunnel.core.errors import InputError
from windtunnel.core.system.files import read_start

Plain: TypeAlias = "bool | int | float | str | list[Plain] | dict[str, Plain] | None"
KeyPath: TypeAlias = tuple[str | int, ...]

SCENARIO = "scenario"
MOST_BYTES = 4 * 1024**2
MOST_NODES = 200_000
DEEPEST = 32
LONGEST_NUMBER = 64

_WORDS: dict[str, Plain] = {
    "": None,
    "~": None,
    **dict.fromkeys(("null", "Null", "NULL")),
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
}
_WHOLE = re.compile(r"[-+]?[0-9]+")
_NUMBER = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?")
_NOT_FINITE = re.compile(r"[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)")
_UNPRINTABLE = re.compile("[^\t\n\r\x20-\x7e\x85\xa0-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_INDENTED_BY_TAB = re.compile(r" *\t")


class Document:
    """Plain data with the origin of every value: a line of a file, or the text of an override."""

    def __init__(self, file: str, data: dict[str, Plain], lines: dict[KeyPath, int]) -> None:
        self.file = file
        self.data = data
        self.overrides: list[str] = []  # `PATH=VALUE`, in the order they were applied
        self.refused: list[InputError] = []
        """Faults of overrides that could not be applied."""
        self._places: dict[KeyPath, int | str] = dict(lines)
        self.size = 1 + len(lines)
        """About how many values the file has."""

    def place(self, path: KeyPath) -> str:
        """Where the value at `path` was written, or where a missing value would be."""
        found = self._nearest(path)
        return found if isinstance(found, str) else f"{self.file}:{found}"

    def order(self, path: KeyPath) -> int:
        """Sort key for faults: by line; faults of overrides come after those of the file."""
        found = self._nearest(path)
        return MOST_BYTES if isinstance(found, str) else found

    def is_overridden(self, path: KeyPath) -> bool:
        return isinstance(self._places.get(path), str)

    def put_place(self, path: KeyPath, place: str) -> None:
        """Records `place` as the origin of everything at and below `path`."""
        for old in [old for old in self._places if old[: len(path)] == path]:
            del self._places[old]
        self._places[path] = place

    def _nearest(self, path: KeyPath) -> int | str:
        for end in range(len(path), -1, -1):
            found = self._places.get(path[:end])
            if found is not None:
                return found
        return 1


def read_text(path: str | Path, noun: str = SCENARIO) -> str:
    """Reads the text of a file; any failure is an InputError of one sentence."""
    where = str(path)
    try:
        raw = read_start(path, MOST_BYTES + 1)
    except FileNotFoundError:
        raise InputError("there is no such file", where=where) from None
    except IsADirectoryError:
        raise InputError("this is a folder", where=where, allowed=f"a {noun} file") from None
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise InputError(f"the file cannot be read: {reason}", where=where) from None
    if len(raw) > MOST_BYTES:
        raise InputError("the file is too large", where=where, allowed=f"{MOST_BYTES} bytes")
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        raise InputError("the text is not UTF-8", where=f"{where}:{line}") from None


def parse_document(
    text: str, file: str, noun: str = SCENARIO, keys: str = "workload, serving and others"
) -> Document:
    """Parses a file that contains one mapping."""
    composer = _Composer(text, lambda line: f"{file}:{line}", noun)
    data = composer.compose()
    if data is None:
        raise InputError("the file is empty", where=file, allowed=_mapping_with(keys))
    return Document(file, _mapping_only(data, file, 1, keys), composer.lines)


def parse_documents(text: str, file: str, noun: str, keys: str) -> list[Document]:
    """The mappings that such a file has, between lines of `---` and within lists as `kubectl get`
    prints them; empty ones are left out."""
    composer = _Composer(text, lambda line: f"{file}:{line}", noun)
    documents = []
    for data, line, lines in composer.compose_all():
        if data is not None:
            lines[()] = line
            for item, places in _items_of(_mapping_only(data, file, line, keys), lines):
                one = _mapping_only(item, file, places[()], keys, "an item of the list")
                documents.append(Document(file, one, places))
    if not documents:
        raise InputError("the file is empty", where=file, allowed=_mapping_with(keys))
    return documents


def _items_of(
    data: dict[str, Plain], lines: dict[KeyPath, int]
) -> list[tuple[Plain, dict[KeyPath, int]]]:
    """The objects of a list (`kind: List`, `kind: PodCliqueSetList`), or the one object."""
    kind, items = data.get("kind"), data.get("items")
    if not (isinstance(kind, str) and kind.endswith("List") and isinstance(items, list)):
        return [(data, lines)]
    found: list[tuple[Plain, dict[KeyPath, int]]] = [(item, {(): lines[()]}) for item in items]
    for path, line in lines.items():
        if path[:1] == ("items",) and len(path) > 1 and isinstance(path[1], int):
            found[path[1]][1][path[2:]] = line
    return found


def _mapping_only(
    data: Plain, file: str, line: int, keys: str, whole: str = "the file"
) -> dict[str, Plain]:
    if not isinstance(data, dict):
        found = "a list" if isinstance(data, list) else "a single value"
        where = f"{file}:{line}"
        raise InputError(f"{whole} is {found}", where=where, allowed=_mapping_with(keys))
    return data


def _mapping_with(keys: str) -> str:
    return f"a mapping with the keys {keys}"


def parse_value(text: str, place: str) -> Plain:
    """Parses a value given outside a file; its faults are reported at `place`."""
    return _Composer(text, lambda _: place).compose()


class _Anchored:
    def __init__(self, value: Plain, nodes: int) -> None:
        self.value = value
        self.nodes = nodes
        self.height = _height(value)


class _Composer:
    """Composes YAML text into plain data."""

    def __init__(self, text: str, where: Callable[[int], str], noun: str = SCENARIO) -> None:
        self.lines: dict[KeyPath, int] = {}
        self._text = text
        self._where = where
        self._noun = noun
        self._nodes = 0
        self._anchors: dict[str, _Anchored] = {}
        self._events = yaml.parse(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))

    def compose(self) -> Plain:
        """The data of a text with at most one document."""
        self._refuse_unprintable()
        try:
            return self._only_document()
        except yaml.YAMLError as error:
            raise self._syntax_fault(error) from None

    def compose_all(self) -> list[tuple[Plain, int, dict[KeyPath, int]]]:
        """For each document: its data, its first line, and the lines of its values."""
        self._refuse_unprintable()
        found = []
        try:
            self._next()
            while not isinstance(self._next(), yaml.StreamEndEvent):
                self.lines, self._anchors = {}, {}
                first = self._next()
                found.append((self._node(first, (), 0), _line(first), self.lines))
                self._next()
        except yaml.YAMLError as error:
            raise self._syntax_fault(error) from None
        return found

    def _refuse_unprintable(self) -> None:
        strange = _UNPRINTABLE.search(self._text)
        if strange:
            line = self._text.count("\n", 0, strange.start()) + 1
            what = f"the text has the unprintable character {strange.group()!a}"
            raise InputError(what, where=self._where(line))

    def _only_document(self) -> Plain:
        self._next()
        if isinstance(self._next(), yaml.StreamEndEvent):
            return None
        data = self._node(self._next(), (), 0)
        self._next()
        after = self._next()
        if not isinstance(after, yaml.StreamEndEvent):
            what = f"a second document starts here; one file is one {self._noun}"
            raise self._fault(after, what)
        return data

    def _next(self) -> yaml.Event:
        event: yaml.Event = next(self._events)
        return event

    def _fault(self, event: yaml.Event, what: str) -> InputError:
        return InputError(what, where=self._where(_line(event)))

    def _node(self, event: yaml.Event, path: KeyPath, depth: int) -> Plain:
        if isinstance(event, yaml.AliasEvent):
            return self._alias(event, depth)
        assert isinstance(event, yaml.ScalarEvent | yaml.CollectionStartEvent)
        before = self._nodes
        self._count(event, 1, depth)
        if event.tag is not None:
            raise self._fault(event, f"the tag {event.tag[:60]!r} is not supported; leave tags out")
        value: Plain
        if isinstance(event, yaml.ScalarEvent):
            value = self._scalar(event)
        elif isinstance(event, yaml.SequenceStartEvent):
            value = self._sequence(path, depth)
        else:
            value = self._mapping(path, depth)
        if event.anchor is not None:
            self._anchors[event.anchor] = _Anchored(value, self._nodes - before)
        return value

    def _count(self, event: yaml.Event, nodes: int, depth: int) -> None:
        self._nodes += nodes
        if self._nodes > MOST_NODES:
            raise self._fault(event, f"the text holds more than {MOST_NODES} values")
        if depth > DEEPEST:
            raise self._fault(event, f"values are nested more than {DEEPEST} deep")

    def _alias(self, event: yaml.AliasEvent, depth: int) -> Plain:
        name = str(event.anchor)
        anchored = self._anchors.get(name)
        if anchored is None:
            what = f"the alias *{name[:60]} refers to no anchor that is complete before it"
            raise self._fault(event, what)
        self._count(event, anchored.nodes, depth + anchored.height)
        return copy.deepcopy(anchored.value)

    def _sequence(self, path: KeyPath, depth: int) -> list[Plain]:
        items: list[Plain] = []
        while not isinstance(event := self._next(), yaml.SequenceEndEvent):
            inside = (*path, len(items))
            self.lines[inside] = _line(event)
            items.append(self._node(event, inside, depth + 1))
        return items

    def _mapping(self, path: KeyPath, depth: int) -> dict[str, Plain]:
        items: dict[str, Plain] = {}
        while not isinstance(event := self._next(), yaml.MappingEndEvent):
            key = self._key(event, depth)
            inside = (*path, key)
            if key in items:
                what = f"the key {key[:60]!r} is written twice, first on line {self.lines[inside]}"
                raise self._fault(event, what)
            self.lines[inside] = _line(event)
            items[key] = self._node(self._next(), inside, depth + 1)
        return items

    def _key(self, event: yaml.Event, depth: int) -> str:
        self._count(event, 1, depth)
        if not isinstance(event, yaml.ScalarEvent):
            raise self._fault(event, "a key is a word, not a list, a mapping or an alias")
        key = self._scalar(event)
        if not isinstance(key, str):
            raise self._fault(event, f"the key {event.value[:60]!r} is not text; put it in quotes")
        return key

    def _scalar(self, event: yaml.ScalarEvent) -> bool | int | float | str | None:
        text: str = event.value
        if not event.implicit[0]:
            return text
        if text in _WORDS:
            word = _WORDS[text]
            assert word is None or isinstance(word, bool)
            return word
        if _NOT_FINITE.fullmatch(text):
            return float(text.replace(".", "", 1))
        if not _NUMBER.fullmatch(text):
            return text
        if len(text) > LONGEST_NUMBER:
            raise self._fault(event, f"a number of {len(text)} characters is too long")
        return int(text) if _WHOLE.fullmatch(text) else float(text)

    def _syntax_fault(self, error: yaml.YAMLError) -> InputError:
        mark = getattr(error, "problem_mark", None)
        line = mark.line + 1 if mark else 1
        lines = self._text.splitlines()
        if line <= len(lines) and _INDENTED_BY_TAB.match(lines[line - 1]):
            what = "the line is indented by a tab; YAML is indented by spaces"
            return InputError(what, where=self._where(line))
        problem = getattr(error, "problem", None) or "it cannot be read"
        since = getattr(error, "context_mark", None)
        hint = (
            f"in what starts on line {since.line + 1}" if since and since.line + 1 < line else None
        )
        where = self._where(min(line, max(len(lines), 1)))
        return InputError(f"this is not YAML: {problem}", where=where, hint=hint)


def _line(event: yaml.Event) -> int:
    assert event.start_mark is not None
    return event.start_mark.line + 1


def _height(value: Plain) -> int:
    if isinstance(value, dict):
        return 1 + max(map(_height, value.values()), default=0)
    if isinstance(value, list):
        return 1 + max(map(_height, value), default=0)
    return 0
