"""Turns validation errors into sentences: file, line, path, value, what is allowed, a hint."""

import re
import types
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, NamedTuple, Union, get_args, get_origin

from pydantic import BaseModel, Tag, ValidationError
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails

from windtunnel.core.errors import InputError, nearest, one_line, one_sentence_per
from windtunnel.settings.document import Document, KeyPath
from windtunnel.settings.fields import (
    FAULT,
    ONE_KEY,
    TAG_MARK,
    VARIANT,
    WORD_BREAK,
    Leaf,
    inner_of,
    is_not,
)

MOST_FAULTS = 20
LONGEST_PATH = 120
UNKNOWN_KEY = "unknown key"

_QUOTED = re.compile(r"'([^']*)'")


class Fault(NamedTuple):
    """One fault, at a path in the data of a file."""

    path: KeyPath
    what: str
    allowed: str | None = None
    hint: str | None = None
    because_of: tuple[KeyPath, ...] = ()
    """Other values that the fault depends on; if one is overridden, the fault is reported there."""
    is_note: bool = False
    """Whether this is only a note: a setting is unused or looks wrong, but the file is valid."""


def faults_at(path: KeyPath, error: InputError) -> list[Fault]:
    """What is wrong with something that the value at `path` names, such as a file."""
    return [
        Fault(path, f"{one.where}: {one.what}" if one.where else one.what, one.allowed, one.hint)
        for one in error.faults
    ]


def dotted(path: KeyPath) -> str:
    """The path in dotted form: `serving.pools[0].replicas`."""
    text = "".join(f"[{key}]" if isinstance(key, int) else f".{key}" for key in path)
    return one_line(text.removeprefix("."), LONGEST_PATH)


def input_error(document: Document, faults: Sequence[Fault]) -> InputError:
    """The faults as one error, in file order; then those of overrides that were not applied."""
    ordered = sorted(faults, key=lambda fault: document.order(fault.path))
    errors = [_sentence(document, fault) for fault in ordered[:MOST_FAULTS]]
    if len(faults) > MOST_FAULTS:
        more = len(faults) - MOST_FAULTS
        what = "there is 1 more fault" if more == 1 else f"there are {more} more faults"
        errors.append(InputError(what, where=document.file))
    return one_sentence_per([*errors, *document.refused])


def notes_of(document: Document, notes: Sequence[Fault]) -> tuple[str, ...]:
    """A sentence for each note, in file order."""
    ordered = sorted(notes, key=lambda note: document.order(note.path))
    return tuple(str(_sentence(document, note)) for note in ordered)


def _sentence(document: Document, fault: Fault) -> InputError:
    overridden = (path for path in fault.because_of if document.is_overridden(path))
    where = document.place(next(overridden, fault.path))
    if fault.path:
        where += ": " + dotted(fault.path)
    return InputError(fault.what, where=where, allowed=fault.allowed, hint=fault.hint)


def checker_faults(error: ValidationError, top: type[BaseModel]) -> list[Fault]:
    """Validation errors as faults in our own words."""
    return [_translate(found, top) for found in error.errors(include_url=False)]


def _translate(found: ErrorDetails, top: type[BaseModel]) -> Fault:
    location = found["loc"]
    path = tuple(
        step for step in location if not (isinstance(step, str) and step.startswith(TAG_MARK))
    )
    kind, value, context = found["type"], found["input"], found.get("ctx", {})
    if kind == FAULT:
        if path[-1:] == ("[key]",):
            path = path[:-1]
        return Fault(path, context["what"], context["allowed"], context["hint"])
    if kind == VARIANT:
        words, refused = context["words"].split(WORD_BREAK), context["refused"] or {}
        return _variant_fault(path, value, context["key"], words, refused)
    if kind == ONE_KEY:
        return _one_key_fault(path, value, context["keys"].split(WORD_BREAK))
    if kind == "missing":
        return _missing(path, location, top)
    if kind == "extra_forbidden":
        return _unknown_key(path, _type_at(location[:-1], top), top)
    if kind == "literal_error":
        return _not_among(path, value, _QUOTED.findall(context["expected"]))
    if kind in ("too_short", "too_long"):
        return _wrong_count(path, context)
    return _wrong_shape(path, found, top)


def _wrong_shape(path: KeyPath, found: ErrorDetails, top: type[BaseModel]) -> Fault:
    kind, value, location = found["type"], found["input"], found["loc"]
    if kind == "list_type":
        example = _example(_field_at(location, top))
        allowed = f"a list, each item after a '-'{', such as ' if example else ''}{example}"
        return Fault(path, is_not(value, "a list"), allowed)
    wanted = _type_at(location, top)
    assert kind in ("model_type", "dict_type"), kind
    keys = f"the keys {', '.join(_fields(wanted))}" if _is_section(wanted) else "names as keys"
    return Fault(path, is_not(value, "a mapping"), f"a mapping with {keys}")


def _variant_fault(
    path: KeyPath, value: Any, key: str, words: list[str], refused: Mapping[str, str]
) -> Fault:
    if not isinstance(value, Mapping):
        allowed = f"a mapping in which '{key}' is one of {', '.join(words)}"
        return Fault(path, is_not(value, "a mapping"), allowed)
    if key not in value:
        return Fault((*path, key), "missing", ", ".join(words))
    if isinstance(value[key], str) and value[key] in refused:
        return Fault((*path, key), f"{value[key]} {refused[value[key]]}", ", ".join(words))
    return _not_among((*path, key), value[key], words)


def _one_key_fault(path: KeyPath, value: Mapping[str, Any], keys: list[str]) -> Fault:
    written = [key for key in keys if key in value]
    what = f"neither {' nor '.join(keys)} is written"
    if written:
        what = f"{' and '.join(written)} are both written"
    return Fault(path, what, f"one of {' or '.join(keys)}")


def _not_among(path: KeyPath, value: object, words: Sequence[str]) -> Fault:
    hint = nearest(value, words) if isinstance(value, str) and len(value) < 100 else None
    return Fault(path, is_not(value, "known here"), ", ".join(words), hint)


def _unknown_key(path: KeyPath, section: Any, top: type[BaseModel]) -> Fault:
    known = list(_fields(section)) if _is_section(section) else []
    key = str(path[-1])
    if len(path) > 1 and key in _fields(top):
        above = f"`{key}` belongs at the top of the file"
        return Fault(path, UNKNOWN_KEY, ", ".join(known) or None, above)
    hint = nearest(key, known) if len(key) < 100 else None
    return Fault(path, UNKNOWN_KEY, None if hint else ", ".join(known) or None, hint)


def meant_keys(fault: Fault) -> list[KeyPath]:
    """The paths of the known keys that an unknown one is probably a typo of."""
    if fault.what != UNKNOWN_KEY or not (fault.hint or "").startswith("did you mean"):
        return []
    return [(*fault.path[:-1], name) for name in _QUOTED.findall(fault.hint or "")]


def _wrong_count(path: KeyPath, context: Mapping[str, Any]) -> Fault:
    count = context["actual_length"]
    what = f"the list has {count or 'no'} item{'' if count == 1 else 's'}"
    if "min_length" in context:
        return Fault(path, what, f"at least {context['min_length']}")
    return Fault(path, what, f"at most {context['max_length']}")


def _missing(path: KeyPath, location: tuple[int | str, ...], top: type[BaseModel]) -> Fault:
    section = _type_at(location[:-1], top)
    assert _is_section(section)
    fields = _fields(section)
    field = fields[str(location[-1])]
    allowed = next((leaf.allowed for leaf in field.metadata if isinstance(leaf, Leaf)), None)
    if allowed is None and (example := _example(field)):
        allowed = f"a list such as {example}"
    beside = tuple((*path[:-1], name) for name in fields)
    return Fault(path, "missing", allowed, because_of=beside)


def _field_at(location: tuple[int | str, ...], top: type[BaseModel]) -> FieldInfo | None:
    """The field of a section at `location`; None if there is none."""
    section = _type_at(location[:-1], top)
    return _fields(section).get(str(location[-1])) if _is_section(section) else None


def _example(field: FieldInfo | None) -> str:
    """A list item as written in a file, if the field has an example; else empty."""
    if field is None or not field.examples:
        return ""
    item = field.examples[0][0]
    return f"- {{{', '.join(f'{key}: {value}' for key, value in item.items())}}}"


def _fields(section: type[BaseModel]) -> dict[str, FieldInfo]:
    """The fields of a section by their keys in files."""
    return {field.alias or name: field for name, field in section.model_fields.items()}


def _is_section(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, BaseModel)


def _type_at(location: tuple[int | str, ...], top: type[BaseModel]) -> Any:
    """The type that the value at `location` is validated against; None if there is none."""
    kind: Any = top
    for step in location:
        kind = _type_inside(kind, step)
    return _bare(kind)


def _type_inside(kind: Any, step: int | str) -> Any:
    kind = _bare(kind)
    if _is_section(kind):
        field = _fields(kind).get(str(step))
        return field.annotation if field else None
    if get_origin(kind) in (Union, types.UnionType):
        tagged = [member for member in get_args(kind) for tag in _tags(member) if tag == step]
        return tagged[0] if tagged else None
    if get_origin(kind) in (list, dict):
        return get_args(kind)[-1]
    return None


def _bare(kind: Any) -> Any:
    """The type without annotations, and without `| None` if it is optional."""
    if get_origin(kind) is Annotated:
        return _bare(inner_of(kind))
    members = [member for member in get_args(kind) if member is not types.NoneType]
    if get_origin(kind) in (Union, types.UnionType) and len(members) == 1:
        return _bare(members[0])
    return kind


def _tags(member: Any) -> list[str]:
    return [mark.tag for mark in getattr(member, "__metadata__", ()) if isinstance(mark, Tag)]
