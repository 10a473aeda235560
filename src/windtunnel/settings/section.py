"""A section of a file: one class declares its keys, and is what the code runs on."""

import types
from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Self, Union, get_args, get_origin

from pydantic import BaseModel, ConfigDict, Field
from pydantic._internal._model_construction import ModelMetaclass
from pydantic.alias_generators import to_camel

from windtunnel.settings.fields import Leaf


def unit_of(annotation: object) -> str:
    """The suffix that names the unit of a value; empty for a value without one."""
    if get_origin(annotation) is Annotated:
        inner, *marks = get_args(annotation)
        return next((mark.suffix for mark in marks if isinstance(mark, Leaf)), unit_of(inner))
    if get_origin(annotation) in (Union, types.UnionType):
        return next(filter(None, map(unit_of, get_args(annotation))), "")
    return ""


class _UnitsLast(ModelMetaclass):
    """Code reads `interval_s`, a file says `interval`: the unit belongs to the value there."""

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


class Section(BaseModel, metaclass=_UnitsLast):
    """A mapping with known keys: an unknown key is a fault, and nothing is converted silently.

    A field that holds a duration, a rate, a size or a bandwidth may be named with its unit
    (`interval_s`, `rate_per_s`, `size_bytes`, `link_bytes_per_s`); files leave the unit out.
    """

    model_config = ConfigDict(
        extra="forbid", strict=True, frozen=True, validate_by_name=True, validate_by_alias=True
    )

    to_come: ClassVar[tuple[str, ...]] = ()
    """Keys that are planned: writing one is answered with "not simulated yet"."""

    @classmethod
    def read(cls, data: Mapping[str, object]) -> Self:
        """The section that a file holds: keys as they are written there, and no others."""
        return cls.model_validate(data, by_alias=True, by_name=False)

    def written(self, name: str) -> bool:
        """Whether a field was given a value, rather than left to its default."""
        return name in self.model_fields_set


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
