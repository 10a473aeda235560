"""`windtunnel sweep`: one scenario at many settings; interrupted, it goes on where it was."""

import sys
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from windtunnel.cli.places import in_folder, keep_apart, traces_of
from windtunnel.cli.simulate import MOST_SEEDS, MOST_WORKERS, STANDARD_OUTPUT
from windtunnel.core.errors import InputError

if TYPE_CHECKING:
    from windtunnel.search.execution.workers import Outcome
    from windtunnel.search.sweep.sweep import Sweep

USUAL_SEEDS = 5
DESIGNS = ("grid", "random", "sobol")


def search_options(command: Any) -> Any:
    """The options of every command that runs points."""
    options = (
        click.option("--set", "sets", multiple=True, metavar="PATH=VALUE", help="Set it for all."),
        click.option(
            "--jobs",
            type=click.IntRange(1, MOST_WORKERS),
            help="How many runs at once. [default: as many as pay]",
        ),
        click.option(
            "--on",
            default="local",
            show_default=True,
            metavar="PLACE",
            help="Where runs go: local, ray, auto or ray://HOST:PORT.",
        ),
        click.option(
            "--cache",
            metavar="DIR",
            help="Where finished points are kept. [default: points in the folder of -o]",
        ),
        click.option(
            "--json",
            "json_to",
            metavar="FILE",
            help="Write what was found as JSON to FILE; `-` prints it alone on standard output.",
        ),
    )
    for option in reversed(options):
        command = option(command)
    return command


@click.command()
@click.argument("scenario", type=click.Path(path_type=Path))
@click.option(
    "--vary",
    "varied",
    multiple=True,
    metavar="PATH=VALUES",
    help="Values of a setting: A,B,C or LOW..HIGH, with a step LOW..HIGH:STEP or :xFACTOR.",
)
@click.option(
    "--design",
    type=click.Choice(DESIGNS),
    default="grid",
    show_default=True,
    help="All combinations, or points drawn at random or spread by Sobol's sequence.",
)
@click.option("--points", type=click.IntRange(1), help="How many are drawn. [default: 64]")
@click.option(
    "--seeds",
    type=click.IntRange(1, MOST_SEEDS),
    default=USUAL_SEEDS,
    show_default=True,
    help="How many seeds every point runs with, the same for all.",
)
@click.option("--seed", type=int, help="The first seed. [default: that of the scenario]")
@click.option(
    "--metric",
    "metrics",
    multiple=True,
    metavar="NAME",
    help="A figure to show, such as latency.ttft.p95. [default: cost, service levels, latencies]",
)
@click.option(
    "-o", "--output", metavar="DIR", help="Where to write the results. [default: runs/sweep-NAME]"
)
@search_options
def sweep(scenario: Path, varied: tuple[str, ...], metrics: tuple[str, ...], **asked: Any) -> None:
    """Run a scenario at many settings, and show which are best.

    Every point runs with the same seeds, and so with the same requests at the same times. Prints a
    table of means, and writes a folder: report.html with Pareto fronts, results.parquet with a row
    per point and seed. Interrupted, the same command goes on where it was.
    """
    from windtunnel.report.files.folder import WholeFile, WholeFolder, result_bytes
    from windtunnel.report.page.sweep import sweep_page
    from windtunnel.report.terminal.layout import screen
    from windtunnel.report.terminal.sweep import show
    from windtunnel.search.sweep.folder import FILES, PAGE, RESULTS
    from windtunnel.search.sweep.summary import summary_of
    from windtunnel.search.sweep.sweep import table_of

    output, json_to = asked["output"], asked["json_to"]
    refuse_blank_names(asked)
    planned = _prepare(scenario, varied, metrics, asked)
    alone = json_to == STANDARD_OUTPUT
    if output is None and not alone:
        output = str(Path("runs", f"sweep-{planned.plan.name}"))
    read = {"the scenario": scenario, **traces_of(planned.plan)}
    keep_apart(read, {**in_folder(output, FILES), "--json": json_to})
    folder = None if output is None else Path(output)
    with ExitStack() as places:
        file: WholeFile | None = None
        if json_to is not None and not alone:
            file = places.enter_context(WholeFile(Path(json_to), "--json"))
        told = {"vary": list(varied), "set": list(asked["sets"])}
        told |= {name: asked[name] for name in ("design", "points", "seeds", "seed")}
        outcomes = run_points(planned, folder, told, asked)
        summary = summary_of(planned, outcomes, metrics)
        content = result_bytes(summary)
        if folder is not None:
            with WholeFolder(folder) as whole:
                page = sweep_page(summary).encode()
                whole.put({RESULTS: table_of(planned, outcomes).parquet(), PAGE: page})
        if file is not None:
            file.finish(content)
    if alone:
        click.echo(content, nl=False)
        return
    show(summary, folder, screen())


def _prepare(
    scenario: Path, varied: Sequence[str], metrics: Sequence[str], asked: dict[str, Any]
) -> "Sweep":
    from windtunnel.search.measure import check_name
    from windtunnel.search.point import Origin
    from windtunnel.search.sweep.axes import axes_of
    from windtunnel.search.sweep.sweep import prepare

    axes = axes_of(varied)
    planned = prepare(
        Origin.read(scenario, asked["sets"]),
        axes,
        design=asked["design"],
        points=asked["points"],
        seeds=asked["seeds"],
        seed=asked["seed"],
    )
    for name in metrics:
        check_name(name, planned.runs[0].plan, f"--metric {name}")
    return planned


def refuse_blank_names(asked: dict[str, Any]) -> None:
    """Refuses an option that names a place and says none."""
    places = {"-o": asked["output"], "--json": asked["json_to"], "--cache": asked["cache"]}
    for option, place in places.items():
        if place is not None and not place.strip():
            raise InputError("there is no name after it", where=option, allowed="a path")


def run_points(
    planned: "Sweep", folder: Path | None, told: dict[str, Any], asked: dict[str, Any]
) -> "list[Outcome]":
    """Runs a sweep in its folder, if there is one; `told` is what must be the same to go on."""
    from windtunnel.report.terminal.progress import bar
    from windtunnel.search.execution.cache import Cache
    from windtunnel.search.execution.workers import Workers
    from windtunnel.search.sweep.folder import POINTS, check, claim, identity_of
    from windtunnel.search.sweep.sweep import run_sweep

    identity: dict[str, Any] = {}
    cache: Cache | None = None
    if asked["cache"] is not None:
        cache = Cache(Path(asked["cache"]))
    if folder is not None:
        identity = identity_of(planned, told)
        check(folder, identity)
        cache = cache or Cache(folder / POINTS)
    ended = 0
    try:
        with Workers(on=asked["on"], jobs=asked["jobs"], cache=cache) as workers:
            if folder is not None:
                claim(folder, identity)

            def tell(count: int, total: int, before: int) -> None:
                nonlocal ended
                ended = count
                shown(count, total, before)

            with bar("runs", sys.stderr) as shown:
                return run_sweep(planned, workers, tell)
    except (KeyboardInterrupt, SystemExit):
        if cache is not None:
            kept = f"{ended} of {len(planned.runs)} runs are kept in {cache.folder}"
            click.echo(f"windtunnel: {kept}; the same command goes on", err=True)
        raise
