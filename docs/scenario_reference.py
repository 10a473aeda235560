"""Writes docs/reference/scenario.md from the models that check scenario files.

Run it after a change of a field: `python docs/scenario_reference.py`. A test holds the page to it.
"""

import inspect
import math
import re
import types
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from windtunnel.core.units import DURATION_UNITS, SIZE_UNITS
from windtunnel.settings.fields import Bandwidth, Duration, Leaf, Rate, Share, Size, Whole, inner_of
from windtunnel.twin.scenario.sections import Scenario
from windtunnel.workload.settings.sources import BUILT_IN_PRIORITIES

Sections = list[type[BaseModel]]

SHORT = {
    "letters, digits, '.', '_' and '-', at most 64, the first a letter or digit": "name",
    "a model's catalog name, or the path of a Hugging Face config.json": "model",
    "the name of an accelerator, such as h200": "accelerator",
    "true or false": "bool",
    "key=value:effect or key:effect, with NoSchedule, PreferNoSchedule or NoExecute": "taint",
    "the name of a metric": "metric",
    "a metric": "metric",
    "the key or the value of a label": "label",
    "the name of an environment variable": "variable",
    "HOST:PORT, such as 127.0.0.1:8080": "HOST:PORT",
    "NAME or NAMESPACE/NAME, of small letters, digits and '-'": "NAME or NAMESPACE/NAME",
    "the path of a file of manifests": "file",
    "the path of a trace": "file",
    "the path of a table of step times": "file or folder",
    "the name of a profile, or the path of its JSON file": "name or file",
    "a PEM file": "file",
    "a file": "file",
    "a cron expression": "cron",
    "a word": "word",
}
"""Kinds of value that the introduction or their key explains, by what messages say of them."""
SMALL = 4
"""Keys of a section that is explained in the table of the section around it."""
SHORTEST = 60
"""Characters of a section's sentence that says more than the key that leads to it."""
PAGE = Path(__file__).parent / "reference" / "scenario.md"

INTRODUCTION = """\
# Scenario files

A scenario is one YAML file; start from `examples/first.yaml`.

- Unknown keys and values of the wrong kind are errors: `"4"` is not a number, `on` is not `true`.
- `--set PATH=VALUE` overrides a value before the file is checked: keys are joined by dots, list
  items count from 0 (`--set serving.pools.0.replicas=8`), values are written as in the file.
  `--set duration=null` removes a key. Several apply in order.
- Errors are reported together, each with its file and line (or its `--set`).
- Relative paths count from the scenario's folder.
- `scenario_sha256` in results is a digest of all effective values and of the manifests that
  `scaling` and `gangs` name; it ignores the file's name, comments and layout.
- Limits: 4 MiB, 200,000 values (aliases count as what they stand for), 32 levels.

Each key is followed by its values, in brackets:

- `0s..24h`: a duration: `250ms`, `30s`, `5m`, `4h`, `1h30m`, or a number of seconds
- `0/s..100/s`: a rate: `40/s`, `2400/min`, or a number per second
- `0B..1TB`, `1kB/s..1PB/s`: a size (`80GiB`, `16GB`), a bandwidth (`25GB/s`)
- `>0%..100%`: a share: `95%` or `0.95`
- `1..8`: a whole number from 1 to 8, both included
- `>0.0..1.5`: a decimal above 0, up to 1.5; `1e6` is one million
- name: letters, digits, '.', '_' and '-', at most 64, the first a letter or digit
- model: a catalog name, or the path of a Hugging Face config.json (`*.json`, `.*`, `/*`)
- accelerator: a catalog name, such as h200
- taint: `key=value:effect` or `key:effect`, with NoSchedule, PreferNoSchedule or NoExecute
- bool: `true` or `false`
- `[X]`, `{name: X}`: a list of X, a mapping of names to X

A key is required (`*`), has a default (`=5s`), or may be omitted.
"""


def page() -> str:
    """The whole page."""
    parts = [INTRODUCTION, *sections("The file", "", Scenario)]
    classes = ", ".join(f"`{name}` {priority}" for name, priority in BUILT_IN_PRIORITIES.items())
    parts.append(f"Built-in classes of service and their priorities: {classes}.\n")
    return "\n".join(parts)


def sections(title: str, path: str, section: type[BaseModel]) -> list[str]:
    """A section and all that are below it, as parts of a page."""
    writer = Writer()
    writer.add(title, path, [section])
    return writer.parts


class Writer:
    """Writes sections, each once; later uses are links to the first."""

    def __init__(self) -> None:
        self.parts: list[str] = []
        self.titles: dict[tuple[type[BaseModel], ...], str] = {}
        self.title = ""
        self.said: dict[tuple[str, str], str] = {}
        self.small: dict[type[BaseModel], tuple[str, str]] = {}
        self.below: list[tuple[str, str, Sections]] = []

    def add(self, title: str, path: str, members: Sections) -> None:
        """A section, or those of which one is chosen, and then what is below."""
        above, self.title, self.below = self.below, title, []
        self.parts.append(f"## {title}\n")
        if len(members) == 1:
            means = inspect.cleandoc(members[0].__doc__ or "")
            if len(means) > SHORTEST:
                self.parts.append(f"{means}\n")
            self.parts.append("\n".join([*self.new_items(self.rows(members[0], path)), ""]))
        else:
            self.add_variants(path, members)
        below, self.below = self.below, above
        for part in below:
            self.add(*part)

    def new_items(self, rows: dict[str, str]) -> list[str]:
        """The keys of a section; those that an earlier section explains alike, by their names."""
        earlier: dict[str, list[str]] = {}
        for one in rows.items():
            earlier.setdefault(self.said.setdefault(one, self.title), []).append(one[0])
        told = {
            where: keys for where, keys in earlier.items() if where == self.title or not keys[1:]
        }
        items = _items(
            {key: rows[key] for key in rows if any(key in keys for keys in told.values())}
        )
        for where, keys in earlier.items():
            if where not in told:
                items.append(f"- {', '.join(f'`{key}`' for key in keys)}: as in {where}")
        return items

    def add_variants(self, path: str, members: Sections) -> None:
        """Each variant with its own keys, then the keys that all of them share, then some."""
        choosers = {_word(_chooser(member, members)): member for member in members}
        have: dict[tuple[str, str], list[str]] = {}
        for word, member in choosers.items():
            for row in self.rows(member, path, word).items():
                have.setdefault(row, []).append(word)
        order = list(dict.fromkeys(key for key, _ in have))
        shared: dict[tuple[str, ...], dict[str, str]] = {}
        for (key, row), words in sorted(have.items(), key=lambda one: order.index(one[0][0])):
            shared.setdefault(tuple(words), {})[key] = row
        common = shared.pop(tuple(choosers), {})
        lines = []
        for word, member in choosers.items():
            means = " ".join(inspect.cleandoc(member.__doc__ or "").split())
            lines.append(f"- {_chooser(member, members)}: {means}")
            lines += [f"  {item}" for item in _items(shared.pop((word,), {}))]
        self.parts.append("\n".join([*lines, ""]))
        if common:
            self.parts += ["For all:\n", "\n".join([*_items(common), ""])]
        last: tuple[str, ...] = ()
        for words, rows in shared.items():
            others = [f"`{word}`" for word in choosers if word not in words]
            scope = [f"`{word}`" for word in words]
            if last and set(last) < set(words):
                scope = ["these and " + ", ".join(f"`{one}`" for one in words if one not in last)]
            elif len(others) < len(scope):
                scope = ["all but " + ", ".join(others)]
            self.parts.append(f"For {', '.join(scope)}:\n")
            last = words
            self.parts.append("\n".join([*_items(rows), ""]))

    def rows(self, section: type[BaseModel], path: str, word: str = "") -> dict[str, str]:
        """The cells of each key but the one that chooses the section."""
        rows = {}
        for name, field in section.model_fields.items():
            key = field.alias or name
            if not field.description:
                continue
            small: dict[str, str] = {}
            value = self.value(field, f"{path}.{key}".lstrip("."), word, small)
            given_away = value == "bool" and not field.is_required()  # by the default
            if _explained(field) or value == "mapping" or given_away:
                value = ""
            given = f"{value}{_default(field)}".strip(" ,")
            star = "*" * field.is_required()
            rows[key] = f"{star} ({given})".removesuffix(" ()") + f": {field.description}"
            rows |= {f"{key}{below}": cells for below, cells in small.items()}
        return rows

    def value(self, field: FieldInfo, path: str, word: str, small: dict[str, str]) -> str:
        """What may be written; `small` gets the rows of a small section, others get a link."""
        leaves = [leaf for leaf in field.metadata if isinstance(leaf, Leaf)]
        if leaves:
            return _leaf(leaves[0])
        return self.kind(field.annotation, path, "", word, small)

    def kind(
        self, annotation: Any, path: str, suffix: str, word: str, small: dict[str, str]
    ) -> str:
        origin, arguments = get_origin(annotation), get_args(annotation)
        if origin is Annotated:
            leaves = [leaf for leaf in arguments[1:] if isinstance(leaf, Leaf)]
            if leaves:
                return _leaf(leaves[0])
            return self.kind(inner_of(annotation), path, suffix, word, small)
        if origin is Literal:
            return ", ".join(f"`{choice}`" for choice in arguments)
        if origin is list:
            return f"[{self.kind(arguments[0], path, suffix + '[]', word, small)}]"
        if origin is dict:
            return f"{{name: {self.kind(arguments[1], path, suffix + '.NAME', word, small)}}}"
        members = _sections(annotation)
        kinds = [self.kind(one, path, suffix, word, small) for one in _others(annotation)]
        if members:
            kinds.append(self.mapping(path, suffix, word, members, small))
        found = " or ".join(kinds)
        return re.sub(r", or a mapping with [^|]* or (?=mapping|\[mapping)", " or ", found)

    def mapping(
        self, path: str, suffix: str, word: str, members: Sections, small: dict[str, str]
    ) -> str:
        """A link to where a section is explained, or its rows where it is small and new."""
        title = self.titles.get(tuple(members))
        here = (self.title, path + suffix)
        if self.small.get(members[0]) == here or (title is None and _is_small(members)):
            self.titles[tuple(members)], self.small[members[0]] = here[0], here
            below = self.rows(members[0], path + suffix, word)
            small |= {f"{suffix}.{key}": row for key, row in below.items()}
            return "mapping"
        if title is None:
            title = f"`{path}{suffix}`"
            if title in self.titles.values():
                title += f" of `{word}`"
            assert title not in self.titles.values(), f"two sections named {title}"
            self.titles[tuple(members)] = title
            self.below.append((title, path + suffix, members))
        anchor = re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-")
        return f"[mapping](#{anchor})"


def _items(rows: Mapping[str, str]) -> list[str]:
    """An item per row; keys with the same row share one."""
    alike: dict[str, list[str]] = {}
    for key, row in rows.items():
        alike.setdefault(row, []).append(f"`{key}`")
    return [f"- {', '.join(keys)}{row}" for row, keys in alike.items()]


def _word(chooser: str) -> str:
    return chooser.rpartition(": ")[2].removeprefix("with ").strip("`")


def _explained(field: FieldInfo) -> bool:
    """Whether the sentence of a choice names everything that can be chosen."""
    if get_origin(field.annotation) is not Literal or any(
        isinstance(one, Leaf) for one in field.metadata
    ):
        return False
    choices = get_args(field.annotation)
    return len(choices) > 1 and all(f"`{one}`" in (field.description or "") for one in choices)


def _is_small(members: Sections) -> bool:
    below = [_sections(field.annotation) for field in members[0].model_fields.values()]
    return len(members) == 1 and len(below) <= SMALL and not any(below)


def _leaf(leaf: Leaf) -> str:
    if isinstance(leaf, Whole):
        return f"{leaf.word} or " * bool(leaf.word) + f"{leaf.low}..{_short(str(leaf.high))}"
    found = SHORT.get(leaf.allowed, leaf.allowed)
    bounds = re.fullmatch(r"a (\w+) (above|from) (\S+?),? (?:to|up to) (\S+?)(,.*)?", found)
    if bounds is None:
        return found
    noun, kind, low, high, _ = bounds.groups()
    ends = [_short(end.removesuffix(".0")) for end in (low, high)]
    if noun == "number":
        ends = [end if re.search(r"[.e]", end) else f"{end}.0" for end in ends]
    return f"{'>' * (kind == 'above')}{'..'.join(ends)}"


def _short(text: str) -> str:
    """Powers of ten from a billion on, as files may have them."""
    return re.sub(r"\b10{9,}\b", lambda one: f"1e{len(one[0]) - 1}", text)


def _default(field: FieldInfo) -> str:
    if field.is_required() or field.default_factory is not None or field.default is None:
        return ""
    return f", `={as_written(field.default, leaf_of(field))}`"


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
    if isinstance(leaf, Share):
        return f"{100 * value:g}%"
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


def _chooser(section: type[BaseModel], members: Sections) -> str:
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


def _sections(annotation: Any) -> Sections:
    """The sections among the members of a union, or the one that it is."""
    if get_origin(annotation) is Annotated:
        annotation = inner_of(annotation)
    one = _section(annotation)
    if one is not None:
        return [one]
    if get_origin(annotation) not in (Union, types.UnionType):
        return []
    return [section for member in get_args(annotation) for section in _sections(member)]


def _others(annotation: Any) -> list[Any]:
    """The members of a union that are no sections."""
    found = []
    for member in get_args(annotation):
        if _sections(member):
            below = inner_of(member) if get_origin(member) is Annotated else member
            found += _others(below) if get_args(below) else []
        elif get_origin(annotation) in (Union, types.UnionType) and member is not types.NoneType:
            found.append(member)
    return found


def _section(annotation: Any) -> type[BaseModel] | None:
    if get_origin(annotation) is Annotated:
        annotation = inner_of(annotation)
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    return None


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
