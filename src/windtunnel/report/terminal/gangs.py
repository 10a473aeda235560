"""Terminal output of gangs: tables as in kubectl, the tree of a gang, and what is pending."""

from collections.abc import Iterator
from textwrap import wrap
from typing import Any

from rich.console import Console

from windtunnel.core.units import format_duration
from windtunnel.report.terminal.layout import print_table, say

MOST_EVENTS = 30
"""The newest events are shown; all of them are in the JSON."""
MOST_NODES = 40
Branch = tuple[str, list[Any]]
"""A line of a tree, and the branches below it."""
ALARMS = (
    "MinAvailableBreached",
    "GangStranded",
    "GangTerminationInProgress",
    "TerminationHeld",
    "TopologyLevelsUnavailable",
)


def show_status(
    status: dict[str, Any], console: Console, *, wide: bool = False, live: bool = False
) -> None:
    """Prints the whole status; `wide` adds every pod and every node. A `live` status needs no
    time."""
    if not live:
        say(console, f"at {format_duration(status['at_s'])}")
        console.print()
    heads = ("PODCLIQUESET", "REPLICAS", "AVAILABLE", "UPDATED", "AGE")
    print_table(console, heads, (_set_cells(one) for one in status["sets"]))
    for one in status["sets"]:
        console.print()
        for line in tree_of(one):
            say(console, line)
    console.print()
    columns = ("PODGANG", "PHASE", "MIN", "SCHEDULED", "READY", "SCORE", "AGE")
    print_table(console, columns, (_gang_cells(one) for one in status["gangs"]), words=2)
    _sentences("WHY PENDING", status["pending"], console)
    _sentences("INVALID", status.get("invalid", {}), console)
    if wide:
        console.print()
        pods = (
            (pod["name"], pod["status"], pod["node"] or "<none>", _age(pod["age_s"]))
            for pod in status["pods"]
        )
        print_table(console, ("POD", "STATUS", "NODE", "AGE"), pods, words=3)
        console.print()
        nodes = (_node_cells(node) for node in status["nodes"][:MOST_NODES])
        print_table(console, ("NODE", "STATUS", "USED"), nodes, words=3)
        if len(status["nodes"]) > MOST_NODES:
            say(console, f"... and {len(status['nodes']) - MOST_NODES} more nodes")
    _events(status["events"], console)


def _age(seconds: float) -> str:
    return format_duration(seconds) if seconds >= 1 else "0 s"


def _set_cells(one: dict[str, Any]) -> tuple[str, ...]:
    counts = (str(one[key]) for key in ("replicas", "available", "updated"))
    return one["name"], *counts, _age(one["age_s"])


def _gang_cells(gang: dict[str, Any]) -> tuple[str, ...]:
    placed, ready = (f"{gang[key]}/{gang['pods']}" for key in ("scheduled", "ready"))
    score = f"{gang['placement_score']:.2f}" if gang["scheduled"] else "-"
    least, age = str(gang["minimum"]), _age(gang["age_s"])
    return gang["name"], gang["phase"], least, placed, ready, score, age


def _sentences(title: str, found: dict[str, str], console: Console) -> None:
    if found:
        console.print()
        say(console, title)
        for name, says in found.items():
            for line in wrap(f"{name}: {says}", max(console.width, 20), break_on_hyphens=False,
                             initial_indent="  ", subsequent_indent="    "):  # fmt: skip
                say(console, line)


def _node_cells(node: dict[str, Any]) -> tuple[str, ...]:
    words = ["Ready" if node["ready"] else "NotReady"]
    words += ["SchedulingDisabled"] if node["cordoned"] else []
    used = [
        f"{node['used'].get(name, 0):g}/{have:g} {name}"
        for name, have in node["capacity"].items()
        if name != "memory"
    ]
    return node["name"], ",".join(words), ", ".join(used)


def _events(events: list[dict[str, Any]], console: Console) -> None:
    if not events:
        return
    console.print()
    if len(events) > MOST_EVENTS:
        say(console, f"EVENTS, the last {MOST_EVENTS} of {len(events)}")
    rows = (
        (
            format_duration(one["at_s"]),
            one["level"],
            one["reason"],
            f"{one['kind']}/{one['name']}",
            one["message"],
        )
        for one in events[-MOST_EVENTS:]
    )
    print_table(console, ("AT", "TYPE", "REASON", "OBJECT", "MESSAGE"), rows, words=5)


# The tree.


def tree_of(one: dict[str, Any]) -> list[str]:
    """Lines of a tree: set, replicas, cliques and scaling groups, and the alarms of each."""
    branches = [
        (f"replica {part['replica']}", _members(part["cliques"]) + _groups(part["groups"]))
        for part in one["parts"]
    ]
    return [one["name"] + _alarms(one), *_drawn(branches)]


def _drawn(branches: list[Branch], inside: str = "") -> Iterator[str]:
    """The lines of branches, each with those below it."""
    for at, (text, below) in enumerate(branches):
        turn, bar = ("└─", "   ") if at == len(branches) - 1 else ("├─", "│  ")
        yield f"{inside}{turn} {text}"
        yield from _drawn(below, inside + bar)


def _members(cliques: list[dict[str, Any]]) -> list[Branch]:
    return [(_clique(clique), []) for clique in cliques]


def _groups(groups: list[dict[str, Any]]) -> list[Branch]:
    found = []
    for group in groups:
        least = group["min_available"]
        counts = f"{group['available']}/{group['replicas']} available, at least {least}"
        replicas = []
        for part in group["parts"]:
            gang = part["cliques"][0]["gang"] if part["replica"] >= least else ""
            alone = f", the gang {gang}" if gang else ""
            replicas.append((f"replica {part['replica']}{alone}", _members(part["cliques"])))
        found.append((f"{group['name']}  {counts}{_alarms(group)}", replicas))
    return found


def _clique(clique: dict[str, Any]) -> str:
    counts = f"{clique['ready']}/{clique['replicas']} ready, at least {clique['min_available']}"
    return f"{clique['name']}  {counts}{_alarms(clique)}"


def _alarms(thing: dict[str, Any]) -> str:
    """The conditions that indicate trouble, with their messages or reasons."""
    said = [
        f"{condition['type']} ({condition['message'] or condition['reason']})"
        for condition in thing["conditions"]
        if condition["type"] in ALARMS and condition["status"] != "False"
    ]
    return "  ! " + "; ".join(said) if said else ""
