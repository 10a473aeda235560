"""When a clique or a scaling group counts as breached, and the words for it.

The rules in order; the first that fits wins. S is what is scheduled, M the minimum.

| | status | reason |
|---|---|---|
| an update is in progress | Unknown | UpdateInProgress |
| S = 0 | False | InsufficientScheduledPods |
| 0 < S < M | True | ScheduledReplicasBelowMinAvailable |
| S >= M, and fewer than M of those are ready or still starting | True | InsufficientReadyPods |
| else | False | SufficientReadyPods, SufficientAvailablePodCliqueScalingGroupReplicas |

With `onAllScheduledLost: Terminate`, S = 0 counts as below the minimum once it had been above zero.
"""

from typing import Final

from windtunnel.gangs.commands import Command, SetCondition
from windtunnel.gangs.objects import FALSE, TRUE, UNKNOWN, Condition, Thing
from windtunnel.gangs.templates import TERMINATE

BREACHED: Final = "MinAvailableBreached"
CLIQUE_SCHEDULED: Final = "PodCliqueScheduled"
TERMINATING: Final = "GangTerminationInProgress"

UPDATE_IN_PROGRESS: Final = "UpdateInProgress"
NONE_SCHEDULED: Final = "InsufficientScheduledPods"
BELOW_MINIMUM: Final = "ScheduledReplicasBelowMinAvailable"
TOO_FEW_READY: Final = "InsufficientReadyPods"
ENOUGH_READY: Final = "SufficientReadyPods"
ENOUGH_AVAILABLE: Final = "SufficientAvailablePodCliqueScalingGroupReplicas"
ENOUGH_SCHEDULED: Final = "SufficientScheduledPods"
ALL_LOST: Final = "AllScheduledReplicasLost"
SCALED_TO_ZERO: Final = "ScaledToZero"


class ConditionVerdict:
    """What a condition is to say."""

    __slots__ = ("message", "reason", "status")

    def __init__(self, status: str, reason: str, message: str) -> None:
        self.status: Final = status
        self.reason: Final = reason
        self.message: Final = message


def breach(
    scheduled: int,
    minimum: int,
    fit: int,
    *,
    updating: bool,
    ever_scheduled: bool,
    rule: str,
    enough: str = ENOUGH_READY,
    besides: str = "",
) -> ConditionVerdict:
    """Whether the minimum is breached; `fit` are those scheduled that are ready or starting.

    `besides` is what a message about nothing scheduled ends with.
    """
    if updating:
        return ConditionVerdict(UNKNOWN, UPDATE_IN_PROGRESS, "Update is in progress")
    if scheduled == 0 and not (ever_scheduled and rule == TERMINATE):
        return ConditionVerdict(
            FALSE,
            NONE_SCHEDULED,
            f"No replica is scheduled (MinAvailable {minimum}); gang termination is suppressed, "
            f"since recreating the pods would only make the same pending pods{besides}",
        )
    if scheduled < minimum:
        what = f"Scheduled replicas ({scheduled}) below MinAvailable ({minimum})"
        return ConditionVerdict(TRUE, BELOW_MINIMUM, what)
    if fit < minimum:
        what = f"Insufficient ready or starting replicas: expected at least {minimum}, found {fit}"
        return ConditionVerdict(TRUE, TOO_FEW_READY, what)
    what = f"{fit} replicas are ready or starting, at least {minimum} are needed"
    return ConditionVerdict(FALSE, enough, what)


def asleep() -> ConditionVerdict:
    """For what was scaled to zero on purpose."""
    return ConditionVerdict(FALSE, SCALED_TO_ZERO, "It was scaled to zero")


def clique_scheduled(scheduled: int, minimum: int) -> ConditionVerdict:
    if scheduled >= minimum:
        return ConditionVerdict(
            TRUE, ENOUGH_SCHEDULED, f"{scheduled} of at least {minimum} are scheduled"
        )
    return ConditionVerdict(
        FALSE, NONE_SCHEDULED, f"{scheduled} of at least {minimum} are scheduled"
    )


def put(
    commands: list[Command],
    kind: str,
    thing: Thing,
    type: str,  # noqa: A002 - as Kubernetes calls it
    verdict: ConditionVerdict,
    now_s: float,
) -> None:
    """Adds the command that makes a condition say this, if it does not yet.

    The time of a condition moves when its status changes, and for no other reason.
    """
    known = thing.conditions.get(type)
    if known is not None and known.says(verdict.status, verdict.reason, verdict.message):
        return
    same = known is not None and known.status == verdict.status
    since_s = known.since_s if known is not None and same else now_s
    condition = Condition(type, verdict.status, verdict.reason, verdict.message, since_s)
    commands.append(SetCondition(kind, thing.name, condition, thing.uid))


def clear(commands: list[Command], kind: str, thing: Thing, type: str, now_s: float) -> None:  # noqa: A002 - as Kubernetes calls it
    """Adds the command that takes a condition away, if it is there."""
    if type in thing.conditions:
        commands.append(
            SetCondition(kind, thing.name, Condition(type, "", "", "", now_s), thing.uid)
        )


def breached(thing: Thing) -> bool:
    condition = thing.conditions.get(BREACHED)
    return condition is not None and condition.status == TRUE
