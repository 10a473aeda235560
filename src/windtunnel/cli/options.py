"""Options that several commands share, declared once, and the code that handles them."""

import math
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from windtunnel.cli.places import (
    Output,
    folder_of,
    in_folder,
    keep_apart,
    note,
    note_estimate,
    traces_of,
)
from windtunnel.core.errors import InputError
from windtunnel.core.units import parse_duration, parse_share, parse_size

if TYPE_CHECKING:
    from windtunnel.search.execution.cache import Cache
    from windtunnel.search.execution.workers import Outcome, Workers
    from windtunnel.search.sweep.sweep import Sweep

MOST_SEEDS = 200
LARGEST_SEED = 2**63 - 1
MOST_JOBS = 256
MOST_CONCURRENCY = 100_000

Command = Callable[..., Any]
Option = Callable[[Command], Command]


class QuantityOption(click.ParamType):  # type: ignore[type-arg]  # generic since 8.5
    """A quantity with a unit, such as 250ms; `says` is the error for one out of bounds."""

    name = "quantity"

    def __init__(
        self,
        parse: Callable[[str], float],
        fits: Callable[[float], bool] = lambda _: True,
        says: str = "",
        allowed: str | None = None,
    ) -> None:
        self._parse = parse
        self._fits = fits
        self._says = says
        self._allowed = allowed

    def convert(self, value: Any, param: click.Parameter | None, ctx: Any) -> float:  # noqa: ARG002
        assert param is not None
        where = max(param.opts, key=len)
        try:
            number = self._parse(value)
        except InputError as error:
            raise InputError(error.what, where=where, allowed=error.allowed) from None
        if not self._fits(number):
            raise InputError(f"{value} {self._says}", where=where, allowed=self._allowed)
        return number


TIME = QuantityOption(
    parse_duration, lambda time_s: time_s > 0.0, "is not a positive time", "more than 0s"
)
MOMENT = QuantityOption(parse_duration, lambda time_s: time_s >= 0.0, "is before the start")


MEMORY = QuantityOption(
    parse_size, lambda size: size > 0, "is not a size of memory", "a size such as 4GiB or 512MiB"
)


class NamedPlace(click.ParamType):  # type: ignore[type-arg]
    """The path of a file or folder to write, as text; `-` may be standard output."""

    name = "place"

    def convert(self, value: Any, param: click.Parameter | None, ctx: Any) -> str:  # noqa: ARG002
        assert param is not None
        if not str(value).strip():
            option = next((one for one in param.opts if one == "-o"), param.opts[0])
            raise InputError("there is no name after it", where=option, allowed="a path")
        return str(value)


class NamedFile(click.Path):
    """The path of a file or folder to read; an empty one, as of an unset variable of a shell, would
    be the current folder."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: Any) -> Any:
        if param is not None and not str(value).strip():
            where = param.opts[0] if param.opts[0].startswith("-") else param.human_readable_name
            raise InputError("the path is empty", where=where, allowed="a path")
        return super().convert(value, param, ctx)


PLACE = NamedPlace()
FILE = NamedFile(path_type=Path)


def together(*options: Option) -> Option:
    """Combines several options into one decorator, in their order."""

    def decorate(command: Command) -> Command:
        for option in reversed(options):
            command = option(command)
        return command

    return decorate


SHARE = QuantityOption(
    parse_share,
    lambda share: 0.0 < share < 1.0,
    "is not a share",
    "a share above 0 and below 1, such as 95% or 0.95",
)


def option(name: str, kind: Any, says: str, default: Any = None, **more: Any) -> Option:
    """An option with one or more names and a help text; a default is shown unless it is empty."""
    if default is not None:
        more |= {"default": default, "show_default": default != ""}
    return click.option(*name.split(), type=kind, help=says, **more)


class Seed(click.types.IntParamType):
    """A seed; out of range, it is refused with the same message as in a scenario."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        seed: int = super().convert(value, param, ctx)
        if not 0 <= seed <= LARGEST_SEED:
            what = f"seed: {seed} is too {'small' if seed < 0 else 'large'}"
            allowed = f"a whole number from 0 to {LARGEST_SEED}"
            raise InputError(what, where=f"--seed {seed}", allowed=allowed)
        return seed


class FiniteRange(click.FloatRange):
    """A number in a range; `nan` and `inf` are refused."""

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        number: float = super().convert(value, param, ctx)
        if not math.isfinite(number):
            self.fail(f"{value} is not a number that can be used.", param, ctx)
        return number


def json_option(what: str) -> Option:
    says = f"Write {what} to FILE; `-` prints only that, on standard output."
    return option("--json json_to", PLACE, says, metavar="FILE")


def output_option(default: str, what: str = "the results") -> Option:
    says = f"Where to write {what}. [default: {default}]"
    return option("-o --output", PLACE, says, metavar="DIR")


def set_option(says: str = "Override a field of the scenario.") -> Option:
    return option("--set sets", None, says, multiple=True, metavar="PATH=VALUE")


def seed_option(says: str = "First seed. [default: the scenario's]") -> Option:
    return option("--seed", Seed(), says)


def seeds_option(fewest: int, default: int | None, says: str) -> Option:
    return option("--seeds", click.IntRange(fewest, MOST_SEEDS), says, default)


def jobs_option(
    says: str = "Number of processes. [default: by load and cores]", most: int = MOST_JOBS
) -> Option:
    """The option `--jobs`, with `--workers` as a second name in every command."""
    return option("--jobs --workers", click.IntRange(1, most), says)


def memory_option() -> Option:
    says = "End a run that uses more memory, with partial results. "
    return option("--memory", MEMORY, says + "[default: 80% of what is available]", metavar="SIZE")


def concurrency_option(default: int, says: str) -> Option:
    return option("--concurrency", click.IntRange(1, MOST_CONCURRENCY), says, default, metavar="N")


def time_option(name: str, default: str, says: str) -> Option:
    return option(name, TIME, says, default, metavar="TIME")


def key_option() -> Option:
    says = "Environment variable with the API key. [default: OPENAI_API_KEY]"
    return option("--key-env", None, says, metavar="NAME")


run_options = together(
    jobs_option("Number of runs at once. [default: by load and cores]"),
    option(
        "--on",
        None,
        "Where to run: local, ray, auto or ray://HOST:PORT.",
        default="local",
        metavar="PLACE",
    ),
    option(
        "--cache",
        PLACE,
        "Folder that keeps finished runs. [default: points in the folder of -o]",
        metavar="DIR",
    ),
    memory_option(),
)
"""Options of every command that runs many points."""


def point_options(seeds: int, output: str, values: str) -> Option:
    """Options of commands that run a scenario at many settings, each with the same seeds."""
    return together(
        option("--vary varied", None, values, multiple=True, metavar="PATH=VALUES"),
        seeds_option(1, seeds, "Number of seeds per point, the same for all."),
        seed_option(),
        output_option(output),
        set_option("Override a field in all runs."),
        run_options,
        json_option("the results as JSON"),
    )


def cache_of(asked: Mapping[str, Any], folder: Path | None) -> "Cache | None":
    """The cache of finished runs: in the folder of `--cache`, or else in the results folder."""
    from windtunnel.search.execution.cache import Cache
    from windtunnel.search.sweep.folder import POINTS

    if asked["cache"] is not None:
        return Cache(Path(asked["cache"]))
    return None if folder is None else Cache(folder / POINTS)


def workers_of(asked: Mapping[str, Any], cache: "Cache | None") -> "Workers":
    """The workers that `--on`, `--jobs` and `--memory` describe."""
    from windtunnel.search.execution.workers import Workers

    return Workers(on=asked["on"], jobs=asked["jobs"], cache=cache, memory_bytes=asked["memory"])


def say_kept(cache: "Cache | None", what: str) -> None:
    """Tells how to continue an interrupted search."""
    if cache is not None:
        note(f"{what} kept in {cache.folder}; the same command continues")


class PointsCommand:
    """A command that runs a scenario at many points: its output, and how it continues."""

    def __init__(self, kind: str, scenario: Path, sweep: "Sweep", asked: Mapping[str, Any]) -> None:
        from windtunnel.search.sweep.folder import FILES

        self._sweep = sweep
        self._asked = asked
        json_to = asked["json_to"]
        output = folder_of(asked["output"], json_to, f"{kind}-{sweep.plan.name}")
        read = {"the scenario": scenario, **traces_of(sweep.plan)}
        keep_apart(read, {**in_folder(output, FILES), "--json": json_to})
        self.folder = None if output is None else Path(output)

    def run(
        self,
        identity: dict[str, Any],
        found_in: "Callable[[list[Outcome]], dict[str, Any]]",
        page: Callable[[dict[str, Any]], str],
    ) -> dict[str, Any] | None:
        """Runs all points and writes the results; returns None if they were printed as JSON.

        `identity` must be unchanged for an interrupted command to continue.
        """
        from windtunnel.search.sweep.folder import PAGE, RESULTS
        from windtunnel.search.sweep.sweep import table_of

        with Output(self._asked["json_to"]) as out:
            outcomes = self._outcomes(identity)
            found = found_in(outcomes)
            # The folder is claimed by now, and drafts of its files come last.
            folder = out.folder(self.folder)
            if folder is not None:
                table = table_of(self._sweep, outcomes).parquet()
                folder.put({RESULTS: table, PAGE: page(found).encode()})
            out.json(found)
            return None if out.alone else found

    def _outcomes(self, identity: dict[str, Any]) -> "list[Outcome]":
        from windtunnel.report.terminal.progress import bar
        from windtunnel.search.sweep.folder import check, claim, identity_of
        from windtunnel.search.sweep.sweep import run_sweep

        asked, folder, runs = self._asked, self.folder, len(self._sweep.runs)
        identity = identity_of(self._sweep, identity)
        if folder is not None:
            check(folder, identity)
        note_estimate([run.plan for run in self._sweep.runs])
        cache = cache_of(asked, folder)
        ended = 0
        try:
            with workers_of(asked, cache) as workers:
                if folder is not None:
                    claim(folder, identity)

                def update(count: int, total: int, before: int) -> None:
                    nonlocal ended
                    ended = count
                    shown(count, total, before)

                with bar("runs", sys.stderr) as shown:
                    return run_sweep(self._sweep, workers, update)
        except (KeyboardInterrupt, SystemExit):
            say_kept(cache, f"{ended} of {runs} runs are")
            raise
