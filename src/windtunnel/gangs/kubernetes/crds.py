"""The CustomResourceDefinitions of Grove's kinds, generated from their declarations in `gangs.api`.

CEL rules refuse what needs no webhook, also on `/scale`.
"""

from typing import Final

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
from windtunnel.settings.crds import (
    Column,
    CustomResource,
    Json,
    Rule,
    SchemaRules,
    StructuralSchema,
    crd_of,
    object_schema,
    status_schema,
)

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

CATEGORY: Final = "grove"
CUSTOM_KINDS: Final[dict[type[StatusFields], CustomResource]] = {
    SetFields: CustomResource(
        GROVE,
        "PodCliqueSet",
        "podcliquesets",
        "pcs",
        CATEGORY,
        (_REPLICAS, _AVAILABLE, _UPDATED, *_CLIQUES, *_GROUPS),
        ".status.hpaPodSelector",
    ),
    CliqueFields: CustomResource(
        GROVE,
        "PodClique",
        "podcliques",
        "pclq",
        CATEGORY,
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
    GroupFields: CustomResource(
        GROVE,
        "PodCliqueScalingGroup",
        "podcliquescalinggroups",
        "pcsg",
        CATEGORY,
        (_MINIMUM, _REPLICAS, _AVAILABLE, _SCHEDULED, _UPDATED, *_CLIQUES, _BREACHED),
        ".status.selector",
    ),
    GangFields: CustomResource(
        SCHEDULER_GROVE,
        "PodGang",
        "podgangs",
        "pg",
        CATEGORY,
        (
            Column("Phase", ".status.phase", "string"),
            Column("Score", ".status.placementScore", "number"),
            Column("Waits", ".status.whyPending", "string", usual=False),
        ),
    ),
    TopologyFields: CustomResource(
        GROVE,
        "ClusterTopologyBinding",
        "clustertopologybindings",
        "ct",
        CATEGORY,
        (Column("Domains", ".spec.levels[*].domain", "string"),),
        namespaced=False,
    ),
}
"""The kinds by the class of their status."""

_WHOLE: Final = Rule(
    "!has(self.replicas) || !has(self.minAvailable) || self.replicas == 0 "
    "|| self.minAvailable <= self.replicas",
    "replicas must be 0, or minAvailable or more: anything in between is not a whole gang",
)
_STAYS: Final = "cannot be changed: create another set instead"
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
"""CEL rules by declaration."""

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
"""CEL rules by declaration and key."""

BY_NAME: Final = {
    ("SetTemplateSpec", "cliques"): "name",
    ("SetTemplateSpec", "podCliqueScalingGroups"): "name",
    ("GangSpec", "podgroups"): "name",
    **{(status.__name__, "conditions"): "type" for status in CUSTOM_KINDS},
}
"""Lists whose items are identified by a key."""

DEFAULTS: Final = {("PodClique", "replicas"): 1}
"""`/scale` fails if the spec has no number."""

MOST_ITEMS: Final = {("GroupTemplateSpec", "cliqueNames"): 100}
"""CEL requires lists that a rule compares to be bounded."""


BESIDE: Final = SchemaRules(RULES, FIELD_RULES, BY_NAME, MOST_ITEMS)


def crds() -> list[Json]:
    """Returns all definitions, ready to apply."""
    return [crd_of(kind, _schema(kind.kind, status)) for status, kind in CUSTOM_KINDS.items()]


def _schema(kind: str, fields: type[StatusFields]) -> Json:
    form = KINDS[kind].form
    written = form.schema_of_files()
    structural = StructuralSchema(written["$defs"], BESIDE, defaults=True)
    spec = structural.of(written["properties"]["spec"], "")
    for (owner, key), value in DEFAULTS.items():
        if owner == kind:
            spec["properties"][key]["default"] = value
    status = status_schema(fields, BESIDE)
    if MEMORY in status["properties"]:
        # Atomic: a status replaces it whole, and the API server need not follow its fields.
        status["properties"][MEMORY]["x-kubernetes-map-type"] = "atomic"
    return object_schema((form.__doc__ or "").strip(), spec, status)
