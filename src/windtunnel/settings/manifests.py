"""Kubernetes manifests: their values, the fields that all kinds share, and how a file is read."""

import math
import re
from collections.abc import Mapping
from typing import Annotated, Any, Final, NamedTuple

from msgspec import Struct
from pydantic import Field, ValidationError

from windtunnel.core.errors import InputError, nearest
from windtunnel.settings.document import Document
from windtunnel.settings.faults import Fault, checker_faults, input_error
from windtunnel.settings.fields import Leaf, Whole, is_not, shown
from windtunnel.settings.limits import MOST_REPLICAS
from windtunnel.settings.section import ApiSection

NOUN: Final = "manifest"
KEYS: Final = "apiVersion, kind, metadata and spec"
LONGEST_VALUE: Final = 262_144
LONGEST_QUANTITY: Final = 64
LONGEST_DNS_NAME: Final = 253
DNS_LABEL: Final = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
DNS_NAME: Final = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_QUANTITY: Final = re.compile(r"([+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+))([eE][+-]?[0-9]+|[a-zA-Z]*)")
_UNITS: Final = {
    "": 1.0,
    "n": 1e-9,
    "u": 1e-6,
    "m": 1e-3,
    **{unit: 1000.0**power for power, unit in enumerate("kMGTPE", start=1)},
    **{f"{unit}i": 1024.0**power for power, unit in enumerate("KMGTPE", start=1)},
}


def quantity(value: object) -> float:
    """Parses a quantity in Kubernetes notation: `500m` is 0.5, `80Mi` is 83886080.

    A quantity too large for a float is infinite.
    """
    if isinstance(value, int) and not isinstance(value, bool):
        try:
            return float(value)
        except OverflowError:
            return math.inf if value > 0 else -math.inf
    if isinstance(value, float) and not math.isnan(value):
        return value
    fits = isinstance(value, str) and len(value) <= LONGEST_QUANTITY
    found = _QUANTITY.fullmatch(str(value)) if fits else None
    if found is None:
        raise InputError(is_not(value, "a quantity"), allowed=Quantity.allowed)
    number, unit = found.groups()
    if unit[1:] and unit[0] in "eE" and unit != "Ei":
        return float(number + unit)
    if unit not in _UNITS:
        allowed = ", ".join(unit for unit in _UNITS if unit)
        raise InputError(f"{shown(value)} has the unknown unit {unit!r}", allowed=allowed)
    return float(number) * _UNITS[unit]


class Quantity(Leaf):
    """A quantity of either sign: `250m` is a quarter, `2k` two thousand, `1Gi` is 2^30."""

    allowed = "a quantity such as 2, 0.5, 500m, 2k, 80Mi, 16Gi"
    schema = {"type": ["string", "number"]}  # noqa: RUF012 - a constant that no instance changes

    def check(self, value: object) -> float:
        try:
            return quantity(value)
        except InputError:
            self.fail(is_not(value, "a quantity"))


class FreeText(Leaf):
    """Any text, including the empty one, such as the value of a label or an annotation."""

    allowed = "text"
    schema = {"type": "string", "maxLength": LONGEST_VALUE}  # noqa: RUF012 - a constant

    def check(self, value: object) -> str:
        if not isinstance(value, str):
            self.fail(is_not(value, "text"), "put it in quotes" if value is not None else None)
        if len(value) > LONGEST_VALUE:
            self.fail(f"{shown(value)} is too long ({len(value)} characters)")
        return value


class Pattern(FreeText):
    """Text that must match a pattern."""

    def __init__(self, noun: str, pattern: re.Pattern[str], most: int, allowed: str) -> None:
        self.noun, self.pattern, self.most = noun, pattern, most
        self.allowed = allowed
        self.schema = {"type": "string", "pattern": f"^{pattern.pattern}$", "maxLength": most}

    def check(self, value: object) -> str:
        text = super().check(value)
        if len(text) > self.most or not self.pattern.fullmatch(text):
            self.fail(is_not(text, self.noun))
        return text


AnyText = Annotated[str, FreeText()]
Count = Annotated[int, Whole(0, MOST_REPLICAS)]
Opaque = dict[str, Any]
_LABEL_RULE = "small letters, digits and '-', at most 63, the first and last no '-'"
DnsLabel = Annotated[str, Pattern("a DNS label", DNS_LABEL, 63, _LABEL_RULE)]
_NAME_RULE = f"small letters, digits, '-' and '.', at most {LONGEST_DNS_NAME}"
DnsName = Annotated[str, Pattern("a DNS name", DNS_NAME, LONGEST_DNS_NAME, _NAME_RULE)]


class ManifestMetadata(ApiSection):
    """Name and namespace. Fields added by an API server are ignored."""

    name: AnyText = Field(description="The name of the object.")
    generate_name: AnyText | None = Field(default=None, description="Not used.")
    namespace: AnyText | None = Field(default=None, description="Default: `default`.")
    labels: dict[str, AnyText] | None = Field(default=None, description="Its labels.")
    annotations: dict[str, AnyText] | None = Field(default=None, description="Its annotations.")
    uid: AnyText | None = Field(default=None, description="Written by an API server; not used.")
    resource_version: AnyText | None = Field(default=None, description="As `uid`.")
    creation_timestamp: AnyText | None = Field(default=None, description="As `uid`.")
    generation: Count | None = Field(default=None, description="As `uid`.")
    finalizers: list[AnyText] | None = Field(default=None, description="As `uid`.")
    owner_references: list[Opaque] | None = Field(default=None, description="As `uid`.")
    managed_fields: list[Opaque] | None = Field(default=None, description="As `uid`.")


class Manifest(ApiSection):
    """An object: the fields that all kinds share. A kind adds its spec, and may restrict names."""

    api_version: AnyText = Field(description="Group and version of the kind.")
    kind: AnyText = Field(description="The kind.")
    metadata: ManifestMetadata = Field(description="Its name.")
    status: Opaque | None = Field(default=None, description="Written by a controller; not used.")


class StatusPart(Struct, omit_defaults=True, rename="camel"):
    """A part of a status. Fields that are unknown or not applicable are omitted."""


class ConditionFields(StatusPart):
    """A condition of an object."""

    type: str
    status: str
    reason: str
    last_transition_time: str
    message: str = ""
    observed_generation: int = 0


class ManifestKind(NamedTuple):
    """A kind of manifest: its apiVersions, and the class of its objects."""

    versions: tuple[str, ...]
    form: type[Manifest]


def is_foreign(document: Document, kinds: Mapping[str, ManifestKind]) -> bool:
    """Whether an object has a kind and an API group that do not belong to `kinds`.

    A known kind in an unknown group is more likely a mistake, and so is an unknown kind in a known
    group.
    """
    kind, version = document.data.get("kind"), document.data.get("apiVersion")
    if not isinstance(kind, str) or not isinstance(version, str) or kind in kinds:
        return False
    known = {one.rpartition("/")[0] for row in kinds.values() for one in row.versions}
    return version.rpartition("/")[0] not in known


def manifest_of(document: Document, kinds: Mapping[str, ManifestKind]) -> Manifest:
    """Reads an object of one of these kinds, and validates each value."""
    kind, version = document.data.get("kind"), document.data.get("apiVersion")
    if not isinstance(kind, str) or kind not in kinds:
        hint = nearest(kind, kinds) if isinstance(kind, str) and len(kind) < 100 else None
        what = "missing" if kind is None else f"{shown(kind)} is not a kind that is read here"
        raise input_error(document, [Fault(("kind",), what, ", ".join(kinds), hint)])
    versions, form = kinds[kind]
    if version not in versions:
        what = "missing" if version is None else f"{shown(version)} is not an apiVersion of {kind}"
        raise input_error(document, [Fault(("apiVersion",), what, ", ".join(versions))])
    try:
        return form.read(document.data)
    except ValidationError as error:
        raise input_error(document, checker_faults(error, form)) from None
