"""`windtunnel explain`: the causes of a slow request or a decision in a finished run."""

from pathlib import Path

import click

from windtunnel.cli.options import FILE, QuantityOption, json_option, option
from windtunnel.cli.places import Output
from windtunnel.core.errors import InputError
from windtunnel.core.units import parse_duration


@click.command()
@click.argument("folder", type=FILE, metavar="RUN")
@click.option("--request", type=int, metavar="ID", help="Explain why this request took so long.")
@click.option("--at", type=QuantityOption(parse_duration), metavar="TIME",
              help="Show the state of every layer at this time, such as 12m.")  # fmt: skip
@option(
    "--decision",
    None,
    "Explain what a decision was based on and what followed, as in scaling-17.",
    metavar="ID",
)
@json_option("the explanation as JSON")
def explain(
    folder: Path, request: int | None, at: float | None, decision: str | None, json_to: str | None
) -> None:
    """Explain a slow request or a scaling decision.

    Reads the folder RUN that `windtunnel simulate` wrote, and walks from an effect to its causes:
    from a slow request to the servers that were not ready, the decision that requested them, and
    the machine that they waited for. Without an option it lists slow requests and large decisions.
    """
    from windtunnel.analysis.explain.overview import explain_run
    from windtunnel.analysis.explain.run import RunReader
    from windtunnel.analysis.run_folder import whole
    from windtunnel.report.terminal.explain import show
    from windtunnel.report.terminal.layout import screen

    given = {"--request": request, "--at": at, "--decision": decision}
    named = [option for option, value in given.items() if value is not None]
    if len(named) > 1:
        raise InputError(f"not together with {named[0]}", where=named[1], hint="give one of them")
    with whole(folder):
        explained = explain_run(RunReader(folder), request, at, decision)
    if json_to is None:
        more = f"windtunnel explain {folder} --request ID, --decision ID or --at TIME"
        show(explained, more, screen())
    with Output(json_to) as out:
        out.json(explained)
