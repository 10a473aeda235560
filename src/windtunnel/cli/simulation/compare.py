"""`windtunnel compare`: compares designs on the same traffic, or a scenario with a trace."""

import itertools
import math
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import click
from click.core import ParameterSource

from windtunnel.cli.options import (
    FILE,
    SHARE,
    jobs_option,
    json_option,
    option,
    output_option,
    seed_option,
    seeds_option,
    set_option,
)
from windtunnel.cli.places import Output, Place, folder_of, in_folder, keep_apart, traces_of
from windtunnel.cli.simulation.simulate import load_plan
from windtunnel.core.errors import InputError, InputFaults, nearest
from windtunnel.search.point import written
from windtunnel.search.sweep.axes import Axis, axes_of
from windtunnel.settings.document import Plain

if TYPE_CHECKING:
    from windtunnel.search.arena.contestants import Contestant
    from windtunnel.search.repeats.comparison import Design
    from windtunnel.twin.scenario.plan import ScenarioPlan

USUAL_SEEDS = 5
MOST_DESIGNS = 12
LONGEST_NAME = 60
OF_DESIGNS = {
    "varied": "--vary",
    "policies": "--policies",
    "seeds": "--seeds",
    "output": "-o",
    "jobs": "--jobs",
}
"""Options that do not apply to a single run."""
OF_RUNS = {
    "varied": "--vary",
    "sets": "--set",
    "seed": "--seed",
    "seeds": "--seeds",
    "jobs": "--jobs",
}
"""Options that do not apply to finished runs."""
GOAL = 0.95
ALL = "all"
REPLACED = "they are replaced"


@click.command()
@click.argument("scenarios", nargs=-1, type=FILE, metavar="SCENARIO...")
@option(
    "--vary varied",
    None,
    "Make each value a design, as in serving.router.policy=round-robin,least-loaded.",
    metavar="PATH=A,B,...",
    multiple=True,
)
@option(
    "--policies",
    str,
    "Compare autoscaling policies on one scenario: `all`, or names such as predictive,hpa.",
    metavar="all|A,B,...",
)
@option(
    "--attained",
    SHARE,
    f"With --policies: required SLO attainment. [default: {GOAL:.0%}]",
    metavar="SHARE",
)
@set_option("Override a field in all designs.")
@seeds_option(2, USUAL_SEEDS, "Number of seeds per design; a replay runs once.")
@seed_option("The first seed. [default: that of the first scenario]")
@output_option("runs/compare-NAME", "compare.html and compare.json")
@json_option("compare.json")
@jobs_option()
@option(
    "--real", FILE, "Compare one scenario with what `windtunnel observe` measured.", metavar="TRACE"
)
def compare(
    scenarios: tuple[Path, ...],
    varied: tuple[str, ...],
    policies: str | None,
    attained: float | None,
    sets: tuple[str, ...],
    seeds: int,
    seed: int | None,
    output: str | None,
    json_to: str | None,
    jobs: int | None,
    real: Path | None,
) -> None:
    """Compare designs on the same traffic, with confidence intervals.

    Designs are several scenarios, or one with --vary. Each runs with the same seeds, and so with
    the same requests at the same times. Folders of finished runs are compared without running
    anything. All are compared with the first; differences have 95% confidence intervals. Prints a
    table, and writes a folder with compare.html and compare.json.

    With --policies, autoscaling policies run on one scenario, each with its defaults and with its
    main setting tuned on some seeds and evaluated on others (for a replay, on its first and second
    half). The table and the page show cost against SLO attainment, and regret: cost over that of
    the cheapest schedule with all arrivals known in advance.

    With --real, simulate the requests of a measured trace on the servers of one scenario, print
    both side by side, and suggest what to recalibrate.
    """
    from windtunnel.report.files.folder import result_bytes
    from windtunnel.report.page.searches.comparison import comparison_page
    from windtunnel.report.terminal.layout import screen
    from windtunnel.report.terminal.progress import counting
    from windtunnel.report.terminal.searches.comparison import DATA, PAGE, show
    from windtunnel.search.repeats.comparison import compare as hold_against

    if real is not None:
        keep_apart({"the trace": real, **_numbered(scenarios)}, {"--json": json_to})
        _compare_real(real, scenarios, sets, seed, json_to)
        return
    if policies is None and attained is not None:
        raise InputError("this is only for --policies", where="--attained", hint="add --policies")
    if policies is not None:
        if varied:
            what = "each policy is compared with its own setting tuned"
            raise InputError(what, where="--vary", hint="leave it out, or leave out --policies")
        places = (output, json_to)
        _compare_policies(scenarios, policies, attained or GOAL, sets, seeds, places, seed, jobs)
        return
    if any(path.is_dir() for path in scenarios):
        _compare_folders(scenarios, output, json_to)
        return
    designs = _designs(scenarios, varied, sets, seed)
    place = folder_of(output, json_to, f"compare-{designs[0].plan.name}", REPLACED)
    read = _numbered(scenarios)
    for design in designs:
        read |= traces_of(design.plan)
    keep_apart(read, {**in_folder(place, (DATA, PAGE)), "--json": json_to})
    with Output(json_to) as out:
        folder = out.folder(place)
        with counting("runs", sys.stderr) as count:
            found = hold_against(designs, seeds, count, jobs)
        if folder is not None:
            folder.put({DATA: result_bytes(found), PAGE: comparison_page(found).encode()})
        out.json(found)
    if not out.alone:
        show(found, folder.path if folder is not None else None, screen())


def _compare_folders(folders: Sequence[Path], output: str | None, json_to: str | None) -> None:
    """Compares finished runs."""
    from windtunnel.analysis.run_folder import (
        ALL,
        SCENARIO,
        refuse_damaged,
        refuse_misfit,
        result_of,
        scenario_of,
        whole,
    )
    from windtunnel.report.files.folder import result_bytes
    from windtunnel.report.page.searches.comparison import comparison_page
    from windtunnel.report.terminal.layout import screen
    from windtunnel.report.terminal.searches.comparison import DATA, PAGE, show
    from windtunnel.search.repeats.comparison import FinishedRun, compare_finished

    _refuse_options(OF_RUNS, "the runs have ended", "-o and --json beside folders of runs")
    if len(folders) == 1 or not all(path.is_dir() for path in folders):
        raise InputError(
            "a folder of a run can be compared with other such folders only",
            where=next(str(path) for path in folders if path.is_dir()),
            hint="give two or more folders, or scenarios alone",
        )
    if len(folders) > MOST_DESIGNS:
        raise InputError(f"these are {len(folders)} runs", allowed=f"up to {MOST_DESIGNS}")
    names = _distinct([path.resolve().name for path in folders], list(folders))
    runs = [
        FinishedRun(name, result_of(path), scenario_of(path / SCENARIO))
        for name, path in zip(names, folders, strict=True)
    ]
    for path, run in zip(folders, runs, strict=True):
        refuse_misfit(path, run.result)
        refuse_damaged(path)
    with whole(folders[0]):
        called = f"compare-{runs[0].scenario['name']}"
    place = folder_of(output, json_to, called, REPLACED)
    read: dict[str, Place] = {
        f"{name} of the run {path}": path / name for path in folders for name in ALL
    }
    keep_apart(read, {**in_folder(place, (DATA, PAGE)), "--json": json_to})
    with Output(json_to) as out:
        folder = out.folder(place)
        with whole(*folders):
            found = compare_finished(runs)
            page = comparison_page(found).encode()
        if folder is not None:
            folder.put({DATA: result_bytes(found), PAGE: page})
        out.json(found)
    if not out.alone:
        show(found, folder.path if folder is not None else None, screen())


def _numbered(scenarios: Sequence[Path]) -> dict[str, Place]:
    """The scenarios with descriptions for `keep_apart`; duplicates are allowed."""
    return {f"the scenario {path}": path for path in scenarios}


class DesignVariant(NamedTuple):
    """One value of a field: the override that sets it, and its name."""

    override: str
    name: str


def _designs(
    scenarios: Sequence[Path], varied: Sequence[str], sets: Sequence[str], seed: int | None
) -> "list[Design]":
    """Every scenario with every combination of values; the first is the baseline."""
    from windtunnel.search.repeats.comparison import Design

    if not scenarios:
        hint = "give two scenarios, or one and --vary"
        raise InputError("there is nothing to compare", hint=hint)
    axes = axes_of(varied) if varied else []
    combinations = list(itertools.product(*map(_variants, axes)))
    count = len(scenarios) * len(combinations)
    if count == 1:
        raise InputError(
            "there is one design, and nothing to compare it with",
            where=str(scenarios[0]),
            hint="give another scenario, or --vary PATH=A,B",
        )
    if count > MOST_DESIGNS:
        raise InputError(f"these are {count} designs", allowed=f"up to {MOST_DESIGNS}")
    designs = []
    for path, values in itertools.product(scenarios, combinations):
        try:
            plan = load_plan(path, [*sets, *(value.override for value in values)], seed)
        except InputError as error:
            raise _for_policies(_as_typed(error, values), values) from None
        seed = plan.seed  # one for all: a scenario's own would give it other traffic
        parts = [value.name for value in values]
        designs.append(([path.stem, *parts] if len(scenarios) > 1 else parts, path, plan))
    names = _distinct(
        [", ".join(parts) for parts, _, _ in designs], [path for _, path, _ in designs]
    )
    return [Design(name, plan) for name, (_, _, plan) in zip(names, designs, strict=True)]


def _as_typed(error: InputError, values: Sequence[DesignVariant]) -> InputError:
    """Reports faults in a value that --vary gave as faults of --vary."""
    for fault in error.faults:
        for value in values:
            path = value.override.partition("=")[0]
            if fault.where is not None and fault.where.startswith(f"--set {path}="):
                fault.where = fault.where.replace("--set", "--vary", 1)
    return error


def _for_policies(error: InputError, values: Sequence[DesignVariant]) -> InputError:
    """Adds a hint if policies were varied, since many have options of their own."""
    for value in values:
        section, dot, _ = value.override.partition("=")[0].strip().rpartition(".policy")
        if dot:
            what = "a policy may need options of its own, and refuse those of another"
            hint = f"vary the section: --vary '{section}={{policy: A, ...}},{{policy: B, ...}}'"
            return InputFaults([*error.faults, InputError(what, where=value.name, hint=hint)])
    return error


def _distinct(names: list[str], paths: list[Path]) -> list[str]:
    """Makes names unique: with paths in front, and then with numbers, if needed."""
    if len(set(names)) < len(names):
        names = [
            name.replace(path.stem, str(path), 1) for name, path in zip(names, paths, strict=True)
        ]
    short = [
        name if len(name) <= LONGEST_NAME else f"{name[: LONGEST_NAME - 3]}..." for name in names
    ]
    return [
        name if short.count(name) == 1 else f"{name} ({short[: place + 1].count(name)})"
        for place, name in enumerate(short)
    ]


def _variants(axis: Axis) -> list[DesignVariant]:
    if axis.levels is None:
        raise InputError(
            "a range without steps makes no designs",
            where=f"--vary {axis.path}={axis.range}",
            allowed="values, or a range with a step: A,B,... or LOW..HIGH:STEP",
        )
    key = axis.path.rpartition(".")[2]
    texts = [_text(value) for value in axis.levels]
    return [DesignVariant(f"{axis.path}={text}", _name(key, text)) for text in texts]


def _text(value: Plain) -> str:
    """A value as it is written after `--set PATH=`."""
    if not isinstance(value, dict | list):
        return written(value)
    import yaml

    text: str = yaml.safe_dump(value, default_flow_style=True, sort_keys=False, width=math.inf)
    return text.strip()


def _name(key: str, value: str) -> str:
    """The name of a value; a section names itself: `{policy: random}` is `policy: random`."""
    if value.startswith("{") and value.endswith("}"):
        return value[1:-1].strip() or f"{key}={value}"
    return f"{key}={value}"


def _contestants(names: str) -> "list[Contestant]":
    """The named policies, in the order of the table."""
    from windtunnel.search.arena.contestants import CONTESTANTS, FIXED

    known = [one.name for one in CONTESTANTS]
    wanted = known if names == ALL else [name.strip() for name in names.split(",")]
    for name in wanted:
        if name not in (*known, FIXED):  # a fixed pool always competes
            raise InputError(
                f"no policy {name!r} competes",
                where="--policies",
                allowed=f"{ALL}, or some of {', '.join([*known, FIXED])}",
                hint=nearest(name, [*known, FIXED]),
            )
    return [one for one in CONTESTANTS if one.name in wanted]


def _compare_policies(
    scenarios: Sequence[Path],
    names: str,
    goal: float,
    sets: Sequence[str],
    seeds: int,
    output: tuple[str | None, str | None],
    seed: int | None,
    jobs: int | None,
) -> None:
    """Runs policies on one scenario, and shows the SLO attainment and cost of each."""
    from windtunnel.report.files.folder import result_bytes
    from windtunnel.report.page.searches.arena import arena_page
    from windtunnel.report.terminal.layout import screen
    from windtunnel.report.terminal.progress import bar
    from windtunnel.report.terminal.searches.arena import show_arena
    from windtunnel.report.terminal.searches.comparison import DATA, PAGE
    from windtunnel.search.arena.arena import Arena
    from windtunnel.search.arena.cases import cases_of

    if len(scenarios) != 1:
        what = f"there are {len(scenarios)} scenarios"
        raise InputError(what, where="--policies", allowed="one scenario, that all policies get")
    contestants = _contestants(names)
    (scenario,) = scenarios

    def load(more: Sequence[str], other: int | None) -> "ScenarioPlan":
        return load_plan(scenario, [*sets, *more], seed if other is None else other)

    plan = load((), None)
    place = folder_of(*output, f"policies-{plan.name}", REPLACED)
    read = {**_numbered(scenarios), **traces_of(plan)}
    json_to = output[1]
    keep_apart(read, {**in_folder(place, (DATA, PAGE)), "--json": json_to})
    tune, judge = cases_of(load, seeds)
    with Output(json_to) as out:
        folder = out.folder(place)
        with bar("runs", sys.stderr) as update:
            arena = Arena(tune, judge, goal, lambda done, all_, what: update(done, all_, 0, what))
            found = arena.contest(contestants, jobs)
        if folder is not None:
            page = arena_page(f"Policies on {plan.name}", [found])
            folder.put({DATA: result_bytes(found), PAGE: page.encode()})
        out.json(found)
    if not out.alone:
        show_arena(found, folder.path if folder is not None else None, screen())


def _compare_real(
    trace: Path,
    scenarios: Sequence[Path],
    sets: Sequence[str],
    seed: int | None,
    json_to: str | None,
) -> None:
    """Simulates the requests of a trace on a scenario's servers, and shows both results."""
    from windtunnel.report.terminal.measurements import show_reality
    from windtunnel.search.repeats.reality import compare_with_reality

    _refuse_options(
        OF_DESIGNS, "this is for comparing designs", "--set, --seed and --json beside --real"
    )
    if len(scenarios) != 1:
        what = f"there are {len(scenarios)} scenarios"
        raise InputError(what, where="--real", allowed="one scenario, that of the measured server")
    (scenario,) = scenarios
    plan = load_plan(scenario, sets, seed)
    with Output(json_to) as out:
        found = compare_with_reality(plan, trace)
        out.json(found)
    if not out.alone:
        show_reality(found, f"{trace.name} against {scenario.name}")


def _refuse_options(options: Mapping[str, str], what: str, allowed: str) -> None:
    context = click.get_current_context()
    for name, given in options.items():
        if context.get_parameter_source(name) == ParameterSource.COMMANDLINE:
            raise InputError(what, where=given, allowed=allowed)
