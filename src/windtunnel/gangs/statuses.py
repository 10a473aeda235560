"""The status that controllers write to objects: the last observed state, and its history.

A starting controller knows nothing else: incarnations, when a part was first scheduled, losses, the
progress of an update, revisions with their pod templates, terminations under way. `read_back`
returns a status as decoded from the JSON that it is stored as. Times are seconds of the run;
`NEVER` means that it has not happened.
"""

from typing import TypeVar

import msgspec
from msgspec import Struct

from windtunnel.core.kubernetes import NEVER
from windtunnel.gangs.templates import CliqueTemplate, StatusValue


class Condition(Struct, frozen=True):
    """A condition of an object; its time changes only when its status does."""

    type: str
    status: str
    reason: str
    message: str
    since_s: float

    def says(self, status: str, reason: str, message: str) -> bool:
        """Whether it already has this content, regardless of its time."""
        return self.status == status and self.reason == reason and self.message == message


class ObjectEvent(Struct, frozen=True):
    """An event that is reported once: a second one with the same `key` is the same event."""

    key: str
    level: str
    kind: str
    name: str
    reason: str
    message: str
    at_s: float


class Status(Struct, omit_defaults=True, rename="camel"):
    """The last observed state of an object. A new status replaces it whole."""

    replicas: int = 0
    updated: int = 0
    """Pods or replicas made from the newest templates."""
    update_started_s: float = NEVER
    update_ended_s: float = NEVER

    @property
    def updating(self) -> bool:
        return self.update_started_s >= 0.0 and self.update_ended_s < 0.0


class PartStatus(Status):
    """The fields common to cliques and scaling groups; a part is a pod or a group replica."""

    observed: bool = False
    """Whether it has been observed since it was created."""
    scheduled: int = 0
    first_scheduled_s: float = NEVER
    """When its first part was bound: gangs that were never scheduled are never terminated."""
    turned_s: float = NEVER
    """When it last went from no scheduled parts to some, or back."""
    losses: int = 0
    """How often it went from some scheduled parts to none."""
    lost_rule: str = ""
    """The set's rule for having lost all scheduled parts; see `conditions`."""
    update_peak: int = 0
    """The most parts that served since the update started: the level to recover before the next
    step."""
    stuck: bool = False
    """Whether it is updating while its set's update has made no progress within the deadline."""

    @property
    def excused(self) -> bool:
        """Whether an update in progress explains missing parts."""
        return self.updating and not self.stuck


class CliqueStatus(PartStatus):
    """The status of a clique, counted in pods."""

    ready: int = 0
    first_ready_s: float = NEVER
    """When its minimum was first ready."""
    updated_ready: int = 0
    gated: int = 0
    erroneous: int = 0
    """Pods that are not ready and whose container last exited with a non-zero code."""
    unready: int = 0
    """Pods that started but are not ready."""


class GroupStatus(PartStatus):
    """The status of a scaling group, counted in replicas."""

    healthy: int = 0
    """Scheduled replicas without a breached clique."""
    available: int = 0
    revision: str = ""
    """The set revision that all of its replicas have."""
    incarnations: dict[int, int] = {}
    """Terminations so far, by replica. See `termination`."""
    recycled: dict[int, int] = {}
    """Replicas whose termination is under way, each with its next incarnation."""
    futile: dict[int, int] = {}
    """Consecutive terminations without having become ready, by replica."""


class Revision(StatusValue, frozen=True):
    """The pod templates of a set at one time, kept for rollbacks."""

    number: int
    hash: str
    templates: dict[str, CliqueTemplate]
    priority_class: str


class SetStatus(Status):
    """The status of a set, counted in set replicas; `updating` while an update is rolled out."""

    observed_generation: int = 0
    available: int = 0
    revision: str = ""
    """Hash of the pod templates that the set has or is being updated to."""
    revisions: tuple[Revision, ...] = ()
    """Oldest first; the last one is current."""
    progressed_s: float = NEVER
    """When the update last progressed."""
    progress: int = 0
    """The progress at that time."""
    turns: tuple[int, ...] = ()
    """The replicas being updated."""
    turned_s: dict[int, float] = {}
    """Since when each replica in `turns` has been updating."""
    done: tuple[int, ...] = ()
    """The replicas that this update has finished."""
    incarnations: dict[int, int] = {}
    """Terminations so far, by replica. See `termination`."""
    recycled: dict[int, int] = {}
    """Replicas whose termination is under way, each with its next incarnation."""
    futile: dict[int, int] = {}
    """Consecutive terminations without having become ready, by replica."""
    scales: dict[str, int] = {}
    """Replicas of standalone cliques, saved when a termination deleted them."""
    adopted: dict[str, str] = {}
    """Hashes that Grove's operator had assigned, by our hash of a pod template, or of all
    templates."""


AnyStatus = TypeVar("AnyStatus", bound=Status)


def read_back(status: AnyStatus) -> AnyStatus:
    """Returns a status after encoding it as JSON and back, as a starting controller receives it."""
    return msgspec.json.decode(msgspec.json.encode(status), type=type(status))
