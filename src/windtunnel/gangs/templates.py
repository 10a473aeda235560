"""What a PodCliqueSet asks for, with every default filled in; nothing here changes once it is made.

`gangs.api` makes these from files; the names of the fields there are given in the comments here.
"""

from typing import Final

ANY_ORDER: Final = "CliqueStartupTypeAnyOrder"
IN_ORDER: Final = "CliqueStartupTypeInOrder"
EXPLICIT: Final = "CliqueStartupTypeExplicit"

ROLLING_RECREATE: Final = "RollingRecreate"
ON_DELETE: Final = "OnDelete"
COHERENT: Final = "Coherent"

HOLD: Final = "Hold"
TERMINATE: Final = "Terminate"

MNNVL: Final = "grove.io/mnnvl-group"
"""The annotation that puts the GPU pods of a set replica into one domain of multi-node NVLink."""

INHERIT: Final = -1.0
OFF: Final = float("inf")
"""A termination delay that never ends: gang termination is switched off."""

TERMINATION_DELAY_S: Final = 4 * 3600.0


class ScaleBounds:
    """How far something may be scaled by an autoscaler."""

    __slots__ = ("maximum", "metrics", "minimum")

    def __init__(self, minimum: int, maximum: int, metrics: tuple[object, ...] = ()) -> None:
        self.minimum: Final = minimum
        self.maximum: Final = maximum
        self.metrics: Final = metrics


class PackDomains:
    """A topology constraint as it is written: domains of a ClusterTopologyBinding."""

    __slots__ = ("preferred", "required", "topology")

    def __init__(self, topology: str, required: str, preferred: str) -> None:
        self.topology: Final = topology
        self.required: Final = required
        self.preferred: Final = preferred


class ClaimSharing:
    """A resource claim that pods share: one for all replicas, or one for each."""

    __slots__ = ("groups", "name", "namespace", "per_replica", "roles")

    def __init__(
        self,
        name: str,
        namespace: str,
        *,
        per_replica: bool,
        roles: tuple[str, ...] = (),
        groups: tuple[str, ...] = (),
    ) -> None:
        self.name: Final = name
        self.namespace: Final = namespace
        self.per_replica: Final = per_replica
        self.roles: Final = roles
        """The filter: only these cliques and groups get it; all when both are empty."""
        self.groups: Final = groups


class Share:
    """A whole number, or a share of a total."""

    __slots__ = ("count", "share")

    def __init__(self, count: int, share: float = 0.0) -> None:
        self.count: Final = count
        self.share: Final = share

    def of(self, total: int, *, up: bool) -> int:
        """How many of `total`; a share is rounded `up` or down."""
        if self.share == 0.0:
            return self.count
        exact = self.share * total
        whole = int(exact)
        return whole + 1 if up and exact > whole else whole


class Rolling:
    """How much of a clique, or of a scaling group, an update may take at once."""

    __slots__ = ("max_surge", "max_unavailable", "progress_deadline_s")

    def __init__(
        self,
        max_unavailable: Share | None = None,
        max_surge: Share | None = None,
        progress_deadline_s: float = OFF,
    ) -> None:
        self.max_unavailable: Final = max_unavailable
        """Pods of a clique or replicas of a group; None: one, or the minimum when coherent."""
        self.max_surge: Final = max_surge or Share(0)
        self.progress_deadline_s: Final = progress_deadline_s


class CliqueTemplate:
    """One role of a set."""

    def __init__(
        self,
        name: str,
        replicas: int,
        min_available: int,
        pod_spec: dict[str, object],
        requests: dict[str, float],
        hash: str,  # noqa: A002 - as Kubernetes calls it
        role_name: str = "",
        starts_after: tuple[str, ...] = (),
        labels: dict[str, str] | None = None,
        annotations: dict[str, str] | None = None,
        scheduler: str = "default-scheduler",
        scale: ScaleBounds | None = None,
        pack: PackDomains | None = None,
        sharing: tuple[ClaimSharing, ...] = (),
        rolling: Rolling | None = None,
        gates: tuple[str, ...] = (),
    ) -> None:
        self.name: Final = name
        self.replicas: Final = replicas
        self.min_available: Final = min_available
        self.pod_spec: Final = pod_spec
        self.requests: Final = requests
        """What one pod asks for, summed over its containers."""
        self.hash: Final = hash
        """Changes when, and only when, the pods must be replaced."""
        self.role_name: Final = role_name
        self.starts_after: Final = starts_after
        self.labels: Final = labels or {}
        self.annotations: Final = annotations or {}
        self.scheduler: Final = scheduler
        self.scale: Final = scale
        self.pack: Final = pack
        self.sharing: Final = sharing
        self.rolling: Final = rolling
        self.gates: Final = gates
        """Scheduling gates of others, beside ours."""


class GroupTemplate:
    """One scaling group of a set."""

    def __init__(
        self,
        name: str,
        roles: tuple[str, ...],
        replicas: int = 1,
        min_available: int = 1,
        scale: ScaleBounds | None = None,
        pack: PackDomains | None = None,
        sharing: tuple[ClaimSharing, ...] = (),
        annotations: dict[str, str] | None = None,
        termination_delay_s: float = INHERIT,
        rolling: Rolling | None = None,
    ) -> None:
        self.name: Final = name
        self.roles: Final = roles
        self.replicas: Final = replicas
        self.min_available: Final = min_available
        self.scale: Final = scale
        self.pack: Final = pack
        self.sharing: Final = sharing
        self.annotations: Final = annotations or {}
        self.termination_delay_s: Final = termination_delay_s
        self.rolling: Final = rolling


class UpdateStrategy:
    """How a change of the pod templates reaches the pods."""

    def __init__(
        self,
        type: str = ROLLING_RECREATE,  # noqa: A002 - as Kubernetes calls it
        rolling: Rolling | None = None,
        parallel_replicas: int = 1,
        *,
        paused: bool = False,
    ) -> None:
        self.type: Final = type
        self.rolling: Final = rolling or Rolling()
        """For cliques and groups that say nothing of their own."""
        self.parallel_replicas: Final = parallel_replicas
        """How many set replicas are updated at the same time."""
        self.paused: Final = paused


class SetSpec:
    """All that is asked for of one set."""

    def __init__(
        self,
        replicas: int,
        cliques: tuple[CliqueTemplate, ...],
        groups: tuple[GroupTemplate, ...] = (),
        startup: str = ANY_ORDER,
        priority_class: str = "",
        termination_delay_s: float = TERMINATION_DELAY_S,
        on_all_scheduled_lost: str = HOLD,
        update: UpdateStrategy | None = None,
        *,
        publish_not_ready: bool = True,
        pack: PackDomains | None = None,
        sharing: tuple[ClaimSharing, ...] = (),
        claim_templates: dict[str, dict[str, object]] | None = None,
        labels: dict[str, str] | None = None,
        annotations: dict[str, str] | None = None,
        revision_limit: int = 10,
        hash: str = "",  # noqa: A002 - as Kubernetes calls it
    ) -> None:
        self.replicas: Final = replicas
        self.cliques: Final = cliques
        self.groups: Final = groups
        self.startup: Final = startup
        self.priority_class: Final = priority_class
        self.termination_delay_s: Final = termination_delay_s
        self.on_all_scheduled_lost: Final = on_all_scheduled_lost
        """Whether a clique that lost every scheduled pod counts as breached (`Terminate`)."""
        self.update: Final = update or UpdateStrategy()
        self.publish_not_ready: Final = publish_not_ready
        self.pack: Final = pack
        self.sharing: Final = sharing
        self.claim_templates: Final = claim_templates or {}
        self.labels: Final = labels or {}
        self.annotations: Final = annotations or {}
        self.revision_limit: Final = revision_limit
        self.hash: Final = hash
        """Of all pod templates, whatever their order."""
        self.roles: Final = {clique.name: clique for clique in cliques}
        self.group_of: Final = {role: group for group in groups for role in group.roles}
        """The scaling group that a role belongs to, if any."""
        self.alone: Final = tuple(clique for clique in cliques if clique.name not in self.group_of)
        """The roles that belong to no scaling group."""

    def delay_s(self, group: GroupTemplate | None) -> float:
        """How long a breach must last before the gang is terminated."""
        if group is None or group.termination_delay_s < 0.0:
            return self.termination_delay_s
        return group.termination_delay_s
