"""Details of a run for its table: outcomes, classes, models, tenants, gangs, machines, faults."""

from collections.abc import Iterable
from typing import Any

from rich.table import Table

from windtunnel.analysis.explain.steps import count, some_of
from windtunnel.analysis.figures import SECONDS, cells_of, heads_of, share_text, text_of
from windtunnel.core.units import format_size
from windtunnel.report.terminal.layout import narrower

MOST_REASONS = 4
MOST_ROWS = 6
"""Limit on the rows of tenants."""

Entry = dict[str, Any]


def prefix_share(result: Entry) -> float | None:
    """The share of the prompt tokens of completed requests that prefix caches saved."""
    tokens = result["tokens"]
    spared: float | None = tokens["prefix_hit"] / tokens["prompt"] if tokens["prompt"] else None
    return spared


def ending_lines(result: Entry, names: dict[str, str]) -> list[str]:
    """The most frequent reasons why requests were not completed, one per line."""
    found = [
        (-count, names[outcome], reason)
        for outcome, reasons in result["reasons"].items()
        for reason, count in reasons.items()
        if outcome != "completed"
    ]
    found.sort()
    shown = found[:MOST_REASONS]
    wide = max((len(str(-count)) for count, _, _ in shown), default=0)
    lines = [f"{-count:>{wide}} {name}: {reason}" for count, name, reason in shown]
    more = len(found) - len(shown)
    if more:
        lines.append(f"and {more} more reason{'s' * (more > 1)}, in result.json")
    return lines


def class_tables(slos: dict[str, Entry], targeted: set[str]) -> Iterable[Table]:
    """The SLO classes; if there are several, each with its latencies."""
    rows = []
    for name, slo in slos.items():
        requests, attained, *others = cells_of("slo.CLASS", slo)
        rows.append([name, requests, attained if name in targeted else "no target", *others])
    most = None if len(slos) > 1 else 3
    return narrower(["SLO", *heads_of("slo.CLASS")][:most], [row[:most] for row in rows], 3)


def part_tables(part: str, entries: dict[str, Entry], most: int = MOST_ROWS) -> Iterable[Table]:
    """Models or tenants, those with the most requests first, for narrower and narrower screens."""
    order = sorted(entries, key=lambda name: -_requests(entries[name]))
    rows = [[name, *cells_of(part, entries[name])] for name in order[:most]]
    if len(order) > most:
        rows.append([f"{len(order) - most} more"])
    return narrower([part.rpartition(".")[2].lower(), *heads_of(part)], rows, 3)


def _requests(entry: Entry) -> int:
    found = entry["requests"]
    return int(found["arrived"] if isinstance(found, dict) else found)


def part_lines(result: Entry) -> list[str]:
    """A sentence for each feature that the run used: cached prompts, tenants, a gateway and so
    on."""
    lines = []
    spared = prefix_share(result)
    if spared:
        lines.append(f"prefix hits: {share_text(spared)} of prompt tokens")
    fairness = result["fairness"]["served_tokens"], result["fairness"]["goodput"]
    if len(result["tenants"]) > 1 and fairness[0] is not None:
        in_time = "" if fairness[1] is None else f", {fairness[1]:.3f} of SLO attainment"
        among = f"fairness (Jain's, {len(result['tenants'])} tenants)"
        lines.append(f"{among}: {fairness[0]:.3f} of tokens{in_time}")
    gateway, routing = result["gateway"], result["routing"]
    if gateway is not None and gateway["waiting_peak"]:
        lines.append(f"at most {gateway['waiting_peak']} requests were queued at the gateway")
    if routing is not None and routing["requests"]:
        better = share_text(routing["better_elsewhere"])
        regret = f"regret {routing['regret_mean']:.3g}, p99 {routing['regret_p99']:.3g}"
        lines.append(f"{better} of the router's choices had a better server; {regret}")
    sessions = result["sessions"]
    if sessions["count"]:
        cold, warm = (text_of(SECONDS, sessions[key]["p50"]) for key in ("cold_ttft", "warm_ttft"))
        turns = f"{sessions['count']} sessions, {sessions['turns']} turns"
        lines.append(f"{turns}; TTFT p50 {cold} of first turns, {warm} of later ones")
    encode = result["encode"]
    if encode is not None and encode["requests"]:
        waits = _two_percentiles(encode["wait"])
        busy = f"encoders busy {share_text(encode['busy'])} of the time"
        lines.append(f"{encode['requests']} requests with media, {busy}; wait {waits}")
    split = result["disaggregation"]
    if split is not None and split["split"]:
        took = _two_percentiles(split["transfer"])
        moved = f"{split['split']} split requests, {format_size(split['moved_bytes'])} moved"
        lines.append(f"{moved}; transfer {took}")
        lines.append(f"the busiest link was busy {share_text(split['link_busy'])} of the time")
    lines += scaling_lines(result["scaling"])
    lines += [*_adapter_lines(result["adapters"]), *_tier_lines(result["pools"])]
    return [*lines, *_draft_lines(result["pools"])]


def scaling_lines(scaling: Entry | None) -> list[str]:
    """How often an autoscaler changed sizes, and how far pools were under- and over-provisioned."""
    if scaling is None:
        return []
    turns = scaling["direction_changes"]
    back = f", {turns} of them {'a reversal' if turns == 1 else 'reversals'}" if turns else ""
    changes = f"{scaling['changes']} change{'' if scaling['changes'] == 1 else 's'} of size"
    short = text_of(SECONDS, scaling["under_provisioned_s"])
    waste = f"{scaling['wasted_replica_seconds']:,.0f}"
    under = f"under-provisioned for {short}"
    over = f"over-provisioned by {waste} replica-seconds"
    return [f"scaling: {changes}{back}; {under}, {over}", *scaling["notes"]]


def _draft_lines(pools: dict[str, Entry]) -> list[str]:
    """Tokens per step and acceptance rates, for pools with speculative decoding."""
    lines = []
    for name, pool in pools.items():
        drafts = pool.get("speculative")
        if drafts and drafts["drafts"]:
            length, share = drafts["acceptance_length"], drafts["acceptance_rate"]
            what = f"{length:.2f} tokens a step with drafts, of which {share:.0%} were accepted"
            lines.append(f"{name}: {what}")
    return lines


def _adapter_lines(adapters: dict[str, Entry] | None) -> list[str]:
    if not adapters:
        return []
    loads = sum(adapter["loads"] for adapter in adapters.values())
    requests = sum(adapter["requests"] for adapter in adapters.values())
    return [f"{len(adapters)} LoRA adapters, loaded {loads} times for {requests} requests"]


def _tier_lines(pools: dict[str, Entry]) -> list[str]:
    lines = []
    for name, pool in pools.items():
        offload = pool["offload"]
        if offload is None or offload["wait"]["p50"] is None:
            continue
        loaded = ", ".join(
            f"{format_size(tier['loaded_bytes'])} from {place} in {tier['loads']} loads"
            for place, tier in offload["tiers"].items()
        )
        waits = _two_percentiles(offload["wait"])
        lines.append(f"KV of {name}: {loaded}; wait {waits}")
    return lines


COLUMNS = ("machines", "on average", "most", "created", "lost", "cost", "machine hours")
"""The last column is the first to be omitted on a narrow screen."""
FEWEST_COLUMNS = 4
TAKEN = {
    "machine-loss": "machine",
    "rack-loss": "rack",
    "zone-loss": "zone",
    "spot-reclaim": "machine",
    "engine-crash": "server",
}
"""Faults that take servers or machines away, and which of them."""
MOST_SHORT = 3
AN_HOUR_S = 3600.0


def infrastructure_lines(result: Entry) -> list[str]:
    """A sentence about gangs and one about fleet actions, if there are any."""
    lines = []
    gangs, fleet = result["gangs"], result["fleet"]
    if gangs is not None:
        counts = gangs["clusters"].values()
        pods, waiting = (sum(one[key] for one in counts) for key in ("pods", "waiting"))
        ended = gangs["terminations"]
        line = f"{count(pods, 'pod')} at the end, {waiting} pending"
        lines.append(f"{line}; {count(ended, 'gang')} terminated" if ended else line)
        lines += gangs.get("notes", [])
    if fleet is not None and fleet["actions"]:
        actions = ", ".join(f"{count} {word}" for word, count in fleet["actions"].items())
        lines.append(f"fleet actions: {actions}")
    return lines


def fault_lines(result: Entry) -> list[str]:
    """A sentence about the injected faults, if there are any."""
    faults = result["faults"]
    if not faults:
        return []
    struck: dict[str, list[int]] = {}
    for one in faults:
        if one["subjects"]:
            struck.setdefault(one["kind"], []).append(len(one["subjects"]))
    found = []
    for kind, sizes in struck.items():
        noun = TAKEN.get(kind)
        servers = f" ({count(sum(sizes), noun)})" if noun else ""
        found.append(f"{len(sizes)} {kind}{servers}")
    harmless = sum(not one["subjects"] for one in faults)
    found += [f"{harmless} that hit nothing"] if harmless else []
    more = result["decisions"]["faults"] - len(faults)
    found += [f"{more} more, which are only counted"] if more > 0 else []
    return [f"faults: {', '.join(found)}"]


def _two_percentiles(times: Entry) -> str:
    return ", ".join(f"{key} {text_of(SECONDS, times[key])}" for key in ("p50", "p99"))


def short_lines(fleet: Entry) -> list[str]:
    """The unmet needs at the end, and why; up to a limit."""
    alike: dict[str, list[str]] = {}
    for name, why in fleet["short"].items():
        alike.setdefault(why, []).append(name)
    lines = [
        f"{some_of(names, 'need')} {'have' if len(names) > 1 else 'has'} too few machines: {why}"
        for why, names in list(alike.items())[:MOST_SHORT]
    ]
    more = len(alike) - len(lines)
    if more:
        lines.append(f"and {count(more, 'more reason')}, in result.json")
    return lines


def machine_tables(fleet: Entry, simulated_s: float) -> Iterable[Table]:
    """Machines by kind, for narrower and narrower screens."""
    rows = []
    for name, pool in fleet["pools"].items():
        mean = pool["machine_seconds"] / (simulated_s or 1.0)
        counts = (str(pool[key]) for key in ("most", "created", "lost"))
        cost, hours = f"${pool['cost']:,.2f}", f"{pool['machine_seconds'] / AN_HOUR_S:,.1f}"
        rows.append([name, f"{mean:.1f}".removesuffix(".0"), *counts, cost, hours])
    return narrower(COLUMNS, rows, FEWEST_COLUMNS)
