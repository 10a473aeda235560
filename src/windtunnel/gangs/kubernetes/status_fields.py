"""The status of Grove's kinds as users read it: `kubectl`, autoscalers, other controllers.

What a controller has to remember is next to it, in the field `windtunnel`, as one of the
`statuses`. All other fields are derived from that; only conditions are read back from here.
"""

from typing import Any, Final

from msgspec import field

from windtunnel.settings.manifests import ConditionFields, StatusPart

MEMORY: Final = "windtunnel"


class LastError(StatusPart):
    """An action that failed."""

    code: str
    description: str
    observed_at: str


class UpdateProgress(StatusPart):
    """When the last update began and ended."""

    update_started_at: str | None = None
    update_ended_at: str | None = None


class ReplicaProgress(UpdateProgress):
    """The update of one set replica."""

    replica_index: int = -1


class PartProgress(UpdateProgress):
    """The update of a clique or of a scaling group."""

    pod_clique_set_generation_hash: str = ""
    pod_template_hash: str = ""
    updated_pod_cliques_count: int = 0
    total_pod_cliques_count: int = 0


class SetProgress(UpdateProgress):
    """The update of a set."""

    updated_pod_cliques_count: int = 0
    total_pod_cliques_count: int = 0
    updated_pod_clique_scaling_groups_count: int = 0
    total_pod_clique_scaling_groups_count: int = 0
    currently_updating: list[ReplicaProgress] = field(default_factory=list)


class StatusFields(StatusPart):
    """The status fields of every kind. Counts are written even if they are zero."""

    conditions: list[ConditionFields] = field(default_factory=list)


class WorkloadFields(StatusFields):
    """The status of kinds that can be scaled and updated."""

    observed_generation: int = -1
    replicas: int = -1
    updated_replicas: int = -1
    last_errors: list[LastError] = field(default_factory=list)
    windtunnel: dict[str, Any] = field(default_factory=dict)


class SetFields(WorkloadFields):
    """The status of a PodCliqueSet."""

    available_replicas: int = -1
    hpa_pod_selector: str = ""
    current_generation_hash: str = ""
    update_progress: SetProgress | None = None
    pod_gang_statuses: list[dict[str, Any]] = field(default_factory=list)


class CliqueFields(WorkloadFields):
    """The status of a PodClique."""

    ready_replicas: int = -1
    scheduled_replicas: int = -1
    schedule_gated_replicas: int = -1
    hpa_pod_selector: str = ""
    current_pod_clique_set_generation_hash: str = ""
    current_pod_template_hash: str = ""
    update_progress: PartProgress | None = None


class GroupFields(WorkloadFields):
    """The status of a PodCliqueScalingGroup."""

    available_replicas: int = -1
    scheduled_replicas: int = -1
    selector: str = ""
    current_pod_clique_set_generation_hash: str = ""
    update_progress: PartProgress | None = None


class GangFields(StatusFields):
    """The status of a PodGang."""

    phase: str = ""
    placement_score: float = -1.0
    why_pending: str = ""


class TopologyFields(StatusFields):
    """The status of a ClusterTopologyBinding."""

    observed_generation: int = 0
    scheduler_topology_statuses: list[dict[str, Any]] = field(default_factory=list)
