"""CustomResourceDefinitions from declarations: names, subresources, columns, structural schemas.

Schemas are structural: every value has a type, unknown fields are pruned, and opaque values are
kept as written. CEL rules reject invalid objects without a webhook, also on `/scale`.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final, NamedTuple

import msgspec

Json = dict[str, Any]

KEPT: Final = "x-kubernetes-preserve-unknown-fields"
INT_OR_STRING: Final = "x-kubernetes-int-or-string"


class Column(NamedTuple):
    """A column of `kubectl get`; shown only with `-o wide` unless `usual`."""

    name: str
    path: str
    type: str = "integer"
    usual: bool = True


class Rule(NamedTuple):
    """A CEL rule for a value, or for a change if it mentions `oldSelf`, and its error message."""

    rule: str
    message: str


class CustomResource(NamedTuple):
    """A kind as declared to an API server."""

    api_version: str
    kind: str
    plural: str
    short: str
    category: str
    columns: tuple[Column, ...]
    selector: str = ""
    """Path of the pod selector in its status; a kind without one cannot be scaled."""
    namespaced: bool = True


def crd_of(custom: CustomResource, schema: Json) -> Json:
    """The CustomResourceDefinition of one kind, ready to apply."""
    group, _, version = custom.api_version.partition("/")
    names = {
        "kind": custom.kind,
        "listKind": f"{custom.kind}List",
        "plural": custom.plural,
        "singular": custom.kind.lower(),
        "shortNames": [custom.short],
        "categories": [custom.category],
    }
    subresources: Json = {"status": {}}
    if custom.selector:
        subresources["scale"] = {
            "specReplicasPath": ".spec.replicas",
            "statusReplicasPath": ".status.replicas",
            "labelSelectorPath": custom.selector,
        }
    columns = [_column(one) for one in custom.columns]
    columns.append({"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"})
    served = {
        "name": version,
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": schema},
        "subresources": subresources,
        "additionalPrinterColumns": columns,
    }
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{custom.plural}.{group}"},
        "spec": {
            "group": group,
            "names": names,
            "scope": "Namespaced" if custom.namespaced else "Cluster",
            "versions": [served],
        },
    }


def object_schema(description: str, spec: Json, status: Json) -> Json:
    """The schema of a whole object."""
    return {
        "type": "object",
        "description": description,
        "required": ["spec"],
        "properties": {
            "apiVersion": {"type": "string"},
            "kind": {"type": "string"},
            "metadata": {"type": "object"},
            "spec": spec,
            "status": status,
        },
    }


def _column(column: Column) -> Json:
    made: Json = {"name": column.name, "type": column.type, "jsonPath": column.path}
    return made if column.usual else {**made, "priority": 1}


class SchemaRules(NamedTuple):
    """Additions to the declared schema, by declaration or by declaration and key."""

    rules: Mapping[str, tuple[Rule, ...]] = MappingProxyType({})
    field_rules: Mapping[tuple[str, str], tuple[Rule, ...]] = MappingProxyType({})
    keyed_lists: Mapping[tuple[str, str], str] = MappingProxyType({})
    """Lists that are maps: the key that identifies each item."""
    most_items: Mapping[tuple[str, str], int] = MappingProxyType({})
    """Limits of list lengths; CEL requires them for lists that a rule compares."""


class StructuralSchema:
    """Converts JSON Schema to a structural schema: references resolved, one type per value.

    Durations are strings in manifests, or with `numbers_as_durations` also integer seconds;
    optional fields are not nullable.
    """

    def __init__(
        self,
        parts: Json,
        beside: SchemaRules,
        *,
        defaults: bool,
        numbers_as_durations: bool = False,
    ) -> None:
        self._parts: Final = parts
        self._beside: Final = beside
        self._defaults: Final = defaults
        self._numbers_as_durations: Final = numbers_as_durations

    def of(self, node: Json, name: str) -> Json:
        """The schema of one value; `name` is its declaration."""
        if "$ref" in node:
            name = node["$ref"].rpartition("/")[2]
            return self.of({**self._parts[name], **_without(node, "$ref")}, name)
        if "anyOf" in node:
            return self._one_of(node, name)
        made: Json = {}
        kind = node.get("type")
        if isinstance(kind, list):  # a duration
            either = {"anyOf": [{"type": "integer"}, {"type": "string"}], INT_OR_STRING: True}
            return {
                **(either if self._numbers_as_durations else {"type": "string"}),
                **_described(node),
            }
        for key in ("type", "enum", "minimum", "maximum", "pattern", "minItems", "maxItems"):
            if key in node:
                made[key] = node[key]
        if node.get("maxLength", 1 << 20) < 1 << 16:
            made["maxLength"] = node["maxLength"]
        if self._defaults and node.get("default") is not None:
            made["default"] = node["default"]
        made.update(_described(node))
        if kind == "array":
            made["items"] = self.of(node["items"], "")
        elif kind == "object":
            self._object(made, node, name)
        return made

    def _object(self, made: Json, node: Json, name: str) -> None:
        more = node.get("additionalProperties")
        if "properties" not in node:
            if isinstance(more, dict) and more:
                made["additionalProperties"] = self.of(more, "")
            else:
                made[KEPT] = True
            return
        made["properties"] = {
            key: self._field(name, key, one) for key, one in node["properties"].items()
        }
        if node.get("required"):
            made["required"] = list(node["required"])
        _rule(made, self._beside.rules.get(name, ()))

    def _field(self, owner: str, key: str, node: Json) -> Json:
        made = self.of(node, "")
        _rule(made, self._beside.field_rules.get((owner, key), ()))
        key_of_items = self._beside.keyed_lists.get((owner, key))
        if key_of_items is not None:
            made["x-kubernetes-list-type"] = "map"
            made["x-kubernetes-list-map-keys"] = [key_of_items]
        most = self._beside.most_items.get((owner, key))
        if most is not None:
            made["maxItems"] = most
            made["items"]["maxLength"] = 63
        return made

    def _one_of(self, node: Json, name: str) -> Json:
        around = _without(node, "anyOf")
        forms = [one for one in node["anyOf"] if one.get("type") != "null"]
        if len(forms) == 1:
            return self.of({**forms[0], **around}, name)
        if any(one.get("type") == "integer" for one in forms):
            kinds = [{"type": "integer"}, {"type": "string"}]
            return {"anyOf": kinds, INT_OR_STRING: True, **_described(node)}
        return {"type": "string", **_described(node)}


def status_schema(status: type[msgspec.Struct], beside: SchemaRules) -> Json:
    """The schema of a status, from its declaration."""
    _, parts = msgspec.json.schema_components([status], ref_template="#/$defs/{name}")
    node = {"$ref": f"#/$defs/{status.__name__}"}
    return StructuralSchema(parts, beside, defaults=False).of(node, "")


def _without(node: Json, key: str) -> Json:
    return {name: value for name, value in node.items() if name != key}


def _described(node: Json) -> Json:
    text = node.get("description")
    return {"description": " ".join(text.split())} if text else {}


def _rule(made: Json, rules: tuple[Rule, ...]) -> None:
    if rules:
        known = made.setdefault("x-kubernetes-validations", [])
        known.extend({"rule": one.rule, "message": one.message} for one in rules)
