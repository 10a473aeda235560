"""Options that several commands share, declared once, and what they do with them."""

import sys
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from windtunnel.cli.places import STANDARD_OUTPUT, in_folder, keep_apart, traces_of
from windtunnel.core.errors import InputError

if TYPE_CHECKING:
    from windtunnel.search.execution.workers import Outcome
    from windtunnel.search.sweep.sweep import Sweep

MOST_SEEDS = 200
MOST_WORKERS = 256

Command = Callable[..., Any]


def together(*options: Callable[[Command], Command]) -> Callable[[Command], Command]:
    """Several options as one decorator, in their order."""

    def decorate(command: Command) -> Command:
        for option in reversed(options):
            command = option(command)
        return command

    return decorate


def json_option(what: str) -> Callable[[Command], Command]:
    return click.option(
        "--json",
        "json_to",
        metavar="FILE",
        help=f"Write {what} to FILE; `-` prints it alone on standard output.",
    )


def output_option(default: str) -> Callable[[Command], Command]:
    return click.option(
        "-o", "--output", metavar="DIR", help=f"Where to write the results. [default: {default}]"
    )


def first_seed_option() -> Callable[[Command], Command]:
    return click.option("--seed", type=int, help="The first seed. [default: that of the scenario]")


run_options = together(
    click.option(
        "--jobs",
        type=click.IntRange(1, MOST_WORKERS),
        help="How many runs at once. [default: as many as pay]",
    ),
    click.option(
        "--on",
        default="local",
        show_default=True,
        metavar="PLACE",
        help="Where runs go: local, ray, auto or ray://HOST:PORT.",
    ),
    click.option(
        "--cache",
        metavar="DIR",
        help="Where finished runs are kept. [default: points in the folder of -o]",
    ),
)
"""Of every command that runs many points."""


def point_options(seeds: int, output: str) -> Callable[[Command], Command]:
    """Of commands that run a scenario at many settings, each with the same seeds."""
    return together(
        click.option(
            "--seeds",
            type=click.IntRange(1, MOST_SEEDS),
            default=seeds,
            show_default=True,
            help="How many seeds every point runs with, the same for all.",
        ),
        first_seed_option(),
        output_option(output),
        click.option("--set", "sets", multiple=True, metavar="PATH=VALUE", help="Set it for all."),
        run_options,
        json_option("what was found as JSON"),
    )


def refuse_blank_names(places: Mapping[str, str | None]) -> None:
    """Refuses an option that names a place and says none."""
    for option, place in places.items():
        if place is not None and not place.strip():
            raise InputError("there is no name after it", where=option, allowed="a path")


def places_in(asked: Mapping[str, Any]) -> dict[str, str | None]:
    """The places that a command line names, by option."""
    names = {"-o": "output", "--json": "json_to", "--cache": "cache"}
    return {option: asked[name] for option, name in names.items()}


class PointsCommand:
    """A command that runs a scenario at many points: where it writes, and how it continues."""

    def __init__(self, kind: str, scenario: Path, sweep: "Sweep", asked: Mapping[str, Any]) -> None:
        from windtunnel.search.sweep.folder import FILES

        self._sweep = sweep
        self._asked = asked
        self._json_to = asked["json_to"]
        self._alone = self._json_to == STANDARD_OUTPUT
        output = asked["output"]
        if output is None and not self._alone:
            output = str(Path("runs", f"{kind}-{sweep.plan.name}"))
        read = {"the scenario": scenario, **traces_of(sweep.plan)}
        keep_apart(read, {**in_folder(output, FILES), "--json": self._json_to})
        self.folder = None if output is None else Path(output)

    def run(
        self,
        identity: dict[str, Any],
        found_in: "Callable[[list[Outcome]], dict[str, Any]]",
        page: Callable[[dict[str, Any]], str],
    ) -> dict[str, Any] | None:
        """Runs all points and writes what was found; None if it was printed as JSON.

        `identity` is what must be the same for an interrupted command to go on.
        """
        from windtunnel.report.files.folder import WholeFile, WholeFolder, result_bytes
        from windtunnel.search.sweep.folder import PAGE, RESULTS
        from windtunnel.search.sweep.sweep import table_of

        with ExitStack() as places:
            file: WholeFile | None = None
            if self._json_to is not None and not self._alone:
                file = places.enter_context(WholeFile(Path(self._json_to), "--json"))
            outcomes = self._outcomes(identity)
            found = found_in(outcomes)
            content = result_bytes(found)
            if self.folder is not None:
                table = table_of(self._sweep, outcomes).parquet()
                with WholeFolder(self.folder) as whole:
                    whole.put({RESULTS: table, PAGE: page(found).encode()})
            if file is not None:
                file.finish(content)
        if self._alone:
            click.echo(content, nl=False)
            return None
        return found

    def _outcomes(self, identity: dict[str, Any]) -> "list[Outcome]":
        from windtunnel.report.terminal.progress import bar
        from windtunnel.search.execution.cache import Cache
        from windtunnel.search.execution.workers import Workers
        from windtunnel.search.sweep.folder import POINTS, check, claim, identity_of
        from windtunnel.search.sweep.sweep import run_sweep

        asked, folder = self._asked, self.folder
        cache = None if asked["cache"] is None else Cache(Path(asked["cache"]))
        if folder is not None:
            identity = identity_of(self._sweep, identity)
            check(folder, identity)
            cache = cache or Cache(folder / POINTS)
        ended = 0
        try:
            with Workers(on=asked["on"], jobs=asked["jobs"], cache=cache) as workers:
                if folder is not None:
                    claim(folder, identity)

                def update(count: int, total: int, before: int) -> None:
                    nonlocal ended
                    ended = count
                    shown(count, total, before)

                with bar("runs", sys.stderr) as shown:
                    return run_sweep(self._sweep, workers, update)
        except (KeyboardInterrupt, SystemExit):
            if cache is not None:
                kept = f"{ended} of {len(self._sweep.runs)} runs are kept in {cache.folder}"
                click.echo(f"windtunnel: {kept}; the same command continues", err=True)
            raise
