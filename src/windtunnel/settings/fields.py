"""The kinds of value in a file: each checks itself and says what it allows."""

import math
import re
from collections.abc import Callable, Mapping
from contextvars import ContextVar
from functools import cached_property
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any, NoReturn, get_args

from pydantic import (
    BaseModel,
    Discriminator,
    GetCoreSchemaHandler,
    GetJsonSchemaHandler,
    SerializationInfo,
    Tag,
    TypeAdapter,
)
from pydantic_core import CoreSchema, PydanticCustomError, core_schema

from windtunnel.core.errors import InputError, one_line
from windtunnel.core.taints import taint_of
from windtunnel.core.units import (
    parse_bandwidth,
    parse_duration,
    parse_rate,
    parse_share,
    parse_size,
)

FAULT = "windtunnel_fault"
VARIANT = "windtunnel_variant"
ONE_KEY = "windtunnel_one_key"
WORD_BREAK = " "
TAG_MARK = "\x1f"
"""Marks the tags of variants, to distinguish them from keys in the location of a fault."""

LONGEST_QUOTE = 60
LONGEST_NAME = 64
LONGEST_TEXT = 1024


def shown(value: object) -> str:
    """A value in a recognisable form, at most LONGEST_QUOTE characters long."""
    if value is None:
        return "nothing"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, Mapping):
        return "a mapping"
    if isinstance(value, list | tuple):
        return "a list"
    return one_line(repr(value), LONGEST_QUOTE)


def is_not(value: object, noun: str) -> str:
    """The sentence about a value of the wrong kind."""
    return "nothing is written here" if value is None else f"{shown(value)} is not {noun}"


class Leaf:
    """A single value: `check` returns it in the program's form, or fails with a sentence."""

    allowed: str
    schema: dict[str, Any]
    suffix = ""
    """The unit suffix of field names for such a value; files leave it out."""

    def check(self, value: object) -> object:
        raise NotImplementedError

    def fail(self, what: str, hint: str | None = None) -> NoReturn:
        raise PydanticCustomError(
            FAULT, "{what}", {"what": what, "allowed": self.allowed, "hint": hint}
        )

    def __get_pydantic_core_schema__(
        self, source: object, handler: GetCoreSchemaHandler
    ) -> CoreSchema:
        return core_schema.no_info_plain_validator_function(self.check)

    def __get_pydantic_json_schema__(
        self, core: CoreSchema, handler: GetJsonSchemaHandler
    ) -> dict[str, Any]:
        return dict(self.schema)


class Whole(Leaf):
    """A whole number. `word` is accepted in its place; `instead` describes another allowed form."""

    def __init__(
        self, low: int, high: int, word: str | None = None, instead: str | None = None
    ) -> None:
        self.low, self.high, self.word = low, high, word
        self.allowed = f"a whole number from {low} to {high}"
        self.schema = {"type": "integer", "minimum": low, "maximum": high}
        if word:
            self.allowed = f"{word}, or {self.allowed}"
            self.schema = {"anyOf": [{"const": word}, self.schema]}
        if instead:
            self.allowed += f", or {instead}"

    def check(self, value: object) -> int | str:
        if self.word is not None and value == self.word:
            return self.word
        if isinstance(value, bool) or not isinstance(value, int | float) or not _integral(value):
            self.fail(is_not(value, "a whole number"), _quoted_number_hint(value))
        if value < self.low:
            self.fail(f"{shown(value)} is too small")
        if value > self.high:
            self.fail(f"{shown(value)} is too large")
        return int(value)


class _Range(Leaf):
    """A real quantity between two bounds; `above` excludes the lower one."""

    noun: str
    examples: tuple[str | float, ...] = ()

    def __init__(self, low: float | str, high: float | str, *, above: bool = False) -> None:
        self.low, self.high, self.above = self.read(low), self.read(high), above
        bounds = f"above {low}, up to {high}" if above else f"from {low} to {high}"
        self.allowed = f"{self.noun} {bounds}"
        if self.examples:
            self.allowed += f", such as {self.examples[0]}"
        bound = "exclusiveMinimum" if above else "minimum"
        self.schema = {"type": "number", bound: self.low, "maximum": self.high}
        if self.examples:
            self.schema |= {"type": ["string", "number"], "examples": list(self.examples)}

    def read(self, value: object) -> float:
        raise NotImplementedError

    def check(self, value: object) -> float:
        amount = self.read(value)
        if not math.isfinite(amount):
            self.fail(is_not(value, self.noun))
        if amount < self.low or (self.above and amount == self.low):
            self.fail(f"{shown(value)} is too small")
        if amount > self.high:
            self.fail(f"{shown(value)} is too large")
        return float(amount)

    def refuse(self, value: object) -> NoReturn:
        self.fail(is_not(value, self.noun), _quoted_number_hint(value))

    def by(self, parse: Callable[[str | float], float], value: object) -> float:
        if isinstance(value, bool) or not isinstance(value, str | int | float):
            self.refuse(value)
        try:
            return parse(value)
        except InputError as error:
            unit = error.what.rpartition(": ")[2] if ": unknown unit" in error.what else None
            self.fail(is_not(value, self.noun), unit)


class Number(_Range):
    """A number without a unit."""

    noun = "a number"

    def read(self, value: object) -> float:
        if isinstance(value, bool) or not isinstance(value, int | float):
            self.refuse(value)
        return value


class Share(Number):
    """A percentage or a fraction; a fraction inside the program."""

    noun = "a share"
    examples = ("95%", 0.95)

    def __init__(self, low: str = "0%", high: str = "100%", *, above: bool = False) -> None:
        super().__init__(low, high, above=above)

    def read(self, value: object) -> float:
        return self.by(parse_share, value)


class Duration(_Range):
    """A duration; seconds inside the program."""

    noun = "a duration"
    suffix = "_s"
    examples: tuple[str | float, ...] = ("250ms", "30s", "5m", "4h", 1.5)

    def read(self, value: object) -> float:
        return self.by(parse_duration, value)


class Rate(Duration):
    """Events per second."""

    noun = "a rate"
    suffix = "_per_s"
    examples = ("40/s", "2400/min", 40)

    def read(self, value: object) -> float:
        return self.by(parse_rate, value)


class Size(Duration):
    """Bytes."""

    noun = "a size"
    suffix = "_bytes"
    examples = ("80GiB", "16GB", "512MiB")

    def read(self, value: object) -> float:
        return self.by(parse_size, value)


class Bandwidth(Duration):
    """Bytes per second."""

    noun = "a bandwidth"
    suffix = "_bytes_per_s"
    examples = ("25GB/s", "900MiB/s")

    def read(self, value: object) -> float:
        return self.by(parse_bandwidth, value)


class Flag(Leaf):
    """A boolean: true or false only."""

    allowed = "true or false"
    schema = {"type": "boolean"}  # noqa: RUF012 - a constant that no instance changes

    def check(self, value: object) -> bool:
        if not isinstance(value, bool):
            self.fail(is_not(value, "true or false"))
        return value


class Name(Leaf):
    """A word that can be part of a file name."""

    allowed = (
        f"letters, digits, '.', '_' and '-', at most {LONGEST_NAME}, the first a letter or digit"
    )
    pattern = rf"^[A-Za-z0-9][A-Za-z0-9._-]{{0,{LONGEST_NAME - 1}}}$"
    schema = {"type": "string", "pattern": pattern}  # noqa: RUF012 - a constant, as above

    def check(self, value: object) -> str:
        if not isinstance(value, str):
            self.fail(is_not(value, "text"), _needs_quotes_hint(value))
        if not re.fullmatch(self.pattern, value):
            self.fail(is_not(value, "a name"))
        return value


class TaintForm(Leaf):
    """A taint of a node, in kubectl's notation."""

    allowed = "key=value:effect or key:effect, with NoSchedule, PreferNoSchedule or NoExecute"
    schema = {"type": "string"}  # noqa: RUF012 - a constant that no instance changes

    def check(self, value: object) -> str:
        try:
            taint_of(str(value))
        except InputError:
            self.fail(is_not(value, "a taint"))
        return str(value)


class Text(Leaf):
    """Text such as a catalog name or a path."""

    def __init__(self, allowed: str) -> None:
        self.allowed = allowed
        self.schema = {"type": "string", "minLength": 1, "maxLength": LONGEST_TEXT}

    def check(self, value: object) -> str:
        if not isinstance(value, str):
            self.fail(is_not(value, "text"), _needs_quotes_hint(value))
        if not value.strip():
            self.fail("the text is blank")
        if not value.isprintable():
            self.fail(f"{shown(value)} has unprintable characters")
        if len(value) > LONGEST_TEXT:
            self.fail(f"{shown(value)} is too long ({len(value)} characters)")
        return value


class RelativePath(str):
    """A path written in a file, relative to the file's folder."""

    __slots__ = ()

    def located(self, folder: Path) -> str:
        return str(folder / self)


class FilePath(Text):
    """The path of a file or a folder."""

    def check(self, value: object) -> str:
        return RelativePath(super().check(value))


class NameOrPath(Text):
    """A catalog name, or a path if it ends in .json or starts with . or /."""

    def check(self, value: object) -> str:
        text = super().check(value)
        is_path = text.endswith(".json") or text.startswith((".", "/"))
        return RelativePath(text) if is_path else text


ModelName = Annotated[
    str, NameOrPath("a model's catalog name, or the path of a Hugging Face config.json")
]


NESTED: ContextVar[bool] = ContextVar("NESTED", default=False)
"""Whether the schema of a section is being built, so that the next section is nested in it."""
LATER = "later"


class Later:
    """A kind of section that is imported when a file first has one, since most files use few."""

    def __init__(self, module: str, name: str) -> None:
        self._module, self._name = module, name

    @cached_property
    def kind(self) -> Any:
        return getattr(import_module(self._module), self._name)

    @cached_property
    def adapter(self) -> TypeAdapter[Any]:
        kind = self.kind  # sections that its module declares are not inside one
        inside = NESTED.set(True)
        try:
            return TypeAdapter(kind)
        finally:
            NESTED.reset(inside)

    def _validate(self, value: object) -> object:
        return self.adapter.validate_python(value)

    def __get_pydantic_core_schema__(
        self, source: object, handler: GetCoreSchemaHandler
    ) -> CoreSchema:
        return core_schema.no_info_plain_validator_function(
            self._validate, serialization=WRITE_SECTION, metadata={LATER: self}
        )


def later(module: str, name: str) -> Any:
    """The annotation of a field whose kind of section is imported on demand."""
    return Annotated[Any, Later(module, name)]


def inner_of(annotated: Any) -> Any:
    """The type inside `Annotated`, or the kind that a `Later` mark stands for."""
    inner, *marks = get_args(annotated)
    return next((mark.kind for mark in marks if isinstance(mark, Later)), inner)


def _write(value: Any, info: SerializationInfo) -> object:
    return value.model_dump(mode=info.mode, by_alias=info.by_alias)


WRITE_SECTION = core_schema.plain_serializer_function_ser_schema(_write, info_arg=True)


def variant(word: str) -> Tag:
    """Marks the member of a union that `word` selects."""
    return Tag(TAG_MARK + word)


class Chooser(Discriminator):
    """A discriminator with a hash, so that the union it selects from may be optional.

    The original compares by its parts, one of which has no hash, but `X | None` needs one. This one
    hashes by identity.
    """

    def __hash__(self) -> int:
        return id(self)


def chosen_by(
    key: str, *words: str, bare: str | None = None, refused: Mapping[str, str] | None = None
) -> Discriminator:
    """Selects the member of a union by the word at `key`; a value that is no mapping is `bare`.

    `refused`: why words that are allowed elsewhere are not allowed here.
    """

    def choose(value: object) -> str | None:
        word = value.get(key) if isinstance(value, Mapping) else getattr(value, key, bare)
        return TAG_MARK + word if isinstance(word, str) and word in (*words, bare) else None

    context: dict[str, Any] = {"key": key, "words": WORD_BREAK.join(words), "refused": refused}
    return Chooser(
        choose,
        custom_error_type=VARIANT,
        custom_error_message="no variant",
        custom_error_context=context,
    )


def by_shape(mapping: str, other: str) -> Discriminator:
    """Selects the member of a union by whether the value is a mapping."""

    def choose(value: object) -> str:
        is_mapping = isinstance(value, Mapping | BaseModel)
        return TAG_MARK + (mapping if is_mapping else other)

    return Discriminator(choose)


def by_key(key: str, present: str, absent: str) -> Discriminator:
    """Selects the member of a union by whether a mapping has a key."""

    def choose(value: object) -> str:
        has = key in value if isinstance(value, Mapping) else hasattr(value, key)
        return TAG_MARK + (present if has else absent)

    return Chooser(choose)


def by_one_key(*keys: str) -> Discriminator:
    """Selects the member of a union by which one of these keys a mapping has."""

    def choose(value: object) -> str | None:
        if isinstance(value, Mapping):
            written = [key for key in keys if key in value]
        elif isinstance(value, BaseModel):
            written = [key for key in keys if hasattr(value, key)]
        else:
            written = [keys[0]]  # which says what is wrong with it
        return TAG_MARK + written[0] if len(written) == 1 else None

    return Chooser(
        choose,
        custom_error_type=ONE_KEY,
        custom_error_message="not one key",
        custom_error_context={"keys": WORD_BREAK.join(keys)},
    )


def _integral(value: float) -> bool:
    return isinstance(value, int) or value.is_integer()


def _quoted_number_hint(value: object) -> str | None:
    if isinstance(value, str) and re.fullmatch(r"[-+]?[0-9.]+(e[-+]?[0-9]+)?", value):
        return "numbers are written without quotes"
    return None


def _needs_quotes_hint(value: object) -> str | None:
    return "put it in quotes" if isinstance(value, bool | int | float) else None
