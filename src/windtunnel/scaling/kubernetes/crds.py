"""The CustomResourceDefinition of `Autoscaler`, generated from the declarations of its settings.

For `spec.scaling` the schema covers the settings shared by all policies; the options of a single
policy are preserved as written and checked by the operator, as in a scenario.
"""

from typing import Final

from windtunnel.scaling.build import LIVE_POLICIES, word_of
from windtunnel.scaling.kubernetes.autoscaler import API_VERSION, AUTOSCALER, AutoscalerManifest
from windtunnel.scaling.kubernetes.control import AutoscalerStatus
from windtunnel.scaling.settings import PolicySettings
from windtunnel.settings.crds import (
    KEPT,
    Column,
    CustomResource,
    Json,
    SchemaRules,
    StructuralSchema,
    crd_of,
    object_schema,
    status_schema,
)

PLURAL: Final = "autoscalers"
RESOURCE: Final = CustomResource(
    API_VERSION,
    AUTOSCALER,
    PLURAL,
    "was",
    "windtunnel",
    (
        Column("Policy", ".spec.scaling.policy", "string"),
        Column("Current", ".status.targets[*].current", "string"),
        Column("Desired", ".status.targets[*].desired", "string"),
        Column("Active", '.status.conditions[?(@.type=="ScalingActive")].status', "string"),
        Column(
            "Reason",
            '.status.conditions[?(@.type=="ScalingActive")].message',
            "string",
            usual=False,
        ),
    ),
)
BESIDE: Final = SchemaRules(
    keyed_lists={
        (AutoscalerStatus.__name__, "conditions"): "type",
        (AutoscalerStatus.__name__, "targets"): "name",
    }
)


def crds() -> list[Json]:
    """The CustomResourceDefinitions, ready to apply."""
    written = AutoscalerManifest.schema_of_files()
    parts = written["$defs"]
    schema = StructuralSchema(parts, BESIDE, defaults=False, numbers_as_durations=True)
    fields = parts["AutoscalerSpec"]["properties"]
    spec = schema.of({**parts["AutoscalerSpec"], "properties": _without_scaling(fields)}, "")
    spec["properties"]["scaling"] = _scaling(fields["scaling"].get("description", ""))
    status = status_schema(AutoscalerStatus, BESIDE)
    text = (AutoscalerManifest.__doc__ or "").strip()
    return [crd_of(RESOURCE, object_schema(text, spec, status))]


def _without_scaling(fields: Json) -> Json:
    return {key: value for key, value in fields.items() if key != "scaling"}


def _scaling(description: str) -> Json:
    """The schema of the settings that all policies share; unknown fields are preserved."""
    written = PolicySettings.schema_of_files()
    schema = StructuralSchema(
        written.get("$defs", {}), BESIDE, defaults=False, numbers_as_durations=True
    )
    made = schema.of({key: one for key, one in written.items() if key != "$defs"}, "")
    made["description"] = description
    made["properties"]["policy"]["enum"] = sorted(word_of(one) for one in LIVE_POLICIES)
    made[KEPT] = True
    return made
