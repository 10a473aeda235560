"""`windtunnel explain`: the causes of a slow request or of a decision in a finished run."""

from pathlib import Path
from typing import TYPE_CHECKING

import click

from windtunnel.cli.options import json_option
from windtunnel.cli.places import STANDARD_OUTPUT
from windtunnel.core.errors import InputError

if TYPE_CHECKING:
    from windtunnel.analysis.explain.run import RunReader
    from windtunnel.report.terminal.explain import Explained


@click.command()
@click.argument("folder", type=click.Path(path_type=Path), metavar="RUN")
@click.option("--request", type=int, metavar="ID", help="Why this request took as long as it did.")
@click.option("--at", metavar="TIME", help="The state of every layer at this time, such as 12m.")
@click.option(
    "--decision", metavar="ID", help="What a decision was based on and what came of it: scaling-17."
)
@json_option("the same as JSON")
def explain(
    folder: Path, request: int | None, at: str | None, decision: str | None, json_to: str | None
) -> None:
    """Explain a slow request or a scaling decision.

    Reads the folder RUN that `windtunnel simulate` wrote, and walks from an effect to its causes:
    from a slow request to the servers that were not ready, the decision that requested them, and
    the machine that they waited for. Without an option it lists slow requests and large decisions.
    """
    import msgspec

    from windtunnel.analysis.explain.run import RunReader
    from windtunnel.report.files.folder import WholeFile
    from windtunnel.report.terminal.explain import show
    from windtunnel.report.terminal.layout import screen

    given = {"--request": request, "--at": at, "--decision": decision}
    named = [option for option, value in given.items() if value is not None]
    if len(named) > 1:
        raise InputError(f"not together with {named[0]}", where=named[1], hint="give one of them")
    explained = _explained(RunReader(folder), request, at, decision)
    if json_to is None:
        show(explained, str(folder), screen())
        return
    content = msgspec.json.format(msgspec.json.encode(explained), indent=2) + b"\n"
    if json_to == STANDARD_OUTPUT:
        click.echo(content, nl=False)
        return
    with WholeFile(Path(json_to), "--json") as file:
        file.finish(content)


def _explained(
    run: "RunReader", request: int | None, at: str | None, decision: str | None
) -> "Explained":
    from windtunnel.analysis.explain.decision import explain_decision
    from windtunnel.analysis.explain.moment import explain_moment
    from windtunnel.analysis.explain.overview import overview
    from windtunnel.analysis.explain.request import explain_request
    from windtunnel.core.units import parse_duration

    if request is not None:
        return explain_request(run, request)
    if decision is not None:
        return explain_decision(run, decision)
    if at is None:
        return overview(run)
    try:
        at_s = parse_duration(at)
    except InputError as error:
        error.say_of("--at")
        raise
    return explain_moment(run, at_s)
