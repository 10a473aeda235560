"""What a terminal shows of the parts of a run: endings, classes, tenants, sessions, transfers."""

from collections.abc import Iterable, Sequence
from typing import Any

from rich.table import Table
from rich.text import Text

from windtunnel.core.units import duration_cell, format_count, format_size
from windtunnel.report.terminal.layout import plain_table

MOST_REASONS = 4
MOST_TENANTS = 6

Entry = dict[str, Any]
Figure = tuple[str, str, str]
"""The head of a column, and where its value is: which latency, and which figure of it."""

CLASS_FIGURES: tuple[Figure, ...] = (
    ("TTFT p50", "ttft", "p50"),
    ("TTFT p99", "ttft", "p99"),
    ("TPOT p99", "tpot", "p99"),
    ("E2E p99", "e2e", "p99"),
)
TENANT_FIGURES: tuple[Figure, ...] = (
    ("TTFT p50", "ttft", "p50"),
    ("TTFT p99", "ttft", "p99"),
    ("E2E p99", "e2e", "p99"),
)
"""What is left out first on a narrow screen is the last of them."""


def share(value: float | None) -> str:
    return "-" if value is None else f"{value:.1%}"


def prefix_share(result: Entry) -> float | None:
    """The share of the prompt tokens of completed requests that prefix caches spared."""
    tokens = result["tokens"]
    spared: float | None = tokens["prefix_hit"] / tokens["prompt"] if tokens["prompt"] else None
    return spared


def _seconds(value: float | None) -> str:
    return "-" if value is None else duration_cell(value)


def ending_lines(result: Entry, names: dict[str, str]) -> list[str]:
    """The most frequent reasons why requests were not completed, one to a line."""
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


def class_tables(slos: dict[str, Entry], promised: set[str]) -> Iterable[Table]:
    """The classes of service; where there are several, each with its latencies."""
    figures = CLASS_FIGURES if len(slos) > 1 else ()
    for many in range(len(figures), -1, -1):
        table = _table(("SLO", "requests", "attained"), figures[:many])
        for name, slo in slos.items():
            attained = share(slo["attained"]) if name in promised else "no target"
            cells = (str(slo["requests"]), attained, *_cells(slo, figures[:many]))
            table.add_row(Text(name), *cells)
        yield table


def model_tables(models: dict[str, Entry]) -> Iterable[Table]:
    """Several models, each with its latencies."""
    for many in range(len(CLASS_FIGURES), -1, -1):
        figures = CLASS_FIGURES[:many]
        table = _table(("model", "requests", "completed"), figures)
        for name, one in models.items():
            requests = one["requests"]
            cells = (str(requests["arrived"]), str(requests["completed"]))
            table.add_row(Text(name), *cells, *_cells(one["latency"], figures))
        yield table


def tenant_tables(tenants: dict[str, Entry]) -> Iterable[Table]:
    """The tenants with the most requests."""
    order = sorted(tenants, key=lambda name: -tenants[name]["requests"])
    left = len(order) - MOST_TENANTS
    for many in range(len(TENANT_FIGURES), -1, -1):
        figures = TENANT_FIGURES[:many]
        table = _table(("tenant", "requests", "attained", "served"), figures)
        for name in order[:MOST_TENANTS]:
            one = tenants[name]
            cells = (str(one["requests"]), share(one["attained"]), share(one["served_share"]))
            table.add_row(Text(name), *cells, *_cells(one, figures))
        if left > 0:
            table.add_row(f"{left} more")
        yield table


def _table(columns: Sequence[str], figures: Sequence[Figure]) -> Table:
    return plain_table(*columns, *(head for head, _, _ in figures))


def _cells(entry: Entry, figures: Sequence[Figure]) -> list[str]:
    return [_seconds(entry[key][figure]) for _, key, figure in figures]


def part_lines(result: Entry) -> list[str]:
    """A sentence each on what the run had: cached prompts, tenants, a gateway and so on."""
    lines = []
    spared = prefix_share(result)
    if spared:
        lines.append(f"prefix hits: {share(spared)} of prompt tokens")
    fairness = result["fairness"]["served_tokens"], result["fairness"]["goodput"]
    if len(result["tenants"]) > 1 and fairness[0] is not None:
        in_time = "" if fairness[1] is None else f", {fairness[1]:.3f} of requests in time"
        among = f"fairness (Jain's, {len(result['tenants'])} tenants)"
        lines.append(f"{among}: {fairness[0]:.3f} of tokens{in_time}")
    gateway, routing = result["gateway"], result["routing"]
    if gateway is not None and gateway["waiting_peak"]:
        lines.append(f"at most {gateway['waiting_peak']} requests waited at the gateway")
    if routing is not None and routing["requests"]:
        better = share(routing["better_elsewhere"])
        regret = f"regret {routing['regret_mean']:.3g}, p99 {routing['regret_p99']:.3g}"
        lines.append(f"{better} of the router's choices had a better server; {regret}")
    sessions = result["sessions"]
    if sessions["count"]:
        cold, warm = (_seconds(sessions[key]["p50"]) for key in ("cold_ttft", "warm_ttft"))
        turns = f"{sessions['count']} sessions, {sessions['turns']} turns"
        lines.append(f"{turns}; TTFT p50 {cold} of first turns, {warm} of later ones")
    encode = result["encode"]
    if encode is not None and encode["requests"]:
        waits = ", ".join(f"{key} {_seconds(encode['wait'][key])}" for key in ("p50", "p99"))
        busy = f"encoders busy {share(encode['busy'])} of the time"
        lines.append(f"{encode['requests']} requests with media, {busy}; wait {waits}")
    split = result["disaggregation"]
    if split is not None and split["split"]:
        took = ", ".join(f"{key} {_seconds(split['transfer'][key])}" for key in ("p50", "p99"))
        moved = f"{split['split']} split requests, {format_size(split['moved_bytes'])} moved"
        lines.append(f"{moved}; transfer {took}")
        lines.append(f"the link between servers was busy {share(split['link_busy'])} of the time")
    lines += scaling_lines(result["scaling"])
    return [*lines, *_adapter_lines(result["adapters"]), *_tier_lines(result["pools"])]


def scaling_lines(scaling: Entry | None) -> list[str]:
    """How restless an autoscaler was, and how often there were too few or too many replicas."""
    if scaling is None:
        return []
    turns = scaling["direction_changes"]
    back = f", {turns} of them back" if turns else ""
    changes = f"{scaling['changes']} change{'' if scaling['changes'] == 1 else 's'} of size"
    short = _seconds(scaling["under_provisioned_s"])
    waste = format_count(scaling["wasted_replica_seconds"])
    told = f"scaling: {changes}{back}; too few for {short}, {waste} replica-seconds too many"
    return [told, *scaling["notes"]]


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
        waits = ", ".join(f"{key} {_seconds(offload['wait'][key])}" for key in ("p50", "p99"))
        lines.append(f"KV of {name}: {loaded}; wait {waits}")
    return lines


COLUMNS = ("machines", "on average", "most", "created", "lost", "cost", "machine hours")
"""What is left out first on a narrow screen is the last of them."""
FEWEST_COLUMNS = 4
TAKEN = {
    "machine-loss": "machine",
    "rack-loss": "rack",
    "zone-loss": "zone",
    "spot-reclaim": "machine",
    "engine-crash": "server",
}
"""Faults after which somebody is gone, and who."""
MOST_SHORT = 3
AN_HOUR_S = 3600.0


def ground_lines(result: Entry) -> list[str]:
    """A sentence on gangs and one on what the fleet did, where there are any."""
    lines = []
    gangs, fleet = result["gangs"], result["fleet"]
    if gangs is not None:
        counts = gangs["clusters"].values()
        pods, waiting = (sum(one[key] for one in counts) for key in ("pods", "waiting"))
        ended = gangs["terminations"]
        told = f"gangs: {_count(pods, 'pod')} at the end, {waiting} waiting for a machine"
        lines.append(f"{told}; {_count(ended, 'gang')} terminated")
    if fleet is not None and fleet["actions"]:
        actions = ", ".join(f"{count} {word}" for word, count in fleet["actions"].items())
        lines.append(f"fleet: {actions}")
    return lines


def fault_lines(result: Entry) -> list[str]:
    """A sentence on what went wrong on purpose, where anything did."""
    faults = result["faults"]
    if not faults:
        return []
    befallen: dict[str, list[int]] = {}
    for one in faults:
        if one["subjects"]:
            befallen.setdefault(one["kind"], []).append(len(one["subjects"]))
    told = []
    for kind, sizes in befallen.items():
        noun = TAKEN.get(kind)
        whom = f" ({_count(sum(sizes), noun)})" if noun else ""
        told.append(f"{len(sizes)} {kind}{whom}")
    nobody = sum(not one["subjects"] for one in faults)
    told += [f"{nobody} that befell nobody"] if nobody else []
    more = result["decisions"]["faults"] - len(faults)
    told += [f"{more} more, which are only counted"] if more > 0 else []
    return [f"faults: {', '.join(told)}"]


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


def short_lines(fleet: Entry) -> list[str]:
    """The needs that were not met at the end, and why; of many the first."""
    short = fleet["short"]
    lines = [f"{name}: {why}" for name, why in list(short.items())[:MOST_SHORT]]
    more = len(short) - MOST_SHORT
    return [*lines, *([f"and {more} more, in result.json"] if more > 0 else [])]


def machine_tables(fleet: Entry, simulated_s: float) -> Iterable[Table]:
    """Machines by kind, narrower and narrower."""
    for many in range(len(COLUMNS), FEWEST_COLUMNS - 1, -1):
        table = plain_table(*COLUMNS[:many])
        for name, pool in fleet["pools"].items():
            mean = pool["machine_seconds"] / (simulated_s or 1.0)
            cells = (
                Text(name),
                f"{mean:.1f}".removesuffix(".0"),
                str(pool["most"]),
                str(pool["created"]),
                str(pool["lost"]),
                f"${pool['cost']:,.2f}",
                f"{pool['machine_seconds'] / AN_HOUR_S:,.1f}",
            )
            table.add_row(*cells[:many])
        yield table
