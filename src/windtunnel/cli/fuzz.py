"""`windtunnel fuzz`: scenarios drawn from seeds, run with every invariant; failures made small."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from windtunnel.cli.options import PLACE, json_option, option
from windtunnel.cli.places import Output, keep_apart, note
from windtunnel.core.errors import InputError

if TYPE_CHECKING:
    from windtunnel.fuzz.campaign import Task

MOST_SEEDS = 10**9
MOST_JOBS = 1024
LARGEST_SEED = 2**63 - 1
USUAL_OUTPUT = "fuzz-failures"
USUAL_CORPUS = "fuzz-corpus"
EXIT_BROKEN = 3
EXIT_INTERRUPTED = 130


@click.command()
@option("--seeds", click.IntRange(1, MOST_SEEDS), "How many scenarios are drawn.", default=1000)
@option(
    "--first-seed",
    click.IntRange(0, LARGEST_SEED - MOST_SEEDS),
    "The seed of the first one; the others follow it.",
    default=0,
)
@option(
    "--jobs", click.IntRange(1, MOST_JOBS), "How many processes. [default: one for each processor]"
)
@option(
    "-o --output",
    PLACE,
    "Where a failure is written, as SEED.yaml.",
    default=USUAL_OUTPUT,
    metavar="DIR",
)
@option(
    "--corpus",
    PLACE,
    "Scenarios that failed once: they run first, and new ones are added. "
    f"[default: {USUAL_CORPUS} beside the output]",
    metavar="DIR",
)
@json_option("what was found")
def fuzz(
    seeds: int,
    first_seed: int,
    jobs: int | None,
    output: str,
    corpus: str | None,
    json_to: str | None,
) -> None:
    """Search for failures: run scenarios drawn from seeds, checking every invariant.

    Every seed is a whole scenario, with some features and without others. A run is broken when an
    invariant breaks, an exception escapes, it does not end, a second run differs, or the scenario
    is refused. What breaks is made small, and written with one command that repeats it.

    Exit 0: nothing is broken; 3: something is; 130: interrupted, with what was found until then.
    """
    from windtunnel.core.processes import processors
    from windtunnel.fuzz.campaign import Campaign
    from windtunnel.fuzz.documents import files_in
    from windtunnel.report.terminal.progress import bar

    kept = Path(corpus) if corpus is not None else Path(output).parent / USUAL_CORPUS
    for named, folder in (("-o", Path(output)), ("--corpus", kept)):
        if folder.is_file():
            raise InputError("this is a file", where=f"{named} {folder}", allowed="a folder")
    tasks: list[Task] = [str(path) for path in files_in(kept)]
    before = len(tasks)
    keep_apart({path: path for path in tasks if isinstance(path, str)}, {"--json": json_to})
    campaign = Campaign(Path(output), kept)
    interrupted = False
    with Output(json_to) as out:
        tasks.extend(range(first_seed, first_seed + seeds))
        try:
            with bar("", sys.stderr) as update:
                campaign.run(
                    tasks,
                    jobs or processors(),
                    lambda done, broken: update(done, len(tasks), 0, f"{broken} broken"),
                )
        except KeyboardInterrupt:
            interrupted = True
        out.json(campaign.result())
    if not out.alone:
        _show(campaign.result(), before)
    if interrupted:
        note("interrupted; this is what was found until then")
        sys.exit(EXIT_INTERRUPTED)
    sys.exit(EXIT_BROKEN if campaign.broken else 0)


def _show(result: dict[str, object], before: int) -> None:
    failures = result["failures"]
    assert isinstance(failures, list)
    again = f", {before} that failed before" if before else ""
    click.echo(f"{result['seeds']} seeds{again}: {result['broken']} broken")
    for failure in failures:
        said = str(failure["error"]).splitlines()
        click.echo(f"\nseed {failure['seed']}  {failure['what']}: {said[-1] if said else ''}")
        click.echo(f"  {failure['command']}")
