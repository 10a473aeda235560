"""Prints explanations."""

from textwrap import wrap

from rich.console import Console

from windtunnel.analysis.explain.decision import ExplainedDecision
from windtunnel.analysis.explain.moment import ExplainedMoment, decision_lines
from windtunnel.analysis.explain.overview import (
    RANKED,
    Explained,
    Overview,
    cause_in_words,
    in_words,
    lost_in_words,
)
from windtunnel.analysis.explain.request import ExplainedRequest
from windtunnel.analysis.explain.steps import CauseStep, moment, took
from windtunnel.analysis.phases import NAMES, LostTryRow
from windtunnel.report.terminal.layout import INDENT, NARROW, print_table, say

SHOWN_TRIES = 5
"""Of the lost tries of a request, so many first and last ones are listed."""
SHOWN_CAUSES = 8
"""So many causes of a request have a row of their own."""

BRIEF_S = 60.0
"""Phases of a shorter request have their times in tenths of a second."""


def show(explained: Explained, more: str, console: Console) -> None:
    """Prints any explanation."""
    if isinstance(explained, ExplainedRequest):
        _request(explained, console)
    elif isinstance(explained, ExplainedMoment):
        _moment(explained, console)
    elif isinstance(explained, ExplainedDecision):
        _decision(explained, console)
    else:
        _overview(explained, more, console)


def _request(one: ExplainedRequest, console: Console) -> None:
    say(console, one.headline, "bold")
    console.print()
    rows: list[tuple[str, ...]] = []
    brief = one.e2e < BRIEF_S
    for phase in one.phases:
        share = _share(phase.took_s, one)
        ends = (moment(phase.start_s, tenths=brief), moment(phase.end_s, tenths=brief))
        rows.append((NAMES[phase.name], took(phase.took_s), share, *ends))
    print_table(console, ("phase", "took", "share", "from", "to"), rows)
    if one.tries:
        console.print()
        tries = [
            (f"{lost.pool} {lost.replica}", *map(_when, _times(lost)), lost.reason)
            for lost in one.tries
        ]
        more = len(tries) - 2 * SHOWN_TRIES + one.unkept_tries
        if len(tries) > 2 * SHOWN_TRIES:
            gap = (f"{more:,} more", "", "", "", "", "")
            tries = [*tries[:SHOWN_TRIES], gap, *tries[-SHOWN_TRIES:]]
        heads = ("lost tries", "sent", "running", "first token", "given up", "because")
        print_table(console, heads, tries)
    console.print()
    costs = [(cause.cause, cause.seconds) for cause in one.causes[:SHOWN_CAUSES]]
    if rest := one.causes[SHOWN_CAUSES:]:
        costs.append((f"{len(rest):,} more", sum(cause.seconds for cause in rest)))
    rows = [(cause, took(seconds), _share(seconds, one)) for cause, seconds in costs]
    print_table(console, ("cause", "took", "share"), rows)
    shown: list[CauseStep] = []
    for chain in one.chains:
        console.print()
        say(console, f"why {chain.about}", "bold")
        for step in chain.steps:
            if step not in shown and step.says != chain.root.says:  # the last line has it
                _step(step, console)
        shown += chain.steps
        ids = f" [{', '.join(chain.root.ids)}]" if chain.root.ids else ""
        _line(f"root cause ({chain.root.layer}): {chain.root.says}{ids}", console)


def _share(seconds: float, one: ExplainedRequest) -> str:
    return f"{seconds / one.e2e:.0%}" if one.e2e else "-"


def _times(lost: LostTryRow) -> tuple[float | None, ...]:
    return lost.routed, lost.scheduled, lost.first_token, lost.ended


def _when(time_s: float | None) -> str:
    return "-" if time_s is None else moment(time_s)


def _moment(one: ExplainedMoment, console: Console) -> None:
    say(console, f"at {moment(one.time)}", "bold")
    for step in one.layers:
        ids = f" [{', '.join(step.ids)}]" if step.ids else ""
        _line(f"{step.layer}: {step.says}{ids}", console)
    for decision in one.decisions:
        console.print()
        say(console, f"{decision.headline} [{decision.id}]", "bold")
        for line in decision_lines(decision):
            _line(line, console)


def _decision(one: ExplainedDecision, console: Console) -> None:
    say(console, f"{one.id}  {one.headline}", "bold")
    for line in one.based_on:
        _line(line, console)
    if one.behind:
        _line(f"Caused by: {', '.join(one.behind)}.", console)
    console.print()
    say(console, "consequences", "bold")
    for step in one.steps:
        _step(step, console)
    if not one.steps:
        _line("nothing", console)


def _overview(one: Overview, more: str, console: Console) -> None:
    if one.partial:
        say(console, "the run ended early", "bold")
        _line(one.partial, console)
        console.print()
    say(console, "slowest requests", "bold")
    for slow in one.requests:
        _line(in_words(slow), console)
    if not one.requests:
        _line("there were none", console)
    if one.lost:
        console.print()
        say(console, "lost requests", "bold")
    for lost in one.lost:
        _line(lost_in_words(lost), console)
    if one.causes:
        console.print()
        say(console, f"causes, by what they cost the slowest {RANKED} requests", "bold")
    for cause in one.causes:
        _line(cause_in_words(cause), console)
    console.print()
    say(console, "largest decisions", "bold")
    for step in one.decisions:
        _step(step, console)
    if not one.decisions:
        _line("nothing changed in this run", console)
    if one.cut:
        _line(one.cut, console)
    console.print()
    say(console, more)


def _step(step: CauseStep, console: Console) -> None:
    ids = f" [{', '.join(step.ids)}]" if step.ids else ""
    _line(f"{moment(step.time)}  {step.layer}: {step.says}{ids}", console)


def _line(text: str, console: Console) -> None:
    """Prints a sentence with a hanging indent."""
    wide = console.width >= NARROW
    first, later = (INDENT, 3 * INDENT) if wide else ("", "")
    lines = wrap(text, max(console.width, 1), initial_indent=first, subsequent_indent=later)
    for line in lines:
        say(console, line)
