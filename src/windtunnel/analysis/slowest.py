"""The worst requests of a run: where their time went, and why, in a sentence."""

from __future__ import annotations

import heapq
import math
from typing import TYPE_CHECKING, Any

import msgspec

from windtunnel.analysis.latencies import of_outcomes
from windtunnel.analysis.phases import (
    DECODE,
    ENCODE,
    GATEWAY,
    PREFILL,
    QUEUE,
    RETRY,
    ROOM,
    TRANSFER,
    UNPLACED,
    Owner,
    Phase,
    RequestRow,
)
from windtunnel.analysis.saturation import KV_FULL
from windtunnel.core.units import format_duration

if TYPE_CHECKING:
    from windtunnel.analysis.run_folder import Series

HOW_MANY = 8
FIRST_TOKEN, FINISHED = "first_token", "finished"
LONG = 2.0
"""A prompt or a response this many times the mean is called long."""
SLOW = 1.5
"""Tokens this many times as far apart as the median's are called slow."""
WITHOUT_SERVER = {
    GATEWAY: ("at the gateway", "at_gateway"),
    UNPLACED: ("until a server was ready", "in_line"),
}
"""Queues that are no server's: where, and the column of their length."""
NOT_THERE = {"timed_out": "until it timed out", "unfinished": "unfinished"}
"""Beside the time of a request that did not get there."""


class SlowRequest(msgspec.Struct, frozen=True):
    """A slow request: how long it took, in phases, and why; `still` when it never got there."""

    request: RequestRow
    took_s: float
    still: str
    phases: list[Phase]
    why: str


class Slowest:
    """Keeps the slowest requests to the first token and to the end, from batches of rows."""

    def __init__(self, result: dict[str, Any]) -> None:
        self._end_s: float = result["simulated_seconds"]
        self._tpot_s: float | None = result["latency"]["tpot"]["p50"]
        completed = result["requests"]["completed"] or 1
        self._mean_prompt: float = result["tokens"]["prompt"] / completed
        self._mean_output: float = result["tokens"]["output"] / completed
        self._kept: dict[str, list[tuple[float, int, RequestRow]]] = {FIRST_TOKEN: [], FINISHED: []}

    def add(self, batch: Any) -> None:
        import numpy as np
        import pyarrow as pa

        rows = of_outcomes(batch, ("completed", *NOT_THERE))
        times = {
            name: np.asarray(rows[name].cast(pa.float64()), dtype=np.float64)
            for name in ("arrived", FIRST_TOKEN, FINISHED)
        }
        ended = np.where(np.isnan(times[FINISHED]), self._end_s, times[FINISHED])
        for upto, kept in self._kept.items():
            reached = np.where(np.isnan(times[upto]), ended, times[upto])
            took = reached - times["arrived"]
            for place in np.argsort(-took, kind="stable")[:HOW_MANY].tolist():
                row = msgspec.convert(rows.slice(place, 1).to_pylist()[0], RequestRow)
                kept.append((-float(took[place]), row.id, row))
            self._kept[upto] = heapq.nsmallest(HOW_MANY, kept, key=lambda entry: entry[:2])

    def requests(self, upto: str, series: Series, slots: list[int]) -> list[SlowRequest]:
        """The worst up to `first_token` or `finished`, the very worst first."""
        return [
            self._explained(request, upto, -minus_took, series, slots)
            for minus_took, _, request in self._kept[upto]
        ]

    def _explained(
        self, request: RequestRow, upto: str, took_s: float, series: Series, slots: list[int]
    ) -> SlowRequest:
        phases = request.phases(self._end_s)
        if upto == FIRST_TOKEN and len(phases) > 1:
            phases = [phase for phase in phases if phase.name != DECODE]
        there = request.outcome == "completed" or (
            upto == FIRST_TOKEN and request.first_token is not None
        )
        still = "" if there else NOT_THERE[request.outcome]
        longest = max(phases, key=lambda phase: phase.took_s)
        why = self.why(request, longest, series, slots)
        if request.preemptions:
            times = "once" if request.preemptions == 1 else f"{request.preemptions} times"
            why += f"; preempted {times}, and computed again"
        return SlowRequest(request, took_s, still, phases, why)

    def why(self, request: RequestRow, longest: Phase, series: Series, slots: list[int]) -> str:
        """The largest part of the time, and what made it large."""
        if longest.name in (PREFILL, DECODE):
            own = self._why_prefill if longest.name == PREFILL else self._why_decode
            return own(request, longest)
        took = format_duration(longest.took_s)
        sample = series.sample_at(longest.start_s)
        if longest.name == ENCODE:
            return f"its images or sound took {took} to encode, with the wait for an encoder"
        if longest.name == RETRY:
            tries = len(request.lost_tries or ())
            return f"{took} went to {tries} {'try' if tries == 1 else 'tries'} that were lost"
        if longest.name in WITHOUT_SERVER:
            where, column = WITHOUT_SERVER[longest.name]
            ahead = int(series.whole[column][sample])
            return f"queued for {took} {where}, {ahead:,} queued"
        if longest.name == QUEUE:
            return f"queued for {took}{_why_it_waited(request, series, sample, slots)}"
        if longest.name == TRANSFER:
            moving = int(series.whole["transfers"][sample])
            others = f", with {moving:,} transfers on the link" if moving > 1 else ""
            return f"its KV cache took {took} to move ({request.prompt_tokens:,} tokens){others}"
        used = _of_server(series, "kv_used", request.server, sample)
        full = f": {used:.0%} of its KV blocks were in use" if used is not None else ""
        if longest.name == ROOM:
            return f"its KV cache waited {took} for KV blocks on the decode server{full}"
        return f"waited {took} for its first token on the decode server{full}"

    def _why_prefill(self, request: RequestRow, phase: Phase) -> str:
        took = format_duration(phase.took_s)
        if request.outcome == "unfinished" and request.first_token is None:
            return "the run ended while its prompt was being computed, or computed again"
        if request.first_token is None and request.prefilled is None:
            return f"its prompt was still being computed after {took}"
        if request.prompt_tokens > LONG * self._mean_prompt > 0:
            times = request.prompt_tokens / self._mean_prompt
            return f"its long prompt took {took} to compute, {times:.1f} times the mean length"
        return f"its prompt took {took} to compute, in steps shared with other requests"

    def _why_decode(self, request: RequestRow, phase: Phase) -> str:
        tokens = request.output_tokens
        if request.outcome == "unfinished":
            return f"still on its {tokens:,} output tokens at the end of the run"
        if request.outcome == "timed_out":
            took = format_duration(phase.took_s)
            return f"its client left {took} into a response of {tokens:,} tokens"
        each_s = phase.took_s / max(tokens - 1, 1)
        each = f"{tokens:,} tokens at {format_duration(each_s)} each"
        if self._tpot_s and each_s > SLOW * self._tpot_s:
            return f"slow tokens: {each}, {each_s / self._tpot_s:.1f} times the median"
        if tokens > LONG * self._mean_output:
            return f"a long response: {each}"
        return f"its response of {each}"


def _of_server(series: Series, name: str, owner: Owner, sample: int) -> float | None:
    """A quantity of a server at a time; None when it did not exist."""
    place = series.place_of(owner)
    if place is None:
        return None
    value = float(series.servers[name][sample, place])
    return None if math.isnan(value) else value


def _why_it_waited(request: RequestRow, series: Series, sample: int, slots: list[int]) -> str:
    """What its server looked like when it came."""
    owner = request.prompt_server
    ahead, running, kv_used = (
        _of_server(series, name, owner, sample) for name in ("waiting", "running", "kv_used")
    )
    place = series.place_of(owner)
    if place is None or ahead is None or running is None or kv_used is None:
        return ""
    most = slots[place]
    if running >= most:
        cause = f"all {most} slots of its server were taken"
    elif kv_used >= KV_FULL:
        cause = f"{kv_used:.0%} of its server's KV blocks were in use"
    else:
        return " with room to spare: a long step, or prompts ahead of it, came first"
    return f": {cause}, {int(ahead)} queued"
