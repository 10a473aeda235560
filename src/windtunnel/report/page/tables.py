"""The tables of a report: classes, tenants and sources; conversations; pools with cost; servers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from windtunnel.core.units import (
    duration_cell,
    format_count,
    format_duration,
    format_rate,
    format_size,
)
from windtunnel.report.terminal.run import ENDINGS, differing, dollars

NOTHING = "\N{EN DASH}"
"""What stands where there is no value."""
MOST_ROWS = 20
MOST_SERVERS = 40
UNEVEN = 2.0
"""A server is worth a word when requests wait this many times as long there as on the mean."""

DECIDED = {"admit": "let in", "queue": "kept", "reject": "turned away", "evict": "stopped"}

Entry = dict[str, Any]


class PageTable(msgspec.Struct, frozen=True):
    """All that the template draws of one table; the first column names the rows."""

    title: str
    lead: str
    words: int
    """So many columns hold words; the others figures, which stand to the right."""
    columns: list[str]
    rows: list[list[str]]
    note: str = ""


def seconds(value: float | None) -> str:
    return NOTHING if value is None else duration_cell(value)


def percent(share: float | None) -> str:
    if share is None:
        return NOTHING
    # 99.96% is not 100%.
    return f"{share:.1%}" if share < 0.999 or share == 1.0 else f"{int(share * 1e4) / 100:.2f}%"


def accounts(result: Entry) -> list[PageTable]:
    """Who got what: by model, class, tenant and source, each where there are several."""
    found = []
    if result.get("models"):
        found.append(_models(result["models"]))
    if len(result["slo"]) > 1:
        found.append(_classes(result["slo"]))
    if len(result["tenants"]) > 1:
        found.append(_tenants(result))
    if len(result["sources"]) > 1 and not _alike(result["sources"], result["tenants"]):
        found.append(_sources(result["sources"]))
    if result["adapters"]:
        found.append(_adapters(result["adapters"]))
    return found


def _alike(some: dict[str, Entry], others: dict[str, Entry]) -> bool:
    """Whether two ways to divide the requests come to the same: one table says it all."""
    keys = ("requests", "completed", "prompt_tokens", "output_tokens")
    one, two = (
        sorted([entry[key] for key in keys] for entry in entries.values())
        for entries in (some, others)
    )
    return one == two


def _not_completed(entry: Entry) -> str:
    parts = [f"{entry[key]:,} {name}" for key, name in ENDINGS.items() if entry[key]]
    return ", ".join(parts[1:] if entry["completed"] else parts) or NOTHING


def _largest(
    entries: dict[str, Entry], row: Callable[[str, Entry], list[str]], noun: str
) -> tuple[list[list[str]], str]:
    """Rows of those with the most requests, and what is said of the others."""
    order = sorted(entries, key=lambda name: -entries[name]["requests"])[:MOST_ROWS]
    more = len(entries) - len(order)
    note = f"The {MOST_ROWS} with the most requests; result.json has {more} more {noun}."
    return [row(name, entries[name]) for name in order], note if more else ""


def _models(models: dict[str, Entry]) -> PageTable:
    def row(name: str, one: Entry) -> list[str]:
        requests, latency, cost = one["requests"], one["latency"], one["cost"]
        return [
            name,
            _not_completed(requests),
            f"{requests['arrived']:,}",
            percent(one["attained"]),
            seconds(latency["queue"]["p99"]),
            seconds(latency["ttft"]["p50"]),
            seconds(latency["ttft"]["p99"]),
            seconds(latency["tpot"]["p99"]),
            seconds(latency["e2e"]["p99"]),
            dollars(cost["total"]) if cost["total"] else NOTHING,
        ]

    columns = ["model", "not completed", "requests", "in time", "queue p99"]
    columns += ["TTFT p50", "TTFT p99", "TPOT p99", "E2E p99", "cost"]
    rows = [row(name, one) for name, one in models.items()]
    return PageTable("By model", "", 2, columns, rows)


def _classes(slos: dict[str, Entry]) -> PageTable:
    def row(name: str, slo: Entry) -> list[str]:
        return [
            name,
            _not_completed(slo),
            f"{slo['requests']:,}",
            percent(slo["attained"]),
            seconds(slo["queue"]["p99"]),
            seconds(slo["ttft"]["p50"]),
            seconds(slo["ttft"]["p99"]),
            seconds(slo["tpot"]["p99"]),
            seconds(slo["e2e"]["p99"]),
        ]

    columns = ["class", "not completed", "requests", "in time", "queue p99"]
    columns += ["TTFT p50", "TTFT p99", "TPOT p99", "E2E p99"]
    rows, note = _largest(slos, row, "classes")
    return PageTable("By class", "", 2, columns, rows, note)


def _tenants(result: Entry) -> PageTable:
    def row(name: str, tenant: Entry) -> list[str]:
        return [
            name,
            _not_completed(tenant),
            f"{tenant['requests']:,}",
            percent(tenant["attained"]),
            seconds(tenant["ttft"]["p50"]),
            seconds(tenant["ttft"]["p99"]),
            seconds(tenant["e2e"]["p99"]),
            format_count(tenant["output_tokens"]),
            percent(tenant["served_share"]),
        ]

    columns = ["tenant", "not completed", "requests", "in time", "TTFT p50", "TTFT p99"]
    columns += ["E2E p99", "output tokens", "served"]
    rows, note = _largest(result["tenants"], row, "tenants")
    return PageTable("By tenant", _fairness(result), 2, columns, rows, note)


def _fairness(result: Entry) -> str:
    fairness = result["fairness"]
    parts = [
        f"{fairness[key]:.3f} for the {what}"
        for key, what in (
            ("served_tokens", "share of its tokens that each was served"),
            ("goodput", "share of its requests that was in time"),
        )
        if fairness[key] is not None
    ]
    if not parts:
        return ""
    many = len(result["tenants"])
    scale = f"1: all alike, 1/{many}: one has all"
    return f"Jain's index of fairness over {many} tenants ({scale}): {', '.join(parts)}."


def _sources(sources: dict[str, Entry]) -> PageTable:
    def row(name: str, source: Entry) -> list[str]:
        return [
            name,
            _not_completed(source),
            f"{source['requests']:,}",
            percent(source["attained"]),
            format_count(source["prompt_tokens"]),
            format_count(source["output_tokens"]),
            percent(source["served_share"]),
        ]

    columns = ["source", "not completed", "requests", "in time", "prompt tokens"]
    columns += ["output tokens", "served"]
    rows, note = _largest(sources, row, "sources")
    return PageTable("By source", "", 2, columns, rows, note)


def _adapters(adapters: dict[str, Entry]) -> PageTable:
    def row(name: str, adapter: Entry) -> list[str]:
        return [
            name,
            _not_completed(adapter),
            f"{adapter['requests']:,}",
            percent(adapter["attained"]),
            seconds(adapter["ttft"]["p50"]),
            seconds(adapter["ttft"]["p99"]),
            f"{adapter['loads']:,}",
            f"{adapter['evictions']:,}",
        ]

    columns = ["adapter", "not completed", "requests", "in time", "TTFT p50", "TTFT p99"]
    rows, note = _largest(adapters, row, "adapters")
    return PageTable("By adapter", "", 2, [*columns, "loads", "evictions"], rows, note)


def decisions(result: Entry) -> PageTable | None:
    """What the gateway decided, and how often for which reason."""
    gateway = result["gateway"]
    if gateway is None:
        return None
    rows = [
        [DECIDED[kind], reason, f"{count:,}"]
        for kind, counts in gateway["decisions"].items()
        for reason, count in counts.items()
    ]
    most = gateway["waiting_peak"]
    lead = f"At most {most:,} requests waited there at once." if most else "Nobody waited there."
    return PageTable("At the gateway", lead, 2, ["decided", "reason", "times"], rows)


def choices(result: Entry) -> str:
    """How good the router's choices were, as one sentence; empty where nobody asked."""
    routing = result["routing"]
    if routing is None or not routing["requests"]:
        return ""
    return (
        f"Of {routing['requests']:,} choices of the router that were looked into, "
        f"{percent(routing['better_elsewhere'])} had a better server by fresh signals; regret was "
        f"{routing['regret_mean']:.3g} on the mean, {routing['regret_p99']:.3g} at p99."
    )


def conversations(result: Entry) -> PageTable | None:
    """First turns beside later ones, and how sessions ended."""
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
        [name, *(seconds(sessions[key][figure]) for figure in figures)]
        for name, key in (
            ("TTFT of first turns, cold", "cold_ttft"),
            ("TTFT of later turns, warm", "warm_ttft"),
            ("whole session", "duration"),
        )
    ]
    return PageTable("Conversations", lead, 1, ["", *figures], rows)


def transfers(result: Entry) -> PageTable | None:
    """What computing prompts apart from answers took."""
    split = result["disaggregation"]
    if split is None:
        return None
    tokens = split["moved_tokens"] + split["present_tokens"]
    moved = f"{format_size(split['moved_bytes'])} of KV cache moved"
    spared = split["present_tokens"] / tokens if tokens else 0.0
    lead = f"{split['split']:,} of {result['requests']['arrived']:,} requests were split; {moved}"
    lead += f", {percent(spared)} of tokens were there already"
    lead += f"; the link was busy {percent(split['link_busy'])} of the time"
    lead += f"; {split['retries']:,} tries found no room." if split["retries"] else "."
    figures = ("mean", "p50", "p90", "p99", "max")
    rows = [
        [name, *(seconds(split[key][figure]) for figure in figures)]
        for name, key in (("waiting for room", "room"), ("moving", "transfer"))
    ]
    return PageTable("Prompts apart from answers", lead, 1, ["", *figures], rows)


def tiers(result: Entry) -> PageTable | None:
    """What slower tiers of memory kept and gave back."""
    offloads = {name: p["offload"] for name, p in result["pools"].items() if p["offload"]}
    if not offloads:
        return None
    rows, waits = [], []
    for name, offload in offloads.items():
        wait = offload["wait"]
        if wait["p50"] is not None:
            figures = f"p50 {seconds(wait['p50'])}, p99 {seconds(wait['p99'])}"
            waits.append(f"Requests of {name} waited for loads: {figures}.")
        rows += [
            [
                name,
                place,
                f"{tier['loads']:,}",
                f"{tier['loaded_tokens']:,}",
                format_size(tier["loaded_bytes"]),
                percent(tier["busy"]),
                format_size(tier["stored_bytes"]),
                percent(tier["peak"]),
            ]
            for place, tier in offload["tiers"].items()
        ]
    columns = ["pool", "tier", "loads", "tokens", "loaded", "loading", "stored", "peak"]
    return PageTable("Slower tiers of KV", " ".join(waits), 2, columns, rows)


def pools(result: Entry, scenario: Entry) -> PageTable:
    """What each pool did and cost."""
    plans = {pool["name"]: pool for pool in scenario["serving"]["pools"]}
    priced = any(pool["cost"] for pool in result["pools"].values())
    told = differing(result["pools"])
    columns = ["pool", *told, "runs on", "servers", "busy", "KV peak", "preemptions"]
    columns += ["$ per hour", "cost"] if priced else []
    rows = []
    for name, pool in result["pools"].items():
        plan = plans.get(name, {})
        count = pool["replica_seconds"] / (result["simulated_seconds"] or 1.0)
        cells = [name, *(pool[key] or NOTHING for key in told)]
        cells += [_hardware(plan), f"{count:.1f}".removesuffix(".0")]
        cells += [percent(pool["utilization"]), percent(pool["kv_peak"])]
        cells.append(f"{pool['preemptions']:,}")
        if priced:
            price = pool["price_per_hour"]
            each = NOTHING if price is None else dollars(price * plan.get("tensor_parallel", 1))
            cells += [each, dollars(pool["cost"]) if pool["cost"] else NOTHING]
        rows.append(cells)
    return PageTable("Pools", _cost(result), 2 + len(told), columns, rows)


def _hardware(plan: Entry) -> str:
    if not plan:
        return NOTHING
    count = plan["tensor_parallel"]
    runs_on = plan["accelerator"] or "given step times"
    many = f"{count} x " if count > 1 else ""
    return f"{many}{runs_on}{'' if plan['role'] == 'both' else ', ' + plan['role']}"


def _cost(result: Entry) -> str:
    cost = result["cost"]
    if not cost["total"]:
        return ""
    each = cost["per_million_output_tokens"]
    per = f", {dollars(each)} per million output tokens" if each else ""
    total = f"{dollars(cost['total'])} in all{per}"
    if result["fleet"] is not None:
        kinds = result["fleet"]["pools"].items()
        each_kind = ", ".join(f"{name} {dollars(kind['cost'])}" for name, kind in kinds)
        return (
            f"{total}: what the machines of the fleet cost ({each_kind}). The rows are the list "
            "prices of accelerators for the time of their servers, and do not add up to it."
        )
    return f"{total}. A server costs whether it is busy or not."


def servers(result: Entry) -> PageTable:
    """Every server, or those where requests waited longest; with a word on how even they are."""
    listed = sorted(result["servers"], key=lambda one: -(one["queue_mean"] or 0.0))[:MOST_SERVERS]
    few = len(result["servers"]) <= MOST_SERVERS
    if few:
        listed = result["servers"]
    columns = ["server", "requests", "mean wait", "busy", "KV peak", "preemptions"]
    columns += ["prefix hits", "output tokens"]
    rows = [
        [
            f"{one['pool']}\N{NO-BREAK SPACE}{one['server']}",
            f"{one['requests']:,}",
            seconds(one["queue_mean"]),
            percent(one["utilization"]),
            percent(one["kv_peak"]),
            f"{one['preemptions']:,}",
            format_count(one["prefix_hit_tokens"]),
            format_count(one["output_tokens"]),
        ]
        for one in listed
    ]
    title = "Server by server" if few else f"The {MOST_SERVERS} servers with the longest waits"
    return PageTable(title, _evenness(result["servers"]), 1, columns, rows)


def _evenness(found: list[Entry]) -> str:
    """Whether some servers have longer lines than others of their pool, as one sentence."""
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


def rate(per_s: float | None) -> str:
    return NOTHING if per_s is None else format_rate(per_s)
