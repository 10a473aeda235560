"""`windtunnel calibrate`: fits the physics model to measurements, or holds it against them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import click
import msgspec

from windtunnel.core.errors import InputError, OutputError
from windtunnel.models.accelerators import Accelerator, resolve_accelerator
from windtunnel.models.calibrate import (
    FEWEST_TO_FIT,
    Measurement,
    evaluate,
    fit_profile,
    predictions_ms,
    read_measurements,
)
from windtunnel.models.profile import ErrorFigures, Profile, load_profile, profile_for

TERMINAL = "-"


@click.command(short_help="Fit the step-time model to measurements, or check it against them.")
@click.argument("measurements", required=False, type=click.Path(path_type=Path))
@click.option("--accelerator", metavar="NAME", help="What was measured. [default: h200]")
@click.option("--operators", metavar="DIR", type=click.Path(path_type=Path),
              help="Fit tables of operator timings (Parquet, as in aiconfigurator).")  # fmt: skip
@click.option("-o", "--output", metavar="FILE", type=click.Path(path_type=Path),
              help="Write the fitted profile here.")  # fmt: skip
@click.option("--evaluate", "evaluated", metavar="FILE", type=click.Path(path_type=Path),
              help="Fit nothing: hold a profile against these measurements.")  # fmt: skip
@click.option("--profile", "profile_name", metavar="NAME|FILE",
              help="The profile to evaluate. [default: the accelerator's]")  # fmt: skip
@click.option(
    "--json", "json_to", metavar="FILE", help="Write the errors as JSON; - is standard output."
)
@click.option("--report", is_flag=False, flag_value=TERMINAL, metavar="[PAGE.html]",
              help="Errors by kind of step; with a path, also a page with a scatter.")  # fmt: skip
def calibrate(
    *,
    measurements: Path | None,
    accelerator: str | None,
    operators: Path | None,
    output: Path | None,
    evaluated: Path | None,
    profile_name: str | None,
    json_to: str | None,
    report: str | None,
) -> None:
    """Fit the physics step-time model to measurements, or check it against them.

    MEASUREMENTS are JSON lines as `windtunnel profile` writes them. Errors (mape, p90) are
    fractions of the measured time: 0.05 is 5 %.
    """
    if evaluated is not None:
        if measurements or operators or output:
            raise InputError(
                "--evaluate fits nothing", allowed="--profile, --json and --report beside it"
            )
        profile = _profile(profile_name, accelerator)
        hardware = resolve_accelerator(accelerator or profile.accelerator)
        rows = read_measurements(evaluated)
    else:
        if profile_name:
            raise InputError("--profile is what --evaluate looks at", hint="add --evaluate FILE")
        hardware = resolve_accelerator(accelerator or "h200")
        rows, profile = _fit(measurements, operators, hardware)
        if output is not None:
            _write(output, profile.to_json())
    errors = evaluate(rows, hardware, profile) if rows else {}
    if json_to is not None:
        _write_errors(json_to, errors)
    if json_to == TERMINAL:
        _page(report, rows, hardware, profile)
        return
    _show(profile, hardware, errors)
    if report is not None and rows:
        _show_regimes(rows, hardware, profile)
    _page(report, rows, hardware, profile)
    if output is not None:
        click.echo(f"Wrote {output}")


def _profile(name: str | None, accelerator: str | None) -> Profile:
    return load_profile(name) if name else profile_for(resolve_accelerator(accelerator or "h200"))


def _fit(
    measurements: Path | None, operators: Path | None, hardware: Accelerator
) -> tuple[list[Measurement], Profile]:
    if measurements is None and operators is None:
        what = "there is nothing to fit"
        raise InputError(what, allowed="MEASUREMENTS.jsonl, --operators DIR, or --evaluate FILE")
    rest = profile_for(hardware)
    if operators is not None:
        from windtunnel.models.operators import fit_operators

        origin = f"Operator timings in {operators.name}."
        rest = fit_operators(operators, hardware, rest, name=hardware.name, origin=origin)
    if measurements is None:
        return [], rest
    rows = read_measurements(measurements, fewest=FEWEST_TO_FIT)
    origin = f"{len(rows)} steps in {measurements.name}."
    if operators is not None:
        origin += f" What they cannot show: operator timings in {operators.name}."
    return rows, fit_profile(rows, hardware, name=hardware.name, origin=origin, rest=rest)


def _write(path: Path, text: str) -> None:
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        reason = (error.strerror or "unknown reason").lower()
        raise OutputError(f"cannot be written: {reason}", where=str(path)) from error


def _write_errors(place: str, errors: dict[str, ErrorFigures]) -> None:
    text = json.dumps({"shapes": msgspec.to_builtins(errors)}, indent=2) + "\n"
    if place == TERMINAL:
        click.echo(text, nl=False)
    else:
        _write(Path(place), text)


def _page(
    report: str | None, rows: Sequence[Measurement], hardware: Accelerator, profile: Profile
) -> None:
    if report in {None, TERMINAL} or not rows:
        return
    from windtunnel.report.calibration import scatter_page

    assert report is not None
    _write(Path(report), scatter_page(rows, predictions_ms(rows, hardware, profile), profile))


def _show(profile: Profile, hardware: Accelerator, errors: dict[str, ErrorFigures]) -> None:
    from rich.console import Console
    from rich.table import Table

    console = Console()
    trust = "calibrated" if profile.calibrated else "NOT calibrated"
    console.print(f"Profile {profile.name} for {hardware.name}, {trust}: {profile.origin}")
    table = Table("", "points", "mean error", "90th percentile")
    for name, error in (errors or profile.errors.get("operators", {})).items():
        table.add_row(name, str(error.points), f"{error.mape:.1%}", f"{error.p90:.1%}")
    console.print(table)


def _show_regimes(rows: Sequence[Measurement], hardware: Accelerator, profile: Profile) -> None:
    from rich.console import Console
    from rich.table import Table

    from windtunnel.report.calibration import by_regime

    table = Table("shape", "kind of step", "points", "mean error", "90th percentile", "bias")
    for error in by_regime(rows, predictions_ms(rows, hardware, profile)):
        figures = (f"{error.mape:.1%}", f"{error.p90:.1%}", f"{error.bias:+.1%}")
        table.add_row(error.shape, error.regime, str(error.points), *figures)
    Console().print(table)
