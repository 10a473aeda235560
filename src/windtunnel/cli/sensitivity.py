"""`windtunnel sensitivity`: which settings a figure depends on, and how much."""

from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from windtunnel.cli.places import in_folder, keep_apart, traces_of
from windtunnel.cli.simulate import MOST_SEEDS, STANDARD_OUTPUT
from windtunnel.cli.sweep import refuse_blank_names, run_points, search_options

if TYPE_CHECKING:
    from windtunnel.search.sensitivity import Study

METHODS = ("morris", "sobol")
USUAL_SEEDS = 3


@click.command()
@click.argument("scenario", type=click.Path(path_type=Path))
@click.option(
    "--vary",
    "varied",
    multiple=True,
    metavar="PATH=VALUES",
    help="A setting and where it may be: LOW..HIGH, LOW..HIGH:log or A,B,C.",
)
@click.option(
    "--metric", required=True, metavar="NAME", help="The figure, such as latency.ttft.p95."
)
@click.option(
    "--method",
    type=click.Choice(METHODS),
    default="morris",
    show_default=True,
    help="Morris' screening, of few runs; or Sobol's shares of the variance, of many.",
)
@click.option(
    "--samples",
    type=int,
    help="Morris: paths, each of a run per setting and one. Sobol: a power of two, times the "
    "settings and two. [default: 10, 64]",
)
@click.option(
    "--seeds",
    type=click.IntRange(1, MOST_SEEDS),
    default=USUAL_SEEDS,
    show_default=True,
    help="How many seeds every point runs with, the same for all.",
)
@click.option("--seed", type=int, help="The first seed. [default: that of the scenario]")
@click.option(
    "-o",
    "--output",
    metavar="DIR",
    help="Where to write the results. [default: runs/sensitivity-NAME]",
)
@search_options
def sensitivity(scenario: Path, varied: tuple[str, ...], **asked: Any) -> None:
    """Say which settings a figure depends on, and how much.

    Runs the scenario at points that a method chooses, all with the same seeds. Prints a bar per
    setting, and writes a folder: report.html, and results.parquet with all points. Interrupted, the
    same command goes on where it was.
    """
    from windtunnel.report.files.folder import WholeFile, WholeFolder, result_bytes
    from windtunnel.report.page.sensitivity import sensitivity_page
    from windtunnel.report.terminal.layout import screen
    from windtunnel.report.terminal.sensitivity import show
    from windtunnel.search.sensitivity import indices_of
    from windtunnel.search.sweep.folder import FILES, PAGE, RESULTS
    from windtunnel.search.sweep.sweep import table_of

    output, json_to = asked["output"], asked["json_to"]
    refuse_blank_names(asked)
    study = _plan(scenario, varied, asked)
    plan = study.sweep.plan
    alone = json_to == STANDARD_OUTPUT
    if output is None and not alone:
        output = str(Path("runs", f"sensitivity-{plan.name}"))
    read = {"the scenario": scenario, **traces_of(plan)}
    keep_apart(read, {**in_folder(output, FILES), "--json": json_to})
    folder = None if output is None else Path(output)
    told = {"vary": list(varied), "metric": study.metric, "samples": study.samples}
    told |= {"method": study.method, "set": list(asked["sets"])}
    told |= {"seeds": asked["seeds"], "seed": asked["seed"]}
    with ExitStack() as places:
        file: WholeFile | None = None
        if json_to is not None and not alone:
            file = places.enter_context(WholeFile(Path(json_to), "--json"))
        outcomes = run_points(study.sweep, folder, told, asked)
        found = indices_of(study, outcomes)
        content = result_bytes(found)
        if folder is not None:
            with WholeFolder(folder) as whole:
                page = sensitivity_page(found).encode()
                whole.put({RESULTS: table_of(study.sweep, outcomes).parquet(), PAGE: page})
        if file is not None:
            file.finish(content)
    if alone:
        click.echo(content, nl=False)
        return
    show(found, folder, screen())


def _plan(scenario: Path, varied: tuple[str, ...], asked: dict[str, Any]) -> "Study":
    from windtunnel.search.point import Origin
    from windtunnel.search.sensitivity import plan_study
    from windtunnel.search.sweep.axes import axes_of

    return plan_study(
        Origin.read(scenario, asked["sets"]),
        axes_of(varied),
        asked["metric"],
        method=asked["method"],
        samples=asked["samples"],
        seeds=asked["seeds"],
        seed=asked["seed"],
    )
