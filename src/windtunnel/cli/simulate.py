"""`windtunnel simulate`: runs a scenario, shows a table, writes a folder."""

import sys
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from windtunnel.cli.options import (
    MOST_SEEDS,
    MOST_WORKERS,
    json_option,
    output_option,
    refuse_blank_names,
)
from windtunnel.cli.places import STANDARD_OUTPUT, in_folder, keep_apart, traces_of
from windtunnel.core.errors import InputError

if TYPE_CHECKING:
    from windtunnel.report.files.folder import RunFolder
    from windtunnel.twin.results.recorder import RowSink
    from windtunnel.twin.run import Run
    from windtunnel.twin.scenario.plan import ScenarioPlan

FEWEST_SEEDS, USUAL_SEEDS = 2, 10
NOT_TEXT = {
    b"PAR1": "Parquet",
    b"\x1f\x8b": "gzip",
    b"\x28\xb5\x2f\xfd": "zstd",
    b"PK\x03\x04": "zip",
}
"""What files that people have beside their scenarios start with."""


@click.command()
@click.argument("scenario", type=click.Path(path_type=Path))
@output_option("runs/NAME-SEED")
@json_option("result.json")
@click.option(
    "--perfetto",
    metavar="FILE",
    help="Write a trace for ui.perfetto.dev to FILE, compressed if its name ends in .gz.",
)
@click.option(
    "--events", is_flag=True, help="Also write events.jsonl: every decision with its reason."
)
@click.option(
    "--set",
    "sets",
    multiple=True,
    metavar="PATH=VALUE",
    help="Override a field, as in serving.pools.0.replicas=8.",
)
@click.option("--seed", type=int, help="Override the scenario's seed.")
@click.option("--check", is_flag=True, help="Check every invariant after every event (slower).")
@click.option(
    "--trust",
    is_flag=True,
    help="Repeat the run with other seeds, and with step times off by their error, and give "
    "latencies intervals.",
)
@click.option(
    "--seeds",
    type=click.IntRange(FEWEST_SEEDS, MOST_SEEDS),
    help=f"With --trust: how many seeds, from the scenario's on. [default: {USUAL_SEEDS}]",
)
@click.option(
    "--step-error",
    metavar="SHARE",
    help="With --trust: how far step times may be off, as in 5%. [default: what was measured]",
)
@click.option(
    "--workers",
    type=click.IntRange(1, MOST_WORKERS),
    help="With --trust: how many processes. [default: as many as pay]",
)
def simulate(
    scenario: Path,
    output: str | None,
    json_to: str | None,
    perfetto: str | None,
    events: bool,  # noqa: FBT001 - click passes options by name
    sets: tuple[str, ...],
    seed: int | None,
    check: bool,  # noqa: FBT001 - click passes options by name
    trust: bool,  # noqa: FBT001 - click passes options by name
    **repeats: Any,
) -> None:
    """Run a scenario and show what happened.

    Prints a table, and writes a folder: report.html to look at, result.json, requests.parquet and
    more. With `--json -` and no `-o` there is no folder, only the result on standard output.
    """
    from windtunnel.analysis.run_folder import ALL
    from windtunnel.report.files.folder import RunFolder, WholeFile, result_bytes
    from windtunnel.report.files.perfetto import PerfettoTrace
    from windtunnel.report.files.requests import RowSinks
    from windtunnel.report.terminal.progress import progress
    from windtunnel.twin.run import run

    refuse_blank_names({"-o": output, "--json": json_to, "--perfetto": perfetto})
    _refuse_events_without_a_folder(events=events, json_to=json_to, output=output)
    asked = _repeats(trust=trust, **repeats)
    plan = load_plan(scenario, sets, seed)
    alone = json_to == STANDARD_OUTPUT
    if output is None and not alone:
        output = str(Path("runs", f"{plan.name}-{plan.seed}"))
    written = {**in_folder(output, ALL), "--json": json_to, "--perfetto": perfetto}
    keep_apart({"the scenario": scenario, **traces_of(plan)}, written)
    folder: RunFolder | None = None
    files: dict[str, WholeFile] = {}
    with ExitStack() as places:
        if output is not None:
            folder = places.enter_context(RunFolder(Path(output)))
        for option, place in (("--json", None if alone else json_to), ("--perfetto", perfetto)):
            if place is not None:
                files[option] = places.enter_context(WholeFile(Path(place), option))
        sinks: list[RowSink] = [] if folder is None else [folder.rows()]
        every = folder.events() if folder is not None and events else None
        log = folder.control() if folder is not None else None
        trace = PerfettoTrace(plan)
        if perfetto is not None:
            sinks.append(trace)
        with progress(plan.duration_s, sys.stderr) as look:
            done = run(
                plan,
                rows=RowSinks(sinks) if sinks else None,
                events=every,
                decisions=log,
                check=check,
                look=look,
            )
        if asked is not None:
            _repeat(done, asked)
        if folder is not None:
            folder.finish(done)
        if "--json" in files:
            files["--json"].finish(result_bytes(done.result))
        if perfetto is not None:
            files["--perfetto"].finish(trace.content(done, Path(perfetto)))
    if trace.cut:
        click.echo(f"windtunnel: {perfetto}: {trace.cut}", err=True)
    if alone:
        click.echo(result_bytes(done.result), nl=False)
        return
    _show(done, folder, _also(folder.path if folder and events else None, perfetto))


def _show(done: "Run", folder: "RunFolder | None", also: dict[str, Path]) -> None:
    from windtunnel.report.terminal.layout import screen
    from windtunnel.report.terminal.run import show

    show(done.result, done.plan.slos, folder.path if folder else None, screen(), also)


def _also(events: Path | None, perfetto: str | None) -> dict[str, Path]:
    """The files that are written only on request, by what they have."""
    from windtunnel.analysis.run_folder import EVENTS

    also = {}
    if events is not None:
        also["every decision with its reason"] = events / EVENTS
    if perfetto is not None:
        also["a trace for ui.perfetto.dev"] = Path(perfetto)
    return also


class Repeats(NamedTuple):
    """How often and how a run is repeated for its intervals."""

    seeds: int
    step_error: float | None
    workers: int | None


def _repeats(
    *, trust: bool, seeds: int | None, step_error: str | None, workers: int | None
) -> Repeats | None:
    """What was asked for; an option that nothing would come of is refused."""
    if not trust:
        given = {"--seeds": seeds, "--step-error": step_error, "--workers": workers}
        for option, value in given.items():
            if value is not None:
                raise InputError("one run has no use for it", where=option, hint="add --trust")
        return None
    error = None if step_error is None else _share(step_error)
    return Repeats(seeds or USUAL_SEEDS, error, workers)


def _share(text: str) -> float:
    from windtunnel.core.units import parse_share
    from windtunnel.search.repeats.intervals import LARGEST_ERROR

    try:
        share = parse_share(text)
    except InputError as fault:
        raise InputError(fault.what, where="--step-error", allowed=fault.allowed) from fault
    if not 0.0 <= share <= LARGEST_ERROR:
        allowed = f"0% to {LARGEST_ERROR:.0%}"
        raise InputError(f"{text} is too much or too little", where="--step-error", allowed=allowed)
    return share


def _repeat(done: "Run", asked: Repeats) -> None:
    from windtunnel.report.terminal.progress import counting
    from windtunnel.search.repeats.intervals import add_intervals

    with counting("runs for intervals", sys.stderr) as count:
        add_intervals(done.result, done.plan, asked.seeds, asked.step_error, count, asked.workers)


def _refuse_events_without_a_folder(
    *, events: bool, json_to: str | None, output: str | None
) -> None:
    if events and json_to == STANDARD_OUTPUT and output is None:
        what = "there is no folder to write events.jsonl to"
        raise InputError(what, where="--events", hint="give one with -o")


def load_plan(path: Path, sets: Sequence[str], seed: int | None) -> "ScenarioPlan":
    """The plan of a scenario file that a person named; other kinds of files are refused."""
    from windtunnel.twin.scenario.load import load

    _refuse_what_is_not_text(path)
    return load(path, sets, seed)


def _refuse_what_is_not_text(path: Path) -> None:
    try:
        if not path.is_file():
            return
        with path.open("rb") as file:
            start = file.read(4)
    except OSError:
        return  # the loader says why
    for mark, kind in NOT_TEXT.items():
        if start.startswith(mark):
            raise InputError(f"this is a {kind} file, not a scenario", where=str(path))
