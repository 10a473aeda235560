"""The tables of a report: classes, tenants and sources; conversations; pools with cost; servers."""

from __future__ import annotations

import math
from typing import Any

import msgspec

from windtunnel.analysis.figures import (
    DOLLARS,
    NOTHING,
    OUTCOMES,
    SECONDS,
    cells_of,
    heads_of,
    share_text,
    text_of,
)
from windtunnel.core.units import (
    format_duration,
    format_size,
)
from windtunnel.report.terminal.run import differing

MOST_ROWS = 20
MOST_SERVERS = 40
UNEVEN = 2.0
"""A server is mentioned if requests wait this many times as long there as on average."""

DECIDED = {"admit": "admitted", "queue": "queued", "reject": "rejected", "evict": "evicted"}

Entry = dict[str, Any]


class PageTable(msgspec.Struct, frozen=True):
    """One table, as the template draws it; the first column names the rows."""

    title: str
    lead: str
    words: int
    """The number of leading text columns; the others hold figures, aligned right."""
    columns: list[str]
    rows: list[list[str]]
    note: str = ""


def accounts(result: Entry) -> list[PageTable]:
    """Service by model, class, tenant and source, each if there are several."""
    found = []
    if result.get("models"):
        found.append(_part("models.MODEL", result["models"]))
    if len(result["slo"]) > 1:
        found.append(_part("slo.CLASS", result["slo"]))
    if len(result["tenants"]) > 1:
        found.append(_part("tenants.TENANT", result["tenants"], _fairness(result)))
    if len(result["sources"]) > 1 and not _alike(result["sources"], result["tenants"]):
        found.append(_part("sources.SOURCE", result["sources"]))
    if result["adapters"]:
        found.append(_part("adapters.ADAPTER", result["adapters"]))
    return found


def _part(part: str, entries: dict[str, Entry], lead: str = "") -> PageTable:
    """Models, classes, tenants, sources or adapters: those with the most requests."""
    noun = part.rpartition(".")[2].lower()
    order = sorted(entries, key=lambda name: -_outcomes(entries[name])[0])[:MOST_ROWS]
    rows = [[name, _outcomes(entries[name])[1], *cells_of(part, entries[name])] for name in order]
    more = len(entries) - len(order)
    note = f"The {MOST_ROWS} with the most requests; result.json has {more} more." if more else ""
    columns = [noun, "not completed", *heads_of(part)]
    return PageTable(f"By {noun}", lead, 2, columns, rows, note)


def _alike(some: dict[str, Entry], others: dict[str, Entry]) -> bool:
    """Whether two ways to divide the requests are the same, so that one table is enough."""
    keys = ("requests", "completed", "prompt_tokens", "output_tokens")
    one, two = (
        sorted([entry[key] for key in keys] for entry in entries.values())
        for entries in (some, others)
    )
    return one == two


def _outcomes(entry: Entry) -> tuple[int, str]:
    """The number of requests, and the outcomes of those that were not completed."""
    counts = entry["requests"] if isinstance(entry["requests"], dict) else entry
    parts = [f"{counts[key]:,} {name}" for key, name in OUTCOMES.items() if counts[key]]
    total = counts["arrived"] if counts is not entry else counts["requests"]
    return total, ", ".join(parts[1:] if counts["completed"] else parts) or NOTHING


def _fairness(result: Entry) -> str:
    fairness = result["fairness"]
    parts = [
        f"{fairness[key]:.3f} for the {what}"
        for key, what in (
            ("served_tokens", "share of requested tokens that each was served"),
            ("goodput", "SLO attainment of each"),
        )
        if fairness[key] is not None
    ]
    if not parts:
        return ""
    many = len(result["tenants"])
    scale = f"1: all equal, 1/{many}: one gets all"
    return f"Jain's index of fairness over {many} tenants ({scale}): {', '.join(parts)}."


def decisions(result: Entry) -> PageTable | None:
    """The decisions of the gateway, with a count for each reason."""
    gateway = result["gateway"]
    if gateway is None:
        return None
    rows = [
        [DECIDED[kind], reason, f"{count:,}"]
        for kind, counts in gateway["decisions"].items()
        for reason, count in counts.items()
    ]
    most = gateway["waiting_peak"]
    lead = (
        f"At most {most:,} requests were queued there at once."
        if most
        else "No request was queued there."
    )
    return PageTable("At the gateway", lead, 2, ["decided", "reason", "times"], rows)


def choices(result: Entry) -> str:
    """A sentence about the quality of the router's choices; empty if they were not examined."""
    routing = result["routing"]
    if routing is None or not routing["requests"]:
        return ""
    return (
        f"Of {routing['requests']:,} choices of the router that were examined, "
        f"{share_text(routing['better_elsewhere'])} had a better server by fresh signals; the "
        f"regret was {routing['regret_mean']:.3g} on average, {routing['regret_p99']:.3g} at p99."
    )


def conversations(result: Entry) -> PageTable | None:
    """Latencies of first and later turns, and how sessions ended."""
    sessions = result["sessions"]
    if not sessions["count"]:
        return None
    ended = [f"{count:,} {state}" for state, count in sessions["ended"].items() if count]
    lead = (
        f"{sessions['count']:,} sessions with {sessions['turns']:,} turns; "
        f"{', '.join(ended) or 'none has ended'}."
    )
    figures = ("mean", "p50", "p90", "p99", "max")
    rows = [
        [name, *(text_of(SECONDS, sessions[key][figure]) for figure in figures)]
        for name, key in (
            ("TTFT of first turns, cold", "cold_ttft"),
            ("TTFT of later turns, warm", "warm_ttft"),
            ("whole session", "duration"),
        )
    ]
    return PageTable("Conversations", lead, 1, ["", *figures], rows)


def transfers(result: Entry) -> PageTable | None:
    """Transfers between prefill and decode servers."""
    split = result["disaggregation"]
    if split is None:
        return None
    tokens = split["moved_tokens"] + split["present_tokens"]
    moved = f"{format_size(split['moved_bytes'])} of KV cache moved"
    spared = split["present_tokens"] / tokens if tokens else 0.0
    lead = f"{split['split']:,} of {result['requests']['arrived']:,} requests were split; {moved}"
    lead += f", {share_text(spared)} of tokens were already there"
    lead += f"; the busiest link was busy {share_text(split['link_busy'])} of the time"
    lead += f"; {split['waited']:,} waited for room." if split["waited"] else "."
    figures = ("mean", "p50", "p90", "p99", "max")
    rows = [
        [name, *(text_of(SECONDS, split[key][figure]) for figure in figures)]
        for name, key in (("waiting for room", "room"), ("moving", "transfer"))
    ]
    return PageTable("Prefill and decode on separate servers", lead, 1, ["", *figures], rows)


def tiers(result: Entry) -> PageTable | None:
    """Blocks stored in slower memory tiers, and loaded from them."""
    offloads = {name: p["offload"] for name, p in result["pools"].items() if p["offload"]}
    if not offloads:
        return None
    rows, waits = [], []
    for name, offload in offloads.items():
        wait = offload["wait"]
        if wait["p50"] is not None:
            figures = f"p50 {text_of(SECONDS, wait['p50'])}, p99 {text_of(SECONDS, wait['p99'])}"
            waits.append(f"Requests of {name} waited for loads: {figures}.")
        rows += [
            [
                name,
                place,
                f"{tier['loads']:,}",
                f"{tier['loaded_tokens']:,}",
                format_size(tier["loaded_bytes"]),
                share_text(tier["busy"]),
                format_size(tier["stored_bytes"]),
                share_text(tier["peak"]),
            ]
            for place, tier in offload["tiers"].items()
        ]
    columns = ["pool", "tier", "loads", "tokens", "loaded", "loading", "stored", "peak"]
    return PageTable("Slower tiers of KV", " ".join(waits), 2, columns, rows)


def pools(result: Entry, scenario: Entry) -> PageTable:
    """The work and the cost of each pool."""
    plans = {pool["name"]: pool for pool in scenario["serving"]["pools"]}
    priced = any(pool["cost"] for pool in result["pools"].values())
    shown = differing(result["pools"])
    columns = ["pool", *shown, "runs on", "servers", *heads_of("pools.POOL")]
    columns += ["$ per hour", "cost"] if priced else []
    rows = []
    for name, pool in result["pools"].items():
        plan = plans.get(name, {})
        count = pool["replica_seconds"] / (result["simulated_seconds"] or 1.0)
        cells = [name, *(pool[key] or NOTHING for key in shown)]
        cells += [_hardware(plan), f"{count:.1f}".removesuffix(".0")]
        cells += cells_of("pools.POOL", pool)
        if priced:
            price = pool["price_per_hour"]
            each = NOTHING if price is None else text_of(DOLLARS, price * _gpus(plan))
            cells += [each, text_of(DOLLARS, pool["cost"]) if pool["cost"] else NOTHING]
        rows.append(cells)
    return PageTable("Pools", _cost(result), 2 + len(shown), columns, rows)


def _gpus(plan: Entry) -> int:
    """Accelerators of a server."""
    degrees = ("tensor_parallel", "data_parallel", "pipeline_parallel")
    return math.prod(plan.get(degree, 1) for degree in degrees)


def serves(scenario: Entry) -> str:
    """Models and their hardware: `llama-3.1-70b on 4 x h100-sxm`, one server of each kind."""
    found = []
    for pool in scenario["serving"]["pools"]:
        count, name = _gpus(pool), pool.get("accelerator")
        hardware = f"{count} x {name}" if name and count > 1 else name
        found.append(" on ".join(text for text in (pool.get("model"), hardware) if text))
    return ", ".join(text for text in dict.fromkeys(found) if text)


def _hardware(plan: Entry) -> str:
    if not plan:
        return NOTHING
    count = _gpus(plan)
    runs_on = plan["accelerator"] or "given step times"
    many = f"{count} x " if count > 1 else ""
    return f"{many}{runs_on}{'' if plan['role'] == 'both' else ', ' + plan['role']}"


def _cost(result: Entry) -> str:
    cost = result["cost"]
    if not cost["total"]:
        return ""
    each = cost["per_million_output_tokens"]
    per = f", {text_of(DOLLARS, each)} per million output tokens" if each else ""
    total = f"{text_of(DOLLARS, cost['total'])} in all{per}"
    if result["fleet"] is not None:
        kinds = result["fleet"]["pools"].items()
        each_kind = ", ".join(f"{name} {text_of(DOLLARS, kind['cost'])}" for name, kind in kinds)
        return (
            f"{total}: what the machines of the fleet cost ({each_kind}). The rows are the list "
            "prices of accelerators for the time of their servers, and do not add up to it."
        )
    return f"{total}. A server costs whether it is busy or not."


def servers(result: Entry) -> PageTable:
    """All servers, or those with the longest waits; with a sentence if waits are uneven."""
    listed = sorted(result["servers"], key=lambda one: -(one["queue_mean"] or 0.0))[:MOST_SERVERS]
    few = len(result["servers"]) <= MOST_SERVERS
    if few:
        listed = result["servers"]
    columns = ["server", *heads_of("servers[]")]
    rows = [
        [f"{one['pool']}\N{NO-BREAK SPACE}{one['server']}", *cells_of("servers[]", one)]
        for one in listed
    ]
    title = "Server by server" if few else f"The {MOST_SERVERS} servers with the longest waits"
    return PageTable(title, _evenness(result["servers"]), 1, columns, rows)


def _evenness(found: list[Entry]) -> str:
    """A sentence about servers on which requests queued longer than in the rest of their pool."""
    pools: dict[str, list[Entry]] = {}
    for one in found:
        if one["queue_mean"] is not None:
            pools.setdefault(one["pool"], []).append(one)
    worst, slow = (0.0, 0.0, ""), 0
    for pool, some in pools.items():
        mean = sum(one["queue_mean"] for one in some) / len(some)
        for one in some:
            if one["queue_mean"] > UNEVEN * mean:
                slow += 1
                worst = max(worst, (one["queue_mean"], mean, f"{pool} {one['server']}"))
    if not slow:
        return ""
    longest, mean, name = worst
    many = f"{slow} servers have" if slow > 1 else "One server has"
    return (
        f"{many} waits more than {UNEVEN:g} times as long as the mean of the pool: on {name} "
        f"requests waited {format_duration(longest)}, on the mean server {format_duration(mean)}."
    )
