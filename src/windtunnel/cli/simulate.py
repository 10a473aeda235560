"""`windtunnel simulate`: runs a scenario, shows a table, writes a folder."""

import sys
from contextlib import ExitStack
from pathlib import Path

import click

from windtunnel.core.errors import InputError

STANDARD_OUTPUT = "-"
NOT_TEXT = {
    b"PAR1": "Parquet",
    b"\x1f\x8b": "gzip",
    b"\x28\xb5\x2f\xfd": "zstd",
    b"PK\x03\x04": "zip",
}
"""What files that people have beside their scenarios start with."""


@click.command()
@click.argument("scenario", type=click.Path(path_type=Path))
@click.option(
    "-o",
    "--output",
    metavar="DIR",
    help="Where to write the results. [default: runs/NAME-SEED]",
)
@click.option(
    "--json",
    "json_to",
    metavar="FILE",
    help="Write result.json to FILE; `-` prints it alone on standard output.",
)
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
def simulate(
    scenario: Path,
    output: str | None,
    json_to: str | None,
    perfetto: str | None,
    events: bool,  # noqa: FBT001 - click passes options by name
    sets: tuple[str, ...],
    seed: int | None,
    check: bool,  # noqa: FBT001 - click passes options by name
) -> None:
    """Run a scenario and show what happened.

    Prints a table, and writes a folder: report.html to look at, result.json, requests.parquet (a
    row per request), timeline.parquet and more. With `--json -` and no `-o` there is no folder,
    only the result on standard output.
    """
    from windtunnel.report.files import RunFolder, WholeFile, result_bytes
    from windtunnel.report.perfetto import PerfettoTrace
    from windtunnel.report.progress import progress
    from windtunnel.report.sinks import RowSinks
    from windtunnel.twin.recorder import RowSink
    from windtunnel.twin.run import run
    from windtunnel.twin.scenario.load import load

    _refuse_blank_names({"-o": output, "--json": json_to, "--perfetto": perfetto})
    if events and json_to == STANDARD_OUTPUT and output is None:
        what = "there is no folder to write events.jsonl to"
        raise InputError(what, where="--events", hint="give one with -o")
    _refuse_what_is_not_text(scenario)
    plan = load(scenario, sets, seed)
    alone = json_to == STANDARD_OUTPUT
    folder: RunFolder | None = None
    files: dict[str, WholeFile] = {}
    with ExitStack() as places:
        if output is not None or not alone:
            path = Path(output) if output is not None else Path("runs", f"{plan.name}-{plan.seed}")
            folder = places.enter_context(RunFolder(path))
        for option, place in (("--json", None if alone else json_to), ("--perfetto", perfetto)):
            if place is not None:
                files[option] = places.enter_context(WholeFile(Path(place), option))
        sinks: list[RowSink] = [folder.rows(plan)] if folder is not None else []
        decisions = folder.events() if events and folder is not None else None
        trace = PerfettoTrace(plan)
        if perfetto is not None:
            sinks.append(trace)
        with progress(plan.duration_s, sys.stderr) as look:
            done = run(
                plan,
                rows=RowSinks(sinks) if sinks else None,
                events=decisions,
                check=check,
                look=look,
            )
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
    from windtunnel.report.layout import screen
    from windtunnel.report.table import show

    show(done.result, plan.slos, folder.path if folder is not None else None, screen())


def _refuse_blank_names(places: dict[str, str | None]) -> None:
    for option, place in places.items():
        if place is not None and not place.strip():
            raise InputError("there is no name after it", where=option, allowed="a path")


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
