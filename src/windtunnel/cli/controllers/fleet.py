"""`windtunnel fleet`: measures the decision cycle of the fleet controller."""

import sys
from typing import Any

import click

from windtunnel.cli.options import FiniteRange, json_option, option, together
from windtunnel.cli.places import Output

MOST = 5_000_000
MOST_SHARDS = 100
MOST_MINUTES = 30 * 24 * 60
EXIT_FAILED = 1
"""A soak exceeded a limit."""


figures_options = together(
    click.option("--seed", type=int, default=1, show_default=True, help="Seed of random draws."),
    json_option("the figures as JSON"),
)


@click.group(short_help="Measure the decision cycle of the fleet controller.")
def fleet() -> None:
    """Measure the decision cycle of the fleet controller."""


@fleet.command(short_help="Time the decision cycle over a fleet.")
@option("--machines", click.IntRange(1, MOST), "Number of machines.", default=50_000)
@option(
    "--needs",
    click.IntRange(1, MOST),
    "Number of units that clusters request; identical ones are merged.",
    default=50_000,
)
@option(
    "--cap",
    click.IntRange(0),
    "Maximum actions started in one cycle; 0 for no limit.",
    default=1000,
)
@click.option(
    "--contention",
    is_flag=True,
    help="Also time cycles while events, provider calls and exports compete for the CPU.",
)
@figures_options
def bench(
    *, machines: int, needs: int, cap: int, seed: int, contention: bool, json_to: str | None
) -> None:
    """Time the decision cycle over a fleet.

    The fleet has seven kinds of workloads on matching machines. A whole step is a full list, a
    first cycle over all needs, and the resulting orders; a warm cycle follows a change of 1% of
    needs and machines. Urgent needs preempt others on a full fleet. Times are CPU time;
    --contention compares wall time.
    """
    from windtunnel.cli.controllers.fleet_bench import measure, table

    with Output(json_to) as out:
        figures = measure(machines, needs, cap=cap, seed=seed, contention=contention)
        out.json(figures)
    if not out.alone:
        click.echo(table(figures))


@fleet.command(short_help="Run a whole fleet with failures, and check it against limits.")
@click.option("--profile", default="50k", show_default=True, help="3k, 50k, 100k or 500k machines.")
@option(
    "--minutes",
    FiniteRange(0, MOST_MINUTES, min_open=True),
    "Simulated minutes after the fleet has converged; at most 30 days.",
    default=30.0,
)
@option(
    "--churn",
    FiniteRange(0, 1),
    "Share of units that leave per minute; the same number arrives.",
    default=0.02,
)
@option(
    "--losses-per-day",
    FiniteRange(0),
    "Share of configured machines lost per day; at most 24.",
    default=0.01,
)
@click.option(
    "--gap",
    is_flag=True,
    help="Compare every 60th cycle with the optimal assignment, by linear programming.",
)
@option(
    "--shards",
    click.IntRange(1, MOST_SHARDS),
    "Divide the fleet among this many shards, with a coordinator that moves machines.",
    default=1,
)
@option(
    "--urgent",
    FiniteRange(0, 0.05),
    "Share of the machines that bursts of urgent needs request; they preempt batch work.",
    default=0.02,
)
@option(
    "--buffer",
    FiniteRange(0, 1),
    "Keep idle machines that can replace any rack, and this share of machines in use besides.",
)
@click.option(
    "--consolidate",
    is_flag=True,
    help="Replace machines by cheaper ones that have become free, a few at a time.",
)
@option(
    "--process-losses-per-hour",
    FiniteRange(0, 60),
    "How often each shard's process, or the coordinator, dies or stalls. [default: 6 with "
    "several shards, else 0]",
)
@option(
    "--cycle-limit-s",
    FiniteRange(0, min_open=True),
    "Limit on the p99 CPU time of a whole cycle.",
    default=1.0,
)
@figures_options
def soak(*, profile: str, json_to: str | None, **asked: Any) -> int:
    """Run a whole fleet with failures, and check it against limits.

    Seven kinds of workloads come and go. Machines fail; the provider loses orders, answers twice
    and lists false records. With --shards, processes die or stall and others take over. Exit 1: a
    limit was exceeded.
    """
    from windtunnel.cli.controllers.fleet_soak import soak_fleet, table

    with Output(json_to) as out:
        result = soak_fleet(profile, progress=_progress, **asked)
        out.json(result)
    if not out.alone:
        click.echo(table(result))
    return 0 if result["pass"] else EXIT_FAILED


def _progress(share: float) -> None:
    if sys.stderr.isatty():
        click.echo(f"\r{share:4.0%}", nl=share >= 1.0, err=True)
