"""Writes docs/reference/scenario.md from the models that check scenario files.

Run it after a change of a field: `python docs/scenario_reference.py`. A test holds the page to it.
"""

import inspect
import math
import types
from collections import Counter
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from windtunnel.core.units import DURATION_UNITS, SIZE_UNITS
from windtunnel.settings.fields import Bandwidth, Duration, Leaf, Rate, Size
from windtunnel.twin.scenario.sections import Scenario
from windtunnel.workload.settings.sources import BUILT_IN_PRIORITIES

_told: dict[tuple[type[BaseModel], ...], str] = {}
"""Where the members of a union have been explained."""
_written_down: set[tuple[str, type[BaseModel]]] = set()
"""Titles with their sections: what several variants share is explained once."""

TABLE = ("| key | what is written | default | meaning |", "|---|---|---|---|")
NAME = "letters, digits, '.', '_' and '-', at most 64, the first a letter or digit"
"""What the introduction explains."""
SEVERAL = 3
"""So many variants with the same row: it is explained once."""
PAGE = Path(__file__).parent / "reference" / "scenario.md"

INTRODUCTION = """\
# Scenario files

A scenario is one YAML file: traffic, servers and targets. This page lists every key;
`examples/first.yaml` is a small one to start from.

- Unknown keys and values of the wrong kind are errors: `"4"` is not a number, `on` is not `true`.
- Durations are written `250ms`, `30s`, `5m`, `4h`, `1h30m`, or as a number of seconds; rates
  `40/s`, `2400/min`, or as a number per second. Numbers are decimal; `1e6` is one million.
- `--set PATH=VALUE` overrides a value before anything is checked: keys are joined by dots, list
  items count from 0 (`--set serving.pools.0.replicas=8`), values are written as in the file. It
  also sets keys that the file leaves out; `--set duration=null` removes one. Several apply in
  order.
- Every error is one sentence with its file and line (or its `--set`); all are reported together.
- `scenario_sha256` in results is a digest of all effective values and of the manifests that
  `scaling` and `gangs` name, whatever the file's name, comments and layout.
- A name has letters, digits, '.', '_' and '-', at most 64, the first a letter or digit.

Limits of a file: 4 MiB, 200,000 values (aliases count as what they stand for), 32 levels.
"""


def page() -> str:
    """The whole page."""
    _told.clear()
    _written_down.clear()
    parts = [INTRODUCTION]
    _add_section(parts, "The file", "", Scenario)
    classes = ", ".join(f"`{name}` {priority}" for name, priority in BUILT_IN_PRIORITIES.items())
    parts.append(f"Built-in classes of service and their priorities: {classes}.\n")
    return "\n".join(parts)


def _add_section(
    parts: list[str],
    title: str,
    path: str,
    section: type[BaseModel],
    shared: Collection[str] = (),
) -> None:
    """A section; rows that variants share are explained before them, and only named here."""
    if (title, section) in _written_down:
        return
    _written_down.add((title, section))
    parts.append(f"## {title}\n")
    parts.append(f"{inspect.cleandoc(section.__doc__ or '')}\n")
    rows = _rows(section)
    own = [row for key, row in rows.items() if row not in shared]
    if own:
        parts.append("\n".join([*TABLE, *own]) + "\n")
    named = [f"`{key}`" for key, row in rows.items() if row in shared]
    if named:
        parts.append(f"Also {', '.join(named)}, as above.\n")
    for name, field in section.model_fields.items():
        _add_below(parts, f"{path}.{field.alias or name}".lstrip("."), field.annotation)


def _rows(section: type[BaseModel]) -> dict[str, str]:
    fields = {field.alias or name: field for name, field in section.model_fields.items()}
    return {key: _row(key, field) for key, field in fields.items()}


def _add_variants(parts: list[str], path: str, members: list[type[BaseModel]]) -> None:
    """Sections of which one is chosen: first the keys that several have alike, then each."""
    counts = Counter(row for member in members for row in _rows(member).values())
    shared = [row for row, many in counts.items() if many >= SEVERAL]
    if shared:
        parts.append(f"## `{path}`: keys of several kinds\n")
        parts.append("Each kind below names those of these keys that it has.\n")
        parts.append("\n".join([*TABLE, *shared]) + "\n")
    for member in members:
        _add_section(parts, f"`{path}`: {_chooser(member, members)}", path, member, shared)


def _row(key: str, field: FieldInfo) -> str:
    meaning = field.description or "Chooses this."
    return f"| `{key}` | {_written(field)} | {_default(field)} | {meaning} |"


def _default(field: FieldInfo) -> str:
    if field.is_required():
        return "required"
    if field.default_factory is not None or field.default is None:
        return "left out"
    return f"`{as_written(field.default, leaf_of(field))}`"


def as_written(value: Any, leaf: Leaf | None) -> str:
    """A value as a person writes it: the largest unit of which it is a whole number."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(leaf, Size):
        return _whole(value, SIZE_UNITS, "B")
    if isinstance(leaf, Bandwidth):
        return f"{_whole(value, SIZE_UNITS, 'B')}/s"
    if isinstance(leaf, Rate):
        return f"{value:g}/s"
    if isinstance(leaf, Duration):
        shorter = {unit: size for unit, size in DURATION_UNITS.items() if unit not in ("d", "min")}
        return _whole(value, shorter, "s")
    return f"{value:g}" if isinstance(value, float) else str(value)


def _whole(value: float, units: Mapping[str, float], bare: str) -> str:
    for unit, size in sorted(units.items(), key=lambda one: -one[1]):
        many = value / size
        if many >= 1.0 and math.isclose(many, round(many), rel_tol=1e-9):
            return f"{round(many)}{unit}"
    return f"{value:g}{bare}"


def leaf_of(field: FieldInfo) -> Leaf | None:
    """What reads a field, where it is one value."""
    annotated = [part for part in get_args(field.annotation) if get_origin(part) is Annotated]
    found = [*field.metadata, *(word for part in annotated for word in get_args(part)[1:])]
    return next((word for word in found if isinstance(word, Leaf)), None)


def _written(field: FieldInfo) -> str:
    leaves = [leaf for leaf in field.metadata if isinstance(leaf, Leaf)]
    found = leaves[0].allowed if leaves else _kind(field.annotation)
    return found.replace(NAME, "a name").removesuffix(", such as 250ms")


def _kind(annotation: Any) -> str:
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        leaves = [leaf for leaf in arguments[1:] if isinstance(leaf, Leaf)]
        return leaves[0].allowed if leaves else _kind(arguments[0])
    if origin is Literal:
        return ", ".join(f"`{word}`" for word in arguments)
    if origin is list:
        if _sections(arguments[0]):
            return "a list of mappings"
        each = _kind(arguments[0])
        return "a list of numbers" if each.startswith("a number") else f"a list, each {each}"
    if origin is dict:
        values = _kind(arguments[1])
        return f"a mapping of names to {'mappings' if values == 'a mapping' else values}"
    members = [member for member in arguments if member is not types.NoneType]
    if origin in (Union, types.UnionType):
        if len(members) == 1:
            return _kind(members[0])
        bare = [_kind(member) for member in members if _section(member) is None]
        return bare[0] if bare else "a mapping"
    return "a mapping"


def _add_below(parts: list[str], path: str, annotation: Any) -> None:
    origin, arguments = get_origin(annotation), get_args(annotation)
    section = _section(annotation)
    if origin is Annotated and section is None:
        _add_below(parts, path, arguments[0])
    elif section is not None:
        _add_section(parts, f"`{path}`", path, section)
    elif origin is list:
        _add_below(parts, f"{path}[]", arguments[0])
    elif origin is dict:
        _add_below(parts, f"{path}.NAME", arguments[1])
    elif origin in (Union, types.UnionType):
        members = _sections(annotation)
        first = _told.setdefault(tuple(members), path)
        if members and first != path:
            parts.append(f"## `{path}`\n\nAs `{first}`.\n")
        elif len(members) == 1:
            _add_section(parts, f"`{path}`", path, members[0])
        else:
            _add_variants(parts, path, members)


def _chooser(section: type[BaseModel], members: list[type[BaseModel]]) -> str:
    """`process: poisson`: the words by which a variant is chosen, or the key that it alone has."""
    for name, field in section.model_fields.items():
        key = field.alias or name
        if get_origin(field.annotation) is Literal and field.is_required():
            return f"`{key}: {get_args(field.annotation)[0]}`"
    others = {key for member in members if member is not section for key in member.model_fields}
    for name, field in section.model_fields.items():
        key = field.alias or name
        if key not in others and field.is_required():
            return f"with `{key}`"
    raise AssertionError(f"{section.__name__} has no word that chooses it")


def _sections(annotation: Any) -> list[type[BaseModel]]:
    """The sections among the members of a union, or the one that it is."""
    if get_origin(annotation) is Annotated:
        annotation = get_args(annotation)[0]
    one = _section(annotation)
    if one is not None:
        return [one]
    if get_origin(annotation) not in (Union, types.UnionType):
        return []
    return [section for member in get_args(annotation) for section in _sections(member)]


def _section(annotation: Any) -> type[BaseModel] | None:
    if get_origin(annotation) is Annotated:
        annotation = get_args(annotation)[0]
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    return None


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
