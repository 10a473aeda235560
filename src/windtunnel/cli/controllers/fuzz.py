"""`windtunnel fuzz`: runs random scenarios with every invariant checked; failures are shrunk."""

import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click

from windtunnel.cli.options import (
    LARGEST_SEED,
    PLACE,
    FiniteRange,
    jobs_option,
    json_option,
    option,
)
from windtunnel.cli.places import Output, keep_apart, note
from windtunnel.core.errors import InputError
from windtunnel.core.units import counted

if TYPE_CHECKING:
    from windtunnel.fuzz.campaign import Task

MOST_SEEDS = 10**9
USUAL_SEEDS = 1000
MOST_HOURS = 24 * 366
MOST_JOBS = 1024
USUAL_OUTPUT = "fuzz-failures"
USUAL_CORPUS = "fuzz-corpus"
EXIT_BROKEN = 3
AN_HOUR_S = 3600.0
EXIT_INTERRUPTED = 130


@click.command()
@option(
    "--seeds",
    click.IntRange(1, MOST_SEEDS),
    f"Number of random scenarios. [default: {USUAL_SEEDS}; with --hours, as many as fit]",
)
@option(
    "--hours",
    FiniteRange(0, MOST_HOURS, min_open=True),
    "Start no new scenario after this many hours.",
)
@option(
    "--first-seed",
    click.IntRange(0, LARGEST_SEED - MOST_SEEDS),
    "Seed of the first scenario; the next ones count up from it.",
    default=0,
)
@jobs_option("Number of processes. [default: one per processor]", MOST_JOBS)
@option(
    "-o --output",
    PLACE,
    "Folder for failures, as SEED.yaml.",
    default=USUAL_OUTPUT,
    metavar="DIR",
)
@option(
    "--corpus",
    PLACE,
    "Folder of scenarios that failed before: they run first, and new failures are added. "
    f"[default: {USUAL_CORPUS} beside the output]",
    metavar="DIR",
)
@json_option("the findings as JSON")
def fuzz(
    seeds: int | None,
    hours: float | None,
    first_seed: int,
    jobs: int | None,
    output: str,
    corpus: str | None,
    json_to: str | None,
) -> None:
    """Run random scenarios and check every invariant.

    Each seed gives a complete scenario with a random selection of features. A run fails if an
    invariant is broken, an exception escapes, it does not end, a second run differs, or the
    scenario is rejected. Failures are shrunk, and written with the command that reproduces them.

    Exit codes: 0 no failure, 3 failures found, 130 interrupted (failures found so far are kept).
    """
    from windtunnel.core.clock import monotonic_s
    from windtunnel.core.system.processes import processors
    from windtunnel.fuzz.campaign import Campaign
    from windtunnel.fuzz.documents import files_in
    from windtunnel.report.terminal.progress import bar

    kept = Path(corpus) if corpus is not None else Path(output).parent / USUAL_CORPUS
    for named, folder in (("-o", Path(output)), ("--corpus", kept)):
        if folder.is_file():
            raise InputError("this is a file", where=f"{named} {folder}", allowed="a folder")
    before = [str(path) for path in files_in(kept)]
    keep_apart({path: path for path in before}, {"--json": json_to})
    campaign = Campaign(Path(output), kept)
    most = seeds or (USUAL_SEEDS if hours is None else MOST_SEEDS)
    started_s = monotonic_s()
    interrupted: int | str | None = None

    def tasks() -> Iterator["Task"]:
        yield from before
        for seed in range(first_seed, first_seed + most):
            if hours is not None and monotonic_s() - started_s >= hours * AN_HOUR_S:
                return
            yield seed

    with Output(json_to) as out:
        try:
            by_time = hours is not None and seeds is None
            with bar("s" if by_time else "runs", sys.stderr) as update:

                def show(done: int, broken: int) -> None:
                    if not by_time:
                        update(done, len(before) + most, 0, f"{broken} broken")
                    else:
                        passed_s = int(monotonic_s() - started_s)
                        counts = f"{counted(campaign.seeds, 'seed')}, {broken} broken"
                        update(passed_s, int(AN_HOUR_S * (hours or 0.0)), -1, counts)

                campaign.run(tasks(), jobs or processors(), show)
        except KeyboardInterrupt:
            interrupted = EXIT_INTERRUPTED
        except SystemExit as ended:  # by a signal that asks it to end
            interrupted = ended.code
        out.json(campaign.result())
    if not out.alone:
        _show(campaign.result(), len(before))
    if interrupted is not None:
        note("interrupted; these are the findings so far")
        sys.exit(interrupted)
    sys.exit(EXIT_BROKEN if campaign.broken else 0)


def _show(result: dict[str, object], before: int) -> None:
    failures, seeds = result["failures"], result["seeds"]
    assert isinstance(failures, list)
    assert isinstance(seeds, int)
    again = f", {before} that failed before" if before else ""
    kinds = Counter(failure["what"] for failure in failures)
    what = ", ".join(f"{count} {kind}" for kind, count in sorted(kinds.items()))
    tried = f"{counted(seeds, 'seed')}{again}"
    click.echo(f"{tried}: {result['broken']} broken{what and f' ({what})'}")
    for failure in failures:
        said = str(failure["error"]).splitlines()
        click.echo(f"\nseed {failure['seed']}  {failure['what']}: {said[-1] if said else ''}")
        click.echo(f"  {failure['command']}")
