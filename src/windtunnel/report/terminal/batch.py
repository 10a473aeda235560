"""The result of a batch: a table, and sentences about its files and how to resume."""

from rich.console import Console

from windtunnel.core.units import duration_cell, format_count, format_rate
from windtunnel.live.batch.tally import Ending, ModelView, Summary
from windtunnel.report.terminal.layout import print_table, say

HEADS = ("model", "calls", "answered", "429s", "failed", "waited", "took", "prompts", "answers",
         "rate")  # fmt: skip
WHY = {
    Ending.STALLED: "It ended because ",
    Ending.REFUSED: "It ended because of this: ",
    Ending.UNWRITABLE: "It ended because of this: ",
    Ending.INTERRUPTED: "It was interrupted.",
    Ending.TERMINATED: "It was asked to terminate.",
}


def show(summary: Summary, resume: str, console: Console) -> None:
    """Prints the table, then the sentences."""
    view = summary.view
    if view.models:
        print_table(console, HEADS, (_cells(model, view.elapsed_s) for model in view.models))
    for sentence in sentences(summary, resume):
        say(console, sentence)


def sentences(summary: Summary, resume: str) -> list[str]:
    """Sentences about the result, the most important last."""
    view = summary.view
    rows = "1 row is" if view.rows == 1 else f"{view.rows:,} rows are"
    said = [f"{view.finished:,} of {rows} in {summary.output}."]
    if summary.errors:
        parts = []
        if view.dropped:
            parts.append(f"{view.dropped:,} dropped")
        if view.gave_up:
            parts.append(f"{view.gave_up:,} given up")
        said.append(f"{', '.join(parts) or 'Others'}: {summary.errors} says why.")
    if summary.ending is not Ending.COMPLETE:
        said.append(f"{WHY[summary.ending]}{summary.sentence}".rstrip(".") + ".")
    if summary.unwritten:
        answers = "1 answer" if summary.unwritten == 1 else f"{summary.unwritten:,} answers"
        again = "it is" if summary.unwritten == 1 else "they are"
        said.append(f"{answers} could not be written; {again} asked for again.")
    left = summary.unfinished + view.gave_up
    rows, them = ("1 row is", "it") if left == 1 else (f"{left:,} rows are", "them")
    if left and summary.ending is Ending.REFUSED:
        # The same command would be refused again.
        said.append(f"{rows} left; once that is fixed, --resume continues with {them}.")
    elif left:
        said += [f"{rows} left; this continues with {them}:", f"  {resume}"]
    return said


def _cells(model: ModelView, elapsed_s: float) -> tuple[str, ...]:
    return (
        f"{model.model} at {model.endpoint}",
        f"{model.sent:,}",
        f"{model.answered:,}",
        f"{model.rate_limited:,}",
        f"{model.failed:,}",
        duration_cell(model.mean_wait_s),
        duration_cell(model.mean_s),
        f"{format_count(model.prompt_tokens)} tokens",
        f"{format_count(model.completion_tokens)} tokens",
        format_rate(model.answered / elapsed_s) if elapsed_s > 0.0 else "",
    )
