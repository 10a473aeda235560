"""Gangs for people: tables as kubectl prints them, the tree of what belongs together, who waits."""

from textwrap import wrap
from typing import Any

from rich.console import Console

from windtunnel.core.units import format_duration
from windtunnel.report.terminal.layout import plain_table, print_fitting

MOST_EVENTS = 30
"""The newest are shown; all of them are in the JSON."""
MOST_NODES = 40
ALARMS = ("MinAvailableBreached", "GangTerminationInProgress", "TopologyLevelsUnavailable")


def show_status(status: dict[str, Any], console: Console, *, wide: bool = False) -> None:
    """Everything in one screen; `wide` adds every pod and every node."""
    console.print(f"at {format_duration(status['at_s'])}")
    console.print()
    _sets(status, console)
    for one in status["sets"]:
        console.print()
        for line in tree_of(one):
            console.print(line, soft_wrap=True)
    console.print()
    _gangs(status, console)
    _pending(status, console)
    if wide:
        console.print()
        _pods(status, console)
        console.print()
        _nodes(status, console)
    _events(status, console)


def _age(seconds: float) -> str:
    return format_duration(seconds) if seconds >= 1 else "0 s"


def _sets(status: dict[str, Any], console: Console) -> None:
    table = plain_table("PODCLIQUESET", "REPLICAS", "AVAILABLE", "UPDATED", "AGE")
    for one in status["sets"]:
        counts = [str(one[key]) for key in ("replicas", "available", "updated")]
        table.add_row(one["name"], *counts, _age(one["age_s"]))
    print_fitting(console, [table])


def _gangs(status: dict[str, Any], console: Console) -> None:
    table = plain_table("PODGANG", "PHASE", "MIN", "SCHEDULED", "READY", "SCORE", "AGE", words=2)
    for gang in status["gangs"]:
        score = f"{gang['placement_score']:.2f}" if gang["scheduled"] else "-"
        table.add_row(
            gang["name"],
            gang["phase"],
            str(gang["minimum"]),
            f"{gang['scheduled']}/{gang['pods']}",
            f"{gang['ready']}/{gang['pods']}",
            score,
            _age(gang["age_s"]),
        )
    print_fitting(console, [table])


def _pending(status: dict[str, Any], console: Console) -> None:
    if status["pending"]:
        console.print()
        console.print("WHY PENDING")
        for name, says in status["pending"].items():
            for line in wrap(f"{name}: {says}", max(console.width, 20), break_on_hyphens=False,
                             initial_indent="  ", subsequent_indent="    "):  # fmt: skip
                console.print(line, soft_wrap=True)


def _pods(status: dict[str, Any], console: Console) -> None:
    table = plain_table("POD", "STATUS", "NODE", "AGE", words=3)
    for pod in status["pods"]:
        table.add_row(pod["name"], pod["status"], pod["node"] or "<none>", _age(pod["age_s"]))
    print_fitting(console, [table])


def _nodes(status: dict[str, Any], console: Console) -> None:
    table = plain_table("NODE", "STATUS", "USED", words=3)
    for node in status["nodes"][:MOST_NODES]:
        words = ["Ready" if node["ready"] else "NotReady"]
        words += ["SchedulingDisabled"] if node["cordoned"] else []
        used = [
            f"{node['used'].get(name, 0):g}/{have:g} {name}"
            for name, have in node["capacity"].items()
            if name != "memory"
        ]
        table.add_row(node["name"], ",".join(words), ", ".join(used))
    print_fitting(console, [table])
    if len(status["nodes"]) > MOST_NODES:
        console.print(f"... and {len(status['nodes']) - MOST_NODES} more nodes")


def _events(status: dict[str, Any], console: Console) -> None:
    events = status["events"]
    if not events:
        return
    console.print()
    table = plain_table("AT", "TYPE", "REASON", "OBJECT", "MESSAGE", words=5)
    if len(events) > MOST_EVENTS:
        console.print(f"EVENTS, the last {MOST_EVENTS} of {len(events)}")
    for event in events[-MOST_EVENTS:]:
        at = format_duration(event["at_s"])
        whom = f"{event['kind']}/{event['name']}"
        table.add_row(at, event["level"], event["reason"], whom, event["message"])
    print_fitting(console, [table])


# The tree.


def tree_of(one: dict[str, Any]) -> list[str]:
    """Lines of a tree: set, replicas, cliques and scaling groups, and what is wrong with each."""
    lines = [one["name"] + _alarms(one)]
    for at, part in enumerate(one["parts"]):
        last = at == len(one["parts"]) - 1
        lines.append(f"{'└─' if last else '├─'} replica {part['replica']}")
        inside = "   " if last else "│  "
        entries = [(clique, None) for clique in part["cliques"]]
        entries += [(group, group["parts"]) for group in part["groups"]]
        for number, (entry, members) in enumerate(entries):
            final = number == len(entries) - 1
            lines += _branch(entry, members, inside, final=final)
    return lines


def _branch(entry: dict[str, Any], members: Any, inside: str, *, final: bool) -> list[str]:
    turn, bar = ("└─", "   ") if final else ("├─", "│  ")
    if members is None:
        return [f"{inside}{turn} {_clique(entry)}"]
    counts = (
        f"{entry['available']}/{entry['replicas']} available, at least {entry['min_available']}"
    )
    lines = [f"{inside}{turn} {entry['name']}  {counts}{_alarms(entry)}"]
    for at, part in enumerate(members):
        end = at == len(members) - 1
        gang = part["cliques"][0]["gang"] if part["replica"] >= entry["min_available"] else ""
        alone = f", the gang {gang}" if gang else ""
        lines.append(f"{inside}{bar}{'└─' if end else '├─'} replica {part['replica']}{alone}")
        deeper = inside + bar + ("   " if end else "│  ")
        for number, clique in enumerate(part["cliques"]):
            leaf = "└─" if number == len(part["cliques"]) - 1 else "├─"
            lines.append(f"{deeper}{leaf} {_clique(clique)}")
    return lines


def _clique(clique: dict[str, Any]) -> str:
    counts = f"{clique['ready']}/{clique['replicas']} ready, at least {clique['min_available']}"
    return f"{clique['name']}  {counts}{_alarms(clique)}"


def _alarms(thing: dict[str, Any]) -> str:
    """What is the matter: the conditions that say so, with their reasons and messages."""
    said = [
        f"{condition['type']} ({condition['message'] or condition['reason']})"
        for condition in thing["conditions"]
        if condition["type"] in ALARMS and condition["status"] != "False"
    ]
    return "  ! " + "; ".join(said) if said else ""
