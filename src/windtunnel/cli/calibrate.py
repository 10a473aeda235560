"""`windtunnel calibrate`: fits step-time models to measurements, or checks them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import msgspec

from windtunnel.cli.places import keep_apart
from windtunnel.core.errors import InputError, OutputError
from windtunnel.engine.replay import (
    RecordedRun,
    compare,
    fit_per_step,
    insist_on_setting,
    read_run,
)
from windtunnel.models.calibration.calibrate import (
    FEWEST_TO_FIT,
    evaluate,
    fit_profile,
    predictions_ms,
)
from windtunnel.models.catalog.accelerators import Accelerator, resolve_accelerator
from windtunnel.models.catalog.models import resolve_model
from windtunnel.models.step_time.measurements import Measurement, read_measurements
from windtunnel.models.step_time.profile import ErrorFigures, Profile, load_profile, profile_for
from windtunnel.models.step_time.table_files import read_table

if TYPE_CHECKING:
    from rich.table import Table

TERMINAL = "-"


@click.command(short_help="Fit the step-time model to measurements, or check it against them.")
@click.argument("measurements", required=False, type=click.Path(path_type=Path))
@click.option("--accelerator", metavar="NAME", help="What was measured. [default: h200]")
@click.option("--operators", metavar="DIR", type=click.Path(path_type=Path),
              help="Fit tables of operator timings (Parquet, as in aiconfigurator).")  # fmt: skip
@click.option("-o", "--output", metavar="FILE", type=click.Path(path_type=Path),
              help="Write the fitted profile here.")  # fmt: skip
@click.option("--evaluate", "evaluated", metavar="FILE", type=click.Path(path_type=Path),
              help="Fit nothing: check a profile against these measurements.")  # fmt: skip
@click.option("--profile", "profile_name", metavar="NAME|FILE",
              help="The profile to evaluate. [default: the accelerator's]")  # fmt: skip
@click.option("--replay", metavar="DIR", type=click.Path(path_type=Path),
              help="Replay a recorded vLLM run with the table model.")  # fmt: skip
@click.option("--tables", metavar="PATH", type=click.Path(path_type=Path),
              help="Kernel tables or whole steps for --replay. [default: its DIR]")  # fmt: skip
@click.option("--model", metavar="NAME", help="The model of --replay. [default: as recorded]")
@click.option("--kv-blocks", metavar="N", type=click.IntRange(min=2),
              help="KV blocks for --replay. [default: as recorded, or no limit]")  # fmt: skip
@click.option("--scheduling", type=click.Choice(["async", "sync"]),
              help="Of --replay. [default: as recorded, or the version's default]")  # fmt: skip
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
    replay: Path | None,
    tables: Path | None,
    model: str | None,
    kv_blocks: int | None,
    scheduling: str | None,
    json_to: str | None,
    report: str | None,
) -> None:
    """Fit the step-time model to measurements, or check it against them.

    MEASUREMENTS are JSON lines as `windtunnel profile` writes them. Errors (mape, p90) are
    fractions of the measured time: 0.05 is 5 %. With --replay, fit the time that the steps of a
    recorded vLLM run take beyond their tables, and compare its latencies with simulated ones.
    """
    keep_apart(
        {"the measurements": measurements or evaluated, "--profile": profile_name,
         "--tables": tables},
        {"-o": output, "--json": json_to, "--report": report},
    )  # fmt: skip
    if replay or tables or model or kv_blocks or scheduling:
        if any((measurements, operators, output, evaluated, profile_name, accelerator, report)):
            allowed = "--tables, --model, --kv-blocks, --scheduling and --json beside it"
            raise InputError("--replay fits no profile", allowed=allowed)
        _replay(replay, tables, model, kv_blocks, scheduling, json_to)
    else:
        _calibrate(
            measurements, accelerator, operators, output, evaluated, profile_name, json_to, report
        )


def _calibrate(
    measurements: Path | None,
    accelerator: str | None,
    operators: Path | None,
    output: Path | None,
    evaluated: Path | None,
    profile_name: str | None,
    json_to: str | None,
    report: str | None,
) -> None:
    if evaluated is not None:
        if measurements or operators or output:
            raise InputError(
                "--evaluate fits nothing", allowed="--profile, --json and --report beside it"
            )
        profile = _profile(profile_name, accelerator)
        title = f"profile {profile_name or profile.name}"
        hardware = resolve_accelerator(accelerator or profile.accelerator)
        rows = read_measurements(evaluated)
    else:
        if profile_name:
            raise InputError("--profile is what --evaluate looks at", hint="add --evaluate FILE")
        hardware = resolve_accelerator(accelerator or "h200")
        rows, profile = _fit(measurements, operators, hardware)
        title = f"profile of {hardware.name}"
        if output is not None:
            _write(output, profile.to_json())
            title = f"profile {output.name} of {hardware.name}"
    errors = evaluate(rows, hardware, profile) if rows else {}
    if json_to is not None:
        _write_errors(json_to, errors)
    if json_to == TERMINAL:
        _page(report, rows, hardware, profile)
        return
    _show(title, profile, errors)
    if report is not None and rows:
        _show_regimes(rows, hardware, profile)
    written = [output, _page(report, rows, hardware, profile)]
    for path in written:
        if path is not None:
            click.echo(f"Wrote {path}")


def _replay(
    folder: Path | None,
    tables: Path | None,
    model: str | None,
    kv_blocks: int | None,
    scheduling: str | None,
    json_to: str | None,
) -> None:

    if folder is None:
        what = "--tables, --model, --kv-blocks and --scheduling describe a recorded run"
        raise InputError(what, hint="add --replay DIR")
    outcome = _replay_run(folder, tables or folder, model, kv_blocks, scheduling)
    if json_to is not None:
        _write_json(json_to, outcome)
    if json_to != TERMINAL:
        _show_replay(outcome, tables or folder)


def _profile(name: str | None, accelerator: str | None) -> Profile:
    return load_profile(name) if name else profile_for(resolve_accelerator(accelerator or "h200"))


def _fit(
    measurements: Path | None, operators: Path | None, hardware: Accelerator
) -> tuple[list[Measurement], Profile]:
    if measurements is None and operators is None:
        what = "there is nothing to fit"
        raise InputError(
            what, allowed="MEASUREMENTS.jsonl, --operators DIR, --evaluate FILE or --replay DIR"
        )
    rest = profile_for(hardware)
    if operators is not None:
        from windtunnel.models.calibration.operators import fit_operators

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
    _write_json(place, {"shapes": msgspec.to_builtins(errors)})


def _write_json(place: str, value: dict[str, Any]) -> None:
    text = json.dumps(value, indent=2) + "\n"
    if place == TERMINAL:
        click.echo(text, nl=False)
    else:
        _write(Path(place), text)


def _page(
    report: str | None, rows: Sequence[Measurement], hardware: Accelerator, profile: Profile
) -> Path | None:
    if report is None or report == TERMINAL or not rows:
        return None
    from windtunnel.report.page.calibration import scatter_page

    page = Path(report)
    _write(page, scatter_page(rows, predictions_ms(rows, hardware, profile), profile))
    return page


def _show(title: str, profile: Profile, errors: dict[str, ErrorFigures]) -> None:
    from windtunnel.report.terminal.layout import plain_table, print_fitting, screen

    console = screen()
    trust = "calibrated" if profile.calibrated else "NOT calibrated"
    console.print(f"{title}, {trust}: {profile.origin}\n")
    table = plain_table("", "points", "mean error", "p90")
    for name, error in (errors or profile.errors.get("operators", {})).items():
        table.add_row(name, str(error.points), f"{error.mape:.1%}", f"{error.p90:.1%}")
    print_fitting(console, [table])


def _show_regimes(rows: Sequence[Measurement], hardware: Accelerator, profile: Profile) -> None:
    from windtunnel.report.page.calibration import by_regime
    from windtunnel.report.terminal.layout import plain_table, print_fitting, screen

    table = plain_table("shape", "kind of step", "points", "mean error", "p90", "bias", words=2)
    for error in by_regime(rows, predictions_ms(rows, hardware, profile)):
        figures = (f"{error.mape:.1%}", f"{error.p90:.1%}", f"{error.bias:+.1%}")
        table.add_row(error.shape, error.regime, str(error.points), *figures)
    click.echo()
    print_fitting(screen(), [table])


# --replay: a recorded vLLM run against its simulation


def _replay_run(
    folder: Path,
    tables: Path,
    model: str | None,
    kv_blocks: int | None,
    scheduling: str | None,
) -> dict[str, Any]:
    """Fits the time per step and compares; what is given overrides what was recorded."""
    run = _recorded(read_run(folder), kv_blocks, scheduling)
    name = model or run.model
    if not name:
        raise InputError("meta.json names no model", where=str(folder), hint="add --model NAME")
    table = read_table(tables, resolve_model(name))
    per_step_s = fit_per_step(run, table.with_per_step)
    comparison = compare(run, table.with_per_step(per_step_s), per_step_s)
    settings = msgspec.to_builtins(run)
    del settings["requests"]
    return {"settings": settings | {"model": name}, **msgspec.to_builtins(comparison)}


def _recorded(run: RecordedRun, kv_blocks: int | None, scheduling: str | None) -> RecordedRun:
    if kv_blocks is not None:
        insist_on_setting("--kv-blocks", kv_blocks)
        run = msgspec.structs.replace(run, kv_blocks=kv_blocks)
    if scheduling is not None:
        run = msgspec.structs.replace(run, async_scheduling=scheduling == "async")
    return run


def _show_replay(outcome: dict[str, Any], tables: Path) -> None:
    """Prints how a replay came out, and how a scenario uses what was fitted."""
    from windtunnel.report.terminal.layout import print_fitting, screen

    console = screen()
    settings = outcome["settings"]
    mode = "asynchronous" if settings["async_scheduling"] else "synchronous"
    blocks = settings["kv_blocks"]
    memory = f"{blocks} KV blocks" if blocks else "KV memory taken to be no limit"
    served = f"{outcome['requests']} requests of {settings['model']}"
    per_step = f"{1e3 * outcome['per_step_s']:.3f}"
    console.print(f"{served}, {mode} scheduling, {memory}")
    console.print(f"fitted: {per_step} ms per step beyond the tables\n")
    print_fitting(console, (_replayed_latencies(outcome["latency"], short) for short in (0, 1)))
    console.print(
        f"\nscheduled in the same order: {outcome['order_agreement']:.1%} of the requests; "
        f"{outcome['preemptions']} preemptions simulated"
    )
    # Not wrapped: a line that is broken in two cannot be copied.
    use = f"use it: step_time: {{model: table, path: {tables}, per_step: {per_step}ms}}"
    console.print(use, soft_wrap=True)


def _replayed_latencies(latency: dict[str, dict[str, Any]], short: int) -> Table:
    from windtunnel.analysis.figures import LATENCIES
    from windtunnel.core.units import duration_cell
    from windtunnel.report.terminal.layout import plain_table

    table = plain_table("latency", "", "measured", "simulated", "error", words=2)
    for name, figures in latency.items():
        for title, figure in figures.items():
            times = (duration_cell(figure["measured"]), duration_cell(figure["simulated"]))
            table.add_row(LATENCIES[name][short], title, *times, f"{figure['error']:+.1%}")
    return table
