"""`windtunnel explain`: why an autoscaler decided as it did."""

from pathlib import Path

import click

from windtunnel.core.errors import InputError


@click.command()
@click.argument("folder", type=click.Path(path_type=Path), metavar="RUN")
@click.option(
    "--at", metavar="TIME", help="Up to this time of the run, such as 12m. [default: its end]"
)
@click.option("--json", "as_data", is_flag=True, help="Print the same as JSON, and nothing else.")
def explain(folder: Path, at: str | None, *, as_data: bool) -> None:
    """Say why an autoscaler decided as it did in a run.

    Reads the folder RUN that `windtunnel simulate` wrote, and prints the last decision about each
    pool: what was seen, how many replicas were wanted, every limit that changed that, and what
    would have been decided without it.
    """
    from windtunnel.core.units import parse_duration
    from windtunnel.report.explain import as_json, decisions_at, show
    from windtunnel.report.layout import screen

    at_s = None
    if at is not None:
        try:
            at_s = parse_duration(at)
        except InputError as error:
            error.say_of("--at")
            raise
    decisions = decisions_at(folder, at_s)
    if as_data:
        import msgspec

        click.echo(msgspec.json.format(msgspec.json.encode(as_json(decisions)), indent=2))
        return
    show(decisions, screen())
