"""The `--real` half of `windtunnel compare`: a measured trace against the simulation of it."""

from collections.abc import Sequence
from pathlib import Path

import click
from click.core import ParameterSource

from windtunnel.cli.simulate import STANDARD_OUTPUT, load_plan
from windtunnel.core.errors import InputError

OF_DESIGNS = {"varied": "--vary", "seeds": "--seeds", "output": "-o", "workers": "--workers"}
"""Options that a single run has no use for."""


def compare_real(
    trace: Path,
    scenarios: Sequence[Path],
    sets: Sequence[str],
    seed: int | None,
    json_to: str | None,
) -> None:
    """Simulates the requests of a trace on a scenario's servers, and shows both."""
    from windtunnel.report.files.folder import WholeFile, result_bytes
    from windtunnel.report.terminal.measurements import show_reality
    from windtunnel.search.repeats.reality import compare_with_reality

    _refuse_options_of_designs()
    if len(scenarios) != 1:
        what = f"there are {len(scenarios)} scenarios"
        raise InputError(what, where="--real", allowed="one scenario, that of the measured server")
    (scenario,) = scenarios
    found = compare_with_reality(load_plan(scenario, sets, seed), trace)
    if json_to == STANDARD_OUTPUT:
        click.echo(result_bytes(found), nl=False)
        return
    if json_to is not None:
        with WholeFile(Path(json_to), "--json") as file:
            file.finish(result_bytes(found))
    show_reality(found, f"{trace.name} against {scenario.name}")


def _refuse_options_of_designs() -> None:
    context = click.get_current_context()
    for name, option in OF_DESIGNS.items():
        if context.get_parameter_source(name) == ParameterSource.COMMANDLINE:
            allowed = "--set, --seed and --json beside --real"
            raise InputError("this is for comparing designs", where=option, allowed=allowed)
