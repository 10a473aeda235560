"""The vocabulary of event logs, shared by simulated and live runs: kinds of events, and the
reasons that programs recognise.

A reason names its numbers ("needs 12 KV blocks, the server has 9"), so that a person can act on
it. To be counted it is given without them ("needs # KV blocks, the server has #").
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
"""A line at the end of a log that was bounded: since when, and how much is missing."""
CLOSED: Final = "log.closed"
"""The last line of a log, with the number of those before it: a file without it was cut off."""
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

RUN_BEGINS: Final = "the run begins"
"""Of replicas that are there when a run begins."""
LOST_IN_FAULT: Final = "a fault of the scenario"
RECLAIMED: Final = "taken back by its provider"
"""Of machines that failed."""
ENGINE_CRASHED: Final = "its engine crashed"
"""Of servers that were lost."""
SERVER_LOST: Final = "its server was lost"
"""Of a request that had begun anew as often as it may, when its server was lost again."""
RATE_LIMITED: Final = "its server said that there are too many requests"
"""Of a request that had been sent again as often as it may."""
GATEWAY_LOST: Final = "the gateway was restarted"
"""Of a request that was inside: its connection ended with the gateway."""
GATEWAY_AWAY: Final = "the gateway is restarting"
"""Of a request that arrived meanwhile."""
DRAINED: Final = "its server was drained"
"""Of a try that ended because its server was to go."""
ENCODING: Final = "its media were encoded"
"""How far a request has come that is neither queued nor with a server."""

NUMBERS: Final = re.compile(r"\d+(?:[.,_]\d+)*")
NUMBER: Final = "#"


def general(reason: str) -> str:
    """A reason without its numbers."""
    return NUMBERS.sub(NUMBER, reason)
