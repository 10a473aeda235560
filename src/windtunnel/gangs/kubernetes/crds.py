"""The CustomResourceDefinitions of Grove's kinds, generated from their declarations in `gangs.api`.

Schemas are structural: every value has a type, unknown fields are pruned, and a pod spec is kept as
it was written. Rules in CEL refuse what no webhook need be asked for, on `/scale` too.
"""

from typing import Any, Final, NamedTuple

import msgspec

from windtunnel.gangs.api.load import GROVE, KINDS, SCHEDULER_GROVE
from windtunnel.gangs.kubernetes.status_fields import (
    MEMORY,
    CliqueFields,
    GangFields,
    GroupFields,
    SetFields,
    StatusFields,
    TopologyFields,
)

Json = dict[str, Any]

KEPT: Final = "x-kubernetes-preserve-unknown-fields"


class Column(NamedTuple):
    """A column of `kubectl get`; one that is not `usual` is shown with `-o wide`."""

    name: str
    path: str
    type: str = "integer"
    usual: bool = True


class Rule(NamedTuple):
    """What must hold of a value, in CEL; of a change where it says `oldSelf`."""

    rule: str
    message: str


class CustomKind(NamedTuple):
    """What there is to say of a kind beside the form of its objects."""

    plural: str
    short: str
    status: type[StatusFields]
    columns: tuple[Column, ...]
    selector: str = ""
    """Where its status has the selector of its pods; what has none cannot be scaled."""
    namespaced: bool = True


_BREACHED: Final = Column(
    "MinBreached",
    '.status.conditions[?(@.type=="MinAvailableBreached")].status',
    "string",
    usual=False,
)
_UPDATED: Final = Column("Updated", ".status.updatedReplicas")
_REPLICAS: Final = Column("Replicas", ".spec.replicas")
_MINIMUM: Final = Column("MinAvail", ".spec.minAvailable")
_SCHEDULED: Final = Column("Scheduled", ".status.scheduledReplicas")
_AVAILABLE: Final = Column("Available", ".status.availableReplicas")
_CLIQUES: Final = (
    Column("PCLQs-Updated", ".status.updateProgress.updatedPodCliquesCount"),
    Column("PCLQs-Total", ".status.updateProgress.totalPodCliquesCount"),
)
_GROUPS: Final = (
    Column("PCSGs-Updated", ".status.updateProgress.updatedPodCliqueScalingGroupsCount"),
    Column("PCSGs-Total", ".status.updateProgress.totalPodCliqueScalingGroupsCount"),
)

CUSTOM_KINDS: Final = {
    "PodCliqueSet": CustomKind(
        "podcliquesets",
        "pcs",
        SetFields,
        (_REPLICAS, _AVAILABLE, _UPDATED, *_CLIQUES, *_GROUPS),
        ".status.hpaPodSelector",
    ),
    "PodClique": CustomKind(
        "podcliques",
        "pclq",
        CliqueFields,
        (
            _MINIMUM,
            _REPLICAS,
            Column("Ready", ".status.readyReplicas"),
            _SCHEDULED,
            _UPDATED,
            Column("Gated", ".status.scheduleGatedReplicas", usual=False),
            _BREACHED,
        ),
        ".status.hpaPodSelector",
    ),
    "PodCliqueScalingGroup": CustomKind(
        "podcliquescalinggroups",
        "pcsg",
        GroupFields,
        (_MINIMUM, _REPLICAS, _AVAILABLE, _SCHEDULED, _UPDATED, *_CLIQUES, _BREACHED),
        ".status.selector",
    ),
    "PodGang": CustomKind(
        "podgangs",
        "pg",
        GangFields,
        (
            Column("Phase", ".status.phase", "string"),
            Column("Score", ".status.placementScore", "number"),
            Column("Waits", ".status.whyPending", "string", usual=False),
        ),
    ),
    "ClusterTopologyBinding": CustomKind(
        "clustertopologybindings",
        "ct",
        TopologyFields,
        (Column("Domains", ".spec.levels[*].domain", "string"),),
        namespaced=False,
    ),
}

_WHOLE: Final = Rule(
    "!has(self.replicas) || !has(self.minAvailable) || self.replicas == 0 "
    "|| self.minAvailable <= self.replicas",
    "replicas must be 0, or minAvailable and more: in between there is no whole gang",
)
_STAYS: Final = "cannot be changed: make another set instead"
RULES: Final = {
    "CliqueSpec": (_WHOLE,),
    "GroupSpec": (_WHOLE,),
    "GroupTemplateSpec": (_WHOLE,),
    "PackSpec": (
        Rule("has(self.required) || has(self.preferred)", "pack needs required or preferred"),
    ),
    "TopologySpec": (
        Rule("has(self.pack) || has(self.packDomain)", "a topologyConstraint needs pack"),
        Rule(
            "!(has(self.packDomain) && has(self.pack) && has(self.pack.required))",
            "pack.required and packDomain are the same: leave packDomain out",
        ),
    ),
    "SetTemplateSpec": (
        Rule(
            "size(self.cliques) == size(oldSelf.cliques) "
            "&& self.cliques.all(c, oldSelf.cliques.exists(o, o.name == c.name))",
            f"the names of cliques {_STAYS}",
        ),
        Rule(
            "(has(self.cliqueStartupType) ? self.cliqueStartupType : '') "
            "== (has(oldSelf.cliqueStartupType) ? oldSelf.cliqueStartupType : '')",
            f"cliqueStartupType {_STAYS}",
        ),
    ),
}
"""By the declaration that they are about."""

FIELD_RULES: Final = {
    ("CliqueTemplateSpec", "spec"): (
        Rule(
            "!has(self.minAvailable) || !has(oldSelf.minAvailable) "
            "|| self.minAvailable == oldSelf.minAvailable",
            f"minAvailable {_STAYS}",
        ),
    ),
    ("GroupTemplateSpec", "cliqueNames"): (Rule("self == oldSelf", f"cliqueNames {_STAYS}"),),
}
"""By declaration and key."""

BY_NAME: Final = {
    ("SetTemplateSpec", "cliques"): "name",
    ("SetTemplateSpec", "podCliqueScalingGroups"): "name",
    ("GangSpec", "podgroups"): "name",
    **{(kind.status.__name__, "conditions"): "type" for kind in CUSTOM_KINDS.values()},
}
"""Lists whose items are told apart by a key."""

DEFAULTS: Final = {("PodClique", "replicas"): 1}
"""Without a number in the spec, `/scale` fails."""

MOST_ITEMS: Final = {("GroupTemplateSpec", "cliqueNames"): 100}
"""CEL wants lists that a rule compares to be bounded."""


def crds() -> list[Json]:
    """All of them, as they are applied."""
    return [_crd(kind, custom) for kind, custom in CUSTOM_KINDS.items()]


def _crd(kind: str, custom: CustomKind) -> Json:
    group, _, version = KINDS[kind].versions[0].partition("/")
    assert f"{group}/{version}" in (GROVE, SCHEDULER_GROVE)
    names = {
        "kind": kind,
        "listKind": f"{kind}List",
        "plural": custom.plural,
        "singular": kind.lower(),
        "shortNames": [custom.short],
        "categories": ["grove"],
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
        "schema": {"openAPIV3Schema": _schema(kind, custom)},
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


def _column(column: Column) -> Json:
    made: Json = {"name": column.name, "type": column.type, "jsonPath": column.path}
    return made if column.usual else {**made, "priority": 1}


def _schema(kind: str, custom: CustomKind) -> Json:
    form = KINDS[kind].form
    written = form.model_json_schema(by_alias=True)
    spec = _Structural(written["$defs"], defaults=True).of(written["properties"]["spec"], "")
    for (owner, key), value in DEFAULTS.items():
        if owner == kind:
            spec["properties"][key]["default"] = value
    _, parts = msgspec.json.schema_components([custom.status], ref_template="#/$defs/{name}")
    name = custom.status.__name__
    status = _Structural(parts, defaults=False).of({"$ref": f"#/$defs/{name}"}, "")
    if MEMORY in status["properties"]:
        # Atomic: a status replaces it whole, and the API server need not follow its fields.
        status["properties"][MEMORY]["x-kubernetes-map-type"] = "atomic"
    return {
        "type": "object",
        "description": (form.__doc__ or "").strip(),
        "required": ["spec"],
        "properties": {
            "apiVersion": {"type": "string"},
            "kind": {"type": "string"},
            "metadata": {"type": "object"},
            "spec": spec,
            "status": status,
        },
    }


class _Structural:
    """Turns JSON Schema into what an API server takes: references resolved, one type for a value.

    Durations are texts in manifests; a field that may be left out is not `null`.
    """

    def __init__(self, parts: Json, *, defaults: bool) -> None:
        self._parts: Final = parts
        self._defaults: Final = defaults

    def of(self, node: Json, name: str) -> Json:
        """One value; `name` is the declaration that it is."""
        if "$ref" in node:
            name = node["$ref"].rpartition("/")[2]
            return self.of({**self._parts[name], **_without(node, "$ref")}, name)
        if "anyOf" in node:
            return self._one_of(node, name)
        made: Json = {}
        kind = node.get("type")
        if isinstance(kind, list):  # a duration
            return {"type": "string", **_described(node)}
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
        _rule(made, RULES.get(name, ()))

    def _field(self, owner: str, key: str, node: Json) -> Json:
        made = self.of(node, "")
        _rule(made, FIELD_RULES.get((owner, key), ()))
        told_by = BY_NAME.get((owner, key))
        if told_by is not None:
            made["x-kubernetes-list-type"] = "map"
            made["x-kubernetes-list-map-keys"] = [told_by]
        if (owner, key) in MOST_ITEMS:
            made["maxItems"] = MOST_ITEMS[owner, key]
            made["items"]["maxLength"] = 63
        return made

    def _one_of(self, node: Json, name: str) -> Json:
        around = _without(node, "anyOf")
        forms = [one for one in node["anyOf"] if one.get("type") != "null"]
        if len(forms) == 1:
            return self.of({**forms[0], **around}, name)
        if any(one.get("type") == "integer" for one in forms):
            kinds = [{"type": "integer"}, {"type": "string"}]
            return {"anyOf": kinds, "x-kubernetes-int-or-string": True, **_described(node)}
        return {"type": "string", **_described(node)}


def _without(node: Json, key: str) -> Json:
    return {name: value for name, value in node.items() if name != key}


def _described(node: Json) -> Json:
    text = node.get("description")
    return {"description": " ".join(text.split())} if text else {}


def _rule(made: Json, rules: tuple[Rule, ...]) -> None:
    if rules:
        known = made.setdefault("x-kubernetes-validations", [])
        known.extend({"rule": one.rule, "message": one.message} for one in rules)
