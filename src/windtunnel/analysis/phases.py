"""The phases of a request, by name and in order, for every chart of one."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from windtunnel.core.vocabulary import ENCODING
from windtunnel.workload.request import MOST_TRIES

GATEWAY, ENCODE, RETRY, UNPLACED, QUEUE, PREFILL, ROOM, TRANSFER, START, DECODE = PHASES = (
    "gateway",
    "encode",
    "retry",
    "unplaced",
    "queue",
    "prefill",
    "room",
    "transfer",
    "start",
    "decode",
)
NAMES = {
    GATEWAY: "queued at the gateway",
    ENCODE: "encoding media",
    RETRY: "in lost tries",
    UNPLACED: "waiting for a ready server",
    QUEUE: "queued",
    PREFILL: "prefill",
    ROOM: "waiting for KV blocks on the decode server",
    TRANSFER: "KV transfer",
    START: "waiting for the first decode step",
    DECODE: "decode",
}


class Phase(msgspec.Struct, frozen=True):
    """A part of a request's time; an unfinished phase ends with the request or the run."""

    name: str
    start_s: float
    end_s: float

    @property
    def took_s(self) -> float:
        return self.end_s - self.start_s


class RequestTimes(msgspec.Struct, frozen=True):
    """The times at which a request reached each milestone; None if it never did."""

    arrived: float
    admitted: float | None
    encoded: float | None
    restarted: float | None
    routed: float | None
    scheduled: float | None
    prefilled: float | None
    transfer_start: float | None
    transfer_end: float | None
    first_token: float | None
    finished: float | None


def phases(times: RequestTimes, end_s: float, *, split: bool, encoding: bool) -> list[Phase]:
    """The phases that a request reached, of which the last may be cut short.

    They are consecutive, without gaps, from its arrival to its end, or to the end of the run.
    `split`: its prompt was computed on another server than its answer. `encoding`: its media were
    being encoded when it ended.
    """
    left: list[tuple[str, float | None]] = [(GATEWAY, times.admitted)]
    if times.encoded is not None or encoding:
        left.append((ENCODE, times.encoded))
    if times.restarted is not None:
        left.append((RETRY, times.restarted))
    left += [(UNPLACED, times.routed), (QUEUE, times.scheduled)]
    if split:
        left += [
            (PREFILL, times.prefilled),
            (ROOM, times.transfer_start),
            (TRANSFER, times.transfer_end),
            (START, times.first_token),
        ]
    else:
        left.append((PREFILL, times.first_token))
    left.append((DECODE, times.finished))
    last_s = end_s if times.finished is None else times.finished
    return _following(times.arrived, left, last_s)


def _following(
    start_s: float, left: Sequence[tuple[str, float | None]], last_s: float
) -> list[Phase]:
    found: list[Phase] = []
    for name, left_s in left:
        if left_s is None:
            found.append(Phase(name, start_s, last_s))
            break
        found.append(Phase(name, start_s, left_s))
        start_s = left_s
    return [phase for phase in found if phase.took_s > 0.0 or phase is found[-1]]


class LostTryRow(msgspec.Struct, frozen=True):
    """An attempt on a server that did not finish the request; `routed` is None if the server
    refused it."""

    pool: str
    replica: int
    routed: float | None
    scheduled: float | None
    first_token: float | None
    ended: float
    reason: str

    @property
    def server(self) -> Owner:
        return self.pool, self.replica


Owner = tuple[str | None, int | None]
"""A server: its pool and its number there; (None, None) for a request that was routed nowhere."""


class RequestRow(RequestTimes, frozen=True, kw_only=True):
    """A row with the columns that a report shows; times that never came are None."""

    id: int
    source: str
    slo: str
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
    redirects: int = 0
    retries: int = 0
    lost_tries: list[LostTryRow] | None = None
    """The attempts before the one that the times describe: of many, the first ones and the last."""
    pauses: list[float] | None = None
    """Alternately: when it was preempted, and when it ran again."""

    @property
    def unkept_tries(self) -> int:
        """How many attempts before the last lost one are only counted."""
        kept = len(self.lost_tries or [])
        return max(0, self.redirects + self.retries - kept) if kept >= MOST_TRIES else 0

    @property
    def server(self) -> Owner:
        """The server that generates its answer."""
        return self.pool, self.replica

    @property
    def prompt_server(self) -> Owner:
        """The server that computes its prompt."""
        if self.prefill_pool is None:
            return self.server
        return self.prefill_pool, self.prefill_replica

    def phases(self, end_s: float) -> list[Phase]:
        """Its phases, in a run that ended at `end_s`."""
        split = self.prompt_server != self.server
        return phases(self, end_s, split=split, encoding=(self.reason or "").endswith(ENCODING))
