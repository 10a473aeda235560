"""`windtunnel audit`: replay a gateway's log, and hold its decisions to it."""

from pathlib import Path

import click

from windtunnel.cli.options import FILE
from windtunnel.core.errors import printable


@click.command(short_help="Replay a gateway's event log and check every decision in it.")
@click.argument("log", type=FILE)
@click.pass_context
def audit(context: click.Context, *, log: Path) -> None:
    """Replay a gateway's event log and check every decision in it.

    LOG is the file that `live.log` of a gateway named. Its observations are given to the same
    controllers in the time of the log; the exit status is 1 if they decide anything else.
    """
    from windtunnel.live.gateway.audit import audit as replay

    report = replay(log)
    if report.cut:
        click.echo("the last line of the log is incomplete: the gateway was killed", err=True)
    if report.difference:
        click.echo(printable(report.difference))
        context.exit(1)
    click.echo(f"{report.decisions} decisions follow from {report.facts} facts, byte for byte")
