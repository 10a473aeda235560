"""The kinds of value that autoscaling manifests have, and the parts that all of them share."""

import math
import re
from collections.abc import Mapping
from typing import Annotated, Any, TypeVar

from pydantic import Field

from windtunnel.settings.fields import Duration, Leaf, Whole, is_not, shown
from windtunnel.settings.limits import MOST_REPLICAS
from windtunnel.settings.section import ApiSection, Section

S = TypeVar("S", bound=Section)

LONGEST_VALUE = 262_144
LONGEST_QUANTITY = 64

_QUANTITY = re.compile(
    r"([-+]?(?:[0-9]+\.?[0-9]*|\.[0-9]+))(?:([eE][-+]?[0-9]+)|([numkMGTPE]|[KMGTPE]i)?)"
)
_SUFFIXES = {
    "": 1.0,
    "n": 1e-9,
    "u": 1e-6,
    "m": 1e-3,
    **{letter: 1000.0**power for power, letter in enumerate("kMGTPE", start=1)},
    **{f"{letter}i": 1024.0**power for power, letter in enumerate("KMGTPE", start=1)},
}


class Quantity(Leaf):
    """A Kubernetes quantity: `250m` is a quarter, `2k` two thousand, `1Gi` two to the thirtieth."""

    allowed = "a quantity such as 10, 0.5, 250m or 2k"
    schema = {"type": ["string", "number"]}  # noqa: RUF012 - a constant that no instance changes

    def check(self, value: object) -> float:
        if isinstance(value, int | float) and not isinstance(value, bool):
            try:
                amount = float(value)
            except OverflowError:  # a whole number of more digits than a float holds
                return math.inf if value > 0 else -math.inf
            if math.isnan(amount):
                self.fail(is_not(value, "a quantity"))
            return amount
        if not isinstance(value, str) or len(value) > LONGEST_QUANTITY:
            self.fail(is_not(value, "a quantity"))
        found = _QUANTITY.fullmatch(value)
        if found is None:
            self.fail(is_not(value, "a quantity"))
        number, exponent, suffix = found.groups()
        return float(number + (exponent or "")) * _SUFFIXES[suffix or ""]


class FreeText(Leaf):
    """Any text, also none: what a rule has to say of it is said by the rule."""

    allowed = "text"
    schema = {"type": "string", "maxLength": LONGEST_VALUE}  # noqa: RUF012 - a constant

    def check(self, value: object) -> str:
        if not isinstance(value, str):
            self.fail(is_not(value, "text"), "put it in quotes" if value is not None else None)
        if len(value) > LONGEST_VALUE:
            self.fail(f"{shown(value)} is too long ({len(value)} characters)")
        return value


def number_in(text: str) -> float | None:
    """The finite number that a text is, as annotations and triggers have them."""
    try:
        number = float(text)
    except ValueError:
        return None
    return number if math.isfinite(number) else None


AnyText = Annotated[str, FreeText()]
Amount = Annotated[float, Quantity()]
Count = Annotated[int, Whole(0, MOST_REPLICAS)]
Most = Annotated[int, Whole(1, MOST_REPLICAS)]
Span = Annotated[float, Duration("-100000h", "100000h")]
Seconds = Annotated[int, Whole(0, 10**9)]
Opaque = dict[str, Any]


def converted(kind: type[S], names: Mapping[str, str], form: ApiSection, **more: object) -> S:
    """A section of our own from what a form has written, by the names that both have for it.

    What is not written is left to the section, whose defaults are those of the autoscaler.
    """
    written = {ours: getattr(form, theirs) for theirs, ours in names.items()}
    given = {ours: value for ours, value in written.items() if value is not None}
    return kind(**given, **more)


def limits_of(kind: type[Section], field: str) -> tuple[Any, Any]:
    """The range of a setting that is a number."""
    leaf: Any = next(mark for mark in kind.model_fields[field].metadata if isinstance(mark, Leaf))
    return leaf.low, leaf.high


class ManifestMetadata(ApiSection):
    """Who the object is. What an API server adds is not used."""

    name: AnyText = Field(description="The name of the object.")
    generate_name: AnyText | None = Field(default=None, description="Not used.")
    namespace: AnyText | None = Field(default=None, description="Left out: `default`.")
    labels: dict[str, AnyText] | None = Field(default=None, description="Not used.")
    annotations: dict[str, AnyText] | None = Field(
        default=None, description="Used where an autoscaler is set by annotations."
    )
    uid: AnyText | None = Field(default=None, description="Written by an API server; not used.")
    resource_version: AnyText | None = Field(default=None, description="As `uid`.")
    creation_timestamp: AnyText | None = Field(default=None, description="As `uid`.")
    generation: Count | None = Field(default=None, description="As `uid`.")
    finalizers: list[AnyText] | None = Field(default=None, description="As `uid`.")
    owner_references: list[Opaque] | None = Field(default=None, description="As `uid`.")
    managed_fields: list[Opaque] | None = Field(default=None, description="As `uid`.")


class ManifestForm(ApiSection):
    """An object: what every kind has."""

    api_version: AnyText = Field(description="Group and version of the kind.")
    kind: AnyText = Field(description="The kind.")
    metadata: ManifestMetadata = Field(description="Who it is.")
    status: Opaque | None = Field(default=None, description="Written by a controller; not used.")


class Reference(ApiSection):
    """Names another object."""

    api_version: AnyText | None = Field(default=None, description="Its group and version.")
    kind: AnyText | None = Field(default=None, description="Its kind.")
    name: AnyText = Field(default="", description="Its name.")
    namespace: AnyText | None = Field(default=None, description="Left out: that of the object.")
    uid: AnyText | None = Field(default=None, description="Not used.")
    resource_version: AnyText | None = Field(default=None, description="Not used.")
    field_path: AnyText | None = Field(default=None, description="Not used.")
