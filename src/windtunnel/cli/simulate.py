"""`windtunnel simulate`: runs a scenario, shows a table, writes a folder."""

from pathlib import Path

import click


@click.command()
@click.argument("scenario", type=click.Path(path_type=Path))
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path),
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
    output: Path | None,
    json_to: str | None,
    sets: tuple[str, ...],
    seed: int | None,
    check: bool,  # noqa: FBT001 - click passes options by name
) -> None:
    """Run a scenario and show what happened.

    Prints a table, and writes result.json and requests.parquet (a row per request) into a folder.
    With `--json -` and no `-o` nothing is written but the result on standard output.
    """
    from windtunnel.report.files import RunFolder, result_bytes, write_bytes
    from windtunnel.report.progress import progress
    from windtunnel.report.table import show
    from windtunnel.twin.run import run
    from windtunnel.twin.scenario.load import load

    plan = load(scenario, sets, seed)
    if json_to == "-" and output is None:
        with progress(plan.duration_s) as look:
            result = run(plan, check=check, look=look).result
        click.echo(result_bytes(result), nl=False)
        return
    with RunFolder(output or Path("runs") / f"{plan.name}-{plan.seed}") as folder:
        with progress(plan.duration_s) as look:
            result = run(plan, rows=folder.rows(plan), check=check, look=look).result
        folder.finish(result)
    if json_to == "-":
        click.echo(result_bytes(result), nl=False)
        return
    if json_to is not None:
        write_bytes(Path(json_to), result_bytes(result))
    show(result, folder.path)
