"""A section of a file: one class declares its keys, and the program runs on its instances."""

import types
from collections.abc import Iterable, Iterator, Mapping
from contextvars import ContextVar
from pathlib import Path
from typing import Annotated, Any, Self, TypeVar, Union, cast, get_args, get_origin

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    GetCoreSchemaHandler,
)
from pydantic._internal._model_construction import ModelMetaclass
from pydantic.alias_generators import to_camel
from pydantic_core import CoreSchema, core_schema

from windtunnel.settings.document import KeyPath
from windtunnel.settings.faults import Fault, dotted
from windtunnel.settings.fields import LATER, NESTED, WRITE_SECTION, Leaf, RelativePath

Anything = TypeVar("Anything")


def unit_of(annotation: object) -> str:
    """The suffix for the unit of a value; empty for a value without a unit."""
    if get_origin(annotation) is Annotated:
        inner, *marks = get_args(annotation)
        return next((mark.suffix for mark in marks if isinstance(mark, Leaf)), unit_of(inner))
    if get_origin(annotation) in (Union, types.UnionType):
        return next(filter(None, map(unit_of, get_args(annotation))), "")
    return ""


class _UnitsLast(ModelMetaclass):
    """Drops the unit from keys: code reads `interval_s`, but a file says `interval`."""

    def __new__(
        cls, name: str, bases: tuple[type[Any], ...], namespace: dict[str, Any], **options: Any
    ) -> type:
        annotations = namespace.get("__annotations__", {})
        for field, annotation in annotations.items():
            unit = unit_of(annotation)
            if unit and field.endswith(unit):
                alias = Field(alias=field.removesuffix(unit))
                annotations[field] = Annotated[annotation, alias]
        return super().__new__(cls, name, bases, namespace, **options)


class Context:
    """The position of a section in its file, and the sections around it."""

    __slots__ = ("around", "folder", "path", "root")

    def __init__(
        self, root: Any, folder: Path, path: KeyPath = (), around: tuple[Any, ...] = ()
    ) -> None:
        self.root = root
        """The section that represents the whole file."""
        self.folder = folder
        """The folder of the file."""
        self.path = path
        """The keys from the top of the file to this section."""
        self.around = around
        """The sections that contain this one, the nearest last."""

    def inside(self, *keys: str | int, of: object = None) -> "Context":
        """The context of a key below this section; `of` is the section that contains it."""
        around = self.around if of is None else (*self.around, of)
        return Context(self.root, self.folder, (*self.path, *keys), around)

    def fault(
        self,
        key: str | KeyPath,
        what: str,
        allowed: str | None = None,
        hint: str | None = None,
        *,
        beside: tuple[str, ...] = (),
        because_of: tuple[KeyPath, ...] = (),
    ) -> Fault:
        """A fault at a key of this section; `beside` are other keys of it that are involved."""
        keys = (key,) if isinstance(key, str) else key
        others = (*((*self.path, name) for name in beside), *because_of)
        return Fault((*self.path, *keys), what, allowed, hint, others)

    def repeated(self, key: str, names: Iterable[str]) -> Iterator[Fault]:
        """A fault for each item of the list `key` whose name an earlier item has."""
        first: dict[str, int] = {}
        for index, name in enumerate(names):
            if name in first:
                taken = dotted((*self.path, key, first[name]))
                yield self.fault((key, index, "name"), f"{name!r} is already the name of {taken}")
            first.setdefault(name, index)

    def note(self, key: str | KeyPath, what: str, hint: str | None = None) -> Fault:
        """A note about a setting without effect: reported, but not an error."""
        return self.fault(key, what, hint=hint)._replace(is_note=True)


_from_file: ContextVar[bool] = ContextVar("_from_file", default=False)
"""Whether sections are being validated by the keys of files only."""


_SECTION = "section"


def _on_demand(kind: "type[Section]") -> CoreSchema:
    """Validates and serializes a section with its own schema, built when it is first needed."""

    def validate(value: object) -> object:
        if _from_file.get():
            return kind.model_validate(value, by_alias=True, by_name=False)
        return kind.model_validate(value)

    return core_schema.no_info_plain_validator_function(
        validate, serialization=WRITE_SECTION, metadata={_SECTION: kind}
    )


class Section(BaseModel, metaclass=_UnitsLast):
    """A mapping with known keys: an unknown key is a fault, and values are never coerced silently.

    A field that holds a duration, a rate, a size or a bandwidth may be named with its unit
    (`interval_s`, `rate_per_s`, `size_bytes`, `link_bytes_per_s`); files leave the unit out.
    """

    model_config = ConfigDict(
        extra="forbid",
        strict=True,
        frozen=True,
        validate_by_name=True,
        validate_by_alias=True,
        defer_build=True,  # a validator is made when a section is first read: most never are
    )

    @classmethod
    def __get_pydantic_core_schema__(
        cls, source: type[BaseModel], handler: GetCoreSchemaHandler
    ) -> CoreSchema:
        """Leaves nested sections to validators of their own.

        Those are built when a file first has such a section: most files use twenty of two hundred.
        """
        if NESTED.get():
            return _on_demand(cls)
        inside = NESTED.set(True)
        try:
            return handler(source)
        finally:
            NESTED.reset(inside)

    @classmethod
    def schema_of_files(cls) -> dict[str, Any]:
        """The JSON Schema of the section and its nested sections, by the keys of files."""
        from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue

        class WholeSchema(GenerateJsonSchema):
            def generate_inner(self, schema: Any) -> JsonSchemaValue:
                metadata = schema.get("metadata", {})
                if LATER in metadata:
                    schema = metadata[LATER].adapter.core_schema
                    metadata = schema.get("metadata", {})
                kind = metadata.get(_SECTION)
                if kind is not None:
                    kind.model_rebuild()
                    schema = kind.__pydantic_core_schema__
                return super().generate_inner(schema)

        return cls.model_json_schema(by_alias=True, schema_generator=WholeSchema)

    @classmethod
    def read(cls, data: Mapping[str, object]) -> Self:
        """Reads a section of a file, by the keys of files only."""
        before = _from_file.set(True)
        try:
            return cls.model_validate(data, by_alias=True, by_name=False)
        finally:
            _from_file.reset(before)

    def written(self, name: str) -> bool:
        """Whether a field was given a value rather than left at its default."""
        return name in self.model_fields_set

    def with_defaults(self, values: dict[str, Any]) -> Self:
        """A copy with these values for unwritten fields, which still count as unwritten."""
        left_out = {name: value for name, value in values.items() if not self.written(name)}
        filled = self.model_copy(update=left_out)
        filled.model_fields_set.difference_update(left_out)
        return filled

    def check(self, where: Context) -> Iterator[Fault]:  # noqa: ARG002 - used where it is overridden
        """Yields faults of values that are each valid on their own, with defaults filled in."""
        return iter(())


def faults_of(section: Section, where: Context) -> Iterator[Fault]:
    """The faults of a section and of all sections in it."""
    yield from section.check(where)
    for name, field in type(section).model_fields.items():
        below = where.inside(field.alias or name, of=section)
        yield from _faults_inside(getattr(section, name), below)


def _faults_inside(value: object, where: Context) -> Iterator[Fault]:
    if isinstance(value, Section):
        yield from faults_of(value, where)
    elif isinstance(value, list | tuple):
        for index, item in enumerate(value):
            yield from _faults_inside(item, where.inside(index))
    elif isinstance(value, dict):
        for key, item in value.items():
            yield from _faults_inside(item, where.inside(key))


def located(value: Anything, folder: Path) -> Anything:
    """A section or a value in one, with all paths resolved against `folder`."""
    found: Any = value
    if isinstance(value, RelativePath):
        found = value.located(folder)
    elif isinstance(value, Section):
        old = {name: getattr(value, name) for name in type(value).model_fields}
        new = {name: located(item, folder) for name, item in old.items()}
        changed = {name: item for name, item in new.items() if item is not old[name]}
        found = value.model_copy(update=changed) if changed else value
    elif isinstance(value, list):
        new_items = [located(item, folder) for item in value]
        same = all(new is old for new, old in zip(new_items, value, strict=True))
        found = value if same else new_items
    elif isinstance(value, dict):
        new_values = {key: located(item, folder) for key, item in value.items()}
        same = all(new_values[key] is item for key, item in value.items())
        found = value if same else new_values
    return cast("Anything", found)


class Added:
    """Marks a field added after digests existed: at its default, it is not part of a digest.

    `kv_cache_dtype: Annotated[Literal["auto", "fp8"], Added()] = Field(default="auto", ...)`
    """


def digest_data(section: Section) -> dict[str, Any]:
    """A section by the keys of files, as JSON-like data for a digest."""
    data = section.model_dump(mode="json", by_alias=True)
    _drop_added(section, data)
    return data


def _drop_added(value: object, data: Any) -> None:
    if isinstance(value, Section) and isinstance(data, dict):
        for name, field in type(value).model_fields.items():
            key = field.serialization_alias or field.alias or name
            item = getattr(value, name)
            is_new = any(isinstance(mark, Added) for mark in field.metadata)
            if is_new and item == field.get_default(call_default_factory=True):
                del data[key]
            elif key in data:  # a section may write itself otherwise
                _drop_added(item, data[key])
    elif isinstance(value, list) and isinstance(data, list):
        for item, below in zip(value, data, strict=True):
            _drop_added(item, below)
    elif isinstance(value, dict) and isinstance(data, dict):
        for key, item in value.items():
            _drop_added(item, data[key])


def plain_data(value: object) -> Any:
    """A section as JSON-like data with units in its keys; anything else as text.

    For `msgspec.to_builtins(..., enc_hook=plain_data)`.
    """
    if isinstance(value, BaseModel):
        return value.model_dump(mode="json")
    return str(value)


class ApiSection(Section):
    """A mapping of a Kubernetes manifest: its keys are in camel case."""

    model_config = ConfigDict(
        extra="forbid",
        strict=True,
        frozen=True,
        alias_generator=to_camel,
        validate_by_name=False,
        validate_by_alias=True,
    )
