"""The conditions of cliques and scaling groups, above all when a minimum counts as breached.

The rules in order; the first match wins. S is the number scheduled, M the minimum.

| | status | reason |
|---|---|---|
| an update is in progress, and not stuck | Unknown | UpdateInProgress |
| S = 0 | False | InsufficientScheduledPods |
| 0 < S < M | True | ScheduledReplicasBelowMinAvailable |
| S >= M, fewer than M of them ready or still starting | True | InsufficientReadyPods |
| else | False | SufficientReadyPods, SufficientAvailablePodCliqueScalingGroupReplicas |

If S is too low because the scale is below M, the reason is ReplicasBelowMinAvailable. With
`onAllScheduledLost: Terminate`, S = 0 counts as below the minimum once S has been above zero.
"""

from typing import Final

from windtunnel.core.kubernetes import NEVER
from windtunnel.gangs.commands import Command, SetCondition, emit
from windtunnel.gangs.objects import (
    FALSE,
    TRUE,
    UNKNOWN,
    WARNING,
    PodClique,
    PodCliqueSet,
    ScalingGroup,
    Thing,
)
from windtunnel.gangs.statuses import Condition, PartStatus
from windtunnel.gangs.templates import TERMINATE

BREACHED: Final = "MinAvailableBreached"
CLIQUE_SCHEDULED: Final = "PodCliqueScheduled"
TERMINATING: Final = "GangTerminationInProgress"
PROGRESSING: Final = "Progressing"
STRANDED: Final = "GangStranded"
"""Condition of a group or clique: one of its parts lost all pods, so others hold machines in vain.
"""

HELD: Final = "TerminationHeld"
"""Condition of a set: True while so many nodes are not ready that none of its gangs is terminated;
then False, from the time of their recovery, for as long as a part of it has stayed broken."""

PAUSED: Final = "Paused"
PAUSED_PAST_DEADLINE: Final = "PausedPastDeadline"
PAUSES: Final = (PAUSED, PAUSED_PAST_DEADLINE)
"""Reasons of `Progressing`: a pause is not a failed update, but has a time limit."""

UPDATE_IN_PROGRESS: Final = "UpdateInProgress"
NONE_SCHEDULED: Final = "InsufficientScheduledPods"
BELOW_MINIMUM: Final = "ScheduledReplicasBelowMinAvailable"
SCALED_BELOW_MINIMUM: Final = "ReplicasBelowMinAvailable"
TOO_FEW_READY: Final = "InsufficientReadyPods"
ENOUGH_READY: Final = "SufficientReadyPods"
ENOUGH_AVAILABLE: Final = "SufficientAvailablePodCliqueScalingGroupReplicas"
ENOUGH_SCHEDULED: Final = "SufficientScheduledPods"
ALL_LOST: Final = "AllScheduledReplicasLost"
SCALED_TO_ZERO: Final = "ScaledToZero"

Says = tuple[str, str, str]
"""Content of a condition: status, reason, message."""


def follow_parts(
    owner: PodCliqueSet, thing: PodClique | ScalingGroup, status: PartStatus, now_s: float
) -> bool:
    """Carries history over into the new status; returns whether all parts were just lost."""
    before = thing.status
    status.observed = True
    status.lost_rule = owner.spec.on_all_scheduled_lost
    status.first_scheduled_s = before.first_scheduled_s
    if status.scheduled and before.first_scheduled_s < 0.0:
        status.first_scheduled_s = now_s
    elif thing.replicas == 0 and not status.scheduled:
        status.first_scheduled_s = NEVER  # scaled up again, it counts as never scheduled
    turned = (status.scheduled > 0) != (before.scheduled > 0)
    status.turned_s = now_s if turned else before.turned_s
    lost = before.scheduled > 0 and status.scheduled == 0 and thing.replicas > 0
    status.losses = before.losses + 1 if lost else before.losses
    return lost


def is_followed(owner: PodCliqueSet, thing: PodClique | ScalingGroup, before: PartStatus) -> bool:
    """Whether `follow_parts` and `follow_update` would leave this status as it is: its counts are
    current, and all parts have the newest templates."""
    if not before.observed or before.lost_rule != owner.spec.on_all_scheduled_lost or before.stuck:
        return False
    started_s, ended_s = before.update_started_s, before.update_ended_s
    if started_s >= 0.0:
        if ended_s < 0.0:
            return False  # an update is under way
    elif ended_s != NEVER or before.update_peak != 0:
        return False
    if before.scheduled:
        return before.first_scheduled_s >= 0.0
    return thing.replicas > 0 or before.first_scheduled_s == NEVER


def follow_update(
    owner: PodCliqueSet,
    before: PartStatus,
    status: PartStatus,
    serving: int,
    now_s: float,
    *,
    turn: bool,
    old: bool,
    done: bool,
) -> None:
    """Starts an update at the first old part once its set replica has its turn; ends it when
    `done`."""
    started_s, ended_s, peak = before.update_started_s, before.update_ended_s, before.update_peak
    begins = turn and old
    if started_s < 0.0 and not begins:
        return  # it was never updated
    if started_s >= 0.0 > ended_s:
        if done or not turn:
            ended_s = now_s
    elif begins:
        started_s, ended_s, peak = now_s, NEVER, 0
    if ended_s < 0.0:
        peak = max(peak, serving)
        status.stuck = is_stuck(owner)
    status.update_started_s, status.update_ended_s, status.update_peak = started_s, ended_s, peak


def report_loss(
    thing: PodClique | ScalingGroup, part: str, losses: int, now_s: float, commands: list[Command]
) -> None:
    what = f"No {part} of {thing.name} is scheduled any more"
    emit(commands, thing, WARNING, ALL_LOST, what, now_s, str(losses))


def breach(
    thing: PodClique | ScalingGroup,
    status: PartStatus,
    fit: int,
    enough: str = ENOUGH_READY,
    besides: str = "",
) -> Says:
    """Returns the breach condition; `fit` counts the scheduled replicas that are ready or starting.

    `besides` is appended to the message for nothing scheduled.
    """
    scheduled, minimum = status.scheduled, thing.needed
    if thing.replicas == 0:
        return FALSE, SCALED_TO_ZERO, "It was scaled to zero"
    if status.excused:
        return UNKNOWN, UPDATE_IN_PROGRESS, "Update is in progress"
    below = _scaled_below(thing)
    if scheduled == 0 and not (status.first_scheduled_s >= 0.0 and status.lost_rule == TERMINATE):
        if below:
            return FALSE, SCALED_BELOW_MINIMUM, below
        return (
            FALSE,
            NONE_SCHEDULED,
            f"No replica is scheduled (MinAvailable {minimum}); gang termination is suppressed, "
            f"since recreating the pods would only make the same pending pods{besides}",
        )
    if scheduled < minimum and below:
        return TRUE, SCALED_BELOW_MINIMUM, below
    if scheduled < minimum:
        what = f"Scheduled replicas ({scheduled}) below MinAvailable ({minimum})"
        return TRUE, BELOW_MINIMUM, what
    if fit < minimum:
        what = f"Insufficient ready or starting replicas: expected at least {minimum}, found {fit}"
        return TRUE, TOO_FEW_READY, what
    return FALSE, enough, f"{fit} replicas are ready or starting, at least {minimum} are needed"


def _scaled_below(thing: PodClique | ScalingGroup) -> str:
    """Returns the message for a scale below the minimum that got past validation, or ""."""
    if thing.replicas >= thing.needed:
        return ""
    allowed = f"0, or {thing.min_available} and more"
    return f"Scaled to {thing.replicas}, which is not a whole gang: it waits until it is {allowed}"


def clique_scheduled(clique: PodClique, scheduled: int) -> Says:
    minimum, below = clique.needed, _scaled_below(clique)
    what = f"{scheduled} of at least {minimum} are scheduled"
    if scheduled >= minimum:
        return TRUE, ENOUGH_SCHEDULED, what
    if below:
        return FALSE, SCALED_BELOW_MINIMUM, below
    return FALSE, NONE_SCHEDULED, what


def put(commands: list[Command], thing: Thing, type: str, says: Says, now_s: float) -> None:  # noqa: A002 - as Kubernetes calls it
    """Adds the command that sets a condition, unless it already says this.

    The transition time of a condition changes only when its status changes.
    """
    status, reason, message = says
    known = thing.conditions.get(type)
    if known is not None and known.says(status, reason, message):
        return
    since_s = known.since_s if known is not None and known.status == status else now_s
    condition = Condition(type, status, reason, message, since_s)
    commands.append(SetCondition(thing, condition))


def clear(commands: list[Command], thing: Thing, type: str, now_s: float) -> None:  # noqa: A002 - as Kubernetes calls it
    """Adds the command that removes a condition, if it is present."""
    if type in thing.conditions:
        commands.append(SetCondition(thing, Condition(type, "", "", "", now_s)))


def is_stuck(owner: PodCliqueSet) -> bool:
    """Whether a set's update has made no progress within its deadline, paused or not."""
    condition = owner.conditions.get(PROGRESSING)
    if condition is None:
        return False
    return condition.status == FALSE or condition.reason == PAUSED_PAST_DEADLINE


def breached(thing: Thing) -> bool:
    condition = thing.conditions.get(BREACHED)
    return condition is not None and condition.status == TRUE
