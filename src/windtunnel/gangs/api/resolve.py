"""Turns a checked PodCliqueSet into the spec that controllers use, with all defaults filled in."""

from collections.abc import Mapping
from sys import intern
from typing import Any

from windtunnel.gangs.api.pod_spec import requests_of, scheduler_of, stable_hash
from windtunnel.gangs.api.set_spec import (
    CliqueTemplateSpec,
    GroupTemplateSpec,
    RollingSpec,
    ScaleSpec,
    SetManifest,
    SharingSpec,
    TopologySpec,
)
from windtunnel.gangs.servers import GRACE_S
from windtunnel.gangs.templates import (
    ANY_ORDER,
    HOLD,
    HOLD_AT,
    INHERIT,
    PROGRESS_DEADLINE_S,
    ROLLING_RECREATE,
    TERMINATE,
    TERMINATION_DELAY_S,
    ClaimSharing,
    CliqueTemplate,
    GroupTemplate,
    PackDomains,
    Portion,
    Rolling,
    ScaleBounds,
    SetSpec,
    UpdateStrategy,
)

REVISIONS = 10


def full_name(name: str, namespace: str | None) -> str:
    """Returns the internal name of an object: its name, after its namespace unless `default`."""
    # Thousands of pods name the same set, gang and clique: the name is stored once.
    return name if namespace in (None, "", "default") else intern(f"{namespace}/{name}")


def set_spec_of(manifest: SetManifest) -> SetSpec:
    """Returns the set that a manifest declares."""
    spec, template = manifest.spec, manifest.spec.template
    priority = template.priority_class_name or ""
    topology = _first_topology(manifest)
    cliques = tuple(_clique(clique, priority, topology) for clique in template.cliques)
    service = template.headless_service_config
    return SetSpec(
        spec.replicas,
        cliques,
        tuple(_group(group, topology) for group in template.groups),
        template.clique_startup_type or ANY_ORDER,
        priority,
        TERMINATION_DELAY_S if template.termination_delay is None else template.termination_delay,
        template.on_all_scheduled_lost or HOLD,
        _strategy(manifest),
        publish_not_ready=service is None or service.publish_not_ready_addresses,
        pack=_pack(template.topology_constraint, topology),
        sharing=_sharing(template.resource_sharing),
        claim_templates={
            claim.name: claim.template_spec for claim in template.resource_claim_templates or []
        },
        labels=manifest.metadata.labels or {},
        annotations=manifest.metadata.annotations or {},
        revision_limit=spec.revision_history_limit or REVISIONS,
        hash=set_hash(cliques),
        on_stranded=template.on_stranded or TERMINATE,
        hold_at=HOLD_AT if (hold := template.hold_at_nodes_not_ready) is None else Portion(*hold),
    )


def set_hash(cliques: tuple[CliqueTemplate, ...]) -> str:
    """Hashes all pod templates by role, so that reordering them is not a change."""
    return stable_hash({clique.name: clique.hash for clique in cliques})


def _clique(written: CliqueTemplateSpec, priority: str, topology: str) -> CliqueTemplate:
    counts, spec = written.counts, written.spec
    labels, annotations = written.labels or {}, written.annotations or {}
    return CliqueTemplate(
        written.name,
        counts.replicas,
        counts.minimum,
        pod_spec_of(spec.pod_spec),
        requests_of(spec.pod_spec),
        stable_hash([labels, annotations, spec.pod_spec, priority]),
        spec.role_name or written.name,
        tuple(spec.starts_after or ()),
        labels,
        annotations,
        scheduler_of(spec.pod_spec),
        _bounds(spec.auto_scaling_config, counts.replicas),
        _pack(written.topology_constraint, topology),
        _sharing(written.resource_sharing),
        _rolling(written.rolling_update),
        tuple(gate["name"] for gate in spec.pod_spec.get("schedulingGates") or []),
    )


def pod_spec_of(written: Mapping[str, Any]) -> dict[str, Any]:
    """Returns a pod spec with the default grace period filled in and `restartPolicy: Always`."""
    return {"terminationGracePeriodSeconds": int(GRACE_S), **written, "restartPolicy": "Always"}


def _group(written: GroupTemplateSpec, topology: str) -> GroupTemplate:
    counts, delay_s = written.counts, written.termination_delay
    return GroupTemplate(
        written.name,
        tuple(written.clique_names),
        counts.replicas,
        counts.minimum,
        _bounds(written.scale_config, counts.replicas),
        _pack(written.topology_constraint, topology),
        _sharing(written.resource_sharing),
        written.annotations or {},
        INHERIT if delay_s is None else delay_s,
        _rolling(written.rolling_update),
    )


def _bounds(written: ScaleSpec | None, replicas: int) -> ScaleBounds | None:
    if written is None:
        return None
    most = written.max_replicas
    lowest = min(replicas, most) if written.min_replicas is None else written.min_replicas
    return ScaleBounds(lowest, most, tuple(written.metrics or ()))


def _strategy(manifest: SetManifest) -> UpdateStrategy:
    written = manifest.spec.update_strategy
    if written is None:
        return UpdateStrategy()
    return UpdateStrategy(
        written.type or ROLLING_RECREATE,
        _rolling(written.rolling_update) or Rolling(),
        written.parallel_replicas or 1,
        paused=bool(written.paused),
    )


def _rolling(written: RollingSpec | None) -> Rolling | None:
    if written is None:
        return None
    unavailable = None if written.max_unavailable is None else Portion(*written.max_unavailable)
    surge = Portion(*(written.max_surge or (0,)))
    deadline_s = written.progress_deadline or PROGRESS_DEADLINE_S
    return Rolling(unavailable, surge, deadline_s)


def _first_topology(manifest: SetManifest) -> str:
    """Returns the first topology name in the set; it has one topology, so others may omit it."""
    template = manifest.spec.template
    constraints = [template.topology_constraint]
    constraints += [part.topology_constraint for _, part in template.parts()]
    names = [one.topology_name for one in constraints if one is not None and one.topology_name]
    return names[0] if names else ""


def _pack(written: TopologySpec | None, topology: str) -> PackDomains | None:
    if written is None:
        return None
    return PackDomains(topology, written.required, written.preferred)


def _sharing(written: list[SharingSpec] | None) -> tuple[ClaimSharing, ...]:
    return tuple(
        ClaimSharing(
            one.name,
            one.namespace or "",
            per_replica=one.scope == "PerReplica",
            roles=tuple((one.filter and one.filter.child_clique_names) or ()),
            groups=tuple((one.filter and one.filter.child_scaling_group_names) or ()),
        )
        for one in written or []
    )
