"""`windtunnel calibrate`: fits step-time models to measurements, or checks them."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import click
import msgspec

from windtunnel.cli.options import FILE, PLACE, json_option
from windtunnel.cli.places import STANDARD_OUTPUT, Output, keep_apart, write_file
from windtunnel.core.errors import InputError
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
from windtunnel.models.catalog.shapes import PLAIN_BYTES, ModelShape
from windtunnel.models.step_time.measurements import Measurement, read_measurements
from windtunnel.models.step_time.model import Longer, StepTimeModel
from windtunnel.models.step_time.physics import Ranks
from windtunnel.models.step_time.pipeline import pipelined
from windtunnel.models.step_time.profile import Profile, load_profile, physics_model, profile_for
from windtunnel.models.step_time.table_files import read_table
from windtunnel.report.terminal.layout import print_table, screen
from windtunnel.report.terminal.measurements import compared_latencies

DEFAULT_ACCELERATOR = "h200"
GATHERED = "allgather_reducescatter"
OF_REPLAY = ("replay", "tables", "model", "kv_blocks", "scheduling")


@click.command(short_help="Fit the step-time model to measurements, or check it against them.")
@click.argument("measurements", required=False, type=FILE)
@click.option("--accelerator", metavar="NAME", help="Measured accelerator. [default: h200]")
@click.option("--operators", metavar="DIR", type=FILE,
              help="Fit tables of operator timings (Parquet, as in aiconfigurator).")  # fmt: skip
@click.option("-o", "--output", metavar="FILE", type=FILE,
              help="Write the fitted profile here.")  # fmt: skip
@click.option("--evaluate", "evaluated", metavar="FILE", type=FILE,
              help="Check a profile against these measurements, without fitting.")  # fmt: skip
@click.option("--profile", "profile_name", metavar="NAME|FILE",
              help="The profile to evaluate. [default: the accelerator's]")  # fmt: skip
@click.option("--replay", metavar="DIR", type=FILE,
              help="Replay a recorded vLLM run, with tables or on --accelerator.")  # fmt: skip
@click.option("--tables", metavar="PATH", type=FILE,
              help="Kernel tables or step times for --replay. [default: its DIR]")  # fmt: skip
@click.option("--model", metavar="NAME", help="The model of --replay. [default: as recorded]")
@click.option("--kv-blocks", metavar="N", type=click.IntRange(min=2),
              help="KV blocks for --replay. [default: as recorded, or no limit]")  # fmt: skip
@click.option("--scheduling", type=click.Choice(["async", "sync"]),
              help="Scheduling of --replay. [default: as recorded, or vLLM's]")  # fmt: skip
@json_option("the errors as JSON")
@click.option("--report", type=PLACE, is_flag=False, flag_value=STANDARD_OUTPUT,
              metavar="[PAGE.html]",
              help="Show errors by kind of step; with a path, also write a page with a scatter "
              "plot.")  # fmt: skip
def calibrate(*, json_to: str | None, **asked: Any) -> None:
    """Fit the step-time model to measurements, or check it against them.

    MEASUREMENTS are JSON lines as `windtunnel profile` writes them. Errors (mape, p90) are
    fractions of the measured time: 0.05 is 5%. With --replay, fit the time per step that a
    recorded vLLM run takes beyond its tables, and compare its latencies with simulated ones.
    """
    read = {"the measurements": asked["measurements"] or asked["evaluated"]}
    read |= {"--profile": asked["profile_name"], "--tables": asked["tables"]}
    written = {"-o": asked["output"], "--json": json_to, "--report": asked["report"]}
    keep_apart(read, written)
    own = {name: asked.pop(name) for name in OF_REPLAY}
    with Output(json_to) as out:
        if not any(own.values()):
            _calibrate(out, **asked)
            return
        own["accelerator"] = asked.pop("accelerator")
        if any(asked.values()):
            allowed = "--tables or --accelerator, --model, --kv-blocks, --scheduling and --json"
            raise InputError("--replay fits no profile", allowed=allowed)
        outcome = _replay_run(**own)
        out.json(outcome)
    if not out.alone:
        _show_replay(outcome, own["tables"] or own["replay"], own["accelerator"])


def _calibrate(
    out: Output,
    measurements: Path | None,
    accelerator: str | None,
    operators: Path | None,
    output: Path | None,
    evaluated: Path | None,
    profile_name: str | None,
    report: str | None,
) -> None:
    if evaluated is not None:
        if measurements or operators or output:
            raise InputError(
                "--evaluate fits nothing", allowed="--profile, --json and --report beside it"
            )
        profile = (
            load_profile(profile_name)
            if profile_name
            else profile_for(resolve_accelerator(accelerator or DEFAULT_ACCELERATOR))
        )
        title = f"profile {profile_name or profile.name}"
        hardware = resolve_accelerator(accelerator or profile.accelerator)
        rows = read_measurements(evaluated)
    else:
        if profile_name:
            raise InputError("--profile is only for --evaluate", hint="add --evaluate FILE")
        hardware = resolve_accelerator(accelerator or DEFAULT_ACCELERATOR)
        rows, profile = _fit(measurements, operators, hardware)
        title = f"profile of {hardware.name}"
        if output is not None:
            write_file("-o", output, profile.to_json())
            title = f"profile {output.name} of {hardware.name}"
    errors = evaluate(rows, hardware, profile) if rows else {}
    out.json({"shapes": msgspec.to_builtins(errors)})
    page = None
    if report is not None and rows:
        from windtunnel.report.page.calibration import HEADS, by_regime, scatter_page

        predicted = predictions_ms(rows, hardware, profile)
        page = None if report == STANDARD_OUTPUT else Path(report)
        write_file("--report", page, scatter_page(rows, predicted, profile))
    if out.alone:
        return
    trust = "calibrated" if profile.calibrated else "NOT calibrated"
    screen().print(f"{title}, {trust}: {profile.origin}\n")
    rows_shown = (
        (name, str(error.points), f"{error.mape:.1%}", f"{error.p90:.1%}")
        for name, error in (errors or profile.errors.get("operators", {})).items()
    )
    print_table(screen(), ("", "points", "mean error", "p90"), rows_shown)
    if report is not None and rows:
        click.echo()
        found = by_regime(rows, predicted)
        print_table(screen(), HEADS, (error.cells() for error in found), words=2)
    for path in (output, page):
        if path is not None:
            click.echo(f"Wrote {path}")


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


# --replay: a recorded vLLM run against its simulation


def _replay_run(
    replay: Path | None,
    tables: Path | None,
    model: str | None,
    kv_blocks: int | None,
    scheduling: str | None,
    accelerator: str | None,
) -> dict[str, Any]:
    """Fits the time per step and compares latencies; options override what was recorded."""
    if replay is None:
        what = "--tables, --model, --kv-blocks and --scheduling describe a recorded run"
        raise InputError(what, hint="add --replay DIR")
    run = _recorded(read_run(replay), kv_blocks, scheduling)
    name = model or run.model
    if not name:
        raise InputError("meta.json names no model", where=str(replay), hint="add --model NAME")
    longer = _step_times(run, name, tables or replay, accelerator)
    per_step_s = fit_per_step(run, longer)
    comparison = compare(run, longer(per_step_s), per_step_s)
    settings = msgspec.to_builtins(run)
    del settings["requests"]
    return {"settings": settings | {"model": name}, **msgspec.to_builtins(comparison)}


def _step_times(
    run: RecordedRun, name: str, tables: Path, accelerator: str | None
) -> Callable[[float], StepTimeModel]:
    """A function from an added time per step to step times, of tables or of an accelerator."""
    shape = resolve_model(name)
    if accelerator is None:
        if run.gpus > 1:
            raise InputError(
                f"the run was on {run.gpus} GPUs, and tables of one have no collectives",
                where=str(tables),
                hint="add --accelerator NAME, for step times by physics",
            )
        return read_table(tables, shape).with_per_step
    gpu = resolve_accelerator(accelerator)
    shape = _as_recorded(shape, run, tables)
    if run.data_parallel > 1 and not shape.is_mixture:
        what = f"{shape.name} has no experts to share: its {run.data_parallel} ranks are servers"
        raise InputError(what, where=str(tables), hint="record and replay each of them")
    ranks = Ranks(run.data_parallel, GATHERED) if run.data_parallel > 1 else None
    experts = run.tensor_parallel * run.data_parallel if run.expert_parallel else 1
    model: StepTimeModel = physics_model(shape, gpu, None, run.tensor_parallel, experts, ranks)
    if run.pipeline_parallel > 1:
        model = pipelined(model, shape, gpu, run.pipeline_parallel, run.max_num_batched_tokens)
    return partial(Longer, model)


def _as_recorded(shape: ModelShape, run: RecordedRun, tables: Path) -> ModelShape:
    """The shape with the recorded server's data type of the KV cache."""
    if run.quantization and min(shape.weight_bytes, shape.expert_weight_bytes) >= PLAIN_BYTES:
        what = f"the server quantised {shape.name} when it started ({run.quantization:.40})"
        hint = f"name a quantised model, such as --model {shape.name}-fp8"
        raise InputError(what, where=str(tables), hint=hint)
    dtype = run.kv_cache_dtype
    if dtype == "auto":
        return shape
    if dtype not in KV_BYTES:
        what = f"kv_cache_dtype is {dtype!r:.40}"
        raise InputError(what, where=str(tables), allowed=f"auto, {', '.join(KV_BYTES)}")
    return msgspec.structs.replace(shape, kv_bytes=KV_BYTES[dtype])


KV_BYTES = {"fp8": 1.0, "fp8_e4m3": 1.0, "fp8_e5m2": 1.0, "bfloat16": 2.0, "float16": 2.0}
"""Bytes of a cached number, by vLLM's names of data types."""


def _recorded(run: RecordedRun, kv_blocks: int | None, scheduling: str | None) -> RecordedRun:
    if kv_blocks is not None:
        insist_on_setting("--kv-blocks", kv_blocks)
        run = msgspec.structs.replace(run, kv_blocks=kv_blocks)
    if scheduling is not None:
        run = msgspec.structs.replace(run, async_scheduling=scheduling == "async")
    return run


def _show_replay(outcome: dict[str, Any], tables: Path, accelerator: str | None) -> None:
    """Prints the result of a replay, and how a scenario uses the fitted time."""
    console = screen()
    settings = outcome["settings"]
    mode = "asynchronous" if settings["async_scheduling"] else "synchronous"
    blocks = settings["kv_blocks"]
    memory = f"{blocks} KV blocks" if blocks else "KV memory taken to be no limit"
    served = f"{outcome['requests']} requests of {settings['model']}"
    per_step = f"{1e3 * outcome['per_step_s']:.3f}"
    console.print(f"{served}, {mode} scheduling, {memory}")
    beyond = (
        "the tables" if accelerator is None else f"the kernels of {_gpus(settings, accelerator)}"
    )
    console.print(f"fitted: {per_step} ms per step beyond {beyond}\n")
    compared_latencies(console, outcome["latency"])
    console.print(
        f"\nscheduled in the same order: {outcome['order_agreement']:.1%} of the requests; "
        f"{outcome['preemptions']} preemptions simulated"
    )
    if accelerator is not None:
        return
    # Not wrapped: a line that is broken in two cannot be copied.
    use = f"use it: step_time: {{model: table, path: {tables}, per_step: {per_step}ms}}"
    console.print(use, soft_wrap=True)


def _gpus(settings: dict[str, Any], accelerator: str) -> str:
    """The accelerator of a recorded server, with its degrees of parallelism."""
    degrees = ("tensor_parallel", "data_parallel", "pipeline_parallel")
    given = [f"{name} {settings[name]}" for name in degrees if settings[name] > 1]
    return ", ".join([accelerator, *given])
