"""`windtunnel simulate`: runs a scenario, prints a table, writes a folder."""

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from windtunnel._start import EXIT_INTERRUPTED
from windtunnel.cli.main import EXIT_EARLY
from windtunnel.cli.options import (
    FILE,
    PLACE,
    QuantityOption,
    jobs_option,
    json_option,
    memory_option,
    option,
    output_option,
    seed_option,
    seeds_option,
    set_option,
)
from windtunnel.cli.places import (
    STANDARD_OUTPUT,
    Output,
    folder_of,
    in_folder,
    keep_apart,
    note,
    note_estimate,
    run_name,
    traces_of,
)
from windtunnel.core.errors import InputError
from windtunnel.core.units import parse_share
from windtunnel.settings.limits import LARGEST_STEP_ERROR

if TYPE_CHECKING:
    from windtunnel.cli.watch import RunWatch
    from windtunnel.twin.results.recorder import RowSink
    from windtunnel.twin.run import Run
    from windtunnel.twin.scenario.plan import ScenarioPlan

FEWEST_SEEDS, USUAL_SEEDS = 2, 10
NOT_TEXT = {
    b"PAR1": "Parquet",
    b"\x1f\x8b": "gzip",
    b"\x28\xb5\x2f\xfd": "zstd",
    b"PK\x03\x04": "zip",
}
"""The first bytes of binary files that are often kept beside scenarios."""


@click.command()
@click.argument("scenario", type=FILE)
@output_option("runs/NAME-SEED, plus --set overrides")
@json_option("result.json")
@option(
    "--perfetto",
    PLACE,
    "Write a trace for ui.perfetto.dev to FILE, compressed if its name ends in .gz.",
    metavar="FILE",
)
@click.option(
    "--events", is_flag=True, help="Also write events.jsonl: every decision with its reason."
)
@set_option("Override a field, as in serving.pools.0.replicas=8.")
@seed_option("Override the scenario's seed.")
@click.option(
    "--check",
    is_flag=True,
    help="Check invariants after every event: on the state it changed, and in full at intervals.",
)
@click.option(
    "--trust",
    is_flag=True,
    help="Repeat the run with other seeds and with step times off by their error, to get "
    "intervals for latencies.",
)
@seeds_option(
    FEWEST_SEEDS,
    None,
    f"With --trust: number of seeds, starting with the scenario's. [default: {USUAL_SEEDS}]",
)
@option(
    "--step-error",
    QuantityOption(
        parse_share,
        lambda share: 0.0 <= share <= LARGEST_STEP_ERROR,
        "is out of range",
        f"0% to {LARGEST_STEP_ERROR:.0%}, as in 5% or 0.05",
    ),
    "With --trust: error of step times to assume, as in 5%. [default: as measured]",
    metavar="SHARE",
)
@memory_option()
@jobs_option("With --trust: number of processes. [default: by load and cores]")
def simulate(
    scenario: Path,
    output: str | None,
    json_to: str | None,
    perfetto: str | None,
    events: bool,  # noqa: FBT001 - click passes options by name
    sets: tuple[str, ...],
    seed: int | None,
    check: bool,  # noqa: FBT001 - click passes options by name
    trust: bool,  # noqa: FBT001 - click passes options by name
    memory: int | None,
    **repeats: Any,
) -> None:
    """Run a scenario and show what happened.

    Prints a table, and writes a folder with report.html, result.json, requests.parquet and more.
    With `--json -` and no `-o`, only the result is printed and no folder is written. Exit 3: an
    invariant broke, or the run ended early with partial results.
    """
    from windtunnel.analysis.run_folder import ALL, EVENTS
    from windtunnel.cli.watch import RunWatch
    from windtunnel.report.files.folder import RunFolder
    from windtunnel.report.files.perfetto import PerfettoTrace
    from windtunnel.report.files.requests import RowSinks
    from windtunnel.report.terminal.progress import progress
    from windtunnel.twin.run import run

    if events and json_to == STANDARD_OUTPUT and output is None:
        what = "there is no folder to write events.jsonl to"
        raise InputError(what, where="--events", hint="give one with -o")
    _refuse_options_of_repeats(repeats, trust=trust)
    plan = load_plan(scenario, sets, seed)
    for sentence in plan.notes:
        note(f"note: {sentence}")
    note_estimate([plan])
    is_named = output is not None
    if (output := folder_of(output, json_to, run_name(plan))) is not None:
        _note_another_run(Path(output), plan, is_named=is_named)
    written = {**in_folder(output, ALL), "--json": json_to, "--perfetto": perfetto}
    keep_apart({"the scenario": scenario, **traces_of(plan)}, written)
    also: dict[str, Path] = {}
    with Output(json_to) as out:
        folder = None if output is None else out.enter_context(RunFolder(Path(output)))
        trace_file = out.perfetto(perfetto)
        sinks: list[RowSink] = [] if folder is None else [folder.rows()]
        every = folder.events() if folder is not None and events else None
        log = folder.control() if folder is not None else None
        trace = PerfettoTrace(plan)
        if trace_file is not None:
            sinks.append(trace)
        watch = out.enter_context(RunWatch(memory))
        with progress(plan.duration_s, sys.stderr) as shown:
            done = run(
                plan,
                rows=RowSinks(sinks) if sinks else None,
                events=every,
                decisions=log,
                check=check,
                look=watch.looking(shown),
            )
        if trust and done.result["partial"] is None:
            _repeat(done, watch, **repeats)
        if folder is not None:
            folder.finish(done, page=not watch.is_interrupted)
            if events:
                also["every decision with its reason"] = folder.path / EVENTS
        if trace_file is not None and perfetto is not None:
            also["a trace for ui.perfetto.dev"] = Path(perfetto)
            trace_file.finish(trace.content(done, Path(perfetto)))
        out.json(done.result)
    if trace.cut:
        note(f"{perfetto}: {trace.cut}")
    place = folder.path if folder else None
    _show_results(done, plan, place, also, interrupted=watch.is_interrupted, alone=out.alone)


def _note_another_run(folder: Path, plan: "ScenarioPlan", *, is_named: bool) -> None:
    """Notes that a folder, which `-o` named or the scenario, has a run of different settings."""
    import msgspec

    from windtunnel.analysis.run_folder import RESULT

    try:
        parts = msgspec.json.decode((folder / RESULT).read_bytes(), type=dict[str, msgspec.Raw])
        earlier = msgspec.json.decode(parts["scenario_sha256"])
    except (OSError, msgspec.MsgspecError, UnicodeDecodeError, LookupError):
        return
    if earlier != plan.sha256:
        which = "other settings" if is_named else "this name and seed with other settings"
        hint = "" if is_named else "; -o DIR keeps it"
        note(f"{folder} has a run of {which}, which is replaced{hint}")


def _show_results(
    done: "Run",
    plan: "ScenarioPlan",
    place: Path | None,
    also: Mapping[str, Path],
    *,
    interrupted: bool,
    alone: bool,
) -> None:
    """Shows the results; if the run ended early, exits with the corresponding status."""
    from windtunnel.report.terminal.layout import screen
    from windtunnel.report.terminal.run import show
    from windtunnel.twin.results.chance import draws

    partial = done.result["partial"]
    if not alone:
        where = None if interrupted else place
        show(done.result, plan.slos, where, screen(), also, by_chance=draws(plan))
    if partial is not None:
        note(f"the results are partial: {partial}")
    if interrupted and place is not None:
        note(f"they are in {place}; `windtunnel report {place}` writes the page")
    if interrupted:
        sys.exit(EXIT_INTERRUPTED)
    if partial is not None:
        sys.exit(EXIT_EARLY)


def _refuse_options_of_repeats(repeats: Mapping[str, Any], *, trust: bool) -> None:
    for name, value in repeats.items():
        if value is not None and not trust:
            option = f"--{name.replace('_', '-')}"
            raise InputError("one run has no use for it", where=option, hint="add --trust")


def _repeat(
    done: "Run",
    watch: "RunWatch",
    seeds: int | None,
    step_error: float | None,
    jobs: int | None,
) -> None:
    from windtunnel.report.terminal.progress import counting
    from windtunnel.search.repeats.intervals import add_intervals
    from windtunnel.search.repeats.runs import RunStopped

    try:
        with watch.optional(), counting("runs for intervals", sys.stderr) as count:
            add_intervals(done.result, done.plan, seeds or USUAL_SEEDS, step_error, count, jobs)
    except RunStopped as stopped:  # this run did not
        note(f"there are no intervals: {stopped}")
    if watch.is_interrupted:
        note("there are no intervals: their runs were interrupted")


def load_plan(path: Path, sets: Sequence[str], seed: int | None) -> "ScenarioPlan":
    """Loads the plan of a scenario file; binary files are refused."""
    from windtunnel.twin.scenario.load import load

    _refuse_what_is_not_text(path)
    return load(path, sets, seed)


def _refuse_what_is_not_text(path: Path) -> None:
    try:
        if not path.is_file():
            return
        with path.open("rb") as file:
            start = file.read(4)
    except OSError:
        return  # the loader says why
    for mark, kind in NOT_TEXT.items():
        if start.startswith(mark):
            raise InputError(f"this is a {kind} file, not a scenario", where=str(path))
