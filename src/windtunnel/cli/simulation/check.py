"""`windtunnel check`: compares a changed configuration with a base, on recorded traffic."""

import sys
from pathlib import Path
from typing import Any

import click

from windtunnel.cli.options import (
    FILE,
    PLACE,
    TIME,
    jobs_option,
    json_option,
    option,
    output_option,
    seed_option,
    seeds_option,
    set_option,
)
from windtunnel.cli.places import STANDARD_OUTPUT, Output, Place, in_folder, keep_apart
from windtunnel.core.errors import InputError

EXITS = {"passed": 0, "regression": 1, "undecided": 4}


@click.command()
@click.argument("files", nargs=-1, type=FILE, metavar="[BASE] CHANGED")
@option("--base", None, "The Git revision of the base; CHANGED is then the only file.",
        metavar="REVISION")  # fmt: skip
@option("--head", None, "The Git revision of the changed file. [default: the working tree]",
        metavar="REVISION")  # fmt: skip
@option(
    "--scenario",
    FILE,
    "The scenario to which sections or Kubernetes manifests are applied.",
    metavar="FILE",
)
@option("--trace", FILE, "Recorded traffic: a trace of any format, or the folder of a gateway's "
        "trace. [default: the scenario's own traffic]", metavar="FILE")  # fmt: skip
@option("--last last_s", TIME, "Replay only the latest part of a gateway's trace. "
        "[default: all of it]", metavar="TIME")  # fmt: skip
@option("--max-cost", None, "Limit on cost, or on its increase, as in +5%.", metavar="LIMIT")
@option("--min-attainment", None, "Minimum SLO attainment of every class, as in 99%, or its "
        "largest fall, as in -0.5% (points).", metavar="LIMIT")  # fmt: skip
@option("--max most", None, "Upper limit of a figure, as in latency.ttft.p99=+10%.", multiple=True,
        metavar="FIGURE=LIMIT")  # fmt: skip
@option("--min least", None, "Lower limit of a figure.", multiple=True, metavar="FIGURE=LIMIT")
@set_option("Override a field on both sides.")
@seeds_option(1, None, "Number of seeds for generated traffic; recorded traffic runs once. "
              "[default: 5]")  # fmt: skip
@seed_option("The first seed. [default: that of the base]")
@option("--block", TIME, "Length of the time blocks for confidence intervals of recorded traffic. "
        "[default: a 48th of it, at least 1m]", metavar="TIME")  # fmt: skip
@output_option("runs/check-NAME", "check.html, check.md and check.json")
@json_option("check.json")
@option("--markdown", PLACE, "Write a comment for a pull request to FILE; `-` prints only that.",
        metavar="FILE")  # fmt: skip
@jobs_option()
@click.pass_context
def check(
    context: click.Context,
    /,
    *,
    files: tuple[Path, ...],
    base: str | None,
    head: str | None,
    scenario: Path | None,
    trace: Path | None,
    last_s: float | None,
    sets: tuple[str, ...],
    seed: int | None,
    output: str | None,
    json_to: str | None,
    markdown: str | None,
    **asked: Any,
) -> None:
    """Try a changed configuration on recorded traffic before it is applied.

    BASE and CHANGED are scenarios; or, on top of --scenario, files with sections of one (such as a
    gateway's configuration) or Kubernetes manifests. With --base, CHANGED is compared with itself
    at a Git revision. Prints which decisions differ; SLO attainment, cost and latencies with 95%
    confidence intervals; and the verdict on limits. Without limits, attainment may fall by 0.1
    points and cost may rise by 1%.

    Exit 1: regression, a limit is exceeded. Exit 4: undecided, a change is beyond its limit but may
    be chance; run more seeds or more traffic.
    """
    from windtunnel.report.files.check_markdown import check_markdown
    from windtunnel.report.files.folder import result_bytes
    from windtunnel.report.page.searches.comparison import check_page
    from windtunnel.report.terminal.layout import screen
    from windtunnel.report.terminal.progress import counting
    from windtunnel.report.terminal.searches.check import DATA, MARKDOWN, PAGE, show
    from windtunnel.search.check.check import CheckAsk
    from windtunnel.search.check.check import check as run_check
    from windtunnel.search.check.limits import limits_of
    from windtunnel.search.check.sides import CheckInput

    if json_to == markdown == STANDARD_OUTPUT:
        what = "only one of them can go to standard output"
        raise InputError(what, where="--json - --markdown -", hint="write the other to a file")
    given = CheckInput(files, base, head, scenario, trace, sets, seed, last_s)
    limits = limits_of(asked["max_cost"], asked["min_attainment"], asked["most"], asked["least"])
    ask = CheckAsk(limits, asked["seeds"], asked["block"], asked["jobs"])
    alone = STANDARD_OUTPUT in (json_to, markdown)
    name = files[-1].stem if files else "nothing"
    place = output if output is not None or alone else str(Path("runs", f"check-{name}"))
    read: dict[str, Place] = {f"the file {path}": path for path in files}
    read |= {"the scenario": scenario, "the trace": trace}
    written = {"--json": json_to, "--markdown": markdown}
    keep_apart(read, {**in_folder(place, (DATA, PAGE, MARKDOWN)), **written})
    with Output(json_to) as out:
        folder = out.folder(place)
        comment = out.file("--markdown", None if markdown == STANDARD_OUTPUT else markdown)
        with counting("runs", sys.stderr) as count:
            found = run_check(given, ask, count)
        text = check_markdown(found)
        if folder is not None:
            page = check_page(found).encode()
            folder.put({DATA: result_bytes(found), PAGE: page, MARKDOWN: text.encode()})
        if comment is not None:
            comment.finish(text.encode())
        out.json(found)
    if markdown == STANDARD_OUTPUT:
        click.echo(text, nl=False)
    elif not alone:
        show(found, folder.path if folder is not None else None, screen())
    context.exit(EXITS[found["verdict"]])
