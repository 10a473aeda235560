"""Terminal output of a plan: the answer, then the runners-up, then why not the others."""

import re
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from textwrap import wrap
from typing import Any, NamedTuple

from rich.console import Console
from rich.table import Table
from rich.text import Text

from windtunnel.core.units import counted, format_duration
from windtunnel.report.terminal.layout import (
    print_fitting,
    print_table,
    say,
    say_indented,
    several,
    table_of,
)
from windtunnel.report.terminal.trust import show_trust

DATA = "plan.json"
PAGE = "report.html"
FILES = (DATA, PAGE)
MOST_KINDS = 8
"""Limit on the kinds of deployment that the screen explains; the page has all."""
LONGEST_COMMAND = 400
REASONS = {
    "best": "the answer",
    "runner-up": "runners-up",
    "dearer": "cost more than the answer",
    "misses-slo": "miss the SLO in simulation",
    "not-sure-enough": "may attain it, with too little confidence",
    "fewer-servers": "have fewer servers than one that misses",
    "too-little-throughput": "cannot do the work in time, however well they are used",
    "ttft-floor": "are too slow to the first token even when empty",
    "tpot-floor": "are too slow per token even when empty",
    "e2e-floor": "are too slow to the end even when empty",
    "requests-too-long": "have too little KV cache or context for the requests",
    "does-not-fit": "cannot hold the model",
    "over-budget": "are more than the budget allows",
    "run-failed": "could not be run",
    "out-of-runs": "were not tried to the end: the run limit ended the search",
}


class PlannedScenario(NamedTuple):
    """The scenario that was planned, and the overrides of the command line."""

    scenario: Path
    sets: Sequence[str] = ()
    seed: int | None = None


def show(
    found: Mapping[str, Any], asked: PlannedScenario, folder: Path | None, console: Console
) -> None:
    """Prints a plan, the answer first, and where the page is."""
    first, *others = answer_lines(found)
    say(console, first, "bold")
    for line in others:
        say(console, line)
    if found["find"] == "deployment":
        _show_deployment(found, asked, console)
    else:
        _show_curve(found, console)
    if found["trust"] is not None:
        console.print()
        show_trust(found["trust"], console, by_chance=False, data=DATA)
    _show_search(found, console)
    if folder is not None:
        console.print()
        say(console, f"open {folder / PAGE}")


# The answer


def answer_lines(found: Mapping[str, Any]) -> list[str]:
    """The answer in a sentence, and the evidence in another."""
    return {"deployment": _deployment_lines, "load": _load_lines, "knee": _knee_lines}[
        found["find"]
    ](found)


def parts_of(found: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """The answers for each of several models, in the form of a single answer; or the only one."""
    return found.get("models") or [found]


def _joint_lines(found: Mapping[str, Any]) -> list[str]:
    """For several models: the joint cost, then each model."""
    names = [one["model"] for one in found["models"] if one["best"] is None]
    first = f"{counted(len(found['models']), 'model')}: {cost(found['budget'], found)}"
    if found["searched"]["out_of_runs"]:
        first = (
            "The run limit ended the search before all models were sure to attain their targets."
        )
    elif found["best"] is None:
        first = f"Not all models can be served: {' and '.join(names)} cannot."
    lines = [first]
    for one in found["models"]:
        if one["best"] is not None:
            said = f"; {_attains(one['best'], one)}" if found["best"] is not None else ""
            lines.append(f"{one['model']}: {one['best']['label']}, {cost(one['best'], one)}{said}.")
            continue
        lines.append(f"{one['model']}: {one['why']}.")
        if one["closest"] is not None and one["closest"]["reason"] != "over-budget":
            lines.append(_closest(one))
    if found["best"] is not None:
        sure = share(found["goal"]["confidence"])
        lines.append(f"Simulated together; {sure} confidence that all attain their targets.")
    return [*lines, *_budget_lines(found)]


def _budget_lines(found: Mapping[str, Any]) -> list[str]:
    """The accelerators used of each type: `8 of 24 h100-sxm in 1 machine, 2 of them idle`."""
    lines = []
    machine = found["budget"]["machine"]
    for row in (one for one in found["budget"]["accelerators"] if one["taken"]):
        of = "" if row["stock"] is None else f" of {row['stock']}"
        line = f"{row['taken']}{of} {row['accelerator']}"
        if machine is not None:
            idle = row["taken"] - row["used"]
            line += f" in {counted(row['taken'] // machine, 'machine')}"
            line += f", {idle} of them idle" if idle else ""
        lines.append(line)
    return [f"Takes {'; '.join(lines)}."] if lines else []


def _deployment_lines(found: Mapping[str, Any]) -> list[str]:
    if "models" in found:
        return _joint_lines(found)
    best, closest = found["best"], found["closest"]
    if best is not None:
        return [f"{best['label']}: {cost(best, found)}", f"It {_attains(best, found)}."]
    asked = f"{_classes(found)} {share(found['goal']['attained'])}"
    many = counted(found["searched"]["candidates"], "candidate")
    first = f"None of {many} attains {asked}."
    if found["searched"]["out_of_runs"]:
        first = f"The run limit ended the search before a candidate was sure to attain {asked}."
    if closest is None and found["searched"]["out_of_runs"]:
        first = f"No candidate was simulated: {_run_limit(found)} is too small for one."
        return [first, "Give more with --max-runs."]
    searched, over = found["searched"], _cheapest_over(found["candidates"])
    beyond = []
    if over is not None and searched["ruled_out_by_bounds"] == searched["candidates"]:
        said = f"Beyond the budget, the cheapest that could carry the load is {over['label']}"
        beyond = [f"{said}, {cost(over, found)}."]
    if closest is not None:
        return [first, _closest(found), *beyond]
    if beyond:
        return [first, "None within the budget could be simulated.", *beyond]
    row = next((row for row in found["candidates"] if row["why"]), None)
    why = "" if row is None else f": {row['label']}: {row['why']}"
    return [first, f"None of them could be simulated{why}"]


def _closest(found: Mapping[str, Any]) -> str:
    closest = found["closest"]
    reached = closest["why"]
    if "attains" not in reached and closest["attained"] is not None:
        reached += f"; a run of it attains {share(closest['attained'])}"
    return f"Closest: {closest['label']}, {cost(closest, found)}: {reached}."


def _attains(row: Mapping[str, Any], found: Mapping[str, Any]) -> str:
    """`attains critical 97.1% (at least 96.2% with 95% confidence)`."""
    sure = f"at least {share(row['low'])} with {share(found['goal']['confidence'])} confidence"
    if row["low"] == row["high"]:
        sure = "nothing is random"
    return f"attains {_classes(found)} {share(row['attained'])} ({sure})"


def _classes(found: Mapping[str, Any]) -> str:
    return " and ".join(found["goal"]["classes"])


def _load_lines(found: Mapping[str, Any]) -> list[str]:
    carried, missed = found["carried"], found["missed"]
    asked = f"{_classes(found)} {share(found['goal']['attained'])}"
    if carried is None:
        lightest = found["curve"][0] if found["curve"] else None
        tried = "" if lightest is None else f", not even {_load(lightest)}"
        if found["searched"]["out_of_runs"]:
            return [f"The run limit ended the search before a load was sure to attain {asked}."]
        return [f"No load attains {asked}{tried}."]
    second = f"There it {_attains(carried, found)}."
    if missed is not None:
        second = f"{second[:-1]}; at {missed['load']:.3g} x it attains {share(missed['attained'])}."
    return [f"Carries {_load(carried)}", second]


def _knee_lines(found: Mapping[str, Any]) -> list[str]:
    knee, light = found["knee"], found["light"]
    if knee is None:
        why = (
            "the run limit ended the search"
            if found["searched"]["out_of_runs"]
            else "not within the loads tried"
        )
        return [f"No knee was found: {why}."]
    between = ""
    if knee["confidence"] is not None:
        sure = share(knee["confidence"])
        between = f" ({sure} confidence: {knee['low']:.3g} to {knee['high']:.3g} x)"
    low_s, high_s = format_duration(light["ttft_p95"]), format_duration(knee["ttft_p95"])
    return [
        f"The knee is at {_load(knee)}{between}",
        f"p95 TTFT is {low_s} at a light load, {high_s} there.",
    ]


def _load(row: Mapping[str, Any]) -> str:
    rate = row["requests_per_s"]
    per_s = "" if rate is None else f", {rate:.3g} requests/s"
    return f"{row['load']:.3g} x its traffic{per_s}"


# Tables


def _show_deployment(found: Mapping[str, Any], asked: PlannedScenario, console: Console) -> None:
    best = found["best"]
    if best is not None:
        command = command_of(best, asked)
        if len(command) <= LONGEST_COMMAND:
            say(console, command, "dim")
    for part in parts_of(found):
        _show_others(part, console)


def _show_others(found: Mapping[str, Any], console: Console) -> None:
    """Prints the runners-up, and why not the others."""
    of = f" for {found['model']}" if "model" in found else ""
    if found["runners_up"] and found["best"] is not None:
        console.print()
        heads = (f"runners-up{of}", unit_of(found), "more", "attained", "at least")
        print_table(console, heads, (_cells(row, found) for row in found["runners_up"]))
    rows = why_not(found)
    if not rows:
        return
    console.print()
    print_fitting(console, _why_tables(rows[:MOST_KINDS], found, of))
    if len(rows) > MOST_KINDS:
        more = counted(len(rows) - MOST_KINDS, "more kind")
        console.print(Text(f"and {more}", "dim"))


def command_of(row: Mapping[str, Any], asked: PlannedScenario) -> str:
    """The command that simulates a candidate of the scenario.

    A run does not need the section `plan`, so settings in it are omitted.
    """
    import json

    sets = [text for text in asked.sets if re.match(r"\s*plan\b", text) is None]
    for path, value in row["settings"]:
        written = value if isinstance(value, str) else json.dumps(value)
        sets.append(f"{path}={written}")
    words = ["windtunnel", "simulate", str(asked.scenario)]
    words += [word for text in sets for word in ("--set", text)]
    words += [] if asked.seed is None else ["--seed", str(asked.seed)]
    return shlex.join(words)


def unit_of(found: Mapping[str, Any]) -> str:
    return "$/h" if found["cost_unit"] == "$" else str(found["cost_unit"])


def _cells(row: Mapping[str, Any], found: Mapping[str, Any]) -> tuple[str, ...]:
    best = found["best"]["cost_per_hour"]
    more = row["cost_per_hour"] / best - 1.0 if best else 0.0
    shares = (share(row["attained"]), share(row["low"]))
    return row["label"], number(row, found), f"{100.0 * more:+.0f}%", *shares


def why_not(found: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """For each kind of deployment, the candidate to explain; the highest attainment first.

    That is the most expensive one that costs no more than the answer; else the cheapest, unless the
    kind has the answer or a runner-up. Without an answer, the one that attained most; else the
    cheapest that only the budget rules out.
    """
    best = found["best"]
    taken = {row["number"] for row in [best, *found["runners_up"]] if row is not None}
    kinds: dict[str, list[Mapping[str, Any]]] = {}
    for row in found["candidates"]:
        kinds.setdefault(row["kind"], []).append(row)
    chosen = []
    for rows in kinds.values():
        if best is None:
            most = max(rows, key=lambda row: (row["attained"] or 0.0, row["number"]))
            chosen.append(most if most["attained"] else _cheapest_over(rows) or most)
            continue
        others = [row for row in rows if row["number"] not in taken]
        below = [row for row in others if row["cost_per_hour"] <= best["cost_per_hour"]]
        if below:
            chosen.append(max(below, key=lambda row: (row["cost_per_hour"], row["number"])))
        elif len(others) == len(rows):
            chosen.append(min(rows, key=lambda row: (row["cost_per_hour"], row["number"])))
    return sorted(
        chosen, key=lambda row: (-(row["attained"] or 0.0), row["cost_per_hour"], row["number"])
    )


def _cheapest_over(rows: Iterable[Mapping[str, Any]]) -> Mapping[str, Any] | None:
    """The cheapest candidate that only the budget rules out."""
    over = (row for row in rows if row["reason"] == "over-budget")
    return min(over, key=lambda row: (row["cost_per_hour"], row["number"]), default=None)


def _why_tables(
    rows: Sequence[Mapping[str, Any]], found: Mapping[str, Any], of: str
) -> Iterator[Table]:
    for longest in (1000, *range(80, 20, -4)):
        cells = []
        for row in rows:
            why = several(wrap(row["why"], longest))
            cells.append((row["label"], number(row, found), why))
        yield table_of((f"why not{of}", unit_of(found), ""), cells, left=[-1])


def _show_curve(found: Mapping[str, Any], console: Console) -> None:
    console.print()
    heads = {"load": "load", "requests_per_s": "requests/s", "attained": "attained",
             "ttft_p95": "p95 TTFT", "runs": "runs"}  # fmt: skip
    for key in ("requests_per_s", "attained"):
        if all(row[key] is None for row in found["curve"]):
            del heads[key]
    rows = [curve_cells(row) for row in found["curve"]]
    print_table(console, [*heads.values()], ([row[key] for key in heads] for row in rows))


def curve_cells(row: Mapping[str, Any]) -> dict[str, str]:
    """The cells of a load that was tried."""
    rate, late = row["requests_per_s"], row["ttft_p95"]
    return {
        "load": f"{row['load']:.3g} x",
        "requests_per_s": "-" if rate is None else f"{rate:.3g}",
        "attained": share(row["attained"]),
        "ttft_p95": "-" if late is None else format_duration(late),
        "runs": str(row["runs"]),
        "run_share": share(row["run_share"]),
    }


def _show_search(found: Mapping[str, Any], console: Console) -> None:
    console.print()
    for sentence in searched(found):
        console.print(Text(sentence))
    if found["not_tried"]:
        console.print(Text("not tried:", "dim"))
    for note in found["not_tried"]:
        say_indented(console, note, "dim")


def searched(found: Mapping[str, Any]) -> list[str]:
    """Sentences about how the answer was found."""
    of = found["searched"]
    runs = counted(of["runs"], "full-length run")
    if of["whole_runs"] != of["runs"]:  # more where loads are heavier than the scenario's
        runs = f"{counted(of['runs'], 'run')}, together as long as {of['whole_runs']:.3g} "
        runs += "full-length runs"
    lines = []
    if found["find"] == "deployment":
        lines.append(
            f"{counted(of['candidates'], 'candidate')} of {counted(of['kinds'], 'kind')}: "
            f"{of['ruled_out_by_bounds']} ruled out before any run, "
            f"{of['simulated']} simulated, in {runs}."
        )
        if of["tests"] > 1:
            lines.append(f"{of['tests']} were tested before one was sure enough.")
    else:
        lines.append(f"{runs}.")
    if of.get("whole_runs_because"):
        lines.append(f"Every run has full length: {of['whole_runs_because']}.")
    if of["out_of_runs"]:
        allowed = "allows no further step" if of["runs"] else "allows none"
        lines.append(f"{_run_limit(found).capitalize()} {allowed} (give more with --max-runs).")
    return lines


def _run_limit(found: Mapping[str, Any]) -> str:
    most = found["searched"]["max_runs"]
    return f"a limit of {most:g} full-length run{'' if most == 1 else 's'}"


# Cells


def share(value: float | None) -> str:
    """A share in percent with one decimal unless that is 0; never 100% for less than all."""
    if value is None:
        return "-"
    shown = f"{100.0 * value:.1f}"
    if shown == "100.0" and value < 1.0:
        shown = "99.9"
    return f"{shown.removesuffix('.0')}%"


def cost(row: Mapping[str, Any], found: Mapping[str, Any]) -> str:
    if found["cost_unit"] == "$":
        return f"${row['cost_per_hour']:,.2f}/h"
    return counted(row["cost_per_hour"], found["cost_unit"].removesuffix("s"))


def number(row: Mapping[str, Any], found: Mapping[str, Any]) -> str:
    if found["cost_unit"] == "$":
        return f"{row['cost_per_hour']:,.2f}"
    return f"{row['cost_per_hour']:,.3g}"
