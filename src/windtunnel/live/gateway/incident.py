"""Cuts an interval out of a gateway's event log and trace, as a self-contained folder for replay.

The log keeps every fact since the gateway's start, because decisions depend on what preceded them,
and the decisions of the interval, which `windtunnel audit` reproduces. The trace has the requests
of the interval, and the scenario simulates them. Neither contains prompts, which the gateway never
writes. Only the settings that decisions follow are kept: no keys, files or listening addresses.
"""

from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from statistics import median
from typing import Any, Final, NamedTuple

import msgspec

from windtunnel.core import vocabulary
from windtunnel.core.errors import InputError
from windtunnel.core.telemetry import Event
from windtunnel.core.units import format_duration, parse_duration
from windtunnel.live.gateway import facts
from windtunnel.live.gateway.settings import GatewayFile
from windtunnel.live.replay import LogSection, lines_in
from windtunnel.settings.document import Plain
from windtunnel.workload.traces.gateway_folder import SAME_ARRIVAL_S, GatewayRow

LOG, TRACE, SCENARIO, SUMMARY = "gateway.jsonl", "trace.jsonl", "scenario.yaml", "incident.json"
FILES: Final = (LOG, TRACE, SCENARIO, SUMMARY)
KEPT_LIVE: Final = ("breaker", "retries", "no_server_ttl", "health")
"""Settings under `live` that decisions follow."""
KEPT_HEALTH: Final = ("ramp",)
OVER: Final = (vocabulary.ENDED, vocabulary.REJECTED, vocabulary.EVICTED)
REMOVED_KEY: Final = "REMOVED"
BLOCK_TOKENS: Final = 16
UNKNOWN_STEP_S: Final = 0.02
FAST_SHARE: Final = 4
"""The fastest quarter of requests are assumed not to have queued."""


class LogStretch(NamedTuple):
    """An interval of a log, in seconds since the gateway's start."""

    start: LogSection
    from_s: float
    to_s: float


class CutLog(NamedTuple):
    """What a log contains for an interval."""

    lines: int
    decisions: int
    arrived: int
    roles: dict[str, int]
    """Servers that had joined by its end, by role."""
    slots: int
    """Requests that the largest of them runs at once."""
    cache_tokens: int
    """The KV cache capacity of one of them; 0 if none has reported it."""
    requests: dict[str, float]
    """Arrival times, by id, of all requests with any part in the interval."""


def stretch_of(starts: Sequence[LogSection], begin: str | None, end: str | None) -> LogStretch:
    """The interval between two times, such as `1h30m` after the start or `2026-11-16T10:00:00Z`.

    It lies in one start of the gateway: the first that has lines after a `begin` of the clock, the
    last that began before an `end` of the clock, otherwise the last.
    """
    chosen = starts[-1]
    if begin is not None and _is_clock(begin):
        later = (one for one in starts if one.last_s >= _time(begin, "--from", one))
        chosen = next(later, chosen)
    elif end is not None and _is_clock(end):
        earlier = (one for one in reversed(starts) if _time(end, "--to", one) > 0.0)
        chosen = next(earlier, chosen)
    from_s = 0.0 if begin is None else _time(begin, "--from", chosen)
    to_s = float("inf") if end is None else _time(end, "--to", chosen)
    if to_s <= from_s:
        what = f"the stretch ends {format_duration(max(0.0, from_s - to_s))} before it begins"
        raise InputError(what, where=f"--to {end}", allowed="a time after that of --from")
    return LogStretch(chosen, from_s, to_s)


def _is_clock(text: str) -> bool:
    try:
        parse_duration(text)
    except InputError:
        return True
    return False


def _time(text: str, option: str, start: LogSection) -> float:
    where = f"{option} {text}"
    if not _is_clock(text):
        return parse_duration(text)
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        what = f"{text[:60]!r} is not a time"
        allowed = "1h30m after the gateway's start, or 2026-11-16T10:00:00Z"
        raise InputError(what, where=where, allowed=allowed) from None
    started_s = start.head.data.get("started")
    if not isinstance(started_s, int | float):
        what = "the log does not say when its gateway was started"
        raise InputError(what, where=where, hint="give the time since its start, such as 1h30m")
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return moment.timestamp() - float(started_s)


def started_at(start: LogSection) -> str:
    """When a gateway was started, for display."""
    started_s = start.head.data.get("started")
    if not isinstance(started_s, int | float):
        return start.where
    return datetime.fromtimestamp(started_s, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def trace_of(head: Event) -> Path:
    """The folder of the trace that a log's gateway writes."""
    settings = GatewayFile.read(head.data["settings"])
    if settings.live.trace is None:
        what = "the gateway writes no trace"
        raise InputError(what, where="live.trace", hint="--trace names another")
    return Path(head.data.get("folder") or ".") / settings.live.trace.folder


def cut_log(log: Path, stretch: LogStretch, out: Path) -> CutLog:
    """Writes what an audit of the interval needs; raises InputError if no request arrived in it."""
    head = stretch.start.head
    kept = {"settings": policies_only(head.data["settings"]), "seed": head.data["seed"]}
    if "objectives" in head.data:
        kept["objectives"] = head.data["objectives"]
    kept |= {"folder": "", "since": stretch.from_s}
    found = dict.fromkeys(("lines", "slots"), 1)
    found |= dict.fromkeys(("decisions", "arrived", "cache_tokens"), 0)
    roles: dict[str, int] = {}
    requests: dict[str, float] = {}
    with out.open("wb") as written:
        written.write(msgspec.json.encode(msgspec.structs.replace(head, data=kept)) + b"\n")
        inside = False
        for _, raw, line in lines_in(log, stretch.start):
            if line is None or line.time >= stretch.to_s:
                break
            _follow(line, requests, stretch.from_s)
            if line.kind in facts.DECISIONS:
                if not inside:
                    continue
                found["decisions"] += 1
            else:
                inside = line.time >= stretch.from_s
                _count(line, found, roles, inside=inside)
            found["lines"] += 1
            written.write(raw)
    if not found["arrived"]:
        span = f"{format_duration(stretch.from_s)} after the gateway's start"
        what = f"no request arrived in this stretch, which begins {span}"
        raise InputError(what, where=str(log), hint="choose other times with --from and --to")
    return CutLog(**found, roles=roles, requests=requests)


def _count(line: Event, found: dict[str, int], roles: dict[str, int], *, inside: bool) -> None:
    if line.kind == facts.ARRIVED and inside:
        found["arrived"] += 1
    elif line.kind == facts.JOINED:
        role = str(line.data.get("role", facts.BOTH))
        roles[role] = roles.get(role, 0) + 1
        found["slots"] = max(found["slots"], int(line.data.get("slots", 1)))
    elif line.kind == facts.CACHE_SIZE:
        found["cache_tokens"] = max(found["cache_tokens"], int(line.data.get("tokens", 0)))


def _follow(line: Event, requests: dict[str, float], from_s: float) -> None:
    """Keeps the requests that had not ended when the interval began, and all later ones."""
    about = line.subject.partition("/")[2]
    if line.kind == facts.ARRIVED:
        requests[about] = line.time
    elif line.kind in OVER and line.time < from_s:
        requests.pop(about, None)


def policies_only(settings: Mapping[str, Any]) -> dict[str, Any]:
    """The settings that decisions follow; clients keep their order, tenant and classes, no keys."""
    kept = {name: settings[name] for name in ("slo", "serving") if name in settings}
    live = settings.get("live") or {}
    chosen = {name: live[name] for name in KEPT_LIVE if name in live}
    if "health" in chosen:
        chosen["health"] = {
            name: value for name, value in chosen["health"].items() if name in KEPT_HEALTH
        }
    if live.get("clients"):
        chosen["clients"] = [
            {
                "key_env": REMOVED_KEY,
                **{name: one[name] for name in ("tenant", "classes") if name in one},
            }
            for one in live["clients"]
        ]
    return {**kept, "live": chosen} if chosen else kept


KEPT_ROW: Final = (
    *("arrived", "prompt_tokens", "output_tokens", "id", "tenant", "slo", "model", "session"),
    *("prefix_keys", "prefix_ends", "ttft", "e2e", "outcome", "server", "cached_tokens"),
)
"""The fields of a trace row that are kept; all others are dropped."""


def cut_trace(
    rows: Iterator[GatewayRow], requests: Mapping[str, float], out: Path
) -> list[dict[str, Any]]:
    """Writes the trace rows of these requests; times count from the first of them.

    Rows of other starts of the gateway may have the same ids, but arrived at other times.
    """
    nearest: dict[str, GatewayRow] = {}
    for one in rows:
        name = str(one.row.get("id"))
        if name in requests:
            known = nearest.get(name)
            most_s = abs(known.arrived_s - requests[name]) if known else SAME_ARRIVAL_S
            if abs(one.arrived_s - requests[name]) <= most_s:
                nearest[name] = one
    found: list[dict[str, Any]] = [
        {name: one.row[name] for name in KEPT_ROW if name in one.row} for one in nearest.values()
    ]
    if not found:
        what = "the trace has no request of this stretch"
        hint = "the gateway may have removed older files: `live.trace.keep` says how many stay"
        raise InputError(what, where="--trace", hint=hint)
    found.sort(key=lambda row: (float(row["arrived"]), str(row.get("id", ""))))
    first_s = float(found[0]["arrived"])
    with out.open("wb") as written:
        for row in found:
            shifted = {**row, "arrived": float(row["arrived"]) - first_s}
            written.write(msgspec.json.encode(shifted) + b"\n")
    return found


class TracedStepTimes(NamedTuple):
    """The step times of servers, as far as a trace shows them."""

    fixed_s: float
    prefill_s: float
    """Of one prompt token."""
    source: str
    """Where they come from, as the end of a sentence."""


def step_times_of(rows: Sequence[Mapping[str, Any]]) -> TracedStepTimes:
    """From the streams of a trace, otherwise from its whole answers, otherwise an assumption."""
    streamed = [
        (row["e2e"] - row["ttft"]) / (row["output_tokens"] - 1)
        for row in rows
        if row.get("ttft") is not None and row.get("e2e") and row["output_tokens"] > 1
    ]
    if not streamed:
        whole = [
            row["e2e"] / row["output_tokens"]
            for row in rows
            if row.get("e2e") and row["output_tokens"] > 0
        ]
        if not whole:
            source = f"assumed ({1e3 * UNKNOWN_STEP_S:g} ms): the trace has no complete answer"
            return TracedStepTimes(UNKNOWN_STEP_S, 0.0, source)
        source = "the times of whole answers per token: without streams, prefill is part of them"
        return TracedStepTimes(max(1e-4, _fastest(whole)), 0.0, f"estimated from {source}")
    fixed_s = max(1e-4, median(streamed))
    computed = [
        max(0.0, row["ttft"] - fixed_s) / max(1, row["prompt_tokens"] - row.get("cached_tokens", 0))
        for row in rows
        if row.get("ttft") is not None and row["prompt_tokens"] > 0
    ]
    prefill_s = _fastest(computed) if computed else 0.0
    return TracedStepTimes(fixed_s, prefill_s, "estimated from the streams in the trace")


def _fastest(values: list[float]) -> float:
    return median(sorted(values)[: max(1, len(values) // FAST_SHARE)])


def scenario_of(
    settings: Mapping[str, Any], cut: CutLog, times: TracedStepTimes
) -> dict[str, Plain]:
    """A scenario of the interval: the gateway's policies, and servers with the trace's timing, in
    place of a model and an accelerator."""
    serving = dict(settings.get("serving") or {})
    blocks = max(2, cut.cache_tokens // BLOCK_TOKENS) if cut.cache_tokens else 50_000
    serving["pools"] = [
        {
            "name": "main" if role == facts.BOTH else role,
            **({} if role == facts.BOTH else {"role": role}),
            "replicas": count,
            "engine": {"max_num_seqs": cut.slots, "kv_blocks": blocks},
            "step_time": {
                "model": "linear",
                "fixed": f"{1e6 * times.fixed_s:.1f}us",
                "per_prefill_token": f"{1e6 * times.prefill_s:.3f}us",
            },
        }
        for role, count in cut.roles.items()
    ]
    found: dict[str, Any] = {"name": "incident", "workload": [{"trace": {"path": TRACE}}]}
    if settings.get("slo"):
        found["slo"] = settings["slo"]
    found["serving"] = serving
    return found
