"""The time of a request as consecutive intervals without gaps, each spent on one thing."""

from collections.abc import Sequence

from windtunnel.analysis.phases import (
    PREFILL,
    QUEUE,
    RETRY,
    UNPLACED,
    LostTryRow,
    Owner,
    Phase,
    RequestRow,
)
from windtunnel.core.vocabulary import DRAINED, GATEWAY_LOST, RATE_LIMITED, SERVER_LOST

PAUSED = "paused"
"""An interval in addition to the phases: preempted, until it runs again."""
DROPPED = "dropped"


class TimeInterval(Phase, frozen=True):
    """A part of a request's time: a phase, an attempt, or a wait after a preemption."""

    lost: LostTryRow | None = None
    """The lost attempt that it is a part of; in a wait for a server, the attempt before it."""
    unkept: int = 0
    """How many attempts it stands for, if rows have no times of them; `lost` is the next one."""


def intervals_of(row: RequestRow, end_s: float) -> list[TimeInterval]:
    """All intervals in order, from the arrival of the request to its end, or to the end of the
    run."""
    last = _last_try(row)
    found: list[TimeInterval] = []
    for phase in row.phases(end_s):
        if phase.name == RETRY:
            found += _tries(row, phase)
        elif last is not None and last.routed is not None and phase.start_s >= _lost_from(last):
            found.append(TimeInterval(RETRY, phase.start_s, last.ended, last))
            break
        elif phase.name == UNPLACED:
            before = row.lost_tries[-1] if row.lost_tries else None
            found.append(TimeInterval(UNPLACED, phase.start_s, phase.end_s, before))
        else:
            found += _around(row.pauses or [], phase)
    return [one for one in found if one.took_s > 0.0] or found[-1:]


def _last_try(row: RequestRow) -> LostTryRow | None:
    """The last attempt of a request that was lost with its server or gateway, and not retried."""
    if row.outcome != DROPPED or row.reason not in (SERVER_LOST, GATEWAY_LOST):
        return None
    if row.finished is None or row.pool is None or row.replica is None:
        return None  # it was queued at the gateway
    times = (row.routed, row.scheduled, row.first_token)
    return LostTryRow(row.pool, row.replica, *times, row.finished, row.reason)


def server_of(row: RequestRow, interval: TimeInterval) -> Owner:
    """The server that a request is queued or computed on."""
    if interval.name not in (QUEUE, PREFILL):
        return row.server
    return row.prompt_server if interval.lost is None else interval.lost.server


def _lost_from(one: LostTryRow) -> float:
    """When the time began that was lost with an attempt.

    If its server was lost, when it ran: the queue before had other causes. A request that never ran
    lost its place in the queue.
    """
    if one.scheduled is not None and one.reason not in (DRAINED, RATE_LIMITED):
        return one.scheduled
    return one.ended if one.routed is None else one.routed


def _tries(row: RequestRow, phase: Phase) -> list[TimeInterval]:
    """Lost attempts, and the wait for a server before each; before the last, those not kept."""
    tries, unkept = row.lost_tries or [], row.unkept_tries
    found, at_s, before = [], phase.start_s, None
    for one in tries:
        routed_s = one.ended if one.routed is None else one.routed
        # Of the server that another one computed its prompt for, only the end is known.
        lost_s = _lost_from(one) if row.prefill_pool in (None, one.pool) else routed_s
        if unkept and one is tries[-1]:
            found.append(TimeInterval(RETRY, at_s, routed_s, one, unkept))
        else:
            found.append(TimeInterval(UNPLACED, at_s, routed_s, before))
        found.append(TimeInterval(QUEUE, routed_s, lost_s, one))
        found.append(TimeInterval(RETRY, lost_s, one.ended, one))
        at_s, before = one.ended, one
    return found


def _around(pauses: Sequence[float], phase: Phase) -> list[TimeInterval]:
    """A phase, with the waits after preemptions as separate intervals."""
    found, at_s = [], phase.start_s
    for place in range(0, len(pauses), 2):
        start_s = max(pauses[place], at_s)
        end_s = pauses[place + 1] if place + 1 < len(pauses) else phase.end_s
        end_s = min(end_s, phase.end_s)
        if start_s < end_s:
            found += [TimeInterval(phase.name, at_s, start_s), TimeInterval(PAUSED, start_s, end_s)]
            at_s = end_s
    return [*found, TimeInterval(phase.name, at_s, phase.end_s)]
