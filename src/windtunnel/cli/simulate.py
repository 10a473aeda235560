"""`windtunnel simulate`: runs a scenario, shows a table, writes a folder."""

import sys
from contextlib import ExitStack
from pathlib import Path

import click

from windtunnel.core.errors import InputError

STANDARD_OUTPUT = "-"


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
    sets: tuple[str, ...],
    seed: int | None,
    check: bool,  # noqa: FBT001 - click passes options by name
) -> None:
    """Run a scenario and show what happened.

    Prints a table, and writes result.json and requests.parquet (a row per request) into a folder.
    With `--json -` and no `-o` nothing is written but the result on standard output.
    """
    from windtunnel.report.files import RunFolder, WholeFile, result_bytes
    from windtunnel.report.progress import progress
    from windtunnel.twin.run import run
    from windtunnel.twin.scenario.load import load

    for option, place in (("-o", output), ("--json", json_to)):
        if place is not None and not place.strip():
            raise InputError("there is no name after it", where=option, allowed="a path")
    plan = load(scenario, sets, seed)
    alone = json_to == STANDARD_OUTPUT
    folder: RunFolder | None = None
    file: WholeFile | None = None
    with ExitStack() as places:
        if output is not None or not alone:
            path = Path(output) if output is not None else Path("runs", f"{plan.name}-{plan.seed}")
            folder = places.enter_context(RunFolder(path))
        if json_to is not None and not alone:
            file = places.enter_context(WholeFile(Path(json_to), "--json"))
        rows = folder.rows(plan) if folder is not None else None
        with progress(plan.duration_s, sys.stderr) as look:
            result = run(plan, rows=rows, check=check, look=look).result
        if folder is not None:
            folder.finish(result)
        if file is not None:
            file.finish(result_bytes(result))
    if alone:
        click.echo(result_bytes(result), nl=False)
        return
    from windtunnel.report.table import screen, show

    show(result, folder.path if folder is not None else None, screen())
