"""Specs of sets and gangs, with all defaults filled in; immutable.

`gangs.api` builds these from files.
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
"""Annotation that puts the GPU pods of a set replica into one multi-node NVLink domain."""

INHERIT: Final = -1.0
OFF: Final = float("inf")
"""A termination delay that never ends: gang termination is disabled."""

TERMINATION_DELAY_S: Final = 4 * 3600.0
PROGRESS_DEADLINE_S: Final = 600.0
"""The default of a Deployment."""


class StatusValue(Struct, frozen=True, omit_defaults=True, rename="camel"):
    """A value that is written to the status of an object as JSON, and read back from it."""


class ScaleBounds(StatusValue, frozen=True):
    """The limits within which an autoscaler may scale a clique or a group."""

    minimum: int
    maximum: int
    metrics: tuple[dict[str, Any], ...] = ()


class PackDomains(StatusValue, frozen=True):
    """A topology constraint as written: domains of a ClusterTopologyBinding."""

    topology: str
    required: str
    preferred: str


class Pack(StatusValue, frozen=True):
    """A packing constraint, as keys of node labels; empty: none."""

    required: str = ""
    preferred: str = ""


class ClaimSharing(StatusValue, frozen=True):
    """A resource claim that pods share: one for all replicas, or one for each."""

    name: str
    namespace: str
    per_replica: bool
    roles: tuple[str, ...] = ()
    """The filter: only these cliques and groups get the claim; all if both are empty."""
    groups: tuple[str, ...] = ()


class Portion(StatusValue, frozen=True):
    """A whole number, or a fraction of a total."""

    count: int
    share: float = 0.0

    def of(self, total: int, *, up: bool) -> int:
        """Returns the number out of `total`; a fraction is rounded `up` or down."""
        if self.share == 0.0:
            return self.count
        exact = self.share * total
        whole = int(exact)
        return whole + 1 if up and exact > whole else whole


HOLD_AT: Final = Portion(0, 0.5)


class Rolling(StatusValue, frozen=True):
    """How much of a clique or scaling group an update may replace at once."""

    max_unavailable: Portion | None = None
    """Pods of a clique or replicas of a group; None: 1, or the minimum in a coherent update."""
    max_surge: Portion = Portion(0)
    progress_deadline_s: float = PROGRESS_DEADLINE_S
    """After this time without progress, an update no longer excuses breaches."""


class CliqueTemplate(StatusValue, frozen=True):
    """One role of a set."""

    name: str
    replicas: int
    min_available: int
    pod_spec: dict[str, Any]
    requests: dict[str, float]
    """The resource requests of one pod."""
    hash: str
    """Changes if and only if the pods must be replaced."""
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
    """Scheduling gates of other controllers, besides ours."""


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
    """How a change of the pod templates is rolled out to the pods."""

    type: str = ROLLING_RECREATE
    rolling: Rolling = Rolling()
    """For cliques and groups without settings of their own."""
    parallel_replicas: int = 1
    """Set replicas updated at the same time."""
    paused: bool = False


class SetSpec(Struct, frozen=True, dict=True):
    """The spec of one set."""

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
    """Hash of all pod templates, independent of their order."""
    on_stranded: str = TERMINATE
    """Whether a gang whose pods wait for a part that lost all of its pods is terminated."""
    hold_at: Portion = HOLD_AT
    """This many unready nodes hold back terminations; 0: terminations are never held back."""

    @cached_property
    def roles(self) -> dict[str, CliqueTemplate]:
        return {clique.name: clique for clique in self.cliques}

    @cached_property
    def group_of(self) -> dict[str, GroupTemplate]:
        """Maps a role to its scaling group, if any."""
        return {role: group for group in self.groups for role in group.roles}

    @cached_property
    def alone(self) -> tuple[CliqueTemplate, ...]:
        """The roles outside scaling groups."""
        return tuple(clique for clique in self.cliques if clique.name not in self.group_of)

    @cached_property
    def packs(self) -> list[PackDomains]:
        """All topology constraints: those of the set, its groups and its cliques."""
        packs = [self.pack, *(one.pack for one in self.groups), *(one.pack for one in self.cliques)]
        return [pack for pack in packs if pack is not None]

    @cached_property
    def needs_only_services(self) -> bool:
        """Whether its replicas need nothing besides pods but one service each."""
        parts: list[CliqueTemplate | GroupTemplate] = [*self.cliques, *self.groups]
        marked = [self.annotations, *(one.annotations for one in parts)]
        scaled = any(one.scale or one.sharing for one in parts)
        return not (self.sharing or scaled or any(MNNVL in notes for notes in marked))

    def delay_s(self, group: GroupTemplate | None) -> float:
        """Returns how long a breach must last before the gang is terminated."""
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
    """Pod groups that are packed together, such as the cliques of one scaling group replica."""

    name: str
    pod_groups: tuple[str, ...]
    pack: Pack


class CliquePlace(Struct, frozen=True):
    """The place of a clique and its pods in a set."""

    set_name: str
    replica: int
    gang: str
    base_gang: str = ""
    """The gang that must be placed first; empty in a base gang."""
    group: str = ""
    """The scaling group's full name; empty for a standalone clique."""
    group_replica: int = -1
    """The replica of the scaling group; -1 if there is no group."""
