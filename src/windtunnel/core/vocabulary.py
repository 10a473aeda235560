"""The vocabulary of event logs, shared by simulated and live runs: kinds of events, and the reasons
that programs recognise.

A reason includes its numbers ("needs 12 KV blocks, the server has 9"), so that a person can act on
it. For counting, the numbers are removed ("needs # KV blocks, the server has #").
"""

import re
from typing import Final

ADMITTED: Final = "request.admitted"
QUEUED: Final = "request.queued"
REJECTED: Final = "request.rejected"
EVICTED: Final = "request.evicted"
GATEWAY_DECISIONS: Final = (ADMITTED, QUEUED, REJECTED, EVICTED)
ROUTED: Final = "request.routed"
SPLIT: Final = "request.split"
MOVED: Final = "request.moved"
ENDED: Final = "request.ended"
FETCHED: Final = "request.fetched"
LOADED: Final = "adapter.loaded"
UNLOADED: Final = "adapter.evicted"
REDIRECTED: Final = "request.redirected"
RETRIED: Final = "request.retried"
RESIZED: Final = "scaling.decided"
KEPT: Final = "scaling.kept"
APPLIED: Final = "scaling.applied"
SUPERSEDED: Final = "scaling.superseded"
FAULT_BEGAN: Final = "fault.began"
FAULT_ENDED: Final = "fault.ended"
CUT: Final = "control.cut"
"""A line at the end of a log that reached its limit: since when, and how much is missing."""
CLOSED: Final = "log.closed"
"""The last line of a log, with the number of lines before it: a log without it was truncated."""
REPLICA_STATES: Final = ("pending", "starting", "ready", "draining", "gone")
REPLICA_KINDS: Final = tuple([f"replica.{state}" for state in REPLICA_STATES])
KINDS: Final = (
    *GATEWAY_DECISIONS,
    ROUTED,
    SPLIT,
    MOVED,
    ENDED,
    FETCHED,
    LOADED,
    UNLOADED,
    REDIRECTED,
    RETRIED,
    RESIZED,
    KEPT,
    FAULT_BEGAN,
    FAULT_ENDED,
    APPLIED,
    SUPERSEDED,
    *REPLICA_KINDS,
)

GROUP_REPLICA_DELETED: Final = "PodCliqueScalingGroupReplicaDeleteSuccessful"
SET_REPLICA_DELETED: Final = "PodCliqueSetReplicaDeleteSuccessful"
TERMINATIONS: Final = (SET_REPLICA_DELETED, GROUP_REPLICA_DELETED)
"""Events of gangs that are terminated."""

RUN_BEGINS: Final = "the run begins"
"""Reason of replicas that exist when a run begins."""
LOST_IN_FAULT: Final = "a fault of the scenario"
RECLAIMED: Final = "taken back by its provider"
"""Reason of failed machines."""
ENGINE_CRASHED: Final = "its engine crashed"
"""Reason of lost servers."""
SERVER_LOST: Final = "its server was lost"
"""Reason of a request that lost its server with no retries left."""
RATE_LIMITED: Final = "its server said that there are too many requests"
"""Reason of a retry after a 429, and of a rejection when no retries are left."""
GATEWAY_LOST: Final = "the gateway was restarted"
"""Reason of a request in flight: its connection ended with the gateway."""
GATEWAY_AWAY: Final = "the gateway is restarting"
"""Reason of a request that arrived during the restart."""
DRAINED: Final = "its server was drained"
BY_WAITING: Final = "nothing to wait for"
"""End of a run with requests that no server would ever have served."""
"""Reason of a try that ended because its server was to be removed."""
ENCODING: Final = "media encoding"
"""The stage of a request that is neither queued nor at a server."""

NUMBERS: Final = re.compile(r"\d+(?:[.,_]\d+)*")
NUMBER: Final = "N"


def general(reason: str) -> str:
    """A reason without its numbers."""
    return NUMBERS.sub(NUMBER, reason)
