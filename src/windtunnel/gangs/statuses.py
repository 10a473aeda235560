"""What controllers write to the status of objects: what was last seen, and what they remember.

A controller that starts knows nothing but this: incarnations, when something was first scheduled,
losses, how far an update has come, revisions with their pod templates, terminations under way.
`read_back` gives a status as it comes out of the JSON that it is stored as.
Times are seconds of the run; `NEVER` stands for what has not happened.
"""

from typing import Final, TypeVar

import msgspec
from msgspec import Struct

from windtunnel.gangs.templates import CliqueTemplate, StatusValue

NEVER: Final = -1.0


class Condition(Struct, frozen=True):
    """One thing that is known of an object; its time moves only when the status changes."""

    type: str
    status: str
    reason: str
    message: str
    since_s: float

    def says(self, status: str, reason: str, message: str) -> bool:
        """Whether it already says just this, since whenever."""
        return self.status == status and self.reason == reason and self.message == message


class ObjectEvent(Struct, frozen=True):
    """Something worth telling, once: a second event of the same `key` is the same event."""

    key: str
    level: str
    kind: str
    name: str
    reason: str
    message: str
    at_s: float


class Status(Struct, omit_defaults=True, rename="camel"):
    """What was last seen of an object. A new one replaces it whole."""

    replicas: int = 0
    updated: int = 0
    """Pods, or replicas, made from the newest templates."""
    update_started_s: float = NEVER
    update_ended_s: float = NEVER

    @property
    def updating(self) -> bool:
        return self.update_started_s >= 0.0 and self.update_ended_s < 0.0


class PartStatus(Status):
    """What a clique and a scaling group have both; a part is a pod, or a replica."""

    observed: bool = False
    """It has been looked at since it was created."""
    scheduled: int = 0
    first_scheduled_s: float = NEVER
    """When a part of it was first bound: what was never scheduled is never terminated."""
    turned_s: float = NEVER
    """When it last went from nothing scheduled to something, or back."""
    losses: int = 0
    """How often it went from some scheduled parts to none."""
    lost_rule: str = ""
    """What the set says of having lost all: see `conditions`."""
    update_peak: int = 0
    """The most that served since the update started: what it has to come back to."""
    stuck: bool = False
    """It is updating, and the update of its set has made no progress for its deadline."""

    @property
    def excused(self) -> bool:
        """An update is in progress, which explains what is missing."""
        return self.updating and not self.stuck


class CliqueStatus(PartStatus):
    """Of a clique, in pods."""

    ready: int = 0
    first_ready_s: float = NEVER
    """When its minimum was first ready."""
    updated_ready: int = 0
    gated: int = 0
    erroneous: int = 0
    """Not ready, and a container last ended with an exit code other than 0."""
    unready: int = 0
    """Started, and not ready."""


class GroupStatus(PartStatus):
    """Of a scaling group, in replicas."""

    healthy: int = 0
    """Replicas that are scheduled and of which no clique is breached."""
    available: int = 0
    revision: str = ""
    """The revision of the set that all of its replicas have."""
    incarnations: dict[int, int] = {}
    """By replica: how often it was terminated so far. See `termination`."""
    recycled: dict[int, int] = {}
    """Replicas whose termination is under way, each with the incarnation that comes next."""
    futile: dict[int, int] = {}
    """By replica: terminations in a row before which it had not been ready."""


class Revision(StatusValue, frozen=True):
    """The pod templates of a set at one time, kept so that one can go back to them."""

    number: int
    hash: str
    templates: dict[str, CliqueTemplate]
    priority_class: str


class SetStatus(Status):
    """Of a set, in set replicas; it is `updating` while an update is rolled out."""

    observed_generation: int = 0
    available: int = 0
    revision: str = ""
    """The hash of the pod templates that the set is at, or on its way to."""
    revisions: tuple[Revision, ...] = ()
    """Oldest first; the last is the one that it is at."""
    progressed_s: float = NEVER
    """When the update last came on."""
    progress: int = 0
    """How far it had come by then."""
    turns: tuple[int, ...] = ()
    """The replicas that are being updated."""
    turned_s: dict[int, float] = {}
    """Since when each of them is."""
    done: tuple[int, ...] = ()
    """The replicas that this update has behind them."""
    incarnations: dict[int, int] = {}
    """By replica: how often it was terminated so far. See `termination`."""
    recycled: dict[int, int] = {}
    """Replicas whose termination is under way, each with the incarnation that comes next."""
    futile: dict[int, int] = {}
    """By replica: terminations in a row before which it had not been ready."""
    scales: dict[str, int] = {}
    """Replicas of cliques that stand alone, as they were when a recycle took them away."""
    adopted: dict[str, str] = {}
    """By our hash of a pod template, or of all: the one that Grove's operator had given it."""


AnyStatus = TypeVar("AnyStatus", bound=Status)


def read_back(status: AnyStatus) -> AnyStatus:
    """A status after it was written as JSON and read again, as a controller that starts gets it."""
    return msgspec.json.decode(msgspec.json.encode(status), type=type(status))
