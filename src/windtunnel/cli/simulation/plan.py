"""`windtunnel plan`: the cheapest deployment within an SLO, or the load that one carries."""

import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from windtunnel.cli.options import (
    FILE,
    SHARE,
    FiniteRange,
    cache_of,
    json_option,
    option,
    output_option,
    run_options,
    say_kept,
    seed_option,
    seeds_option,
    set_option,
    workers_of,
)
from windtunnel.cli.places import Output, folder_of, in_folder, keep_apart, note_estimate, traces_of
from windtunnel.core.errors import InputError

if TYPE_CHECKING:
    from windtunnel.search.plan.planner import Question
    from windtunnel.search.point import Origin

FINDS = ("deployment", "load", "knee")
USUAL_SEEDS, FEWEST_SEEDS = 8, 2
USUAL_RUNS = 400
EXIT_NONE = 1
EARLIER = "points that have ended are used again, the rest is replaced"
SPACE = ("accelerators", "tensor_parallel", "replicas", "routers")
"""Options that are shorthand for settings of the section `plan`."""


def _refuse_budget(_context: click.Context, _option: click.Parameter, given: str | None) -> None:
    """A budget may be one of money or of computing time: the message names the option for each."""
    if given is not None:
        what = "plan has no option --budget"
        hint = "--max-runs limits how long it searches, and --set plan.dollars_per_hour="
        hint += f"{given} what a deployment may cost"
        raise InputError(what, where=f"--budget {given}", hint=hint)


@click.command()
@click.argument("scenario", type=FILE)
@option(
    "--find",
    click.Choice(FINDS),
    "The cheapest deployment; the most traffic that the scenario's own servers carry; or the "
    "load at which their latency starts to climb (the knee).",
    default="deployment",
)
@click.option(
    "--slo", "classes", multiple=True, metavar="CLASS", help="An SLO class that must be attained."
)
@click.option("--attained", type=SHARE, metavar="SHARE",
              help="Required SLO attainment, as in 95% or 0.95.")  # fmt: skip
@click.option("--confidence", type=SHARE, metavar="SHARE", help="Required confidence, as in 95%.")
@click.option("--accelerators", metavar="A,B,...", help="Accelerators to try.")
@click.option("--tensor-parallel", metavar="N,M,...", help="Accelerators per server to try.")
@click.option("--replicas", metavar="LOW..HIGH", help="Numbers of servers to try.")
@click.option("--routers", metavar="A,B,...", help="Router policies to try.")
@set_option("Override a field, also of `plan`, as in plan.prices.h200=3.2.")
@seed_option()
@seeds_option(FEWEST_SEEDS, USUAL_SEEDS, "Number of further seeds that verify the answer.")
@option(
    "--max-runs",
    FiniteRange(1),
    "The most simulation runs of full length; a quarter-length run counts as a quarter.",
    default=USUAL_RUNS,
)
@click.option("--budget", hidden=True, expose_value=False, callback=_refuse_budget)
@run_options
@json_option("plan.json")
@output_option("runs/plan-NAME, plus -load or -knee")
def plan(scenario: Path, json_to: str | None, output: str | None, **asked: Any) -> int:
    """Find the cheapest deployment that attains an SLO, or the load that one can carry.

    The options to choose from are under `plan` in the scenario, or on the command line; everything
    else is derived from the scenario. Prints the answer, the runners-up and why the others fail,
    and writes a folder with report.html and plan.json. Exit 1: nothing is good enough.
    """
    from windtunnel.report.files.folder import result_bytes
    from windtunnel.report.page.searches.plan import plan_page
    from windtunnel.report.terminal.layout import screen
    from windtunnel.report.terminal.searches.plan import DATA, FILES, PAGE, PlannedScenario, show
    from windtunnel.search.point import Origin

    question = _question(asked)
    origin = Origin.read(scenario, [*asked["sets"], *_space_sets(asked)])
    base = origin.plan(seed=asked["seed"])
    planned = PlannedScenario(scenario, asked["sets"], asked["seed"])
    # Each question has a folder of its own: the answer to one says nothing of the others.
    ending = "" if question.find == "deployment" else f"-{question.find}"
    output = folder_of(output, json_to, f"plan-{base.name}{ending}", EARLIER)
    read = {"the scenario": scenario, **traces_of(base)}
    keep_apart(read, {**in_folder(output, FILES), "--json": json_to})
    note_estimate([base], asked["max_runs"], "at most ")
    with Output(json_to) as out:
        folder = out.folder(output)
        path = folder.path if folder is not None else None
        found = _answer(origin, question, asked, path)
        if folder is not None:
            page = plan_page(found, planned).encode()
            folder.put({DATA: result_bytes(found), PAGE: page})
        out.json(found)
    if not out.alone:
        show(found, planned, path, screen())
    nothing = any(key in found and found[key] is None for key in ("best", "carried", "knee"))
    return EXIT_NONE if nothing else 0


def _answer(
    origin: "Origin", question: "Question", asked: dict[str, Any], folder: Path | None
) -> dict[str, Any]:
    from windtunnel.report.terminal.progress import counting
    from windtunnel.search.plan.planner import answer

    cache = cache_of(asked, folder)
    try:
        with (
            workers_of(asked, cache) as workers,
            counting("whole runs at most", sys.stderr) as count,
        ):
            return answer(
                origin,
                question,
                workers,
                lambda doing, spent, most: count(int(spent), int(most), doing),
            )
    except (KeyboardInterrupt, SystemExit):
        say_kept(cache, "what has ended is")
        raise


def _question(asked: dict[str, Any]) -> "Question":
    from windtunnel.search.plan.planner import Question

    return Question(
        find=asked["find"],
        attained=asked["attained"],
        confidence=asked["confidence"],
        slo=asked["classes"] or None,
        seeds=asked["seeds"],
        max_runs=asked["max_runs"],
        seed=asked["seed"],
    )


def _space_sets(asked: dict[str, Any]) -> list[str]:
    """The shorthand options as overrides."""
    sets = [
        f"plan.{option}=[{', '.join(_words(option, asked[option]))}]"
        for option in SPACE[:2]
        if asked[option] is not None
    ]
    if asked["replicas"] is not None:
        sets += _range(asked["replicas"])
    if asked["routers"] is not None:
        routers = (f"{{policy: {name}}}" for name in _words("routers", asked["routers"]))
        sets.append(f"plan.routers=[{', '.join(routers)}]")
    if sets and asked["find"] != "deployment":
        what = "it says what to choose from"
        hint = f"--find {asked['find']} looks at the scenario's own servers: use --set for those"
        option = next(f"--{name.replace('_', '-')}" for name in SPACE if asked[name] is not None)
        raise InputError(what, where=option, hint=hint)
    return sets


def _words(option: str, text: str) -> Sequence[str]:
    words = [word.strip() for word in text.split(",")]
    if not all(re.fullmatch(r"[A-Za-z0-9_.:-]+", word) for word in words):
        where = f"--{option.replace('_', '-')} {text}"
        raise InputError("this is not a list of words", where=where, allowed="A,B,...")
    return words


def _range(text: str) -> list[str]:
    found = re.fullmatch(r"([0-9]{1,9})(?:\.\.([0-9]{1,9}))?", text.strip())
    if found is None:
        allowed = "LOW..HIGH, as in 2..16, or one number"
        raise InputError("this is not a range", where=f"--replicas {text}", allowed=allowed)
    low, high = found[1], found[2] or found[1]
    return [f"plan.replicas={{min: {int(low)}, max: {int(high)}}}"]
