"""Gangs, machines and faults of a run, for the table that a person sees after it."""

from collections.abc import Iterable
from typing import Any

from rich.table import Table
from rich.text import Text

from windtunnel.report.layout import plain_table

Entry = dict[str, Any]

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
