"""Where the time of a request went: its phases in order, from its row."""

from __future__ import annotations

import msgspec

GATEWAY, QUEUE, PREFILL, ROOM, TRANSFER, START, DECODE = PHASES = (
    "gateway",
    "queue",
    "prefill",
    "room",
    "transfer",
    "start",
    "decode",
)
NAMES = {
    GATEWAY: "at the gateway",
    QUEUE: "in line",
    PREFILL: "computing its prompt",
    ROOM: "waiting for room where it is decoded",
    TRANSFER: "moving its KV cache",
    START: "waiting for its first token there",
    DECODE: "producing its answer",
}


Owner = tuple[str | None, int | None]
"""A server: its pool and its number there; nothing for a request that was sent nowhere."""


class Ended(msgspec.Struct, frozen=True):
    """A request as its row tells it; times are None where they never came."""

    id: int
    source: str
    slo: str
    arrived: float
    admitted: float | None
    scheduled: float | None
    prefilled: float | None
    transfer_start: float | None
    transfer_end: float | None
    first_token: float | None
    finished: float | None
    outcome: str
    reason: str | None
    prompt_tokens: int
    output_tokens: int
    prefix_hit_tokens: int
    preemptions: int
    pool: str | None
    replica: int | None
    prefill_pool: str | None
    prefill_replica: int | None

    @property
    def server(self) -> Owner:
        """Where its answer is made."""
        return self.pool, self.replica

    @property
    def prompt_server(self) -> Owner:
        """Where its prompt is computed."""
        if self.prefill_pool is None:
            return self.server
        return self.prefill_pool, self.prefill_replica


class Phase(msgspec.Struct, frozen=True):
    """A part of a request's time; one that was never left ends with the request or the run."""

    name: str
    start_s: float
    end_s: float

    @property
    def took_s(self) -> float:
        return self.end_s - self.start_s


def phases_of(request: Ended, end_s: float) -> list[Phase]:
    """The phases that a request came to, of which the last may be cut short.

    They follow each other without gaps from its arrival to its end, or to that of the run.
    """
    last_s = end_s if request.finished is None else request.finished
    split = request.prefill_pool is not None and request.prompt_server != request.server
    moments: list[tuple[str, float | None]] = [
        (GATEWAY, request.admitted),
        (QUEUE, request.scheduled),
    ]
    if split:
        moments += [
            (PREFILL, request.prefilled),
            (ROOM, request.transfer_start),
            (TRANSFER, request.transfer_end),
            (START, request.first_token),
        ]
    else:
        moments.append((PREFILL, request.first_token))
    moments.append((DECODE, request.finished))
    found: list[Phase] = []
    start_s = request.arrived
    for name, left_s in moments:
        if left_s is None:
            found.append(Phase(name, start_s, last_s))
            break
        found.append(Phase(name, start_s, left_s))
        start_s = left_s
    return [phase for phase in found if phase.took_s > 0.0 or phase is found[-1]]
