"""`windtunnel incident`: a time range of a gateway's log and trace, as a folder that replays."""

from pathlib import Path

import click

from windtunnel.cli.options import FILE, option
from windtunnel.cli.places import Output, in_folder, keep_apart, note
from windtunnel.core.errors import InputError

EXIT_DIFFERS = 1


@click.command()
@click.argument("log", type=FILE)
@option("--from begin", None, "Start: 1h30m after the gateway's start, or "
                              "2026-11-16T10:00:00Z. [default: start]", metavar="TIME")  # fmt: skip
@option("--to end", None, "End of the range. [default: the end of the log]", metavar="TIME")
@option("--trace", FILE, "Folder of the gateway's trace, or one file of it. "
        "[default: from the gateway's settings]", metavar="PATH")  # fmt: skip
@option("-o --output", FILE, "Where to write the folder.", default="incident", metavar="DIR")
@click.pass_context
def incident(
    context: click.Context,
    /,
    *,
    log: Path,
    begin: str | None,
    end: str | None,
    trace: Path | None,
    output: Path,
) -> None:
    """Extract a time range of a gateway's log and trace, as a folder that replays.

    LOG is the gateway's event log (`live.log`). The folder has gateway.jsonl, which `windtunnel
    audit` replays exactly, and trace.jsonl with scenario.yaml, which `windtunnel simulate` runs,
    also with changes by --set. It contains no prompts and no keys. If the gateway was restarted,
    times after its start count from the last one; earlier starts are chosen by times of the clock.
    Exit 1: the replayed decisions differ from the log.
    """
    import yaml

    from windtunnel.live.gateway.audit import audit, starts_of
    from windtunnel.live.gateway.incident import (
        FILES,
        LOG,
        SCENARIO,
        SUMMARY,
        TRACE,
        cut_log,
        cut_trace,
        policies_only,
        scenario_of,
        started_at,
        step_times_of,
        stretch_of,
        trace_of,
    )
    from windtunnel.report.files.folder import result_bytes
    from windtunnel.workload.traces.gateway_folder import gateway_files, gateway_rows

    starts = starts_of(log)
    stretch = stretch_of(starts, begin, end)
    head = stretch.start.head
    if len(starts) > 1:
        place = f"{starts.index(stretch.start) + 1} of {len(starts)}"
        note(f"this is of the gateway's start at {started_at(stretch.start)}, {place} in the log")
    trace = trace_of(head) if trace is None else trace
    if not trace.exists():
        raise InputError("there is no such trace", where=str(trace), hint="--trace says where")
    keep_apart({"the log": log, "the trace": trace}, in_folder(output, FILES))
    files = gateway_files(trace) if trace.is_dir() else [trace]
    with Output() as out:
        folder = out.folder(output)
        assert folder is not None
        cut = cut_log(log, stretch, folder.draft(LOG))
        rows = cut_trace(gateway_rows(files), cut.requests, folder.draft(TRACE))
        report = audit(folder.draft(LOG))
        settings = policies_only(head.data["settings"])
        times = step_times_of(rows)
        scenario = HEADER.format(times.source)
        scenario += yaml.safe_dump(scenario_of(settings, cut, times), sort_keys=False)
        counts = {name: value for name, value in cut._asdict().items() if name != "requests"}
        summary = {"from_s": stretch.from_s, "to_s": stretch.to_s, **counts, "traced": len(rows)}
        summary["audit"] = report.difference or "passed"
        folder.put({SCENARIO: scenario.encode(), SUMMARY: result_bytes(summary)})
    if len(rows) < len(cut.requests):
        note(f"the trace has {len(rows):,} of {len(cut.requests):,} requests")
    if not times.prefill_s:
        note(f"step times are {times.source}")
    click.echo(f"{cut.arrived:,} requests arrived; {report.decisions:,} decisions")
    if report.difference:
        click.echo(f"the decisions do not follow from the log: {report.difference}")
        context.exit(EXIT_DIFFERS)
    click.echo(f"audit it     windtunnel audit {output / LOG}")
    click.echo(f"simulate it  windtunnel simulate {output / SCENARIO}")


HEADER = """\
# Cut out of a gateway's log and trace. Policies are those of the gateway. Step times are
# {}.
# Name the model and the accelerator of the servers for better ones.
"""
