"""`windtunnel audit`: replays the log of a live program, and checks its decisions."""

from pathlib import Path

import click

from windtunnel.cli.options import FILE
from windtunnel.core.errors import InputError, printable
from windtunnel.core.units import counted


@click.command(short_help="Replay an event log and check every decision in it.")
@click.argument("log", type=FILE)
@click.pass_context
def audit(context: click.Context, *, log: Path) -> None:
    """Replay an event log and check every decision in it.

    LOG is the event log of a gateway (`live.log`) or of an operator (`windtunnel operate --log`);
    its rotated files (LOG.1, LOG.2, ...) are read first.
    Its observations are replayed through the same controllers, each start of the program on its
    own. For an operator, only autoscaling decisions are replayed. Exit 1 if a decision differs.
    """
    from windtunnel.live.event_log import OPERATOR_STARTED, STARTED
    from windtunnel.live.gateway.audit import audit as replay_gateway
    from windtunnel.live.operate.audit import audit as replay_operator
    from windtunnel.live.replay import first_lines_missing, sections_of

    starts = sections_of(log)
    audits = {STARTED: replay_gateway, OPERATOR_STARTED: replay_operator}
    if not starts:
        allowed = "a file that `live.log` of a gateway or `--log` of an operator named"
        raise InputError("this is not an event log", where=f"{log}:1", allowed=allowed)
    if first_lines_missing(log, starts[0]):
        what = "the first lines are of a start whose file is no longer kept: they are not replayed"
        click.echo(what, err=True)
    report = audits[starts[0].head.kind](log)
    if report.cut:
        what = "the log ends" if report.starts == 1 else "a start ends"
        click.echo(f"{what} before its last line is complete: the program was killed", err=True)
    if report.difference:
        click.echo(printable(report.difference))
        context.exit(1)
    starts_said = f", in {report.starts} starts" if report.starts > 1 else ""
    if report.decisions:
        counts = f"{report.decisions} decisions follow from {report.facts} facts"
        click.echo(f"{counts}, byte for byte{starts_said}")
    else:
        click.echo(
            f"nothing to check: {counted(report.facts, 'fact')} and no decision{starts_said}"
        )
    if report.skipped:
        click.echo(f"{report.skipped} lines about gangs and machines were not replayed")
