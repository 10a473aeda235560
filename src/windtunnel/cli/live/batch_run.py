"""Runs a planned batch from the command line: its files, its output and its exit code."""

import asyncio
import os
import shlex
import sys
import traceback
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import click

from windtunnel.cli.live.batch import EXIT_DROPPED, EXIT_STALLED
from windtunnel.cli.places import Output, keep_apart, note
from windtunnel.core.errors import InvariantBroken, WindtunnelError, os_reason, printable
from windtunnel.core.random import Streams, fresh_seed
from windtunnel.core.telemetry import JsonlSink, Sink, Telemetry
from windtunnel.live.batch.compose import Prepared, Watch, prepare, run_batch
from windtunnel.live.batch.run import Runner
from windtunnel.live.batch.settings import BatchSettings
from windtunnel.live.batch.store import errors_path, journal_path
from windtunnel.live.batch.tally import Ending, Summary, look
from windtunnel.live.system import new_loop
from windtunnel.report.files.batch_trace import BatchTrace
from windtunnel.report.files.folder import result_bytes
from windtunnel.report.terminal.batch import show
from windtunnel.report.terminal.batch_progress import showing
from windtunnel.report.terminal.layout import screen
from windtunnel.report.terminal.progress import is_terminal

EXITS = {
    Ending.STALLED: EXIT_STALLED,
    Ending.REFUSED: 2,
    Ending.UNWRITABLE: 2,
    Ending.INTERRUPTED: 130,
    Ending.TERMINATED: 143,
}


def run(plan: BatchSettings, options: Mapping[str, Any]) -> int:
    """Runs to the end and shows the summary; returns the exit code."""
    _keep_apart(plan, options)
    trace = BatchTrace()
    with Output(options["json_to"]) as out:
        trace_file = out.perfetto(options["perfetto"])
        sinks: list[Sink] = [trace] if trace_file is not None else []
        if options["events"] is not None:
            sinks.append(out.enter_context(_events(options["events"], append=plan.resume)))
        prepared = prepare(plan, os.environ)
        telemetry = Telemetry(*sinks)
        summary = _run(plan, prepared, telemetry, _watches(options))
        if telemetry.lost_events:
            note(f"{telemetry.lost_events:,} events could not be written")
        if trace_file is not None:
            trace_file.finish(trace.content(options["perfetto"], prepared.keys.redact))
        out.put_json(prepared.keys.redact(result_bytes(summary)))
    if trace.cut:
        note(f"{options['perfetto']}: {trace.cut}")
    if not out.alone:
        show(summary, _resume_line(), screen())
    return exit_code(summary)


def _keep_apart(plan: BatchSettings, options: Mapping[str, Any]) -> None:
    """Refuses to overwrite an input, or to write two outputs to one file."""
    texts = {
        f"the file of --{name}": (options[name] or "")[1:]
        for name in ("template", "system")
        if (options[name] or "").startswith("@")
    }
    output = plan.output
    keep_apart(
        {"the input": plan.input, "--columns": options["columns_file"], **texts},
        {
            "-o": output,
            "the journal of -o": journal_path(output),
            "the list of errors of -o": errors_path(output),
            "--json": options["json_to"],
            "--perfetto": options["perfetto"],
            "--events": options["events"],
        },
    )


@contextmanager
def _events(path: Path, *, append: bool) -> Iterator[JsonlSink]:
    """Opens an event log; the run continues if it can no longer be written."""
    is_new = not path.exists()
    sink = JsonlSink(path, append=append)
    try:
        yield sink
    finally:
        try:
            sink.close()
            if is_new and path.is_file() and path.stat().st_size == 0:
                path.unlink()
        except OSError as error:
            note(f"{path}: not all events are there: {os_reason(error)}")


def exit_code(summary: Summary) -> int:
    if summary.ending is not Ending.COMPLETE:
        return EXITS[summary.ending]
    return EXIT_DROPPED if summary.view.dropped or summary.view.gave_up else 0


def _run(
    plan: BatchSettings, prepared: Prepared, telemetry: Telemetry, watches: list[Watch]
) -> Summary:
    """Runs the batch; a bug is reported with its traceback, without keys."""
    try:
        with asyncio.Runner(loop_factory=new_loop) as runner:
            streams = Streams(fresh_seed())
            return runner.run(run_batch(plan, prepared, telemetry, streams, watches, note))
    except WindtunnelError:
        raise
    except Exception as error:  # noqa: BLE001 - whatever else it is, it is our fault
        text = "".join(traceback.format_exception(error))
        click.echo(printable(prepared.keys.redact_text(text)), err=True, nl=False)
        what = f"a bug of windtunnel stopped the run: {type(error).__name__}: {error}"
        raise InvariantBroken(
            prepared.keys.redact_text(what),
            where=str(plan.output),
            hint="finished rows are kept, and --resume continues",
        ) from None


def _watches(options: Mapping[str, Any]) -> list[Watch]:
    watches: list[Watch] = [_progress]
    port = options["metrics_port"]
    if port is not None:
        watches.append(lambda runner: _metrics(runner, port))
    return watches


def _progress(runner: Runner) -> AbstractAsyncContextManager[None]:
    def view() -> Any:
        return look(runner.tally, runner.limiter.admission, runner.limiter.now())

    return showing(view, sys.stderr, is_terminal=is_terminal(sys.stderr))


@asynccontextmanager
async def _metrics(runner: Runner, port: int) -> AsyncIterator[None]:
    from windtunnel.live.batch.metrics import serving_metrics

    def ready(bound: int) -> None:
        note(f"metrics are on http://127.0.0.1:{bound}/metrics")

    with serving_metrics(runner, port, ready):
        yield


def _resume_line() -> str:
    """The command that continues this run, as it was typed."""
    words = ["windtunnel", *sys.argv[1:]]
    return shlex.join(words if "--resume" in words else [*words, "--resume"])
