"""How a manifest's fields become settings, and the parts that all autoscaling manifests share.

A field of a form that becomes a setting says so with `Becomes`: it is read as the manifest writes
it, and held to the range that the setting declares. So a value that is out of range is a fault at
the manifest's own field.
"""

import math
import re
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, ClassVar, NamedTuple, Self, get_args

from pydantic import Field, GetCoreSchemaHandler, ValidationError
from pydantic.fields import FieldInfo
from pydantic_core import CoreSchema

from windtunnel.scaling.manifests.names import ScenarioNames
from windtunnel.scaling.settings import PolicySettings, refusals
from windtunnel.settings.faults import Fault, checker_faults
from windtunnel.settings.fields import Leaf, Whole, is_not
from windtunnel.settings.limits import MOST_REPLICAS
from windtunnel.settings.manifests import AnyText, FreeText, Manifest, Quantity
from windtunnel.settings.section import ApiSection, Context, Section

Most = Annotated[int, Whole(1, MOST_REPLICAS)]
Seconds = Annotated[int, Whole(0, 10**9)]
QUANTITY = Quantity()
SECONDS = Whole(0, 10**9)


class NumberText(FreeText):
    """Text that holds a finite number, as annotations and triggers have them."""

    allowed = "a number"

    def check(self, value: object) -> float:  # type: ignore[override]
        text = super().check(value)
        try:
            number = float(text)
        except ValueError:
            number = math.nan
        if not math.isfinite(number):
            self.fail(is_not(value, "a number"))
        return number


IN_TEXT = NumberText()


class Like(Leaf):
    """A value like another: `read` in the manifest's way, then held to the range of that.

    `kind` and `name` are a setting, or `kind` is the value itself.
    """

    def __init__(
        self, kind: type[Section] | Leaf, name: str = "", read: Leaf | None = None
    ) -> None:
        self.name, self.read = name, read
        marks = [kind] if isinstance(kind, Leaf) else _marks(kind.model_fields[name])
        self.leaf = next((mark for mark in marks if isinstance(mark, Leaf)), None)
        self.allowed = self.leaf.allowed if self.leaf else ""
        self.schema = {}

    def check(self, value: object) -> object:
        assert self.leaf is not None
        return self.leaf.check(self.read.check(value) if self.read else value)

    def __get_pydantic_core_schema__(
        self, source: object, handler: GetCoreSchemaHandler
    ) -> CoreSchema:
        if self.leaf is None:  # a choice of words, which the annotation has
            return handler(source)
        return super().__get_pydantic_core_schema__(source, handler)


class Becomes(Like):
    """A field that becomes a setting of this name."""


def settings_of(form: ApiSection) -> dict[str, Any]:
    """What a form has for settings, by their names; what is not written is left to them."""
    found: dict[str, Any] = {}
    for name, field in type(form).model_fields.items():
        value = getattr(form, name)
        for mark in _marks(field):
            if isinstance(mark, Becomes) and value is not None:
                found[mark.name] = value
    return found


def _marks(field: FieldInfo) -> Iterator[object]:
    """Of a field, also of one that may be left out: `Annotated[..., mark] | None`."""
    yield from field.metadata
    for member in get_args(field.annotation):
        yield from getattr(member, "__metadata__", ())


def _kebab(word: str) -> str:
    """`minScale`, as annotations were once written, is `min-scale`; and so is `min_scale`."""
    return re.sub("[A-Z]", lambda letter: "-" + letter[0].lower(), word).replace("_", "-")


class AnnotationForm(ApiSection, alias_generator=_kebab, extra="ignore"):
    """Annotations of one prefix, read as a form is."""

    prefix: ClassVar[str]

    @classmethod
    def keys(cls, annotations: Mapping[str, str] | None) -> dict[str, str]:
        """Annotations as they are written, by the words that fields have."""
        words = [key for key in annotations or {} if key.startswith(cls.prefix)]
        return {_kebab(key.removeprefix(cls.prefix)): key for key in words}

    @classmethod
    def of(cls, annotations: Mapping[str, str] | None) -> Self:
        own = cls.keys(annotations)
        return cls.model_validate({word: (annotations or {})[key] for word, key in own.items()})

    @classmethod
    def faults(cls, annotations: Mapping[str, str] | None, where: Context) -> Iterator[Fault]:
        """What is wrong with them, beside a key `annotations`."""
        try:
            found = list(cls.of(annotations).check(where))
        except ValidationError as error:
            found = checker_faults(error, cls)
        for fault in found:
            key = cls.keys(annotations)[str(fault.path[-1])]
            yield where.fault(("annotations", key), fault.what, fault.allowed, fault.hint)


class Assignment(NamedTuple):
    """A policy, and what asks for it; the policy names the pools that it scales."""

    source: str
    """Kind and name of the manifest."""
    policy: PolicySettings


class Scope(NamedTuple):
    """What manifests are checked against: the root of a `Context`."""

    names: ScenarioNames
    policy: Any = None
    """Of Kthena: the policy whose targets are checked."""
    earlier: bool = False
    """Of Kthena: the targets are those of a binding, as before v1.0."""
    bound: bool = False
    """Of Kthena: a binding has targets for this policy."""


class Reference(ApiSection):
    """Names another object."""

    api_version: AnyText | None = Field(default=None, description="Its group and version.")
    kind: AnyText | None = Field(default=None, description="Its kind.")
    name: AnyText = Field(default="", description="Its name.")
    namespace: AnyText | None = Field(default=None, description="Default: that of the object.")
    uid: AnyText | None = Field(default=None, description="Not used.")
    resource_version: AnyText | None = Field(default=None, description="Not used.")
    field_path: AnyText | None = Field(default=None, description="Not used.")


class PoolReference(Reference):
    """Names what is scaled: a pool of the scenario."""

    def check(self, where: Context) -> Iterator[Fault]:
        yield from refusals(where, "name", where.root.names.pool, self.name)


class ScalingManifest(Manifest):
    """An object that scales a pool on its own."""

    def policy(self, names: ScenarioNames) -> PolicySettings:
        """The policy of a manifest without faults."""
        raise NotImplementedError

    def notes(self, names: ScenarioNames) -> Iterator[str]:
        """What is written and has no effect in a run, or another one."""
        return iter(())
