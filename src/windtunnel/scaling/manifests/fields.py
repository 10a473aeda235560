"""How manifest fields become settings, and the parts that all autoscaling manifests share.

A field that becomes a setting is marked with `Becomes`: it is parsed in the manifest's notation and
checked against the range of the setting. So a value out of range is reported at the manifest's own
field.
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
from windtunnel.settings.fields import Leaf, Number, Share, Whole, is_not
from windtunnel.settings.limits import MOST_REPLICAS
from windtunnel.settings.manifests import AnyText, FreeText, Manifest, Quantity
from windtunnel.settings.section import ApiSection, Context, Section

Most = Annotated[int, Whole(1, MOST_REPLICAS)]
Seconds = Annotated[int, Whole(0, 10**9)]
QUANTITY = Quantity()
SECONDS = Whole(0, 10**9)


class NumberText(FreeText):
    """Text with a finite number, as in annotations and triggers."""

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
    """A value parsed by `read` in the manifest's notation, then checked like another one.

    That one is the setting `name` of the section `kind`, or `kind` itself. Manifests have no
    percentages: a share is a number in them.
    """

    def __init__(
        self, kind: type[Section] | Leaf, name: str = "", read: Leaf | None = None
    ) -> None:
        self.name, self.read = name, read
        marks = [kind] if isinstance(kind, Leaf) else _marks(kind.model_fields[name])
        self.leaf = next((mark for mark in marks if isinstance(mark, Leaf)), None)
        if isinstance(self.leaf, Share):
            self.leaf = Number(self.leaf.low, self.leaf.high, above=self.leaf.above)
        self.allowed = self.leaf.allowed if self.leaf else ""
        self.schema = {}

    def check(self, value: object) -> object:
        assert self.leaf is not None
        return self.leaf.check(self.read.check(value) if self.read else value)

    def __get_pydantic_core_schema__(
        self, source: object, handler: GetCoreSchemaHandler
    ) -> CoreSchema:
        if self.leaf is None:  # a Literal, which the annotation itself checks
            return handler(source)
        return super().__get_pydantic_core_schema__(source, handler)


class Becomes(Like):
    """A field that becomes the setting of this name."""


def settings_of(form: ApiSection) -> dict[str, Any]:
    """The settings given by a form, by name; omitted fields keep the settings' defaults."""
    found: dict[str, Any] = {}
    for name, field in type(form).model_fields.items():
        value = getattr(form, name)
        for mark in _marks(field):
            if isinstance(mark, Becomes) and value is not None:
                found[mark.name] = value
    return found


def _marks(field: FieldInfo) -> Iterator[object]:
    """The marks of a field, also of an optional one: `Annotated[..., mark] | None`."""
    yield from field.metadata
    for member in get_args(field.annotation):
        yield from getattr(member, "__metadata__", ())


def _kebab(word: str) -> str:
    """Converts `minScale`, the older spelling of annotations, and `min_scale` to `min-scale`."""
    return re.sub("[A-Z]", lambda letter: "-" + letter[0].lower(), word).replace("_", "-")


class AnnotationForm(ApiSection, alias_generator=_kebab, extra="ignore"):
    """Annotations with one prefix, parsed as a form."""

    prefix: ClassVar[str]

    @classmethod
    def keys(cls, annotations: Mapping[str, str] | None) -> dict[str, str]:
        """Maps the field names of annotations to the annotations as written."""
        words = [key for key in annotations or {} if key.startswith(cls.prefix)]
        return {_kebab(key.removeprefix(cls.prefix)): key for key in words}

    @classmethod
    def of(cls, annotations: Mapping[str, str] | None) -> Self:
        own = cls.keys(annotations)
        return cls.model_validate({word: (annotations or {})[key] for word, key in own.items()})

    @classmethod
    def faults(cls, annotations: Mapping[str, str] | None, where: Context) -> Iterator[Fault]:
        """Yields the faults in the annotations, located below `annotations`."""
        try:
            found = list(cls.of(annotations).check(where))
        except ValidationError as error:
            found = checker_faults(error, cls)
        for fault in found:
            key = cls.keys(annotations)[str(fault.path[-1])]
            yield where.fault(("annotations", key), fault.what, fault.allowed, fault.hint)


class Assignment(NamedTuple):
    """A policy and the manifest that it comes from; the policy lists the pools that it scales."""

    source: str
    """Kind and name of the manifest."""
    policy: PolicySettings


class Scope(NamedTuple):
    """The root of the `Context` that manifests are checked against."""

    names: ScenarioNames
    policy: Any = None
    """For Kthena: the policy whose targets are checked."""
    earlier: bool = False
    """For Kthena: the targets are those of a binding, as before v1.0."""
    bound: bool = False
    """For Kthena: a binding has the targets of this policy."""


class Reference(ApiSection):
    """A reference to another object."""

    api_version: AnyText | None = Field(default=None, description="Its group and version.")
    kind: AnyText | None = Field(default=None, description="Its kind.")
    name: AnyText = Field(default="", description="Its name.")
    namespace: AnyText | None = Field(default=None, description="Default: that of the object.")
    uid: AnyText | None = Field(default=None, description="Not used.")
    resource_version: AnyText | None = Field(default=None, description="Not used.")
    field_path: AnyText | None = Field(default=None, description="Not used.")


class PoolReference(Reference):
    """A reference to the scaled object, which is a pool of the scenario."""

    def check(self, where: Context) -> Iterator[Fault]:
        yield from refusals(where, "name", where.root.names.pool, self.name)


class ScalingManifest(Manifest):
    """A manifest that scales a pool by itself."""

    def policy(self, names: ScenarioNames) -> PolicySettings:
        """The policy of a manifest without faults."""
        raise NotImplementedError

    def notes(self, names: ScenarioNames) -> Iterator[str]:
        """Notes about fields that have no effect, or a different one, in a run."""
        return iter(())
