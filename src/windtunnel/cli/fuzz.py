"""`windtunnel fuzz`: scenarios drawn from seeds, run with every invariant; failures made small."""

import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import click

from windtunnel.cli.places import STANDARD_OUTPUT, keep_apart
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
@click.option(
    "--seeds",
    type=click.IntRange(1, MOST_SEEDS),
    default=1000,
    show_default=True,
    help="How many scenarios are drawn.",
)
@click.option(
    "--first-seed",
    type=click.IntRange(0, LARGEST_SEED - MOST_SEEDS),
    default=0,
    show_default=True,
    help="The seed of the first one; the others follow it.",
)
@click.option(
    "--jobs",
    type=click.IntRange(1, MOST_JOBS),
    help="How many processes. [default: one for each processor]",
)
@click.option(
    "-o",
    "--output",
    metavar="DIR",
    default=USUAL_OUTPUT,
    show_default=True,
    help="Where a failure is written, as SEED.yaml.",
)
@click.option(
    "--corpus",
    metavar="DIR",
    help="Scenarios that failed once: they run first, and new ones are added. "
    f"[default: {USUAL_CORPUS} beside the output]",
)
@click.option(
    "--json",
    "json_to",
    metavar="FILE",
    help="Write what was found to FILE; `-` prints it alone on standard output.",
)
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
    from windtunnel.report.files.folder import WholeFile, result_bytes

    for option, place in (("-o", output), ("--corpus", corpus), ("--json", json_to)):
        if place is not None and not place.strip():
            raise InputError("there is no name after it", where=option, allowed="a path")
    kept = Path(corpus) if corpus is not None else Path(output).parent / USUAL_CORPUS
    for option, folder in (("-o", Path(output)), ("--corpus", kept)):
        if folder.is_file():
            raise InputError("this is a file", where=f"{option} {folder}", allowed="a folder")
    tasks: list[Task] = [str(path) for path in files_in(kept)]
    before = len(tasks)
    keep_apart({path: path for path in tasks if isinstance(path, str)}, {"--json": json_to})
    campaign = Campaign(Path(output), kept)
    alone = json_to == STANDARD_OUTPUT
    interrupted = False
    with ExitStack() as places:
        file = None
        if json_to is not None and not alone:
            file = places.enter_context(WholeFile(Path(json_to), "--json"))
        tasks.extend(range(first_seed, first_seed + seeds))
        try:
            with _progress(len(tasks)) as progress:
                campaign.run(tasks, jobs or processors(), progress)
        except KeyboardInterrupt:
            interrupted = True
        content = result_bytes(campaign.result())
        if file is not None:
            file.finish(content)
    if alone:
        click.echo(content, nl=False)
    else:
        _show(campaign.result(), before)
    if interrupted:
        click.echo("windtunnel: interrupted; this is what was found until then", err=True)
        sys.exit(EXIT_INTERRUPTED)
    sys.exit(EXIT_BROKEN if campaign.broken else 0)


@contextmanager
def _progress(total: int) -> Iterator[Callable[[int, int], None]]:
    """A bar on a terminal: tasks done, failures found, time left."""
    if not sys.stderr.isatty():
        yield lambda _done, _broken: None
        return
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeRemainingColumn,
    )

    columns = (
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[broken]} broken"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("", total=total, broken=0)
        yield lambda done, broken: bar.update(task, completed=done, broken=broken)


def _show(result: dict[str, object], before: int) -> None:
    failures = result["failures"]
    assert isinstance(failures, list)
    again = f", {before} that failed before" if before else ""
    click.echo(f"{result['seeds']} seeds{again}: {result['broken']} broken")
    for failure in failures:
        said = str(failure["error"]).splitlines()
        click.echo(f"\nseed {failure['seed']}  {failure['what']}: {said[-1] if said else ''}")
        click.echo(f"  {failure['command']}")
