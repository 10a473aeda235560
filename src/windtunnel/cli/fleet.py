"""`windtunnel fleet`: what it costs to decide which machine belongs to whom."""

import json
from pathlib import Path
from typing import Any

import click

MOST = 5_000_000
STANDARD_OUTPUT = "-"


@click.group(short_help="Measure the cycle that decides which machine belongs to whom.")
def fleet() -> None:
    """Measure the cycle that decides which machine belongs to whom."""


@fleet.command(short_help="Time cycles over a fleet as they are found.")
@click.option(
    "--machines", type=click.IntRange(1, MOST), default=50_000, show_default=True, help="How many."
)
@click.option(
    "--needs",
    type=click.IntRange(1, MOST),
    default=50_000,
    show_default=True,
    help="How many units clusters ask for; those that are alike are merged.",
)
@click.option(
    "--cap",
    type=click.IntRange(1),
    default=1000,
    show_default=True,
    help="How many actions may begin in one cycle.",
)
@click.option("--seed", type=int, default=1, show_default=True, help="Of what is drawn.")
@click.option(
    "--contention",
    is_flag=True,
    help="Time cycles again beside event folding, provider calls and metric scrapes.",
)
@click.option(
    "--json", "json_to", metavar="FILE", help="Write the figures as JSON; - is standard output."
)
def bench(
    *, machines: int, needs: int, cap: int, seed: int, contention: bool, json_to: str | None
) -> None:
    """Time cycles over a fleet as they are found.

    Six kinds of workloads in their proportions, on machines made to measure. A cold cycle sees
    everything for the first time; before a warm one, 1 % of needs and machines changed. All times
    are of the processor, but with --contention, which compares times on the clock.
    """
    from windtunnel.cli.fleet_bench import measure, table

    figures = measure(machines, needs, cap=cap, seed=seed, contention=contention)
    if json_to == STANDARD_OUTPUT:
        click.echo(json.dumps(figures, indent=2))
        return
    if json_to is not None:
        _write(json_to, figures)
    click.echo(table(figures))


def _write(path: str, figures: dict[str, Any]) -> None:
    from windtunnel.report.files import WholeFile

    with WholeFile(Path(path), "--json") as file:
        file.finish((json.dumps(figures, indent=2) + "\n").encode())
