"""The form that every section of a file has."""

from typing import ClassVar

from pydantic import BaseModel, ConfigDict
from pydantic.alias_generators import to_camel


class Section(BaseModel):
    """A mapping with known keys: an unknown key is a fault, and nothing is converted silently."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    to_come: ClassVar[tuple[str, ...]] = ()
    """Keys that are planned: whoever writes one hears that it is not simulated yet."""


class ApiSection(Section):
    """A mapping of a manifest for Kubernetes: its keys are in camel case."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, alias_generator=to_camel)
