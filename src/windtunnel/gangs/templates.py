"""What sets and gangs ask for, with every default filled in; nothing here changes once it is made.

`gangs.api` makes these from files; the names of the fields there are given in the comments here.
"""

from functools import cached_property
from typing import Any, Final

from msgspec import Struct, field

from windtunnel.gangs.roster import NameRoster

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
PROGRESS_DEADLINE_S: Final = 600.0
"""As of a Deployment."""


class StatusValue(Struct, frozen=True, omit_defaults=True, rename="camel"):
    """A value that is written to the status of an object as JSON, and read back from it."""


class ScaleBounds(StatusValue, frozen=True):
    """How far something may be scaled by an autoscaler."""

    minimum: int
    maximum: int
    metrics: tuple[dict[str, Any], ...] = ()


class PackDomains(StatusValue, frozen=True):
    """A topology constraint as it is written: domains of a ClusterTopologyBinding."""

    topology: str
    required: str
    preferred: str


class Pack(StatusValue, frozen=True):
    """A preference to be placed close together, as keys of node labels; empty: none."""

    required: str = ""
    preferred: str = ""


class ClaimSharing(StatusValue, frozen=True):
    """A resource claim that pods share: one for all replicas, or one for each."""

    name: str
    namespace: str
    per_replica: bool
    roles: tuple[str, ...] = ()
    """The filter: only these cliques and groups get it; all when both are empty."""
    groups: tuple[str, ...] = ()


class Share(StatusValue, frozen=True):
    """A whole number, or a share of a total."""

    count: int
    share: float = 0.0

    def of(self, total: int, *, up: bool) -> int:
        """How many of `total`; a share is rounded `up` or down."""
        if self.share == 0.0:
            return self.count
        exact = self.share * total
        whole = int(exact)
        return whole + 1 if up and exact > whole else whole


HOLD_AT: Final = Share(0, 0.5)


class Rolling(StatusValue, frozen=True):
    """How much of a clique, or of a scaling group, an update may take at once."""

    max_unavailable: Share | None = None
    """Pods of a clique or replicas of a group; None: one, or the minimum when coherent."""
    max_surge: Share = Share(0)
    progress_deadline_s: float = PROGRESS_DEADLINE_S
    """An update that makes no progress for so long excuses no breach any more."""


class CliqueTemplate(StatusValue, frozen=True):
    """One role of a set."""

    name: str
    replicas: int
    min_available: int
    pod_spec: dict[str, Any]
    requests: dict[str, float]
    """What one pod asks for, summed over its containers."""
    hash: str
    """Changes when, and only when, the pods must be replaced."""
    role_name: str = ""
    starts_after: tuple[str, ...] = ()
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}
    scheduler: str = "default-scheduler"
    scale: ScaleBounds | None = None
    pack: PackDomains | None = None
    sharing: tuple[ClaimSharing, ...] = ()
    rolling: Rolling | None = None
    gates: tuple[str, ...] = ()
    """Scheduling gates of others, beside ours."""


class GroupTemplate(StatusValue, frozen=True):
    """One scaling group of a set."""

    name: str
    roles: tuple[str, ...]
    replicas: int = 1
    min_available: int = 1
    scale: ScaleBounds | None = None
    pack: PackDomains | None = None
    sharing: tuple[ClaimSharing, ...] = ()
    annotations: dict[str, str] = {}
    termination_delay_s: float = INHERIT
    rolling: Rolling | None = None


class UpdateStrategy(StatusValue, frozen=True):
    """How a change of the pod templates reaches the pods."""

    type: str = ROLLING_RECREATE
    rolling: Rolling = Rolling()
    """For cliques and groups that say nothing of their own."""
    parallel_replicas: int = 1
    """How many set replicas are updated at the same time."""
    paused: bool = False


class SetSpec(Struct, frozen=True, dict=True):
    """All that is asked for of one set."""

    replicas: int
    cliques: tuple[CliqueTemplate, ...]
    groups: tuple[GroupTemplate, ...] = ()
    startup: str = ANY_ORDER
    priority_class: str = ""
    termination_delay_s: float = TERMINATION_DELAY_S
    on_all_scheduled_lost: str = HOLD
    """Whether a clique that lost every scheduled pod counts as breached (`Terminate`)."""
    update: UpdateStrategy = UpdateStrategy()
    publish_not_ready: bool = True
    pack: PackDomains | None = None
    sharing: tuple[ClaimSharing, ...] = ()
    claim_templates: dict[str, dict[str, Any]] = field(default_factory=dict)
    labels: dict[str, str] = field(default_factory=dict)
    annotations: dict[str, str] = field(default_factory=dict)
    revision_limit: int = 10
    hash: str = ""
    """Of all pod templates, whatever their order."""
    on_stranded: str = TERMINATE
    """Whether a gang whose pods wait for a part that lost everything is terminated."""
    hold_at: Share = HOLD_AT
    """So many nodes that are not ready hold terminations back; none: nothing does."""

    @cached_property
    def roles(self) -> dict[str, CliqueTemplate]:
        return {clique.name: clique for clique in self.cliques}

    @cached_property
    def group_of(self) -> dict[str, GroupTemplate]:
        """The scaling group that a role belongs to, if any."""
        return {role: group for group in self.groups for role in group.roles}

    @cached_property
    def alone(self) -> tuple[CliqueTemplate, ...]:
        """The roles that belong to no scaling group."""
        return tuple(clique for clique in self.cliques if clique.name not in self.group_of)

    @cached_property
    def packs(self) -> list[PackDomains]:
        """All topology constraints: of the set, of its groups, of its cliques."""
        packs = [self.pack, *(one.pack for one in self.groups), *(one.pack for one in self.cliques)]
        return [pack for pack in packs if pack is not None]

    @cached_property
    def needs_only_services(self) -> bool:
        """Whether its replicas need nothing beside pods but a service each."""
        parts: list[CliqueTemplate | GroupTemplate] = [*self.cliques, *self.groups]
        marked = [self.annotations, *(one.annotations for one in parts)]
        scaled = any(one.scale or one.sharing for one in parts)
        return not (self.sharing or scaled or any(MNNVL in notes for notes in marked))

    def delay_s(self, group: GroupTemplate | None) -> float:
        """How long a breach must last before the gang is terminated."""
        if group is None or group.termination_delay_s < 0.0:
            return self.termination_delay_s
        return group.termination_delay_s


class PodGroup(Struct):
    """The pods of one clique within a gang: `min_replicas` of them count for admission."""

    name: str
    min_replicas: int
    pack: Pack | None = None
    pods: NameRoster = NameRoster()
    """The names of its pods; empty until every pod of the gang exists."""


class PackGroup(Struct, frozen=True):
    """Pod groups that are packed as one, such as the cliques of one scaling group replica."""

    name: str
    pod_groups: tuple[str, ...]
    pack: Pack


class CliquePlace(Struct, frozen=True):
    """Where in a set a clique and its pods belong."""

    set_name: str
    replica: int
    gang: str
    base_gang: str = ""
    """The gang that must be placed before theirs; empty in a base gang."""
    group: str = ""
    """The scaling group's full name; empty for a clique that stands alone."""
    group_replica: int = -1
    """Which replica of the scaling group it belongs to; -1 for none."""
