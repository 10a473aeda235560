"""The worst requests of a run: where their time went, and why, in a sentence."""

from __future__ import annotations

import heapq
import re
from typing import TYPE_CHECKING, Any

import msgspec

from windtunnel.core.units import format_duration
from windtunnel.report.page.latencies import of_outcomes
from windtunnel.twin.saturation import KV_FULL

if TYPE_CHECKING:
    from windtunnel.report.page.folder import Series

HOW_MANY = 8
MOST_ENDINGS = 8
NUMBER = re.compile(r"\d[\d,.]*")
LONG_PROMPT = 2.0
"""A prompt this many times the mean is called long."""


class Ended(msgspec.Struct, frozen=True):
    """A request as its row tells it; times are None where they never came."""

    id: int
    source: str
    arrived: float
    scheduled: float | None
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


class Story(msgspec.Struct, frozen=True):
    """A slow request: how long it took, in parts, and why; `still` when it never got there."""

    request: Ended
    took_s: float
    still: bool
    queue_s: float
    prefill_s: float
    decode_s: float
    why: str


class Worst:
    """Keeps the slowest requests to the first token and to the end, from batches of rows."""

    def __init__(self, result: dict[str, Any]) -> None:
        self._end_s: float = result["simulated_seconds"]
        completed = result["requests"]["completed"]
        self._mean_prompt = result["tokens"]["prompt"] / completed if completed else 0.0
        self._kept: dict[str, list[tuple[float, int, Ended]]] = {"first_token": [], "finished": []}

    def add(self, batch: Any) -> None:
        import numpy as np
        import pyarrow as pa

        rows = of_outcomes(batch, ("completed", "timed_out", "unfinished"))
        arrived = np.asarray(rows["arrived"], dtype=np.float64)
        for upto, kept in self._kept.items():
            reached = np.asarray(rows[upto].cast(pa.float64()), dtype=np.float64)
            took = np.where(np.isnan(reached), self._end_s, reached) - arrived
            for place in np.argsort(-took, kind="stable")[:HOW_MANY].tolist():
                row = msgspec.convert(rows.slice(place, 1).to_pylist()[0], Ended)
                kept.append((-float(took[place]), row.id, row))
            self._kept[upto] = heapq.nsmallest(HOW_MANY, kept, key=lambda entry: entry[:2])

    def stories(self, upto: str, series: Series, slots: list[int]) -> list[Story]:
        """The worst up to `first_token` or `finished`, the very worst first."""
        return [
            self._story(request, upto, -minus_took, series, slots)
            for minus_took, _, request in self._kept[upto]
        ]

    def _story(
        self, request: Ended, upto: str, took_s: float, series: Series, slots: list[int]
    ) -> Story:
        end_s = self._end_s if request.finished is None else request.finished
        first = end_s if request.first_token is None else request.first_token
        scheduled = first if request.scheduled is None else request.scheduled
        still = getattr(request, upto) is None
        queue_s, prefill_s = scheduled - request.arrived, first - scheduled
        decode_s = end_s - first if upto == "finished" else 0.0
        why = self._why(request, (queue_s, prefill_s, decode_s), series, slots)
        return Story(request, took_s, still, queue_s, prefill_s, decode_s, why)

    def _why(
        self,
        request: Ended,
        parts: tuple[float, float, float],
        series: Series,
        slots: list[int],
    ) -> str:
        """The largest part of the time, and what made it large."""
        queue_s, prefill_s, decode_s = parts
        if queue_s >= max(prefill_s, decode_s):
            why = _why_it_waited(request, queue_s, series, slots)
        elif prefill_s >= decode_s:
            why = self._why_prefill(request, prefill_s)
        else:
            why = _why_decode(request, decode_s)
        if request.preemptions:
            times = "once" if request.preemptions == 1 else f"{request.preemptions} times"
            why += f"; preempted {times}, and computed again"
        return why

    def _why_prefill(self, request: Ended, prefill_s: float) -> str:
        if request.first_token is None:
            return "the run ended while its prompt was being computed, or computed again"
        took = format_duration(prefill_s)
        if request.prompt_tokens > LONG_PROMPT * self._mean_prompt > 0:
            times = request.prompt_tokens / self._mean_prompt
            return f"its long prompt took {took} to compute, {times:.1f} times the mean length"
        return f"its prompt took {took} to compute, in steps shared with other requests"


def _why_it_waited(request: Ended, queue_s: float, series: Series, slots: list[int]) -> str:
    """What its server looked like when it came."""
    waited = f"waited {format_duration(queue_s)}"
    owner = (request.pool, request.replica)
    if owner not in series.names:
        return waited
    server = series.names.index(owner)
    sample = min(int(series.times.searchsorted(request.arrived)), len(series.times) - 1)
    values = {name: series.servers[name][sample, server] for name in ("waiting", "running")}
    kv_used = float(series.servers["kv_used"][sample, server])
    if values["waiting"] != values["waiting"]:  # the server was gone by then
        return waited
    ahead, running = int(values["waiting"]), int(values["running"])
    if running >= slots[server]:
        cause = f"all {slots[server]} slots of its server were taken"
    elif kv_used >= KV_FULL:
        cause = f"{kv_used:.0%} of its server's KV blocks were in use"
    else:
        return f"{waited} with room to spare: a long step, or prompts ahead of it, came first"
    return f"{waited}: {cause}, {ahead} in line"


def _why_decode(request: Ended, decode_s: float) -> str:
    tokens = request.output_tokens
    if request.finished is None:
        return f"still on its {tokens:,} output tokens at the end of the run"
    each = format_duration(decode_s / max(tokens - 1, 1))
    return f"a long answer: {tokens:,} tokens at {each} each"


class Endings:
    """How requests ended that did not complete; reasons that differ in numbers alone are one."""

    def __init__(self) -> None:
        self._counts: dict[tuple[str, str], int] = {}
        self._example: dict[tuple[str, str], tuple[int, str]] = {}

    def add(self, batch: Any) -> None:
        rows = of_outcomes(batch, ("rejected", "timed_out", "dropped", "unfinished"))
        columns = (rows[name].to_pylist() for name in ("outcome", "reason", "id"))
        for outcome, reason, number in zip(*columns, strict=True):
            key = (outcome, NUMBER.sub("#", reason or ""))
            self._counts[key] = self._counts.get(key, 0) + 1
            self._example.setdefault(key, (number, reason or ""))

    def most(self) -> list[tuple[str, int, int, str]]:
        """Outcome, how many, and one of them with its reason; most frequent first."""
        order = sorted(self._counts.items(), key=lambda item: (-item[1], item[0]))
        return [(key[0], count, *self._example[key]) for key, count in order[:MOST_ENDINGS]]
