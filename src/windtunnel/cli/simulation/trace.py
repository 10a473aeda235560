"""`windtunnel trace`: describes, shows, converts and fits traces of requests."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain, islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from windtunnel.cli.options import FILE, PLACE, QuantityOption, json_option, together
from windtunnel.cli.places import STANDARD_OUTPUT, Output, keep_apart, write_file
from windtunnel.core.errors import InputError, OutputError, printable
from windtunnel.core.units import counted, format_duration, parse_duration, parse_rate

if TYPE_CHECKING:
    from windtunnel.workload.traces.notes import TraceNotes
    from windtunnel.workload.traces.record import TraceRequest

MOST_SHOWN = 10_000
SHOWN = 10
MOST_TAKEN = 10**12
SLOWEST, FASTEST = 1e-6, 1e6
"""Bounds of a trace's speedup, and of conversations per second."""

RATE = QuantityOption(parse_rate, lambda rate: rate > 0, "is not above 0")
SPAN = QuantityOption(parse_duration, lambda time_s: time_s > 0, "is not above 0")
TIME = QuantityOption(parse_duration, lambda time_s: time_s >= 0, "is before the trace's start")


class Opening:
    """A trace and the options with which to open it."""

    def __init__(self, path: Path, options: dict[str, Any]) -> None:
        from windtunnel.workload.traces.notes import TraceNotes

        self.path = path
        self._options = options
        self.notes: TraceNotes = TraceNotes(str(path), options["skip_bad"])

    def __call__(self) -> Iterator[TraceRequest]:
        """The requests; each call reads the trace again, with new notes."""
        from windtunnel.workload.traces.formats.sharegpt import AssignedArrivals
        from windtunnel.workload.traces.notes import TraceNotes
        from windtunnel.workload.traces.reading import open_trace

        options, arrivals = self._options, None
        self.notes = TraceNotes(str(self.path), options["skip_bad"])
        if options["rate"] is not None:
            if not SLOWEST <= options["rate"] <= FASTEST:
                allowed = f"{SLOWEST:f}/s to {FASTEST:.0f}/s"
                raise InputError(f"--rate: {options['rate']} is out of range", allowed=allowed)
            names = ("rate", "process", "turn_gap", "seed")
            arrivals = AssignedArrivals(*(options[name] for name in names))
        name, sort = options["from_format"], options["sort"]
        return open_trace(self.path, name, arrivals=arrivals, sort=sort, notes=self.notes)

    def left_out(self) -> list[str]:
        """Sentences about rows that were left out or repaired."""
        notes, lines = self.notes, []
        if notes.empty:
            lines.append(
                f"left out: {counted(notes.empty, 'request')} without a prompt or an output"
            )
        if notes.bad:
            lines.append(f"left out: {counted(notes.bad, 'bad row')}, the first of them:")
            lines += [f"  {fault.where}: {fault.what}" for fault in notes.faults]
        lines += [f"repaired: {sentence}" for sentence in notes.repairs.sentences()]
        if notes.prefix_tokens:
            found = f"{notes.prefix_tokens:,} tokens of prompts were found in a run's caches"
            lines.append(f"left out: {found}, and its requests do not say which of them share it")
        return lines


reading_options = together(
    click.option("--from", "from_format", metavar="FORMAT",
                 help="The trace's format. [default: detected]"),
    click.option("--skip-bad", type=click.IntRange(0), default=0, metavar="N",
                 help="Skip up to N bad rows, and report them."),
    click.option("--sort", is_flag=True, help="Sort by time in memory first."),
    click.option("--rate", type=RATE, metavar="RATE",
                 help="Conversations per second, for files without times."),
    click.option("--process", type=click.Choice(["poisson", "constant"]), default="poisson",
                 help="Arrival process of conversations without times. [default: poisson]"),
    click.option("--turn-gap", type=SPAN, default="30s", metavar="TIME",
                 help="Time between turns of a conversation without times. [default: 30s]"),
    click.option("--seed", type=int, default=0, metavar="N", help="Seed of random draws."),
)  # fmt: skip
"""Options of every command that reads a trace."""


@click.group()
def trace() -> None:
    """Describe, convert and fit traces of requests.

    Reads Azure, BurstGPT, Mooncake, BLIS, ShareGPT, ServeGen and inference-perf files and
    Windtunnel's own (Parquet, CSV, JSON lines), optionally compressed with gzip or zstd; the
    format is detected.
    """


@trace.command(short_help="Describe a trace.")
@click.argument("file", type=FILE)
@json_option("the figures as JSON")
@reading_options
def describe(file: Path, json_to: str | None, **options: Any) -> None:
    """Describe a trace: rates, bursts, lengths, shared prefixes."""
    from windtunnel.report.terminal.traces import show_summary
    from windtunnel.workload.traces.formats.registry import FORMATS, named
    from windtunnel.workload.traces.summary import summarise

    keep_apart({"the trace": file}, {"--json": json_to})
    opening = Opening(file, options)
    kind = named(options["from_format"], file)
    figures = {"format": kind, **summarise(opening()).figures()}
    figures["left_out"] = {"empty": opening.notes.empty, "bad": opening.notes.bad}
    figures["repaired"] = opening.notes.repairs._asdict()
    with Output(json_to) as out:
        out.json(figures)
    if not out.alone:
        show_summary(figures, f"{file.name} ({FORMATS[kind].says})", opening.left_out())


@trace.command(short_help="Print the first requests.")
@click.argument("file", type=FILE)
@click.option("-n", "--count", type=click.IntRange(1, MOST_SHOWN), default=SHOWN, metavar="N",
              help="Number of requests. [default: 10]")  # fmt: skip
@reading_options
def head(file: Path, count: int, **options: Any) -> None:
    """Print the first requests, one JSON object per line, as Windtunnel reads them."""
    from windtunnel.workload.traces.formats.windtunnel import line

    for request in islice(Opening(file, options)(), count):
        click.echo(printable(line(request).decode()), nl=False)


@trace.command(short_help="Write a trace in another format.")
@click.argument("source", metavar="IN", type=FILE)
@click.argument("target", metavar="OUT", type=FILE)
@click.option("--to", "to_format", metavar="FORMAT",
              help="parquet, csv, jsonl, azure, burstgpt, mooncake, blis. "
                   "[default: by OUT's ending]")  # fmt: skip
@click.option("--speedup", type=float, default=1.0, metavar="X",
              help="Make requests arrive X times as fast.")  # fmt: skip
@click.option("--first", type=click.IntRange(1, MOST_TAKEN), metavar="N",
              help="Only the first N requests.")  # fmt: skip
@click.option("--start", type=TIME, metavar="TIME",
              help="Only from this time on; it becomes time 0.")  # fmt: skip
@click.option("--end", type=TIME, metavar="TIME", help="Only before this time.")
@click.option("--force", is_flag=True, help="Replace a file that already exists.")
@reading_options
def convert(
    source: Path,
    target: Path,
    to_format: str | None,
    speedup: float,
    first: int | None,
    start: float | None,
    end: float | None,
    *,
    force: bool,
    **options: Any,
) -> None:
    """Write a trace in another format, whole or in part, faster or slower."""
    from windtunnel.workload.traces.writing import write_trace, written_format

    if not SLOWEST <= speedup <= FASTEST:
        allowed = f"a number from {SLOWEST:f} to {FASTEST:.0f}"
        raise InputError(f"--speedup: {speedup} is out of range", allowed=allowed)
    if end is not None and (start or 0.0) >= end:
        what = f"--end: {format_duration(end)} is not after the start of the part"
        raise InputError(what, allowed=f"a time after {format_duration(start or 0.0)}")
    written_format(to_format, target)
    opening = Opening(source, options)
    requests = _part(opening(), start or 0.0, end, speedup)
    if (earliest := next(requests, None)) is None:
        _refuse_empty_part(opening)
        click.echo("the trace has no requests", err=True)
    else:
        requests = chain([earliest], requests)
    count = write_trace(islice(requests, first), target, to_format, replace=force)
    for sentence in opening.left_out():
        click.echo(sentence, err=True)
    click.echo(f"Wrote {counted(count, 'request')} to {target}")


def _refuse_empty_part(opening: Opening) -> None:
    """Raises unless the whole trace is empty."""
    first = last = None
    for last in opening():
        first = first or last
    if first is not None and last is not None:
        what = "no request of the trace arrives between --start and --end"
        ends = f"{format_duration(first.arrived_s)} to {format_duration(last.arrived_s)}"
        raise InputError(what, where=str(opening.path), hint=f"its requests arrive from {ends}")


def _part(
    requests: Iterator[TraceRequest], start_s: float, end_s: float | None, speedup: float
) -> Iterator[TraceRequest]:
    from windtunnel.workload.traces.record import shifted

    moved = start_s > 0 or speedup != 1.0
    for request in requests:
        if end_s is not None and request.arrived_s >= end_s:
            return
        if request.arrived_s >= start_s:
            yield shifted(request, start_s, speedup) if moved else request


@trace.command(short_help="Fit synthetic traffic to a trace.")
@click.argument("file", type=FILE)
@click.option("-o", "--output", type=PLACE, metavar="FILE",
              help="Write the workload section here; `-` prints only that.")  # fmt: skip
@click.option("--curve", is_flag=True,
              help="Let the rate vary over time as in the trace.")  # fmt: skip
@click.option("--window", "window_s", type=SPAN, metavar="TIME",
              help="With --curve: width of a window. [default: automatic]")  # fmt: skip
@click.option("--lengths", type=click.Choice(["auto", "formula", "seen"]), default="auto",
              help="Lengths as a distribution, or as observed. [default: a distribution if one "
                   "fits]")  # fmt: skip
@click.option("--name", metavar="NAME", help="Name of the source. [default: the file's name]")
@click.option("--force", is_flag=True, help="Replace a file that already exists.")
@json_option("the quality of the fit as JSON")
@reading_options
def fit(
    file: Path,
    output: str | None,
    name: str | None,
    json_to: str | None,
    window_s: float | None,
    lengths: str,
    *,
    curve: bool,
    force: bool,
    **options: Any,
) -> None:
    """Fit synthetic traffic to a trace, as a `workload` section for a scenario.

    Reports the quality of the fit: requests generated from it are compared with the trace.
    """
    from windtunnel.report.terminal.layout import screen
    from windtunnel.report.terminal.traces import show_fit
    from windtunnel.workload.traces.fitting.traffic import fit_trace

    if window_s is not None and not curve:
        raise InputError("--window is for --curve", hint="add --curve")
    if output == STANDARD_OUTPUT == json_to:
        raise InputError("-o and --json cannot both be printed alone", hint="name a file for one")
    keep_apart({"the trace": file}, {"-o": output, "--json": json_to})
    alone = output == STANDARD_OUTPUT  # and all that is said of it goes where it does not get in
    path = None if output is None or alone else Path(output)
    if path is not None and path.exists() and not force:
        hint = "--force replaces it"
        raise OutputError("the file already exists", where=str(path), hint=hint)
    opening = Opening(file, options)
    stem = file.name.partition(".")[0]
    found = fit_trace(
        opening(),
        name or stem,
        seed=options["seed"],
        curve=curve,
        window_s=window_s,
        lengths=lengths,
    )
    requests, section = found.figures["requests"], found.section
    origin = f"# Fitted by `windtunnel trace fit` to {requests} requests of {file.name!a}.\n"
    write_file("-o", path, origin + section)
    with Output(json_to) as out:
        out.json(found.figures)
    if out.alone:
        return
    click.echo(origin + section if alone else section, nl=not alone)
    show_fit(found.figures, screen(stderr=alone))
    for sentence in opening.left_out():
        click.echo(sentence, err=alone)
    if path is not None:
        click.echo(f"Wrote {path}")
