"""`windtunnel sensitivity`: which settings a figure depends on, and how strongly."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from windtunnel.cli.options import FILE, PointsCommand, option, point_options

if TYPE_CHECKING:
    from windtunnel.search.sensitivity import Study

METHODS = ("morris", "sobol")
USUAL_SEEDS = 3


@click.command()
@click.argument("scenario", type=FILE)
@option("--metric", None, "The figure, such as latency.ttft.p95.", metavar="NAME", required=True)
@option(
    "--method",
    click.Choice(METHODS),
    "Morris screening (few runs), or Sobol indices (many).",
    default="morris",
)
@option(
    "--samples",
    int,
    "Morris: number of trajectories. Sobol: base samples, a power of two. [default: 10, 64]",
)
@point_options(
    USUAL_SEEDS,
    "runs/sensitivity-NAME",
    "A setting and its range: LOW..HIGH, LOW..HIGH:log or A,B,C.",
)
def sensitivity(scenario: Path, varied: tuple[str, ...], **asked: Any) -> None:
    """Rank the settings that a figure depends on.

    Runs the scenario at points that the method chooses, all with the same seeds. Prints a bar per
    setting, and writes a folder: report.html, and results.parquet with all points. The same command
    continues an interrupted study.
    """
    from windtunnel.report.page.searches.sensitivity import sensitivity_page
    from windtunnel.report.terminal.layout import screen
    from windtunnel.report.terminal.searches.sensitivity import show
    from windtunnel.search.sensitivity import indices_of

    study = _plan(scenario, varied, asked)
    command = PointsCommand("sensitivity", scenario, study.sweep, asked)
    identity = {"vary": list(varied), "metric": study.metric, "samples": study.samples}
    identity |= {"method": study.method, "set": list(asked["sets"])}
    identity |= {"seeds": asked["seeds"], "seed": asked["seed"]}
    found = command.run(identity, lambda outcomes: indices_of(study, outcomes), sensitivity_page)
    if found is not None:
        show(found, command.folder, screen())


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
