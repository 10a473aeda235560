"""`windtunnel sweep`: runs one scenario at many settings; an interrupted sweep can continue."""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from windtunnel.cli.options import FILE, PointsCommand, option, point_options
from windtunnel.cli.places import note

if TYPE_CHECKING:
    from windtunnel.search.execution.workers import Outcome
    from windtunnel.search.sweep.sweep import Sweep

USUAL_SEEDS = 5
EXIT_FAILED = 1
"""Some points failed; the others were written."""
MOST_NAMED = 10
DESIGNS = ("grid", "random", "sobol")


@click.command()
@click.argument("scenario", type=FILE)
@option(
    "--design",
    click.Choice(DESIGNS),
    "All combinations, or points drawn at random or spread by Sobol's sequence.",
    default="grid",
)
@click.option("--points", type=click.IntRange(1), help="Number of points to draw. [default: 64]")
@option(
    "--metric metrics",
    None,
    "A figure to show, such as latency.ttft.p95. [default: cost, SLO attainment, latencies]",
    metavar="NAME",
    multiple=True,
)
@point_options(
    USUAL_SEEDS,
    "runs/sweep-NAME",
    "Values of a setting: A,B,C or LOW..HIGH, with a step LOW..HIGH:STEP or :xFACTOR.",
)
def sweep(scenario: Path, varied: tuple[str, ...], metrics: tuple[str, ...], **asked: Any) -> None:
    """Run a scenario at many settings, and show which are best.

    Every point runs with the same seeds, and so with the same requests at the same times. Prints a
    table of means, and writes a folder: report.html with Pareto fronts, results.parquet with a row
    per point and seed. The same command continues an interrupted sweep. Exit 1: a point failed.
    """
    from windtunnel.report.page.searches.sweep import sweep_page
    from windtunnel.report.terminal.layout import screen
    from windtunnel.report.terminal.searches.sweep import show
    from windtunnel.search.sweep.summary import summary_of

    planned = _prepare(scenario, varied, metrics, asked)
    command = PointsCommand("sweep", scenario, planned, asked)
    identity = {"vary": list(varied), "set": list(asked["sets"])}
    identity |= {name: asked[name] for name in ("design", "points", "seeds", "seed")}
    summaries = []

    def summarize(outcomes: "list[Outcome]") -> dict[str, Any]:
        summaries.append(summary_of(planned, outcomes, metrics))
        return summaries[0]

    found = command.run(identity, summarize, sweep_page)
    if found is not None:
        show(found, command.folder, screen())
    failed = [point["point"] for point in summaries[0]["points"] if point["failed"] is not None]
    if failed:
        named = ", ".join(map(str, failed[:MOST_NAMED]))
        more = f" and {len(failed) - MOST_NAMED} more" if len(failed) > MOST_NAMED else ""
        note(f"{len(failed)} of {len(summaries[0]['points'])} points failed: {named}{more}")
        sys.exit(EXIT_FAILED)


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
